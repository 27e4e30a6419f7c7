/** How partners bring models: register, declare, verify. */
import { create, toJson } from "@bufbuild/protobuf";
import {
  type Offering as OfferingMessage,
  OfferingSchema,
  OfferingStatus,
  type ProbeReport,
  ProbeReportSchema,
  type ProviderAuth,
  ProviderAuthType,
  ProviderSchema,
  WireProfileSchema,
} from "../../gen/limber/v1/supply_pb.ts";
import {
  type DeclareModelRequest,
  DeclareModelResponseSchema,
  RegisterProviderResponseSchema,
  type SupplyService,
  VerifyOfferingResponseSchema,
} from "../../gen/limber/v1/supply_service_pb.ts";
import { actionSpaceOf, dimensionOf } from "../contracts/action-spaces.ts";
import { knownActionSpace, violation } from "../contracts/conflicts.ts";
import { CONTRACT_WORDS, Contract, wordOfContract } from "../contracts/contract.ts";
import { nanoFromUsd, usdFromNano } from "../money/price.ts";
import { Reason, refuse } from "../refusal.ts";
import { audit } from "../store/audit.ts";
import {
  addModel,
  createOffering,
  createProvider,
  findOffering,
  findProvider,
  type ModelRecord,
  type OfferingDeclaration,
  type OfferingRecord,
  offeringContext,
  type ProviderRecord,
  setOfferingStatus,
} from "../store/supply.ts";
import { type Sql, tx } from "../store/tx.ts";
import type { FrameOptions } from "../upstream/frames.ts";
import { AddressRefused, checkUrl } from "../upstream/guard.ts";
import type { Upstream } from "../upstream/index.ts";
import type { Wire } from "../upstream/wire.ts";
import type { Vault } from "../vault.ts";
import { byCall, type Call, type Implementation, keyOf } from "./call.ts";
import { emit, type Happening } from "./emit.ts";
import { liveOffering } from "./supply/facts.ts";
import { probe } from "./supply/probe.ts";
import { checkProfile } from "./supply/profile.ts";

/** What supply needs of the house. */
export interface SupplyParts {
  sql: Sql;
  vault: Vault;
  upstream: Upstream;
  agent: FrameOptions["agent"];
  allowPrivate: boolean;
  /** Resolves when this replica routes over what the database has now; the others hear of it by themselves. */
  refresh(): Promise<void>;
}

/** Price of an action step that was declared without one: 0.0001 US dollars. */
const DEFAULT_STEP_NANO = 100_000;
const DEFAULT_TIMEOUT_S = 30;
const DEFAULT_MAX_HORIZON = 256;
const DEFAULT_DT_MS = 100;

