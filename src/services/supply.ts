/** Supply: partners register providers, and declare, verify, maintain and withdraw offerings. */

import { create, fromJson } from "@bufbuild/protobuf";
import { SafetyBoundsSchema } from "../../gen/limber/v1/action_pb.ts";
import { OfferingCheckpointSchema } from "../../gen/limber/v1/checkpoint_pb.ts";
import { ActionMeaningSchema, ContractSource, InputContractSchema } from "../../gen/limber/v1/input_contract_pb.ts";
import {
  type Offering as OfferingMessage,
  OfferingSchema,
  OfferingStatus,
  OfferingTermsSchema,
  ProbeReportSchema,
  ProviderAuthType,
  ProviderStanding,
  WireProfileSchema,
} from "../../gen/limber/v1/supply_pb.ts";
import {
  type SupplyService,
  type UpdateOfferingRequest,
  UpdateOfferingRequestSchema,
} from "../../gen/limber/v1/supply_service_pb.ts";
import { HARDWARE, hardwareOf, nanoFromUsd, secondOf, usdFromNano } from "../billing/price.ts";
import { byCall, type Call, type Implementation, keyOf } from "../call.ts";
import { steadyNow } from "../clock.ts";
import { CONTRACT_WORDS, enumOf, enumWord } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import { type EventData, emit } from "../events/emit.ts";
import { audit } from "../store/account/audit.ts";
import { findOrg } from "../store/account/orgs.ts";
import { tx } from "../store/database/tx.ts";
import { ASSUMED_SCALEDOWN_S } from "../store/history/series.ts";
import { recordJob } from "../store/jobs/jobs.ts";
import {
  addModel,
  type CostBasis,
  createOffering,
  createProvider,
  findOffering,
  listOfferings,
  listProviders,
  type OfferingRecord,
  type ProviderRecord,
  progressOf,
  putOffProbe,
  reviewProvider,
  type OfferingStatus as StatusWord,
  setOfferingStatus,
  setOwner,
  updateCostBasis,
  updateProvider,
} from "../store/supply/supply.ts";
import { isSignedBy, mostSteps } from "../supply/facts.ts";
import { PROBEABLE, verify } from "../supply/probe/probe.ts";
import { type SupplyDeps, withdraw } from "../supply/withdraw.ts";
import { cursorOfName, DEFAULT_PAGE, nameOfCursor, readPage } from "./pages.ts";
import { assertSigned, checkDeclaration, declarationOf, modelOf, ownProvider, wireFor } from "./supply/declare.ts";
import { earningRpcs } from "./supply/earnings.ts";

/** The supply RPCs. */
export function supplyService(deps: SupplyDeps): Implementation<typeof SupplyService> {
  const { sql } = deps;
  /** Lists an owner's probe as a job of the kind `verification` once it has ended, whatever its outcome. */
  const recorded = async (call: Call, { id }: OfferingRecord, run: () => ReturnType<typeof verify>) => {
    const { orgId, keyId, workspaceId } = keyOf(call);
    const job = { kind: "verification", orgId, keyId, workspaceId, request: { offering_id: id } } as const;
    const begun = steadyNow();
    let passed = false;
    try {
      const verified = await run();
      passed = verified?.report.passed ?? false;
      return verified;
    } finally {
      // A failure to list the job must not replace the report or its refusal.
      await recordJob(sql, job, { passed, tookMs: steadyNow() - begun }).catch(() => undefined);
    }
  };
  return {
    ...providerRpcs(deps),
    ...offeringRpcs(deps),
    ...earningRpcs(deps),

    async declareModel(request, call) {
      const provider = await ownProvider(sql, request.provider, call);
      const wire = wireFor(deps, request);
      checkDeclaration(deps, wire, request);
      const declaration = declarationOf(deps.vault, provider, request);
      await assertSigned(sql, provider.name, declaration);
      const offering = await tx(sql, async (tx) => {
        await addModel(tx, modelOf(request, declaration));
        const made = await createOffering(tx, declaration);
        const { id: subject, orgId, provider } = made;
        const details = { provider, model: made.model };
        await audit(tx, { ...byCall(call), orgId, action: "offering.declared", subject, details });
        return made;
      });
      // The model is known on this replica at once, before the notification.
      await deps.refresh();
      return { offering: offeringMessage(offering) };
    },

    async verifyOffering({ offeringId }, call) {
      const known = await findOffering(sql, offeringId);
      if (!known || known.orgId !== keyOf(call).orgId) throw refuse(Reason.NOT_FOUND, "offering not found");
      if (!PROBEABLE.some((status) => status === known.status)) {
        throw refuse(
          Reason.OFFERING_NOT_VERIFIABLE,
          known.status === "paused"
            ? "the offering is paused; resume it first"
            : `the offering is ${known.status}; declare it again and verify the new offering`,
        );
      }
      // A live offering stays live during a new probe.
      if (known.status === "pending") await setOfferingStatus(sql, offeringId, { from: ["pending"], to: "verifying" });
      const verified = await recorded(call, known, () => verify(deps, known, { ...byCall(call), owner: true }));
      if (!verified) throw refuse(Reason.OFFERING_NOT_VERIFIABLE, "the offering was removed while it was being probed");
      const { offering, report } = verified;
      return { offering: offeringMessage(offering), report };
    },

    async listHardware() {
      return { object: "list", data: HARDWARE.map(({ name }) => name) };
    },
  };
}

