/** Verifies offerings: runs the conformance probe over their own wire, on request and on schedule, and records the result. */
import { create, type DescMessage, type MessageShape, toBinary, toJson } from "@bufbuild/protobuf";
import { createValidator } from "@bufbuild/protovalidate";
import type { ServedModel } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { ActionMeaningSchema, InputContractSchema } from "../../../gen/limber/v1/input_contract_pb.ts";
import {
  ProbeCheckSchema,
  ProbeMeasurementsSchema,
  type ProbeReport,
  ProbeReportSchema,
} from "../../../gen/limber/v1/supply_pb.ts";
import { Cancel } from "../../cancellation.ts";
import { every, nowSeconds, sleep } from "../../clock.ts";
import { AttemptFailure, Contract, dimensionOf, EMBODIMENTS, UpstreamFailure } from "../../contracts/contract.ts";
import { inputDeclarationFault, MOST_INPUT_BYTES } from "../../contracts/inputs.ts";
import { Reason, refuse } from "../../errors.ts";
import { type EventData, emit } from "../../events/emit.ts";
import { newId } from "../../ids.ts";
import { audit } from "../../store/account/audit.ts";
import { type Tx, tx } from "../../store/database/tx.ts";
import { notedAwake } from "../../store/replicas/replicas.ts";
import {
  claimModel,
  claimOwner,
  type Described,
  endProgress,
  fillModel,
  fillOffering,
  noteBusyProbe,
  type OfferingRecord,
  type OfferingStatus,
  putOffProbe,
  setOfferingStatus,
  settleProbe,
  storeProbeProgress,
  takeProbe,
} from "../../store/supply/supply.ts";
import type { UpstreamTarget } from "../../upstream/wire.ts";
import { liveOffering } from "../facts.ts";
import { kindOf } from "../live-supply.ts";
import { removeDrained, type SupplyDeps } from "../withdraw.ts";
import { probeAct, probeGround, probePredict } from "./checks.ts";
import { type ProbeDeps, type Probed, ProbeFault, ProbeRun } from "./run.ts";

/** States in which an offering can be probed. */
export const PROBEABLE = ["pending", "verifying", "live", "degraded", "suspended"] as const;

/** Number of consecutive failures that suspend a live offering. */
const FAILURES_TO_SUSPEND = 3;
/**
 * How long the probe waits for a server that dials the gateway, if its owner requested the probe, and the poll interval; in milliseconds.
 */
const DIAL_MS = 6_000;
const LOOK_MS = 50;
/** Number of consecutive probes without time for an offering that, without any recent response to a call, count as a failure. */
const BUSY_TO_FAIL = 3;
const SERVED_WITHIN_MIN = 30;
/** Delay of the next probe after a failure. */
const RETRY_S = 60;

