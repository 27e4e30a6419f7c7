/** What a probe makes of an offering, whether its owner asked for it or its time had come. */

import { toJson } from "@bufbuild/protobuf";
import { type ProbeReport, ProbeReportSchema } from "../../../gen/limber/v1/supply_pb.ts";
import { sleep } from "../../clock.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { Reason, refuse } from "../../errors.ts";
import { type EventData, emit } from "../../events/emit.ts";
import { audit } from "../../store/account/audit.ts";
import { type Tx, tx } from "../../store/database/tx.ts";
import { notedAwake } from "../../store/replicas/awake-offerings.ts";
import { endProgress, noteBusyProbe, settleProbe, tellProgress } from "../../store/supply/offering-lifecycle.ts";
import {
  claimModel,
  claimOwner,
  type OfferingRecord,
  type OfferingStatus,
  setOfferingStatus,
} from "../../store/supply/supply.ts";
import type { SupplyDeps } from "../deps.ts";
import { liveOffering } from "../facts.ts";
import { kindOf } from "../public-models.ts";
import { described } from "./describe.ts";
import { probe } from "./probe.ts";

/** States in which an offering can be probed. */
export const PROBEABLE = ["pending", "verifying", "live", "degraded", "suspended"] as const;

/** So many failures in a row suspend an offering that was live. */
const FAILURES_TO_SUSPEND = 3;
/** How long a server that dials the gateway is waited for, where its owner asks, and how often it is looked for, in milliseconds. */
const DIAL_MS = 6_000;
const LOOK_MS = 50;
/** So many probes in a row that an offering had no time for, with no call that it answered in the last minutes, are a failure. */
const BUSY_TO_FAIL = 3;
const SERVED_WITHIN_MIN = 30;
/** After a failure it is probed again this soon. */
const RETRY_S = 60;

/** Who asked for a probe: by name for the record, and whether one failure is enough to suspend. */
export interface Asker {
  actor: string;
  requestId?: string | undefined;
  /** Its owner wants to know, so that it is not left to serve when it fails. */
  owner: boolean;
}

/**
 * Probes an offering and moves it to where the report says. Undefined when it was withdrawn meanwhile. Throws where it could not
 * be probed: its wire is not spoken here, or it is busy and its owner did not ask.
 */
export async function verify(
  deps: SupplyDeps,
  declared: OfferingRecord,
  asker: Asker,
): Promise<{ offering: OfferingRecord; report: ProbeReport } | undefined> {
  const { known, publish } = await described(deps, declared, liveOffering(declared, undefined, deps).target);
  const { offering, target, bounds } = liveOffering(known, undefined, deps);
  const wire = deps.upstream.wireOf(known.runtime);
  if (!wire) throw refuse(Reason.OFFERING_NOT_VERIFIABLE, `the runtime ${known.runtime} is not spoken here any more`);
  const isAway = (): boolean => wire.isHere?.(target) === false;
  // A server that dials was refused for as long as its provider was not registered, and tries again from time to time.
  for (let waitedMs = 0; asker.owner && isAway() && waitedMs < DIAL_MS; waitedMs += LOOK_MS) await sleep(LOOK_MS);
  if (!asker.owner && isAway()) throw new UpstreamFailure(AttemptFailure.UNREACHABLE, "it has not dialled the gateway");
  const { report, busy } = await probe(
    { ...deps, native: deps.upstream.native, addressOf: deps.upstream.addressOf },
    { offering, target, wire, bounds, record: known },
    // Who waits for it looks on; what the probe finds does not depend on that.
    (soFar) => tellProgress(deps.sql, known.id, toJson(ProbeReportSchema, soFar) as object).catch(() => {}), // a message is an object
  ).finally(() => endProgress(deps.sql, known.id).catch(() => {}));
  // A server that serves somebody may be full at each probe. One that is full while it serves nobody does not work.
  if (busy && !report.passed && !asker.owner)
    if ((await noteBusyProbe(deps.sql, known.id, SERVED_WITHIN_MIN)) < BUSY_TO_FAIL)
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "busy with calls");
  // Nothing is taken from calls, and nothing rejected, because a server had no time for a probe.
  if (busy && !report.passed && asker.owner) {
    await setOfferingStatus(deps.sql, known.id, { from: ["verifying"], to: "pending" });
    const text = "the server was busy with calls, so that nothing was found out; verify it again when it is free";
    throw refuse(Reason.OFFERING_NOT_VERIFIABLE, text);
  }
  const failures = report.passed ? 0 : known.probeFailures + 1;
  const to = nextStatus(known.status, report.passed, asker.owner ? FAILURES_TO_SUSPEND : failures);
  const moved = await tx(deps.sql, async (tx) => {
    const moved = await settleProbe(tx, known.id, {
      from: PROBEABLE,
      to,
      failures,
      report: toJson(ProbeReportSchema, report) as object, // a message is an object
      chunkSteps: report.passed ? (report.measured?.chunkSteps ?? null) : undefined,
      dueInS: to === "rejected" ? undefined : report.passed ? deps.probeEveryS : RETRY_S,
    });
    if (moved?.status === "live") await claimOwner(tx, moved.model, moved.orgId);
    if (moved?.status === "live" && known.status !== "live") await claimModel(tx, moved, kindOf(moved));
    // Who calls it next finds it awake, and pays for no cold start.
    if (moved && report.passed && offering.scaledownS !== undefined)
      await notedAwake(tx, { offeringId: known.id, warmMs: offering.scaledownS * 1000 });
    if (moved) await tell(tx, { before: known.status, after: moved, report, asker });
    return moved;
  });
  if (!moved) return undefined;
  if (report.passed) await publish();
  if (moved.status !== known.status || moved.chunkSteps !== known.chunkSteps) await deps.refresh();
  return { offering: moved, report };
}

/** An offering that was never live is rejected at once; one that was is given another chance. */
function nextStatus(before: OfferingStatus, passed: boolean, failures: number): OfferingStatus {
  if (passed) return "live";
  if (before === "pending" || before === "verifying") return "rejected";
  return failures >= FAILURES_TO_SUSPEND || before === "suspended" ? "suspended" : "degraded";
}

const STATUS_EVENTS: Readonly<Partial<Record<OfferingStatus, { event: EventData["case"]; action: string }>>> = {
  live: { event: "offeringVerified", action: "offering.verified" },
  rejected: { event: "offeringRejected", action: "offering.rejected" },
  degraded: { event: "offeringDegraded", action: "offering.degraded" },
  suspended: { event: "offeringSuspended", action: "offering.suspended" },
};

async function tell(
  tx: Tx,
  {
    before,
    after,
    report,
    asker,
  }: { before: OfferingStatus; after: OfferingRecord; report: ProbeReport; asker: Asker },
): Promise<void> {
  const statusEvent = STATUS_EVENTS[after.status];
  // What the schedule finds as it was is no news.
  if (!statusEvent || (after.status === before && !asker.owner)) return;
  const value = { offeringId: after.id, reportId: report.id };
  await emit(tx, after.orgId, { case: statusEvent.event, value } as EventData); // all of them have these fields
  const { actor, requestId } = asker;
  const details = { report_id: report.id };
  await audit(tx, { orgId: after.orgId, actor, requestId, action: statusEvent.action, subject: after.id, details });
}
