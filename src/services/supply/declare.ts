/** Declarations of offerings: required fields and stored values. */
import { toBinary, toJson } from "@bufbuild/protobuf";
import { SafetyBoundsSchema } from "../../../gen/limber/v1/action_pb.ts";
import { SignedCheckpointSchema } from "../../../gen/limber/v1/checkpoint_pb.ts";
import { ActionMeaningSchema, InputContractSchema } from "../../../gen/limber/v1/input_contract_pb.ts";
import {
  type ProviderAuth,
  ProviderAuthType,
  ServerDialectSchema,
  type WireProfile,
  WireProfileSchema,
} from "../../../gen/limber/v1/supply_pb.ts";
import type { DeclareModelRequest } from "../../../gen/limber/v1/supply_service_pb.ts";
import { hardwareOf, nanoFromUsd } from "../../billing/price.ts";
import { type Call, keyOf } from "../../call.ts";
import { assertBounds } from "../../contracts/act.ts";
import {
  actionSpaceOf,
  Contract,
  dimensionOf,
  EMBODIMENTS,
  knownActionSpace,
  violation,
  wordOfContract,
} from "../../contracts/contract.ts";
import { inputDeclarationFault, MOST_INPUT_BYTES } from "../../contracts/inputs.ts";
import { Reason, refuse } from "../../errors.ts";
import type { Queryable } from "../../store/database/tx.ts";
import {
  findProvider,
  type ModelRecord,
  makerKeys,
  type OfferingDeclaration,
  offeringContext,
  type ProviderRecord,
} from "../../store/supply/supply.ts";
import { isSignedBy } from "../../supply/facts.ts";
import { kindOf } from "../../supply/live-supply.ts";
import type { SupplyDeps } from "../../supply/withdraw.ts";
import { outboundAddress } from "../../upstream/limber-outbound.ts";
import { AddressRefused, checkUrl, wordsOfRefusal } from "../../upstream/transport/guard.ts";
import type { Wire } from "../../upstream/wire.ts";
import type { Vault } from "../../vault.ts";

/** Default price of an action step: 0.0001 US dollars. */
const DEFAULT_STEP_NANO = 100_000;
const DEFAULT_TIMEOUT_S = 30;
const DEFAULT_MAX_HORIZON = 256;
const DEFAULT_DT_MS = 100;

/** The calling organization's provider by name; 404 for any other's. */
export async function ownProvider(sql: Queryable, name: string, call: Call): Promise<ProviderRecord> {
  const provider = await findProvider(sql, name);
  if (provider && provider.orgId === keyOf(call).orgId) return provider;
  throw refuse(Reason.NOT_FOUND, `this organization has no provider named ${JSON.stringify(name)}`);
}

/** The wire of a declaration's runtime. */
export function wireFor({ upstream }: SupplyDeps, { runtime }: DeclareModelRequest): Wire {
  const wire = upstream.wireOf(runtime);
  if (wire && wire.schemes.length > 0) return wire;
  const known = upstream.runtimes.filter((name) => (upstream.wireOf(name)?.schemes.length ?? 0) > 0);
  throw violation("runtime", `must be one of ${known.join(", ")}`, "enum", known);
}

const SPEAKS = { act: "act", predict: "predict", ground: "ground" } as const;

