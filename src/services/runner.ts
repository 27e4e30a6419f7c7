/** External runners: an organization's own programs that run evaluations with a benchmark's harness. */
import { createHash } from "node:crypto";
import { getOption } from "@bufbuild/protobuf";
import { rpc } from "../../gen/limber/edge/v1/options_pb.ts";
import type { Evaluation, EvaluationError } from "../../gen/limber/v1/evaluation_pb.ts";
import { EvaluationService } from "../../gen/limber/v1/evaluation_service_pb.ts";
import type { ReportEpisodeRequest, RunnerService } from "../../gen/limber/v1/runner_service_pb.ts";
import { type Call, type Implementation, type KeyPrincipal, keyOf } from "../call.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import type { Leaser } from "../inference/call-billing.ts";
import type { Termination } from "../scenarios/scenario.ts";
import { type EpisodeScore, isFault, scoresOf } from "../scenarios/scores.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import {
  beginItem,
  Fenced,
  findJob,
  type JobHold,
  type JobRecord,
  listItems,
  type Renewed,
  renew,
  takeOutside,
  turn,
} from "../store/jobs/jobs.ts";
import { shownEvaluation } from "./evaluation.ts";
import {
  callsOf,
  type EpisodeFacts,
  type EvaluationEnd,
  type EvaluationRequest,
  type EvaluationResult,
  endEvaluation,
  openEpisodeBill,
} from "./evaluation-run.ts";
import type { JobSeal, JobSeals } from "./job.ts";
import { denialOf } from "./permissions.ts";

/** Dependencies of the runner RPCs. */
export interface RunnerDeps {
  sql: Sql;
  seals: JobSeals;
  leaser: Leaser;
  /** The key's current principal; undefined if it is disabled or expired. */
  payer(keyId: string): Promise<KeyPrincipal | undefined>;
}

const DEFAULT_LEASE_S = 60;

/** The runner RPCs. Every write proves the claim; nothing is stored for a runner that lost it. */
export function runnerService(deps: RunnerDeps): Implementation<typeof RunnerService> {
  const { sql, seals } = deps;

  const jobOf = async (call: Call, id: string): Promise<JobRecord> => {
    const job = await findJob(sql, keyOf(call), "evaluation", id);
    if (!job) throw refuse(Reason.NOT_FOUND, "evaluation not found", {}, { param: "job_id" });
    return job;
  };
  const shown = async (job: JobRecord): Promise<Evaluation> =>
    shownEvaluation(job, await listItems(sql, job.id, 0, job.total), await seals.of(job));

  return {
    async claimEvaluation({ harness, scenarios: able, leaseS = DEFAULT_LEASE_S }, call) {
      const { orgId, workspaceId, keyId } = keyOf(call);
      const hold = await takeOutside(sql, { orgId, workspaceId, keyId, name: harness, scenarios: able, leaseS });
      if (!hold) return {};
      const { until } = await claimed(renew(sql, hold));
      const job = await jobOf(call, hold.id);
      const { seed, horizon = 0, replanSteps = 0, policyTimeoutMs } = job.request as EvaluationRequest;
      const items = await listItems(sql, job.id, 0, job.total);
      const open = items.filter(({ response }) => !response).map(({ index }) => index);
      const evaluation = shownEvaluation(job, items, await seals.of(job));
      const rules = { seed, horizon, replanSteps, policyTimeoutMs };
      return {
        claim: { epoch: hold.epoch, leaseUntil: until, leaseS, evaluation, openEpisodes: open, ...rules },
      };
    },

    async renewClaim({ jobId, epoch }, call) {
      const job = await jobOf(call, jobId);
      const renewed = await claimed(renew(sql, holdOf(job, epoch, call)));
      return { leaseUntil: renewed.until, stop: shallStop(renewed) };
    },

    async reportEpisode(report, call) {
      const job = await jobOf(call, report.jobId);
      const hold = holdOf(job, report.epoch, call);
      const { index = 0 } = report; // the schema requires it
      if (index >= job.total)
        throw violation("index", `must be below ${job.total}, the number of episodes, got ${index}`, "less_than");
      const renewed = await claimed(renew(sql, hold));
      const facts = factsOf(report, job);
      const seal = await seals.of(job);
      const [known] = await listItems(sql, job.id, index, 1);
      if (known?.response) refuseAnother(seal.item(known).response as EpisodeFacts, facts);
      else await keep(deps, { job, seal, hold, index }, facts);
      const { progress } = await shown(await jobOf(call, job.id));
      return {
        leaseUntil: renewed.until,
        stop: shallStop(renewed),
        ...(progress && { progress }),
      };
    },

    async finishEvaluation({ jobId, epoch, error }, call) {
      const job = await jobOf(call, jobId);
      const hold = holdOf(job, epoch, call);
      const renewed = await claimed(renew(sql, hold));
      const seal = await seals.of(job);
      const items = (await listItems(sql, job.id, 0, job.total)).map((item) => seal.item(item));
      const missing = items.filter(({ response }) => !response).length;
      if (missing > 0 && !error && !shallStop(renewed)) {
        const text = `${missing} of ${job.total} episodes were not reported; report them, or set error to the reason`;
        throw refuse(Reason.EPISODES_MISSING, text);
      }
      const episodes = items.flatMap(({ response }) => (response ? [response as EpisodeScore & EpisodeFacts] : []));
      const status = statusOf(renewed, missing, episodes, error);
      const result = resultOf(job, status, episodes, error);
      await claimed(endEvaluation(sql, { ...hold, orgId: job.orgId }, status, result, seal));
      return { evaluation: await shown(await jobOf(call, jobId)) };
    },
  };
}