/** The initiator of a probe: the name for the record, and whether one failure is enough to suspend. */
interface Asker {
  actor: string;
  requestId?: string | undefined;
  /** Its owner requested the probe, so a failure suspends the offering at once. */
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
  if (!wire) throw refuse(Reason.OFFERING_NOT_VERIFIABLE, `the runtime ${known.runtime} is no longer supported`);
  const isAway = (): boolean => wire.isHere?.(target) === false;
  // A server that dials was refused until its provider was registered, and retries from time to time.
  for (let waitedMs = 0; asker.owner && isAway() && waitedMs < DIAL_MS; waitedMs += LOOK_MS) await sleep(LOOK_MS);
  if (!asker.owner && isAway())
    throw new UpstreamFailure(AttemptFailure.UNREACHABLE, "the server is not connected to the gateway");
  const { report, busy } = await probe(
    { ...deps, native: deps.upstream.native, addressOf: deps.upstream.addressOf },
    { offering, target, wire, bounds, record: known },
    // Only the waiting client follows the progress; the result does not depend on it.
    (soFar) => storeProbeProgress(deps.sql, known.id, toJson(ProbeReportSchema, soFar) as object).catch(() => {}), // a message is an object
  ).finally(() => endProgress(deps.sql, known.id).catch(() => {}));
  // A server that serves calls may be full at every probe. One that is full without serving calls does not work.
  if (busy && !report.passed && !asker.owner)
    if ((await noteBusyProbe(deps.sql, known.id, SERVED_WITHIN_MIN)) < BUSY_TO_FAIL)
      throw new UpstreamFailure(AttemptFailure.UPSTREAM_BUSY, "busy with calls");
  // A server without time for a probe is neither withdrawn from calls nor rejected.
  if (busy && !report.passed && asker.owner) {
    await setOfferingStatus(deps.sql, known.id, { from: ["verifying"], to: "pending" });
    const text = "the server was busy with calls, so the probe is inconclusive; verify again when it is idle";
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
    // The next caller finds it warm and pays for no cold start.
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

/** An offering that was never live is rejected at once; a live one gets another chance. */
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
  // An unchanged result of a scheduled probe is not announced.
  if (!statusEvent || (after.status === before && !asker.owner)) return;
  const value = { offeringId: after.id, reportId: report.id };
  await emit(tx, after.orgId, { case: statusEvent.event, value } as EventData); // all of them have these fields
  const { actor, requestId } = asker;
  const details = { report_id: report.id };
  await audit(tx, { orgId: after.orgId, actor, requestId, action: statusEvent.action, subject: after.id, details });
}

export type { ProbeDeps, Probed } from "./run.ts";

/** The outcome of a probe. */
interface Finding {
  report: ProbeReport;
  /** The server had no time for all checks, which proves nothing about its abilities. */
  busy: boolean;
}

/**
 * Runs every check of an offering in order; checks that depend on a failed one are skipped. `tell` receives the report so far: at the
 * start, and after each check.
 */
export async function probe(
  deps: ProbeDeps,
  probed: Probed,
  tell: (soFar: ProbeReport) => Promise<void> = async () => {},
): Promise<Finding> {
  const { declared } = probed.offering;
  const report = create(ProbeReportSchema, {
    id: newId("rep"),
    offeringId: probed.offering.id,
    startedAt: nowSeconds(),
    measured: {},
    ...(declared?.input && { input: declared.input }),
    ...(declared && declared.actions.length > 0 && { actions: { actions: [...declared.actions] } }),
  });
  await tell(report);
  const run = new ProbeRun(deps, probed, (check) => {
    report.checks.push(create(ProbeCheckSchema, check));
    return tell(report);
  });
  const reachable = await run.check("reachable", async () => {
    await probed.wire.health(probed.target, run.call());
    return "it answers";
  });
  if (reachable) await wireChecks(run);
  if (reachable) await run.check("region", () => region(probed), probed.record.providerRegions.length > 0);
  if (reachable)
    for (const contract of probed.offering.contracts) await askContract(run, contract, probed.record.maxHorizon);
  report.passed = report.checks.length > 0 && report.checks.every((check) => check.passed || !check.required);
  report.measured = create(ProbeMeasurementsSchema, run.measured());
  if (run.address !== undefined) report.address = run.address;
  report.finishedAt = nowSeconds();
  return { report, busy: run.busy };
}

/** Checks that the offering declares a region in which its provider runs models. */
async function region({ record }: Probed): Promise<string> {
  const { region, providerRegions } = record;
  if (region === "") throw new ProbeFault("no region is declared, so requests that name one never reach the offering");
  if (providerRegions.length > 0 && !providerRegions.includes(region))
    throw new ProbeFault(`${region} is not one of the provider's regions (${providerRegions.join(", ")})`);
  return region;
}

/** The checks that only the wire can make. */
async function wireChecks(run: ProbeRun): Promise<void> {
  const { wire, target, offering } = run.probed;
  const actionDim = dimensionOf(offering.actionSpaces[0] ?? "", offering.actionDim);
  for (const { name, look, required } of wire.probes ?? []) {
    await run.check(name, () => look({ ...target, actionDim }, run.call()), required);
  }
}

/** The requests of a probe for this contract. */
async function askContract(run: ProbeRun, contract: Contract, maxHorizon: number): Promise<void> {
  if (contract === Contract.ACT) await probeAct(run, maxHorizon);
  else if (contract === Contract.PREDICT) await probePredict(run);
  else if (contract === Contract.GROUND) await probeGround(run);
  else await run.check("contract", () => Promise.reject(new Error("this contract cannot be served over a wire yet")));
}

/** Maximum milliseconds for a server to describe itself. */
const BUDGET_MS = 10_000;
const MOST = { dtMs: 60_000, horizon: 256, words: 16, letters: 512 } as const;
const PARAMETERS: ReadonlySet<string> = new Set([
  ...["seed", "temperature", "goal_image", "return_prediction", "actions", "fps", "resolution", "num_samples"],
]);

/** A server's description of one offering, as far as it is credible. */
interface Description {
  /** The offering, completed with fields that its declaration left out. */
  readonly known: OfferingRecord;
  /** Stores the description of a model that had none. Call it when the probe passed. */
  publish(): Promise<void>;
}

/**
 * Requests a server's description for an offering that was never live, to complete its declaration. If the server is not asked, does not
 * respond or does not describe this model, the offering stays unchanged: the probe reports the server's problems.
 */
async function described(
  { sql, upstream }: SupplyDeps,
  known: OfferingRecord,
  target: UpstreamTarget,
): Promise<Description> {
  const silent = { known, publish: async () => {} };
  const isNew = known.status === "pending" || known.status === "verifying";
  if (known.runtime !== upstream.native.id || !isNew) return silent;
  const call = { signal: new Cancel(), budgetMs: BUDGET_MS, requestId: newId("req") };
  const models = await upstream.native.describe(target, call).catch(() => []);
  const model = models.find(({ slug }) => slug === known.model) ?? (models.length === 1 ? models[0] : undefined);
  if (model === undefined || (model.slug !== "" && model.slug !== known.model)) return silent;
  const said = { ...wordsOf(model), ...inputOf(model, known) };
  const wanted = Object.fromEntries(Object.entries(said).filter(([name]) => known.undeclared.includes(name)));
  const filled = Object.keys(wanted).length === 0 ? undefined : await fillOffering(sql, known.id, wanted);
  const words = { summary: sentenceOf(model.summary), limits: sentenceOf(model.limits) };
  return {
    known: filled ?? known,
    async publish() {
      if (words.summary !== "" || words.limits !== "") await fillModel(sql, known, words);
    },
  };
}

/** The usable part of a description: a server is not trusted to follow the rules for declarations. */
function wordsOf({ dtMs, maxHorizon, embodiments, parameters }: ServedModel): Described {
  const bodies = embodiments.filter((word) => Object.hasOwn(EMBODIMENTS, word)).slice(0, MOST.words);
  const honored = [...new Set(parameters)].filter((word) => PARAMETERS.has(word));
  return {
    ...(dtMs > 0 && dtMs <= MOST.dtMs && { dt_ms: dtMs }),
    ...(maxHorizon > 0 && maxHorizon <= MOST.horizon && { max_horizon: maxHorizon }),
    ...(bodies.length > 0 && { embodiments: bodies }),
    ...(honored.length > 0 && { parameters: honored }),
  };
}

const validator = createValidator({ regexMatch: (pattern, against) => new RegExp(pattern, "u").test(against) });

const isSound = <D extends DescMessage>(schema: D, message: MessageShape<D>): boolean =>
  validator.validate(schema, message).kind === "valid" && toBinary(schema, message).length <= MOST_INPUT_BYTES;

/** The declared inputs and action meanings, as far as they can be true of the offering. */
function inputOf({ input, actions }: ServedModel, { actionSpaces, actionDim }: OfferingRecord): Described {
  const dimOf = (space: string): number | undefined => dimensionOf(space, actionDim ?? undefined);
  const fits = (said: Pick<Parameters<typeof inputDeclarationFault>[0], "input" | "actions">): boolean =>
    inputDeclarationFault({ ...said, actionSpaces, dimOf }) === undefined;
  const emitted = actions.filter(({ actionSpace }) => !actionSpace || actionSpaces.includes(actionSpace));
  const reads = input && {
    ...input,
    proprio: input.proprio.filter(({ actionSpace }) => !actionSpace || actionSpaces.includes(actionSpace)),
  };
  const bytes = emitted.reduce((sum, each) => sum + toBinary(ActionMeaningSchema, each).length, 0);
  const means = emitted.every((each) => isSound(ActionMeaningSchema, each)) && bytes <= MOST_INPUT_BYTES;
  return {
    ...(reads &&
      isSound(InputContractSchema, reads) &&
      fits({ input: reads, actions: [] }) && { input: toJson(InputContractSchema, reads) as object }), // a message is an object
    ...(emitted.length > 0 &&
      means &&
      fits({ input: undefined, actions: emitted }) && {
        actions: emitted.map((each) => toJson(ActionMeaningSchema, each) as object), // a message is an object
      }),
  };
}

/** A sentence or two on one line. */
const sentenceOf = (text: string): string =>
  text
    .replaceAll(/[\p{Cc}\p{Cf}\s]+/gu, " ")
    .trim()
    .slice(0, MOST.letters);

const SCHEDULE_MS = 10_000;
/** No probe takes this long; another worker takes over a lost one. */
const LEASE_S = 900;
const PUT_OFF_S = 300;
/** Probes per pass, so that they never crowd out calls. */
const MOST_AT_ONCE = 8;

/** Probes the due offerings one after the other and returns their number. */
export async function probeDue(deps: SupplyDeps, warn: (text: string) => void): Promise<number> {
  for (let count = 0; count < MOST_AT_ONCE; count++) {
    const known = await takeProbe(deps.sql, LEASE_S);
    if (!known) return count;
    await verify(deps, known, { actor: "system", owner: false }).catch(async () => {
      warn(`failed to probe offering ${known.id}`);
      await putOffProbe(deps.sql, known.id, PUT_OFF_S);
    });
  }
  return MOST_AT_ONCE;
}

/** Checks every 10 s for due probes and drained offerings; the returned function stops it. */
export function keepProbing(deps: SupplyDeps, warn: (text: string) => void): () => Promise<void> {
  let running: Promise<unknown> | undefined;
  const look = async (): Promise<void> => {
    await removeDrained(deps.sql);
    await probeDue(deps, warn);
  };
  const stop = every(SCHEDULE_MS, () => {
    running ??= look()
      .catch(() => warn("failed to read the schedule of probes"))
      .finally(() => {
        running = undefined;
      });
  });
  return async () => {
    stop();
    await running;
  };
}