/** Refuses a declaration that could never serve, and names the field. */
export function checkDeclaration({ allowPrivate }: SupplyDeps, wire: Wire, request: DeclareModelRequest): void {
  for (const contract of request.contracts) {
    const word = wordOfContract(contract);
    const speaks = word in SPEAKS && wire[SPEAKS[word as keyof typeof SPEAKS]] !== undefined;
    if (!speaks) throw violation("contracts", `the runtime ${wire.id} cannot serve ${word}`, "enum");
  }
  if (request.contracts.includes(Contract.ACT)) {
    if (request.actionSpaces.length === 0) throw violation("action_spaces", "is required for act", "missing");
    for (const [i, space] of request.actionSpaces.entries()) {
      knownActionSpace(space, `action_spaces.${i}`);
      if (dimensionOf(space, request.actionDim) === undefined)
        throw violation("action_dim", `is required, because ${space} has no fixed dimension`, "missing");
    }
    const fixed = request.actionSpaces.map((space) => actionSpaceOf(space)?.dim).find((dim) => dim !== undefined);
    if (
      request.actionDim !== undefined &&
      request.actionSpaces.length === 1 &&
      fixed !== undefined &&
      fixed !== request.actionDim
    ) {
      throw violation("action_dim", `must be ${fixed}, the dimension of ${request.actionSpaces[0]}`, "value_error");
    }
  }
  // With a misspelled embodiment, requests that name the right one would never reach it.
  const bodies = Object.keys(EMBODIMENTS);
  const unknownAt = request.embodiments.findIndex((word) => !bodies.includes(word));
  if (unknownAt >= 0)
    throw violation(`embodiments.${unknownAt}`, `must be one of ${bodies.join(", ")}`, "enum", bodies);
  if (request.pricePerEpisode !== undefined)
    throw violation("price_per_episode", "must be absent; the gateway runs evaluations itself", "value_error");
  if (request.contracts.includes(Contract.PREDICT) && request.pricePerFrame === undefined)
    throw violation("price_per_frame", "is required for predict", "missing");
  if (request.contracts.includes(Contract.GROUND) && request.pricePer1kTokens === undefined)
    throw violation("price_per_1k_tokens", "is required for ground", "missing");
  const space = request.actionSpaces[0] ?? "";
  assertBounds(request.bounds, dimensionOf(space, request.actionDim), "bounds");
  checkInput(request);
  if (authTypeOf(request.auth) !== "none" && !request.auth?.secret)
    throw violation("auth.secret", "is required for this scheme", "missing");
  checkProfile(wire, request);
  if (wire.isHere) {
    const address = outboundAddress(request.provider);
    if (request.endpoint !== address)
      throw violation("endpoint", `must be ${address} for this runtime`, "enum", [address]);
    return;
  }
  try {
    checkUrl(request.endpoint, { schemes: wire.schemes, allowPrivate });
  } catch (thrown) {
    if (!(thrown instanceof AddressRefused)) throw thrown;
    const text = `endpoint ${wordsOfRefusal(thrown, { schemes: wire.schemes, allowPrivate })}`;
    throw refuse(Reason.ADDRESS_REFUSED, text, {}, { param: "endpoint", cause: thrown });
  }
}

function checkInput({ input, actions: meanings, actionSpaces, actionDim }: DeclareModelRequest): void {
  const actions = meanings?.actions ?? [];
  const inputBytes = input === undefined ? 0 : toBinary(InputContractSchema, input).length;
  if (inputBytes > MOST_INPUT_BYTES)
    throw violation("input", `must have at most 32 KiB, got ${inputBytes} bytes`, "too_long");
  const actionBytes = actions.reduce((sum, each) => sum + toBinary(ActionMeaningSchema, each).length, 0);
  if (actionBytes > MOST_INPUT_BYTES)
    throw violation("actions", `must have at most 32 KiB, got ${actionBytes} bytes`, "too_long");
  const dimOf = (space: string): number | undefined => dimensionOf(space, actionDim);
  const fault = inputDeclarationFault({ input, actions, actionSpaces, dimOf });
  if (fault) throw violation(fault.path, fault.message, "value_error");
}

const AUTH: Readonly<Partial<Record<ProviderAuthType, OfferingDeclaration["authType"]>>> = {
  [ProviderAuthType.BEARER]: "bearer",
  [ProviderAuthType.API_KEY]: "api_key",
};

const authTypeOf = (auth: ProviderAuth | undefined): OfferingDeclaration["authType"] =>
  (auth && AUTH[auth.type]) ?? "none";

