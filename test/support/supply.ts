/** Supply to route over: offerings and catalog rows from the few facts that a test cares about. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type ProviderPreferences, ProviderPreferencesSchema } from "../../gen/limber/v1/preferences_pb.ts";
import { Reach } from "../../src/call.ts";
import { Contract, type Intent } from "../../src/contracts/contract.ts";
import { OF_THE_GATEWAY } from "../../src/contracts/trust.ts";
import { HealthTracker } from "../../src/routing/health/health.ts";
import type { CatalogModel, Offering } from "../../src/routing/offering.ts";
import type { KeyScope, PlanArgs } from "../../src/routing/plan/intent.ts";
import { buildSnapshot } from "../../src/routing/snapshot/build.ts";
import type { RoutingSupply } from "../../src/routing/snapshot/snapshot.ts";

/** The scope of a key that nothing narrows. */
export const SCOPE: KeyScope = { models: [], environment: "simulation", orgId: "org_1", reach: Reach.COMMUNITY };

/** An act offering of `ee_delta_6d_grip` unless told otherwise: 100 µ$ a step, p50 50 ms, p95 100 ms, always warm. */
export function offering(id: string, facts: Partial<Offering> = {}): Offering {
  return {
    id,
    model: "acme/arm",
    provider: id,
    supplier: OF_THE_GATEWAY,
    region: "eu",
    precision: "bf16",
    contracts: [Contract.ACT],
    actionSpaces: ["ee_delta_6d_grip"],
    actionDim: undefined,
    embodiments: [],
    domain: "embodied",
    family: "vla",
    simulated: false,
    priceNano: { [Contract.ACT]: 100_000, [Contract.PREDICT]: 100_000, [Contract.GROUND]: 1_000 },
    maxHorizon: 256,
    dtMs: 50,
    parameters: ["seed"],
    retainsFrames: false,
    advertised: { p50Ms: 50, p95Ms: 100, unitsPerS: 100, uptime30d: 0.99 },
    costNanoPerSecond: 0,
    scaledownS: undefined,
    timeoutMs: 30_000,
    coldTimeoutMs: 60_000,
    ...facts,
  };
}

/** A catalog row for an offering's model. */
export const catalogued = ({
  model,
  contracts,
  actionSpaces,
  embodiments,
  domain,
  family,
}: Offering): CatalogModel => ({
  slug: model,
  contracts,
  actionSpaces,
  embodiments,
  domain,
  family,
});

/** Supply of these offerings, with their models in the catalog and their providers known. */
export const supplyOf = (offerings: readonly Offering[], more: Partial<RoutingSupply> = {}): RoutingSupply => ({
  offerings,
  catalog: [...new Map(offerings.map((each) => [each.model, catalogued(each)])).values()],
  providers: offerings.map((each) => each.provider),
  ...more,
});

/** An intent for 16 act steps of `acme/arm` unless told otherwise. */
export const intent = (facts: Partial<Intent> = {}): Intent => ({
  contract: Contract.ACT,
  model: "acme/arm",
  models: [],
  preference: undefined,
  provider: undefined,
  actionSpace: "ee_delta_6d_grip",
  embodiment: undefined,
  seed: undefined,
  units: 16,
  parameters: [],
  ...facts,
});

/** The `provider` object. */
export const prefer = (init: MessageInitShape<typeof ProviderPreferencesSchema>): ProviderPreferences =>
  create(ProviderPreferencesSchema, init);

/** Arguments of a plan over this supply, with fresh health and a key that may do everything. */
export function planArgs(
  supply: RoutingSupply,
  facts: Partial<Omit<PlanArgs, "intent">> & { intent?: Partial<Intent> } = {},
): PlanArgs {
  const snapshot = buildSnapshot(supply);
  return {
    snapshot,
    health: new HealthTracker(snapshot, () => 0).view,
    scope: SCOPE,
    pin: undefined,
    seed: 1,
    now: 1_000_000,
    arrivedAt: 1_000_000,
    deadline: undefined,
    ...facts,
    intent: intent(facts.intent),
  };
}