// Providers, for the organization that owns them.

type ProviderRpcs = Pick<
  Implementation<typeof SupplyService>,
  "registerProvider" | "listOwnProviders" | "getOwnProvider" | "updateProvider" | "reviewProvider" | "setModelOwner"
>;

/** The RPCs for providers. */
function providerRpcs({ sql, refresh }: SupplyDeps): ProviderRpcs {
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
      return { provider: providerMessage(provider) };
    },

    async listOwnProviders({ limit = DEFAULT_PAGE, cursor }, call) {
      const after = nameOfCursor(cursor);
      const { orgId } = keyOf(call);
      const { records, ...page } = await readPage(
        limit,
        (most) => listProviders(sql, { orgId, after, limit: most }),
        ({ name }) => cursorOfName(name),
      );
      const data = records.map((provider) => providerMessage(provider, true));
      return { ...page, data };
    },

    async getOwnProvider({ provider: name }, call) {
      const provider = await ownProvider(sql, name, call);
      return { provider: providerMessage(provider, true) };
    },

    async updateProvider({ provider: name, displayName, contactEmail, regions, dataCollection, homepage }, call) {
      const { orgId } = keyOf(call);
      const changes = {
        ...(displayName !== undefined && { display_name: displayName }),
        ...(contactEmail !== undefined && { contact_email: contactEmail }),
        ...(homepage !== undefined && { homepage }),
        ...(regions.length > 0 && { regions }),
        ...(dataCollection !== undefined && { retains_frames: dataCollection !== "deny" }),
      };
      const provider = await tx(sql, async (tx) => {
        const { id } = await ownProvider(tx, name, call);
        const changed = await updateProvider(tx, id, changes);
        const details = { changed: Object.keys(changes) };
        await audit(tx, { ...byCall(call), orgId, action: "provider.changed", subject: id, details });
        return changed;
      });
      await refresh();
      return { provider: providerMessage(provider, true) };
    },

    async reviewProvider({ provider: name, standing, note }, call) {
      const word = enumWord(ProviderStanding, standing)!; // the schema admits no other
      const provider = await tx(sql, async (tx) => {
        const reviewed = await reviewProvider(tx, name, { standing: word, note });
        if (!reviewed) throw refuse(Reason.NOT_FOUND, `provider ${name} not found`);
        const { id, orgId } = reviewed;
        const details = { provider: name, standing: word, note };
        await emit(tx, orgId, { case: "providerReviewed", value: details });
        await audit(tx, { ...byCall(call), orgId, action: "provider.reviewed", subject: id, details });
        return reviewed;
      });
      await refresh();
      return { provider: providerMessage(provider, true) };
    },

    async setModelOwner({ owner, whose }, call) {
      const orgId = whose.case === "orgId" ? whose.value : undefined;
      await tx(sql, async (tx) => {
        if (orgId !== undefined && !(await findOrg(tx, orgId)))
          throw refuse(Reason.NOT_FOUND, `organization ${orgId} not found`);
        const before = await setOwner(tx, owner, orgId);
        for (const concerned of new Set([before, orgId]))
          if (concerned !== undefined)
            await audit(tx, {
              ...byCall(call),
              orgId: concerned,
              action: "model_owner.set",
              subject: owner,
              details: { org_id: orgId },
            });
      });
      await refresh();
      return { owner, ...(orgId !== undefined && { orgId }) };
    },
  };
}