/** The stored part of a declaration, with its secret sealed. */
export function declarationOf(
  vault: Vault,
  provider: ProviderRecord,
  request: DeclareModelRequest,
): OfferingDeclaration {
  const authType = authTypeOf(request.auth);
  const context = offeringContext({ providerId: provider.id, endpoint: request.endpoint });
  const nano = (usd: number | undefined, param: string, per = 1): number | null =>
    usd === undefined ? null : nanoFromUsd(usd, per, param);
  const serves = (contract: Contract): boolean => request.contracts.includes(contract);
  return {
    orgId: provider.orgId,
    providerId: provider.id,
    model: request.model,
    runtime: request.runtime,
    endpoint: request.endpoint,
    hardware: hardwareOf(request.hardware)?.name ?? request.hardware,
    contracts: request.contracts.map(wordOfContract),
    actionSpaces: request.actionSpaces,
    actionDim: request.actionDim ?? null,
    embodiments: request.embodiments,
    precision: request.precision ?? "",
    region: request.region ?? provider.regions[0] ?? "",
    priceFrameNano: nano(request.pricePerFrame, "price_per_frame"),
    priceStepNano:
      nano(request.pricePerActionStep, "price_per_action_step") ?? (serves(Contract.ACT) ? DEFAULT_STEP_NANO : null),
    priceTokenNano: nano(request.pricePer1kTokens, "price_per_1k_tokens", 1000),
    priceEpisodeNano: null,
    maxHorizon: request.maxHorizon ?? DEFAULT_MAX_HORIZON,
    dtMs: request.dtMs ?? DEFAULT_DT_MS,
    profile: request.profile ? (toJson(WireProfileSchema, request.profile) as object) : null,
    authType,
    authSecret: authType === "none" ? null : vault.seal(request.auth?.secret ?? "", context),
    p50Ms: request.advertised?.p50Ms ?? null,
    p95Ms: request.advertised?.p95Ms ?? null,
    unitsPerS: request.advertised?.framesPerS ?? null,
    uptime30d: request.advertised?.uptime30d ?? null,
    timeoutS: request.timeoutS ?? DEFAULT_TIMEOUT_S,
    coldTimeoutS: request.coldTimeoutS ?? null,
    costNanoPerSecond: nano(request.costUsdPerSecond, "cost_usd_per_second"),
    scaledownS: request.scaledownS ?? null,
    parameters: request.parameters,
    note: request.note ?? "",
    bounds: request.bounds ? (toJson(SafetyBoundsSchema, request.bounds) as object) : null,
    input: request.input ? (toJson(InputContractSchema, request.input) as object) : null,
    actions: request.actions?.actions.length
      ? request.actions.actions.map((each) => toJson(ActionMeaningSchema, each) as object)
      : null,
    checkpoint: request.checkpoint
      ? (toJson(SignedCheckpointSchema, request.checkpoint) as OfferingDeclaration["checkpoint"]) // both fields are strings
      : null,
    undeclared: [
      ...(request.dtMs === undefined ? ["dt_ms"] : []),
      ...(request.maxHorizon === undefined ? ["max_horizon"] : []),
      ...(request.embodiments.length === 0 ? ["embodiments"] : []),
      ...(request.parameters.length === 0 ? ["parameters"] : []),
      ...(request.input === undefined ? ["input"] : []),
      ...(request.actions?.actions.length ? [] : ["actions"]),
    ],
    ownRetention: request.dataCollection === undefined ? null : request.dataCollection !== "deny",
  };
}

