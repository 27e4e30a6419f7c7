/** Registers the bundled reference provider by the same steps as any partner: register, declare, verify. */
import { isDeepStrictEqual } from "node:util";
import { create, toJson } from "@bufbuild/protobuf";
import type { ServedModel } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { ActionMeaningSchema, InputContractSchema } from "../../../gen/limber/v1/input_contract_pb.ts";
import { AdvertisedFiguresSchema, WireProfileSchema } from "../../../gen/limber/v1/supply_pb.ts";
import {
  DeclareModelRequestSchema,
  RegisterProviderRequestSchema,
  VerifyOfferingRequestSchema,
} from "../../../gen/limber/v1/supply_service_pb.ts";
import { type Call, Reach } from "../../call.ts";
import { Contract, wordOfContract } from "../../contracts/contract.ts";
import { newId } from "../../ids.ts";
import { createOrg } from "../../store/account/orgs.ts";
import { DEFAULT_SETTINGS } from "../../store/account/settings.ts";
import { type Sql, tx } from "../../store/database/tx.ts";
import {
  findProvider,
  type OfferingRecord,
  putModels,
  reviewProvider,
  setOfferingStatus,
} from "../../store/supply/supply.ts";
import { SupplyReader } from "../../store/supply/supply-reader.ts";
import type { SupplyDeps } from "../../supply/withdraw.ts";
import { supplyService } from "../supply.ts";

const PROVIDER = "reference";
const REGION = "local";
const PRICES = { pricePerActionStep: 0.0001, pricePerFrame: 0.0005, pricePer1kTokens: 0.01 };
const STILL_WANTED = ["pending", "verifying", "live", "degraded", "suspended", "paused", "rejected"] as const;

/**
 * Makes every model of the server at `endpoint` routable, and removes offerings of an earlier server elsewhere.
 * Resolves with one sentence per failed probe.
 */
export async function bringReference(deps: SupplyDeps, endpoint: string): Promise<string[]> {
  const { sql, upstream } = deps;
  const service = supplyService(deps);
  const orgId = (await findProvider(sql, PROVIDER))?.orgId ?? (await createOrg(sql, { name: PROVIDER })).id;
  const call = callOf(orgId);
  if (!(await findProvider(sql, PROVIDER))) {
    const request = { name: PROVIDER, displayName: "Reference provider", regions: [REGION], dataCollection: "deny" };
    await service.registerProvider(create(RegisterProviderRequestSchema, request), call);
    await tx(sql, (tx) => reviewProvider(tx, PROVIDER, { standing: "verified", note: "ships with the gateway" }));
  }

  const probing = { signal: call.signal, requestId: call.requestId, budgetMs: 10_000 };
  const models = await upstream.native.describe(targetAt(endpoint), probing);
  await putModels(sql, models.map(recordOf));
  const known = (await new SupplyReader(sql).read()).offerings.filter((offering) => offering.provider === PROVIDER);
  const failed: string[] = [];
  const kept = new Set<string>();
  for (const model of models) {
    const runtime = model.runtime || upstream.native.id;
    const address = model.endpoint || endpoint;
    const live = known.find((offering) => offering.status === "live" && sameSupply(offering, model, runtime, address));
    if (live) {
      kept.add(live.id);
      continue;
    }
    const { offering } = await service.declareModel(declarationOf(model, runtime, address), call);
    const offeringId = offering!.id!;
    const { report } = await service.verifyOffering(create(VerifyOfferingRequestSchema, { offeringId }), call);
    kept.add(offeringId);
    const failures = report?.checks?.filter(({ passed, required }) => !passed && required) ?? [];
    const faults = failures.map(({ name, detail }) => `${name}: ${detail}`);
    if (faults.length > 0) failed.push(`${model.slug} over ${runtime} did not pass (${faults.join("; ")})`);
  }
  for (const { id } of known)
    if (!kept.has(id)) await setOfferingStatus(sql, id, { from: STILL_WANTED, to: "removed" });
  return failed;
}