// Offerings, for the organization that owns them.

type OfferingRpcs = Pick<
  Implementation<typeof SupplyService>,
  | "listOfferings"
  | "getOffering"
  | "getReport"
  | "updateOffering"
  | "pauseOffering"
  | "resumeOffering"
  | "deleteOffering"
>;

/** The RPCs for offerings. */
function offeringRpcs(deps: SupplyDeps): OfferingRpcs {
  const { sql } = deps;
  const moved = async (offeringId: string, call: Call, { from, to, event, action }: Move): Promise<OfferingMessage> => {
    const known = await findOffering(sql, offeringId);
    if (!known || !isOwn(known, call) || known.status === "removed") throw notFound();
    // A repeated request succeeds without a change.
    if (known.status === to) return offeringMessage(known, { terms: true });
    const changed = await tx(sql, async (tx) => {
      const changed = await setOfferingStatus(tx, offeringId, { from, to });
      if (!changed) {
        const text = `the offering is ${known.status}: only an offering that is ${from.join(" or ")} can be ${to === "paused" ? "paused" : "resumed"}`;
        throw refuse(Reason.OFFERING_NOT_LIVE, text);
      }
      if (to === "live") await putOffProbe(tx, offeringId, 0);
      await emit(tx, changed.orgId, { case: event, value: { offeringId } } as EventData); // both have this field
      await audit(tx, { ...byCall(call), orgId: changed.orgId, action, subject: offeringId });
      return changed;
    });
    await deps.refresh();
    return offeringMessage(changed, { terms: true });
  };
  return {
    async listOfferings({ mine = true, provider, model, status, limit = DEFAULT_PAGE, cursor }, call) {
      const { principal } = call;
      const query = {
        orgId: principal.kind === "key" ? principal.orgId : undefined,
        andPublic: !mine,
        provider,
        model,
        status: enumWord(OfferingStatus, status),
        before: cursor,
      };
      const { records, ...page } = await readPage(
        limit,
        (most) => listOfferings(sql, { ...query, limit: most }),
        ({ id }) => id,
      );
      const data = records.map((record) => offeringMessage(record, { terms: isOwn(record, call) }));
      return { ...page, data };
    },

    async getOffering({ offeringId }, call) {
      const record = await findOffering(sql, offeringId);
      if (!record || !(isOwn(record, call) || isPublic(record))) throw notFound();
      return {
        offering: offeringMessage(record, { terms: isOwn(record, call) }),
      };
    },

    async getReport({ offeringId, running = false }, call) {
      const record = await findOffering(sql, offeringId);
      if (!record || !isOwn(record, call)) throw notFound();
      const kept = (running ? await progressOf(sql, offeringId) : undefined) ?? record.report;
      if (!kept) throw refuse(Reason.NOT_FOUND, "the offering was not probed yet; verify it first");
      const report = fromJson(ProbeReportSchema, kept as Parameters<typeof fromJson>[1], {
        ignoreUnknownFields: true,
      });
      return { report };
    },

    async updateOffering(request, call) {
      const known = await findOffering(sql, request.offeringId);
      if (!known || !isOwn(known, call) || known.status === "removed") throw notFound();
      refuseImmutable(request);
      const changes = basisOf(request);
      const changed = await tx(sql, async (tx) => {
        const changed = await updateCostBasis(tx, known.id, changes);
        const { id: subject, orgId } = known;
        const details = { changed: Object.keys(changes) };
        const fields = details.changed.map((name) => (name === "cost_nano_per_second" ? "cost_usd_per_second" : name));
        if (fields.length > 0)
          await emit(tx, orgId, { case: "offeringChanged", value: { offeringId: subject, changed: fields } });
        await audit(tx, { ...byCall(call), orgId, action: "offering.changed", subject, details });
        return changed;
      });
      await deps.refresh();
      return { offering: offeringMessage(changed, { terms: true }) };
    },

    async pauseOffering({ offeringId }, call) {
      return { offering: await moved(offeringId, call, PAUSE) };
    },

    async resumeOffering({ offeringId }, call) {
      return { offering: await moved(offeringId, call, RESUME) };
    },

    async deleteOffering({ offeringId, force = false }, call) {
      const known = await findOffering(sql, offeringId);
      if (!known || !isOwn(known, call) || known.status === "removed") throw notFound();
      const gone = await withdraw(deps, known, { force, by: byCall(call), signal: call.signal });
      return { offering: offeringMessage(gone, { terms: true }) };
    },
  };
}

