/** Offerings as their own organisation looks after them. */

import { create, fromJson } from "@bufbuild/protobuf";
import {
  type Offering as OfferingMessage,
  OfferingStatus,
  ProbeReportSchema,
} from "../../../gen/limber/v1/supply_pb.ts";
import {
  DeleteOfferingResponseSchema,
  GetOfferingResponseSchema,
  GetReportResponseSchema,
  ListOfferingsResponseSchema,
  PauseOfferingResponseSchema,
  ResumeOfferingResponseSchema,
  type SupplyService,
  type UpdateOfferingRequest,
  UpdateOfferingRequestSchema,
  UpdateOfferingResponseSchema,
} from "../../../gen/limber/v1/supply_service_pb.ts";
import { hardwareOf, nanoFromUsd } from "../../billing/price.ts";
import { byCall, type Call, type Implementation } from "../../call.ts";
import { Reason, refuse } from "../../errors.ts";
import { type EventData, emit } from "../../events/emit.ts";
import { audit } from "../../store/account/audit.ts";
import { tx } from "../../store/database/tx.ts";
import {
  type CostBasis,
  listOfferings,
  progressOf,
  putOffProbe,
  updateCostBasis,
} from "../../store/supply/offering-lifecycle.ts";
import {
  findOffering,
  type OfferingRecord,
  type OfferingStatus as StatusWord,
  setOfferingStatus,
} from "../../store/supply/supply.ts";
import type { SupplyDeps } from "../../supply/withdraw.ts";
import { withdraw } from "../../supply/withdraw.ts";
import { DEFAULT_PAGE, readPage } from "../pages.ts";
import { offeringMessage, STATUSES } from "./messages.ts";

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

/** The RPCs on offerings. */
export function offeringRpcs(deps: SupplyDeps): OfferingRpcs {
  const { sql } = deps;
  const moved = async (offeringId: string, call: Call, { from, to, event, action }: Move): Promise<OfferingMessage> => {
    const known = await findOffering(sql, offeringId);
    if (!known || !isOwn(known, call) || known.status === "removed") throw notFound();
    // Asked again it is as it was asked to be.
    if (known.status === to) return offeringMessage(known, { terms: true });
    const changed = await tx(sql, async (tx) => {
      const changed = await setOfferingStatus(tx, offeringId, { from, to });
      if (!changed) {
        const text = `the offering is ${known.status}: only one that is ${from.join(" or ")} can be ${to === "paused" ? "paused" : "resumed"}`;
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
        status: status === undefined || status === OfferingStatus.UNSPECIFIED ? undefined : wordOf(status),
        before: cursor,
      };
      const { records, ...page } = await readPage(
        limit,
        (most) => listOfferings(sql, { ...query, limit: most }),
        ({ id }) => id,
      );
      const data = records.map((record) => offeringMessage(record, { terms: isOwn(record, call) }));
      return create(ListOfferingsResponseSchema, { ...page, data });
    },

    async getOffering({ offeringId }, call) {
      const record = await findOffering(sql, offeringId);
      if (!record || !(isOwn(record, call) || isPublic(record))) throw notFound();
      return create(GetOfferingResponseSchema, {
        offering: offeringMessage(record, { terms: isOwn(record, call) }),
      });
    },

    async getReport({ offeringId, running = false }, call) {
      const record = await findOffering(sql, offeringId);
      if (!record || !isOwn(record, call)) throw notFound();
      const kept = (running ? await progressOf(sql, offeringId) : undefined) ?? record.report;
      if (!kept) throw refuse(Reason.NOT_FOUND, "the offering was not probed yet; verify it");
      const report = fromJson(ProbeReportSchema, kept as Parameters<typeof fromJson>[1], {
        ignoreUnknownFields: true,
      });
      return create(GetReportResponseSchema, { report });
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
      return create(UpdateOfferingResponseSchema, { offering: offeringMessage(changed, { terms: true }) });
    },

    async pauseOffering({ offeringId }, call) {
      return create(PauseOfferingResponseSchema, { offering: await moved(offeringId, call, PAUSE) });
    },

    async resumeOffering({ offeringId }, call) {
      return create(ResumeOfferingResponseSchema, { offering: await moved(offeringId, call, RESUME) });
    },

    async deleteOffering({ offeringId, force = false }, call) {
      const known = await findOffering(sql, offeringId);
      if (!known || !isOwn(known, call) || known.status === "removed") throw notFound();
      const gone = await withdraw(deps, known, { force, by: byCall(call), signal: call.signal });
      return create(DeleteOfferingResponseSchema, { offering: offeringMessage(gone, { terms: true }) });
    },
  };
}

/** How an owner takes an offering out of routing and back. */
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

const notFound = () => refuse(Reason.NOT_FOUND, "there is no offering of this name");

/** The operator's, and the organisation's that declared it. */
const isOwn = ({ orgId }: OfferingRecord, { principal }: Call): boolean =>
  principal.kind === "admin" || (principal.kind === "key" && principal.orgId === orgId);

const isPublic = ({ status }: OfferingRecord): boolean => status === "live" || status === "degraded";

const wordOf = (status: OfferingStatus): StatusWord | undefined =>
  (Object.keys(STATUSES) as StatusWord[]).find((word) => STATUSES[word] === status);

const MUTABLE: ReadonlySet<string> = new Set([
  "offeringId",
  "hardware",
  "costUsdPerSecond",
  "scaledownS",
  "timeoutS",
  "coldTimeoutS",
]);

/** What was probed stays as it was probed. */
function refuseImmutable(request: UpdateOfferingRequest): void {
  const field = UpdateOfferingRequestSchema.fields.find(
    ({ localName }) => !MUTABLE.has(localName) && request[localName as keyof UpdateOfferingRequest] !== undefined,
  );
  if (!field) return;
  const text = `${field.name} is what was probed and never changes; declare the offering again, and verify the new one`;
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