/** The supply RPCs. */
export function supplyService(parts: SupplyParts): Implementation<typeof SupplyService> {
  const { sql } = parts;
  return {
    async registerProvider(request, call) {
      const { orgId } = keyOf(call);
      const { name } = request;
      const provider = await tx(sql, async (tx) => {
        const made = await createProvider(tx, {
          orgId,
          name,
          displayName: request.displayName ?? name,
          contactEmail: request.contactEmail ?? null,
          homepage: request.homepage ?? null,
          regions: request.regions,
          retainsFrames: request.dataCollection !== "deny",
        });
        await audit(tx, { ...byCall(call), orgId, action: "provider.registered", subject: made.id, details: { name } });
        return made;
      });
      return create(RegisterProviderResponseSchema, { provider: providerMessage(provider) });
    },

    async declareModel(request, call) {
      const provider = await ownProvider(sql, request.provider, call);
      const wire = wireFor(parts, request);
      checkDeclaration(parts, wire, request);
      const declaration = declarationOf(parts.vault, provider, request);
      const model: ModelRecord = {
        slug: request.model,
        name: request.model.slice(request.model.indexOf("/") + 1),
        summary: "",
        limits: "",
        kind: request.contracts.includes(Contract.ACT)
          ? "policy"
          : request.contracts.includes(Contract.PREDICT)
            ? "world-model"
            : "reasoning",
        domain: "embodied",
        family: "",
        tier: "catalog",
        era: "current",
        contracts: declaration.contracts,
        actionSpaces: declaration.actionSpaces,
        embodiments: declaration.embodiments,
        featured: false,
      };
      const offering = await tx(sql, async (tx) => {
        await addModel(tx, model);
        const made = await createOffering(tx, declaration);
        const { id: subject, orgId, provider } = made;
        const details = { provider, model: made.model };
        await audit(tx, { ...byCall(call), orgId, action: "offering.declared", subject, details });
        return made;
      });
      return create(DeclareModelResponseSchema, { offering: offeringMessage(offering) });
    },

    async verifyOffering({ offeringId }, call) {
      const known = await findOffering(sql, offeringId);
      if (!known || known.orgId !== keyOf(call).orgId)
        throw refuse(Reason.NOT_FOUND, "there is no offering of this name");
      const from = ["pending", "verifying", "live", "degraded", "suspended"] as const;
      if (!from.some((status) => status === known.status)) {
        throw refuse(
          Reason.OFFERING_NOT_VERIFIABLE,
          `the offering is ${known.status}; declare it again and verify the new one`,
        );
      }
      // A live offering stays live while it is looked at again.
      if (known.status === "pending") await setOfferingStatus(sql, offeringId, { from: ["pending"], to: "verifying" });
      const { offering, target } = liveOffering(known, undefined, parts.vault);
      const wire = parts.upstream.wireOf(known.runtime);
      if (!wire)
        throw refuse(Reason.OFFERING_NOT_VERIFIABLE, `the runtime ${known.runtime} is not spoken here any more`);
      const report = await probe({ ...parts, native: parts.upstream.native }, { offering, target, wire });
      const to = report.passed ? "live" : "rejected";
      const kept = toJson(ProbeReportSchema, report) as object;
      const verified = await tx(sql, async (tx) => {
        const moved = await setOfferingStatus(tx, offeringId, { from, to, report: kept });
        if (!moved) return undefined;
        await emit(tx, moved.orgId, outcomeOf(offeringId, report));
        const action = report.passed ? "offering.verified" : "offering.rejected";
        const details = { report_id: report.id };
        await audit(tx, { ...byCall(call), orgId: moved.orgId, action, subject: offeringId, details });
        return moved;
      });
      if (!verified) throw refuse(Reason.OFFERING_NOT_VERIFIABLE, "the offering was removed while it was being probed");
      await parts.refresh();
      return create(VerifyOfferingResponseSchema, { offering: offeringMessage(verified), report });
    },
  };
}

function outcomeOf(offeringId: string, { id, passed }: ProbeReport): Happening {
  const value = { offeringId, reportId: id };
  return passed ? { case: "offeringVerified", value } : { case: "offeringRejected", value };
}

async function ownProvider(sql: Sql, name: string, call: Call): Promise<ProviderRecord> {
  const provider = await findProvider(sql, name);
  if (provider && provider.orgId === keyOf(call).orgId) return provider;
  throw refuse(Reason.NOT_FOUND, `this organisation has no provider named ${JSON.stringify(name)}`);
}

function wireFor({ upstream }: SupplyParts, { runtime }: DeclareModelRequest): Wire {
  const wire = upstream.wireOf(runtime);
  if (wire && wire.schemes.length > 0) return wire;
  const known = upstream.runtimes.filter((name) => (upstream.wireOf(name)?.schemes.length ?? 0) > 0);
  throw violation("runtime", `must be one of ${known.join(", ")}`, "enum", known);
}

const SPEAKS = { act: "act", predict: "predict", ground: "ground" } as const;

