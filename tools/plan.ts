/**
 * Replays a routing case: `node tools/plan.ts case.yaml [supply.yaml]`. A case is what a plan is a function of (request,
 * key, pin, health, seed); the supply is that of `test/plans/supply.json` unless another file is given. Files are YAML or JSON.
 */

import { readFileSync } from "node:fs";
import { parse } from "yaml";
import {
  type PreviewedRequest,
  PreviewedRequestSchema,
  type PreviewRoutesResponse,
  PreviewRoutesResponseSchema,
} from "../gen/limber/v1/inference_service_pb.ts";
import {
  type ActionMeaning,
  ActionMeaningSchema,
  ContractSource,
  type InputContract,
  InputContractSchema,
} from "../gen/limber/v1/input_contract_pb.ts";
import { Reach } from "../src/call.ts";
import * as act from "../src/contracts/act.ts";
import { Contract, type Intent } from "../src/contracts/contract.ts";
import * as ground from "../src/contracts/ground.ts";
import { declaredInput } from "../src/contracts/inputs.ts";
import * as predict from "../src/contracts/predict.ts";
import {
  narrower,
  OF_THE_GATEWAY,
  reachOfKey,
  reachOfTier,
  type Supplier,
  type Trust,
} from "../src/contracts/trust.ts";
import { decoderOf, toText } from "../src/edge/messages/json.ts";
import { Faults } from "../src/edge/messages/json-text.ts";
import { assertValid, invalid, violationOf } from "../src/edge/messages/validate.ts";
import { factsOf, Refusal } from "../src/errors.ts";
import {
  buildSnapshot,
  explain,
  HealthTracker,
  type Offering,
  type PlanArgs,
  type RoutingSupply,
} from "../src/routing/index.ts";

/** A case as its file holds it. Times are milliseconds or seconds before the moment of the plan. */
export interface PlanCase {
  readonly contract?: ContractWord;
  /** The body of a request, as REST takes it. */
  readonly request: unknown;
  readonly key?: Partial<Omit<PlanArgs["scope"], "reach">> & { readonly trust?: Trust };
  readonly pin?: PlanArgs["pin"];
  readonly seed?: number;
  /** What the caller's own deadline leaves. */
  readonly remaining_ms?: number;
  /** How long ago the request arrived. */
  readonly elapsed_ms?: number;
  /** What is measured, by offering. */
  readonly health?: Readonly<Record<string, MeasuredCase>>;
}

/** Live figures of one offering. */
export interface MeasuredCase {
  readonly p50_ms?: number;
  readonly units_per_s?: number;
  readonly uptime?: number;
  readonly success?: number;
  readonly rests_ms?: number;
  readonly idle_s?: number;
}

/** Supply as its file holds it. */
export interface SupplyCase {
  readonly offerings: readonly OfferingCase[];
  readonly catalog: readonly CatalogCase[];
  readonly providers: readonly string[];
}

interface CatalogCase {
  readonly slug: string;
  readonly contracts: readonly ContractWord[];
  readonly action_spaces: readonly string[];
  /** The bodies that it is made for. */
  readonly embodiments?: readonly string[];
  readonly domain: string;
  readonly family: string;
}

interface OfferingCase extends Omit<CatalogCase, "slug"> {
  readonly id: string;
  readonly provider: string;
  readonly model: string;
  /** Whose it is; the gateway's own when absent, which serves everybody. */
  readonly supplier?: Partial<Supplier>;
  readonly region: string;
  readonly precision: string;
  readonly price_nano: Partial<Record<ContractWord, number>>;
  readonly max_horizon: number;
  readonly parameters: readonly string[];
  readonly retains_frames?: boolean;
  readonly signed?: boolean;
  readonly simulated?: boolean;
  readonly p50_ms?: number;
  readonly p95_ms?: number;
  readonly units_per_s?: number;
  readonly uptime?: number;
  readonly scaledown_s?: number;
  readonly cost_nano_per_s?: number;
  /** What it reads, as an input contract in REST JSON. */
  readonly reads?: unknown;
  /** What its actions mean, as REST JSON has each. */
  readonly means?: readonly unknown[];
}