/** The moves by which an owner pauses and resumes an offering. */
interface Move {
  readonly from: readonly StatusWord[];
  readonly to: "paused" | "live";
  readonly event: "offeringPaused" | "offeringResumed";
  readonly action: string;
}

const PAUSE: Move = {
  from: ["live", "degraded"],
  to: "paused",
  event: "offeringPaused",
  action: "offering.paused",
};
const RESUME: Move = { from: ["paused"], to: "live", event: "offeringResumed", action: "offering.resumed" };

const notFound = () => refuse(Reason.NOT_FOUND, "offering not found");

/** Access for the operator and the organization that declared the offering. */
const isOwn = ({ orgId }: OfferingRecord, { principal }: Call): boolean =>
  principal.kind === "admin" || (principal.kind === "key" && principal.orgId === orgId);

const isPublic = ({ status }: OfferingRecord): boolean => status === "live" || status === "degraded";

const MUTABLE: ReadonlySet<string> = new Set([
  "offeringId",
  "hardware",
  "costUsdPerSecond",
  "scaledownS",
  "timeoutS",
  "coldTimeoutS",
]);

/** Probed fields cannot change. */
function refuseImmutable(request: UpdateOfferingRequest): void {
  const field = UpdateOfferingRequestSchema.fields.find(
    ({ localName }) => !MUTABLE.has(localName) && request[localName as keyof UpdateOfferingRequest] !== undefined,
  );
  if (!field) return;
  const text = `${field.name} was probed and cannot be changed; declare a new offering and verify it`;
  throw refuse(Reason.IMMUTABLE_FIELD, text, {}, { param: field.name });
}

function basisOf({ hardware, costUsdPerSecond, scaledownS, timeoutS, coldTimeoutS }: UpdateOfferingRequest): CostBasis {
  return {
    ...(hardware !== undefined && { hardware: hardwareOf(hardware)?.name ?? hardware }),
    ...(costUsdPerSecond !== undefined && {
      cost_nano_per_second: nanoFromUsd(costUsdPerSecond, 1, "cost_usd_per_second"),
    }),
    ...(scaledownS !== undefined && { scaledown_s: scaledownS }),
    ...(timeoutS !== undefined && { timeout_s: timeoutS }),
    ...(coldTimeoutS !== undefined && { cold_timeout_s: coldTimeoutS }),
  };
}

// Messages of supply.

/** A provider. Only its own organization sees its contact address. */
const providerMessage = (
  { standing, standingNote, reviewedAt, contactEmail, homepage, ...provider }: ProviderRecord,
  own = false,
) => ({
  ...provider,
  standing: enumOf(ProviderStanding, standing),
  reviewedAt: reviewedAt ?? undefined,
  ...(own && {
    standingNote: standingNote || undefined,
    contactEmail: contactEmail ?? undefined,
    homepage: homepage ?? undefined,
  }),
});