/** Refuses a checkpoint that the model's maker did not sign for this provider, input contract and bounds. */
export async function assertSigned(sql: Queryable, provider: string, declaration: OfferingDeclaration): Promise<void> {
  if (declaration.checkpoint === null) return;
  if (declaration.input === null)
    throw violation("input", "is required with a checkpoint, whose signature covers it", "missing");
  const owner = declaration.model.split("/", 1)[0]!;
  const keys = (await makerKeys(sql, owner)).map(({ publicKey }) => publicKey);
  if (keys.length === 0)
    throw violation("checkpoint", `cannot be verified; ${owner} has no signing keys`, "value_error");
  if (isSignedBy({ ...declaration, provider }, keys)) return;
  const text = `matches no key of ${owner} for this provider, model, digest, input and bounds`;
  throw violation("checkpoint.signature", text, "value_error");
}

/** The row of a new model, visible only to the declaring organization until one of its offerings passes its probe. */
export function modelOf({ model }: DeclareModelRequest, declaration: OfferingDeclaration): ModelRecord {
  return {
    slug: model,
    name: model.slice(model.indexOf("/") + 1),
    summary: "",
    limits: "",
    kind: kindOf(declaration),
    domain: "embodied",
    family: "",
    tier: "catalog",
    era: "current",
    contracts: declaration.contracts,
    actionSpaces: declaration.actionSpaces,
    embodiments: declaration.embodiments,
    featured: false,
    declaredBy: declaration.orgId,
  };
}

// Validation of declared wire profiles.

/** The context of a profile. */
type Profiled = Pick<DeclareModelRequest, "profile" | "contracts" | "actionSpaces" | "actionDim">;

/** Refuses a profile with fields unknown to the wire, contradictions, or missing required fields. */
export function checkProfile(wire: Wire, request: Profiled): void {
  const { profile } = request;
  if (profile) {
    checkNames(wire, profile);
    checkRanges(profile);
    checkAction(profile, request);
  }
  const fault = wire.faultOf?.(profile, request.contracts);
  if (fault) throw violation(`profile.${fault.field}`, fault.text, "missing");
}

function checkNames(wire: Wire, { preset, dialect }: WireProfile): void {
  if (preset !== undefined && !wire.profiles?.includes(preset)) {
    const known = (wire.profiles ?? []).join(", ") || "none for this runtime";
    throw violation("profile.preset", `must be one of ${known}`, "enum");
  }
  if (dialect !== undefined && !wire.dialects?.includes(dialect)) {
    const words = (wire.dialects ?? []).map((each) => ServerDialectSchema.value[each]?.localName.toLowerCase());
    throw violation("profile.dialect", `must be one of ${words.join(", ") || "none for this runtime"}`, "enum");
  }
}

function checkRanges({ proprio, proprioDim, constants }: WireProfile): void {
  for (const [i, { start, end }] of proprio.entries()) {
    if (end <= start) throw violation(`profile.proprio.${i}.end`, "must be greater than `start`", "value_error");
    if (proprioDim !== undefined && end > proprioDim)
      throw violation(`profile.proprio.${i}.end`, `must be at most proprio_dim, ${proprioDim}`, "value_error");
  }
  for (const [i, { text, number }] of constants.entries()) {
    if ((text === undefined) === (number === undefined))
      throw violation(`profile.constants.${i}`, "must have either `text` or `number`", "value_error");
  }
}

/** Several keys are concatenated, so their columns must add up to the action space's dimension. */
function checkAction({ actionKeys, actionDims }: WireProfile, request: Profiled): void {
  if (actionDims.length === 0) return;
  if (actionDims.length !== actionKeys.length)
    throw violation("profile.action_dims", `must have as many sizes as action_keys, ${actionKeys.length}`, "length");
  if (!request.contracts.includes(Contract.ACT)) return;
  const sum = actionDims.reduce((total, dim) => total + dim, 0);
  for (const space of request.actionSpaces) {
    const dim = dimensionOf(space, request.actionDim);
    if (dim !== undefined && dim !== sum)
      throw violation(
        "profile.action_dims",
        `must add up to ${dim}, the dimension of ${space}, got ${sum}`,
        "value_error",
      );
  }
}