function checkDeclaration({ allowPrivate }: SupplyParts, wire: Wire, request: DeclareModelRequest): void {
  for (const contract of request.contracts) {
    const word = wordOfContract(contract);
    const speaks = word in SPEAKS && wire[SPEAKS[word as keyof typeof SPEAKS]] !== undefined;
    if (!speaks) throw violation("contracts", `the runtime ${wire.id} cannot serve ${word}`, "enum");
  }
  if (request.contracts.includes(Contract.ACT)) {
    if (request.actionSpaces.length === 0) throw violation("action_spaces", "is required for act", "missing");
    for (const space of request.actionSpaces) {
      knownActionSpace(space);
      if (dimensionOf(space, request.actionDim) === undefined)
        throw violation("action_dim", `is required, because ${space} fixes none`, "missing");
    }
    const fixed = request.actionSpaces.map((space) => actionSpaceOf(space)?.dim).find((dim) => dim !== undefined);
    if (
      request.actionDim !== undefined &&
      request.actionSpaces.length === 1 &&
      fixed !== undefined &&
      fixed !== request.actionDim
    ) {
      throw violation("action_dim", `${request.actionSpaces[0]} has ${fixed} numbers per step`, "value_error");
    }
  }
  if (request.contracts.includes(Contract.PREDICT) && request.pricePerFrame === undefined)
    throw violation("price_per_frame", "is required for predict", "missing");
  if (request.contracts.includes(Contract.GROUND) && request.pricePer1kTokens === undefined)
    throw violation("price_per_1k_tokens", "is required for ground", "missing");
  checkProfile(wire, request);
  try {
    checkUrl(request.endpoint, { schemes: wire.schemes, allowPrivate });
  } catch (thrown) {
    if (!(thrown instanceof AddressRefused)) throw thrown;
    const text = `the endpoint must be a public address that begins with ${wire.schemes.map((scheme) => `${scheme}//`).join(" or ")}`;
    throw refuse(Reason.ADDRESS_REFUSED, text, {}, { param: "endpoint", cause: thrown });
  }
}

const AUTH: Readonly<Partial<Record<ProviderAuthType, OfferingDeclaration["authType"]>>> = {
  [ProviderAuthType.BEARER]: "bearer",
  [ProviderAuthType.API_KEY]: "api_key",
};

const authTypeOf = (auth: ProviderAuth | undefined): OfferingDeclaration["authType"] =>
  (auth && AUTH[auth.type]) ?? "none";

function declarationOf(vault: Vault, provider: ProviderRecord, request: DeclareModelRequest): OfferingDeclaration {
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
    hardware: request.hardware,
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
  };
}

const providerMessage = ({ id, name, displayName, regions, retainsFrames, created }: ProviderRecord) =>
  create(ProviderSchema, { id, name, displayName, regions, retainsFrames, created });

const STATUSES: Readonly<Partial<Record<OfferingRecord["status"], OfferingStatus>>> = {
  pending: OfferingStatus.PENDING,
  verifying: OfferingStatus.VERIFYING,
  live: OfferingStatus.LIVE,
  rejected: OfferingStatus.REJECTED,
};

function offeringMessage(record: OfferingRecord): OfferingMessage {
  const { priceFrameNano, priceStepNano, priceTokenNano } = record;
  return create(OfferingSchema, {
    id: record.id,
    model: record.model,
    provider: record.provider,
    runtime: record.runtime,
    status: STATUSES[record.status] ?? OfferingStatus.UNSPECIFIED,
    contracts: record.contracts.map((word) => CONTRACT_WORDS[word as keyof typeof CONTRACT_WORDS]), // written by this file from the same table
    actionSpaces: record.actionSpaces,
    embodiments: record.embodiments,
    precision: record.precision,
    region: record.region,
    hardware: record.hardware,
    ...(priceFrameNano !== null && { pricePerFrame: usdFromNano(priceFrameNano) }),
    ...(priceStepNano !== null && { pricePerActionStep: usdFromNano(priceStepNano) }),
    ...(priceTokenNano !== null && { pricePer1kTokens: usdFromNano(priceTokenNano, 1000) }),
    maxHorizon: record.maxHorizon,
    dtMs: record.dtMs,
    parameters: record.parameters,
    created: record.created,
  });
}