function callOf(orgId: string): Call {
  const principal = {
    kind: "key",
    keyId: PROVIDER,
    orgId,
    role: "supplier",
    scopes: [],
    models: [],
    environment: "simulation",
    workspaceId: undefined,
    settings: DEFAULT_SETTINGS,
    reach: Reach.OWN,
    requireSigned: false,
  } as const;
  return {
    requestId: newId("req"),
    principal,
    signal: new AbortController().signal,
    deadline: undefined,
    idempotency: undefined,
  };
}

const targetAt = (endpoint: string) => ({
  offeringId: "",
  model: "",
  endpoint,
  auth: { type: "none" as const, secret: "" },
  profile: undefined,
  actionDim: undefined,
  dtMs: 0,
});

const sameSupply = (offering: OfferingRecord, model: ServedModel, runtime: string, endpoint: string): boolean =>
  offering.model === model.slug &&
  offering.runtime === runtime &&
  offering.endpoint === endpoint &&
  offering.actionSpaces.join() === model.actionSpaces.join() &&
  isDeepStrictEqual(offering.input, model.input ? toJson(InputContractSchema, model.input) : null) &&
  isDeepStrictEqual(
    offering.actions ?? [],
    model.actions.map((meaning) => toJson(ActionMeaningSchema, meaning)),
  );

const KINDS = { act: "policy", predict: "world-model", ground: "reasoning", evaluate: "world-model" } as const;

const recordOf = (model: ServedModel) => ({
  slug: model.slug,
  name: model.name,
  summary: model.summary,
  limits: model.limits,
  kind: KINDS[wordOfContract(model.contracts[0] ?? Contract.ACT)],
  domain: "embodied" as const,
  family: model.family,
  tier: "integration" as const,
  era: "current" as const,
  contracts: model.contracts.map(wordOfContract),
  actionSpaces: model.actionSpaces,
  embodiments: model.embodiments,
  featured: true,
});

/** The reference provider's advertised figures, for a crowded machine: controllers respond in a few milliseconds, images take longer. */
const FIGURES = {
  act: { p50Ms: 50, p95Ms: 400, uptime30d: 0.99 },
  pictures: { p50Ms: 100, p95Ms: 400, uptime30d: 0.99 },
} as const;

function declarationOf(model: ServedModel, runtime: string, endpoint: string) {
  const serves = (contract: Contract): boolean => model.contracts.includes(contract);
  return create(DeclareModelRequestSchema, {
    provider: PROVIDER,
    model: model.slug,
    runtime,
    endpoint,
    hardware: "cpu",
    contracts: model.contracts,
    actionSpaces: model.actionSpaces,
    embodiments: model.embodiments,
    precision: "fp64",
    region: REGION,
    maxHorizon: model.maxHorizon,
    ...(model.dtMs > 0 && { dtMs: model.dtMs }),
    ...(model.actionDim > 0 && { actionDim: model.actionDim }),
    ...(serves(Contract.ACT) && { pricePerActionStep: PRICES.pricePerActionStep }),
    ...(serves(Contract.PREDICT) && { pricePerFrame: PRICES.pricePerFrame }),
    ...(serves(Contract.GROUND) && { pricePer1kTokens: PRICES.pricePer1kTokens }),
    parameters: model.parameters,
    advertised: create(AdvertisedFiguresSchema, serves(Contract.ACT) ? FIGURES.act : FIGURES.pictures),
    profile: create(WireProfileSchema, {
      samples: model.samples,
    }),
    ...(model.input && { input: model.input }),
    ...(model.actions.length > 0 && { actions: { actions: model.actions } }),
    timeoutS: 10,
    note: model.limits.slice(0, 1024),
  });
}

/** The reference provider's earlier ports, so that its offerings stay the same after a restart; 0 if unknown. */
export async function lastReferencePorts(sql: Sql): Promise<{ grpcPort: number; openpiPort: number }> {
  const { offerings } = await new SupplyReader(sql).read();
  const portOf = (runtime: string): number => {
    const known = offerings.find((offering) => offering.provider === PROVIDER && offering.runtime === runtime);
    return known ? Number(new URL(known.endpoint).port) : 0;
  };
  return { grpcPort: portOf("limber-policy"), openpiPort: portOf("openpi-ws") };
}