/** An offering, with its terms if the caller may see them. */
function offeringMessage(record: OfferingRecord, { terms = false } = {}): OfferingMessage {
  const { input, actions } = record;
  const { priceFrameNano, priceStepNano, priceTokenNano, verifiedAt } = record;
  const { id, model, provider, runtime, actionSpaces, embodiments, precision, region, hardware } = record;
  const { dtMs, parameters, created } = record;
  return create(OfferingSchema, {
    ...{
      id,
      model,
      provider,
      runtime,
      actionSpaces,
      embodiments,
      precision,
      region,
      hardware,
      dtMs,
      parameters,
      created,
    },
    status: enumOf(OfferingStatus, record.status),
    contracts: record.contracts.map((word) => CONTRACT_WORDS[word as keyof typeof CONTRACT_WORDS]), // written from the same table
    ...(priceFrameNano !== null && { pricePerFrame: usdFromNano(priceFrameNano) }),
    ...(priceStepNano !== null && { pricePerActionStep: usdFromNano(priceStepNano) }),
    ...(priceTokenNano !== null && { pricePer1kTokens: usdFromNano(priceTokenNano, 1000) }),
    maxHorizon: mostSteps(record),
    ...(verifiedAt !== null && { verifiedAt }),
    ...(record.checkpoint && {
      checkpoint: create(OfferingCheckpointSchema, {
        digest: record.checkpoint.digest,
        signed: isSignedBy(record, record.makerKeys ?? []),
      }),
    }),
    ...(terms && { terms: termsOf(record) }),
    ...(input && {
      input: fromJson(InputContractSchema, input as Json, { ignoreUnknownFields: true }),
      inputSource: sourceOf(record, "input"),
    }),
    ...(actions && {
      actions: {
        actions: actions.map((each) => fromJson(ActionMeaningSchema, each as Json, { ignoreUnknownFields: true })),
      },
      actionsSource: sourceOf(record, "actions"),
    }),
  });
}

type Json = Parameters<typeof fromJson>[1];

/** Fields that the declaration left out come from the server. */
const sourceOf = ({ undeclared }: OfferingRecord, column: "input" | "actions"): ContractSource =>
  undeclared.includes(column) ? ContractSource.SERVER : ContractSource.DECLARED;

function termsOf(record: OfferingRecord) {
  const { scaledownS, coldTimeoutS, bounds, profile, ownRetention, note, actionDim } = record;
  const advertised = advertisedOf(record);
  return create(OfferingTermsSchema, {
    endpoint: record.endpoint,
    authType: enumOf(ProviderAuthType, record.authType),
    costUsdPerSecond: usdFromNano(record.costNanoPerSecond ?? secondOf(record.hardware)),
    timeoutS: record.timeoutS,
    probeFailures: record.probeFailures,
    ...(scaledownS === null ? { scaledownS: ASSUMED_SCALEDOWN_S, scaledownAssumed: true } : { scaledownS }),
    ...(coldTimeoutS !== null && { coldTimeoutS }),
    ...(bounds && { bounds: fromJson(SafetyBoundsSchema, bounds as Parameters<typeof fromJson>[1]) }),
    ...(advertised && { advertised }),
    ...(ownRetention !== null && { dataCollection: ownRetention ? "allow" : "deny" }),
    ...(profile && { profile: fromJson(WireProfileSchema, profile as Parameters<typeof fromJson>[1]) }),
    ...(note !== "" && { note }),
    ...(actionDim !== null && { actionDim }),
  });
}

/** The advertised values; undefined if there are none. */
function advertisedOf({ p50Ms, p95Ms, unitsPerS, uptime30d }: OfferingRecord) {
  if ([p50Ms, p95Ms, unitsPerS, uptime30d].every((figure) => figure === null)) return undefined;
  return {
    p50Ms: p50Ms ?? undefined,
    p95Ms: p95Ms ?? undefined,
    framesPerS: unitsPerS ?? undefined,
    uptime30d: uptime30d ?? undefined,
  };
}