/** The claim that every write proves: the key that claimed the evaluation, and its epoch. */
const holdOf = ({ id }: JobRecord, epoch: number, call: Call): JobHold => ({ id, owner: keyOf(call).keyId, epoch });

const shallStop = ({ cancelled, expired }: Renewed): boolean => cancelled || expired;

/** Runs an operation of the holder. Refuses a runner that no longer holds the claim. */
const claimed = <T>(work: Promise<T>): Promise<T> =>
  work.catch((thrown: unknown) => {
    if (!(thrown instanceof Fenced)) throw thrown;
    const text = "this claim no longer holds the evaluation: it expired, or the evaluation has ended";
    throw refuse(Reason.CLAIM_LOST, text, {}, { param: "epoch" });
  });

/** Charges a completed episode and records it. A crash in between does not charge it twice. */
async function keep(
  { sql, leaser, payer }: RunnerDeps,
  { job, seal, hold, index }: { job: JobRecord; seal: JobSeal; hold: JobHold; index: number },
  facts: EpisodeFacts,
): Promise<void> {
  const fault = isFault(facts as EpisodeScore);
  let costMicro = 0;
  if (!fault) {
    const key = await payer(job.keyId);
    if (!key || denialOf(key, getOption(EvaluationService.method.evaluate, rpc)))
      throw refuse(Reason.PERMISSION_DENIED, "the key that requested this evaluation can no longer run evaluations");
    const owner = { payer: key, jobId: job.id, index };
    costMicro = await (await openEpisodeBill({ sql, leaser }, owner, job.request as EvaluationRequest)).charge();
  }
  await claimed(
    tx(sql, async (tx) => {
      const state = fault ? "failed" : "completed";
      if (await beginItem(tx, hold, index))
        await turn(tx, hold, { ended: [seal.end({ index, state, response: facts, costMicro })] });
    }),
  );
}

/** A reported episode, in the format of the gateway's own episodes. */
function factsOf(report: ReportEpisodeRequest, job: JobRecord): EpisodeFacts {
  const success = report.termination === "success";
  return {
    seed: ((job.request as EvaluationRequest).seed + (report.index ?? 0)) >>> 0,
    success,
    termination: report.termination as Termination, // the schema lists its words
    ...(report.error !== undefined && { error: report.error }),
    return: report.return,
    progress: report.progress ?? (success ? 1 : 0),
    steps: report.steps,
    simTimeS: report.simTimeS,
    policyCalls: report.latenciesMs.length,
    latenciesMs: report.latenciesMs,
    metrics: report.metrics,
    clippedSteps: 0,
    staleSteps: 0,
    meanActionDelta: 0,
    policyMicro: 0,
    wallMs: 0,
    initialStateSha256: report.initialStateSha256 ?? "",
    trajectorySha256: report.trajectorySha256 ?? "",
  };
}

function refuseAnother(known: EpisodeFacts, { termination, steps, trajectorySha256, ...facts }: EpisodeFacts): void {
  const same =
    known.termination === termination &&
    known.steps === steps &&
    known.return === facts.return &&
    known.trajectorySha256 === trajectorySha256;
  if (!same) throw refuse(Reason.EPISODE_REPORTED, "this episode was already reported with another result");
}

function statusOf(
  { cancelled, expired }: Renewed,
  missing: number,
  episodes: readonly EpisodeScore[],
  error: EvaluationError | undefined,
): EvaluationEnd {
  if (cancelled) return "cancelled";
  if (expired && missing > 0) return "expired";
  return error || episodes.every(isFault) ? "failed" : "completed";
}

function resultOf(
  job: JobRecord,
  status: EvaluationEnd,
  episodes: readonly (EpisodeScore & EpisodeFacts)[],
  error: EvaluationError | undefined,
): EvaluationResult {
  const { harness } = (job.result ?? {}) as EvaluationResult;
  const hash = createHash("sha256");
  for (const { seed, trajectorySha256 } of episodes) hash.update(`${seed} ${trajectorySha256}`);
  const [first] = episodes;
  const failure = error
    ? { code: error.code, message: error.message }
    : { code: first?.termination ?? "policy_error", message: first?.error ?? "" };
  return {
    ...(episodes.length > 0 && { scores: scoresOf(episodes) }),
    calls: callsOf(episodes),
    ...(episodes.length > 0 &&
      episodes.every((each) => each.trajectorySha256) && { hash: `sha256:${hash.digest("hex")}` }),
    ...(harness !== undefined && { harness }),
    ...(status === "failed" && { error: failure }),
  };
}