type ContractWord = "act" | "predict" | "ground" | "evaluate";
const CONTRACTS = {
  act: Contract.ACT,
  predict: Contract.PREDICT,
  ground: Contract.GROUND,
  evaluate: Contract.EVALUATE,
};

/** The moment of every replayed plan, on the steady clock. */
const NOW = 1_000_000_000;

/** The arguments of a plan, as a case and its supply state them. Throws the refusal of a request that contradicts itself. */
export function argsOf(given: PlanCase, supply: RoutingSupply): PlanArgs {
  const snapshot = buildSnapshot(supply);
  const { view } = new HealthTracker(snapshot, () => 0);
  for (const [id, measured] of Object.entries(given.health ?? {})) {
    const row = snapshot.offerings.findIndex((offering) => offering.id === id);
    if (row < 0) throw new Error(`there is no offering ${id}`);
    if (measured.p50_ms !== undefined) view.p50Ms[row] = measured.p50_ms;
    if (measured.units_per_s !== undefined) view.unitsPerS[row] = measured.units_per_s;
    if (measured.uptime !== undefined) {
      view.uptime[row] = measured.uptime;
      view.judgedUptime[row] = measured.uptime;
    }
    if (measured.success !== undefined) view.success[row] = measured.success;
    if (measured.rests_ms !== undefined) view.restsUntil[row] = NOW + measured.rests_ms;
    if (measured.idle_s !== undefined) view.usedAt[row] = NOW - measured.idle_s * 1000;
  }
  const intent = intentOf(given);
  return {
    intent,
    snapshot,
    health: view,
    scope: scopeOf(given.key ?? {}),
    pin: given.pin,
    seed: given.seed ?? intent.seed ?? 1,
    now: NOW,
    arrivedAt: NOW - (given.elapsed_ms ?? 0),
    deadline: given.remaining_ms === undefined ? undefined : NOW + given.remaining_ms,
  };
}

function scopeOf({ trust, ...key }: NonNullable<PlanCase["key"]>): PlanArgs["scope"] {
  const { environment = "simulation" } = key;
  const reach = trust === undefined ? narrower(Reach.NAMED, reachOfKey(undefined, environment)) : reachOfTier(trust);
  return { models: [], environment, orgId: "org_1", reach, ...key };
}

/** Supply, as its file states it. */
export function supplyOf({ offerings, catalog, providers }: SupplyCase): RoutingSupply {
  const models = [...catalog, ...offerings.map((offering) => ({ ...offering, slug: offering.model }))];
  return {
    offerings: offerings.map(offeringOf),
    catalog: [...new Map(models.map((model) => [model.slug, model])).values()].map((model) => ({
      slug: model.slug,
      contracts: model.contracts.map((word) => CONTRACTS[word]),
      actionSpaces: model.action_spaces,
      embodiments: model.embodiments ?? [],
      domain: model.domain,
      family: model.family,
    })),
    providers: [...providers, ...offerings.map((offering) => offering.provider)],
  };
}

function offeringOf(given: OfferingCase): Offering {
  const prices = Object.entries(given.price_nano).map(([word, nano]) => [CONTRACTS[word as ContractWord], nano]);
  return {
    id: given.id,
    model: given.model,
    provider: given.provider,
    supplier: { ...OF_THE_GATEWAY, ...given.supplier },
    region: given.region,
    precision: given.precision,
    contracts: given.contracts.map((word) => CONTRACTS[word]),
    actionSpaces: given.action_spaces,
    actionDim: undefined,
    embodiments: given.embodiments ?? [],
    declared: declaredOf(given),
    domain: given.domain,
    family: given.family,
    simulated: given.simulated ?? false,
    priceNano: Object.fromEntries(prices),
    maxHorizon: given.max_horizon,
    dtMs: 50,
    parameters: given.parameters,
    retainsFrames: given.retains_frames ?? false,
    signed: given.signed ?? false,
    advertised: { p50Ms: given.p50_ms, p95Ms: given.p95_ms, unitsPerS: given.units_per_s, uptime30d: given.uptime },
    costNanoPerSecond: given.cost_nano_per_s ?? 0,
    scaledownS: given.scaledown_s,
    timeoutMs: 30_000,
    coldTimeoutMs: 60_000,
  };
}

const contractReader = decoderOf(InputContractSchema);
const meaningReader = decoderOf(ActionMeaningSchema);

function declaredOf({ reads, means = [] }: OfferingCase): Offering["declared"] {
  if (reads === undefined && means.length === 0) return undefined;
  const faults = new Faults();
  const input = reads === undefined ? undefined : (contractReader.decode(reads, faults) as InputContract); // the reader's own type
  const actions = means.map((each) => meaningReader.decode(each, faults) as ActionMeaning); // the reader's own type
  if (faults.list.length > 0) throw invalid(faults.list.map(violationOf));
  return declaredInput({
    key: JSON.stringify([reads, means]),
    input,
    inputSource: ContractSource.DECLARED,
    actions,
    actionsSource: ContractSource.DECLARED,
  });
}

function intentOf({ contract = "act", request }: PlanCase): Intent {
  const message = previewedOf(request);
  if (contract === "predict") return predict.intentOf(message);
  if (contract === "ground") return ground.intentOf({ ...message, instruction: message.instruction ?? "" });
  return act.intentOf(message);
}

const reader = decoderOf(PreviewedRequestSchema);

/** The body as the gateway's REST transport reads it. Throws its refusal of what is wrong with it. */
function previewedOf(request: unknown): PreviewedRequest {
  const faults = new Faults();
  const message = reader.decode(request, faults) as PreviewedRequest; // the reader's own type
  if (faults.list.length > 0) throw invalid(faults.list.map(violationOf));
  assertValid(PreviewedRequestSchema, message);
  return message;
}

/** What the router answers to a case. */
export const replay = (given: PlanCase, supply: RoutingSupply): PreviewRoutesResponse => explain(argsOf(given, supply));

/** What a file of cases or supply says, in YAML or JSON. JSON is YAML too, but a fault in it is told better as JSON. */
export function readStated(path: string | URL): unknown {
  const text = readFileSync(path, "utf8");
  return /\.json$/i.test(path.toString()) ? JSON.parse(text) : parse(text, { merge: true });
}

const USAGE = `usage: limber plan case.yaml [supply.yaml]

Answers what the router would: the plan, or the refusal with every drop. Both files are YAML or JSON.
A case has "request" (the body as REST takes it), and may have "contract", "key", "pin", "seed", "remaining_ms", "elapsed_ms" and
"health" (live figures by offering). A file with a list of cases, as those of test/plans/cases, has each answered in turn.
The supply is that of the routing tests, test/plans/supply.json, unless another file is given.`;

function main([casePath, supplyPath]: readonly string[]): number {
  if (casePath === undefined || casePath === "--help") {
    console.log(USAGE);
    return casePath === undefined ? 2 : 0;
  }
  const supply = supplyOf(
    readStated(supplyPath ?? new URL("../test/plans/supply.json", import.meta.url)) as SupplyCase,
  );
  const stated = readStated(casePath) as PlanCase | PlanCase[]; // what a case lacks is told when it is replayed
  let refused = false;
  for (const given of Array.isArray(stated) ? stated : [stated]) {
    try {
      const answer = toText(PreviewRoutesResponseSchema, replay(given, supply));
      console.log(JSON.stringify(JSON.parse(answer), null, 2));
    } catch (thrown) {
      // What is wrong with the request itself is no plan.
      if (!(thrown instanceof Refusal)) throw thrown;
      console.log(JSON.stringify({ error: { code: factsOf(thrown.reason).code, message: thrown.message } }, null, 2));
      refused = true;
    }
  }
  return refused ? 1 : 0;
}

/** Runs the command with the process's own arguments; the exit code tells how it ended. */
export function runPlan(): void {
  try {
    process.exitCode = main(process.argv.slice(2));
  } catch (thrown) {
    // A file that is not there, no YAML, or no case.
    console.error(thrown instanceof Error ? thrown.message : String(thrown));
    process.exitCode = 2;
  }
}

if (import.meta.main) runPlan();
