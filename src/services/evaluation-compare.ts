/** Comparisons: an evaluation of each policy on equal seeds, and what their pairs show. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { create, type JsonObject } from "@bufbuild/protobuf";
import {
  ComparisonMetric,
  type ComparisonSchema,
  type Evaluation,
  EvaluationMode,
} from "../../gen/limber/v1/evaluation_pb.ts";
import {
  type CompareEvaluationsRequest,
  EvaluateRequestSchema,
  type EvaluationService,
  type PolicyToCompare,
} from "../../gen/limber/v1/evaluation_service_pb.ts";
import { JobStatus } from "../../gen/limber/v1/job_pb.ts";
import { byCall, type Call, type Implementation, keyOf } from "../call.ts";
import { violation } from "../contracts/contract.ts";
import { atPart, Reason, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import { newId } from "../ids.ts";
import { random } from "../random.ts";
import { type Metric, type Outcome, type Pair, pairOf, seedsNeeded } from "../scenarios/paired.ts";
import { breathe } from "../slices.ts";
import { audit } from "../store/account/audit.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import type { ItemRecord, JobRecord } from "../store/jobs/jobs.ts";
import * as store from "../store/jobs/jobs.ts";
import {
  assertAffordable,
  draftOf,
  type EvaluationServiceDeps,
  estimateOf,
  newEvaluation,
  requestOf,
  saidOf,
  shownEvaluation,
} from "./evaluation.ts";
import type { ComparisonPlace, EpisodeFacts, EvaluationRequest } from "./evaluation-run.ts";
import type { JobSeals } from "./job.ts";

/** The methods of this file; `evaluation.ts` has the others. */
type Comparisons = Pick<
  Implementation<typeof EvaluationService>,
  "compareEvaluations" | "getComparison" | "cancelComparison"
>;

/** Episodes of all policies. */
const MOST_EPISODES = 10_000;
/** The chance of any error among all pairs of a comparison. */
const ALPHA = 0.05;

/** The comparison RPCs. */
export function comparisonService(deps: EvaluationServiceDeps): Comparisons {
  const { sql, seals } = deps;

  const jobsOf = async (call: Call, id: string): Promise<JobRecord[]> => {
    const jobs = await store.jobsOfComparison(sql, keyOf(call), id);
    if (jobs.length === 0) throw refuse(Reason.NOT_FOUND, "comparison not found", {}, { param: "comparison_id" });
    return jobs;
  };
  const shown = async (jobs: readonly JobRecord[]) => shownComparison(await entriesOf(sql, seals, jobs));

  return {
    async compareEvaluations(asked, call) {
      const requests = await requestsOf(deps, asked, call);
      if (asked.dryRun) {
        const comparison = await shown(requests.map((request) => draftOf(request, keyOf(call))));
        return { comparison: { ...comparison, id: "" } };
      }
      const said = requests
        .map(saidOf)
        .map(({ comparison, ...rest }: { comparison?: ComparisonPlace }) => [
          rest,
          { ...comparison, id: "", label: "" },
        ]);
      const idempotency = seals.idempotent(keyOf(call), asked.idempotencyKey, said);
      if (!idempotency || (await store.jobOfKey(sql, keyOf(call), idempotency)) === undefined)
        await assertAffordable(deps, requests, call);
      const id = await tx(sql, async (tx) => {
        let isKnown = false;
        const jobs = requests.map((request, i) => newEvaluation(deps, request, asked.policies[i]?.auth?.secret, call));
        const first = await store.createJob(tx, {
          ...jobs[0]!,
          idempotency,
          known: () => {
            isKnown = true;
            call.replayed?.();
          },
        });
        if (isKnown) return (await store.findJob(tx, keyOf(call), "evaluation", first))?.comparison;
        for (const job of jobs.slice(1)) await store.createJob(tx, job);
        return requests[0]?.comparison?.id;
      });
      return { comparison: await shown(await jobsOf(call, id ?? "")) };
    },

    async getComparison({ comparisonId }, call) {
      const jobs = await jobsOf(call, comparisonId);
      const comparison = await shown(jobs);
      // With zero data retention, this read was the only one.
      if (jobs.every(({ status }) => store.hasEnded(status))) for (const job of jobs) await seals.fetched(job);
      return { comparison };
    },

    async cancelComparison({ comparisonId }, call) {
      const { orgId } = keyOf(call);
      const jobs = await jobsOf(call, comparisonId);
      if (jobs.every(({ status }) => store.hasEnded(status)))
        throw refuse(Reason.JOB_FINISHED, "this comparison has already ended");
      await tx(sql, async (tx) => {
        for (const { id: jobId } of jobs) {
          if ((await store.cancelJob(tx, keyOf(call), "evaluation", jobId)) !== "cancelled") continue;
          const happening = { case: "evaluationCancelled", value: { jobId } } as const;
          await emit(tx, orgId, happening, await store.workspaceOf(tx, jobId));
        }
        await audit(tx, { ...byCall(call), orgId, action: "comparison.cancelled", subject: comparisonId });
      });
      return { comparison: await shown(await jobsOf(call, comparisonId)) };
    },
  };
}

/** The evaluations of a comparison, each with its place. Refusals name the policy. */
async function requestsOf(
  deps: EvaluationServiceDeps,
  asked: CompareEvaluationsRequest,
  call: Call,
): Promise<EvaluationRequest[]> {
  const { policies, episodes, blind, stopWhenKnown } = asked;
  const most = Math.floor(MOST_EPISODES / policies.length);
  if (episodes > most) {
    const text = `must be at most ${most} for ${policies.length} policies, got ${episodes}`;
    throw violation("episodes", text, "less_than_equal");
  }
  const metric: Metric = asked.metric === ComparisonMetric.PROGRESS ? "progress" : "success";
  const id = newId("cmp");
  const labels = labelsOf(policies.length, blind);
  const requests: EvaluationRequest[] = [];
  for (const [i, policy] of policies.entries()) {
    const place = { id, label: labels[i]!, policies: policies.length, metric, blind, stopWhenKnown };
    const request = await requestOf(deps, evaluationOf(asked, policy), call).catch((thrown: unknown) => {
      throw atPolicy(thrown, i);
    });
    requests.push({ ...request, comparison: place });
  }
  return requests;
}

/** One label per policy; in a random order if the comparison is blind. */
function labelsOf(count: number, blind: boolean): string[] {
  const labels = Array.from({ length: count }, (_, i) => String.fromCharCode(65 + i));
  if (!blind) return labels;
  const keys = labels.map(() => random());
  return labels.toSorted((a, b) => keys[a.charCodeAt(0) - 65]! - keys[b.charCodeAt(0) - 65]!);
}

/** One policy's evaluation. */
function evaluationOf(asked: CompareEvaluationsRequest, policy: PolicyToCompare) {
  const { scenario, episodes, seed, actionSpace, mode, policyTimeoutMs, media, mediaEpisodes, pictures } = asked;
  const { wallBudgetS, stopAfterFaults, parallelEpisodes, maxCallsUsd, metadata } = asked;
  const { policyEndpoint, horizon, replanSteps, runtime, profile, auth, cameraMap, stateMap } = policy;
  return create(EvaluateRequestSchema, {
    ...{ policyEndpoint, scenario, episodes, mode, media, mediaEpisodes, cameraMap, stateMap },
    ...(pictures !== undefined && { pictures }),
    ...(seed !== undefined && { seed }),
    ...(actionSpace !== undefined && { actionSpace }),
    ...(policyTimeoutMs !== undefined && { policyTimeoutMs }),
    ...(wallBudgetS !== undefined && { wallBudgetS }),
    ...(stopAfterFaults !== undefined && { stopAfterFaults }),
    ...(parallelEpisodes !== undefined && { parallelEpisodes }),
    ...(maxCallsUsd !== undefined && { maxCallsUsd }),
    ...(metadata !== undefined && { metadata }),
    ...(horizon !== undefined && { horizon }),
    ...(replanSteps !== undefined && { replanSteps }),
    ...(runtime !== undefined && { runtime }),
    ...(profile !== undefined && { profile }),
    ...(auth !== undefined && { auth }),
  });
}

/** Fields of a request that each policy has of its own; the router calls the endpoint of a model `model`. */
const OWN = new Set([
  "policy_endpoint",
  "model",
  "horizon",
  "replan_steps",
  "runtime",
  "profile",
  "auth",
  "camera_map",
  "state_map",
]);

/** A refusal of one policy's evaluation, whose fields are named by their place in the comparison. */
const atPolicy = (thrown: unknown, index: number): unknown =>
  atPart(thrown, `policy ${index}`, (path) =>
    OWN.has(path.split(".")[0]!) ? `policies.${index}.${path.replace(/^model$/, "policy_endpoint")}` : undefined,
  );

/** One policy of a comparison. */
interface Entry {
  readonly job: JobRecord;
  readonly place: ComparisonPlace;
  readonly request: EvaluationRequest;
  readonly evaluation: Evaluation;
  /** Completed seeds, without gaps from the first one on. */
  readonly outcomes: readonly (Outcome & { readonly termination: string })[];
}

/** The policies of a comparison, by label. */
async function entriesOf(sql: Sql, seals: JobSeals, jobs: readonly JobRecord[]): Promise<Entry[]> {
  const entries: Entry[] = [];
  for (const kept of jobs) {
    const seal = await seals.of(kept);
    const items = await store.listItems(sql, kept.id, 0, kept.total);
    const request = seal.job(kept).request as EvaluationRequest;
    const evaluation = shownEvaluation(kept, items, seal);
    const outcomes = outcomesOf(items.map((item) => seal.item(item)));
    entries.push({ job: kept, place: request.comparison!, request, evaluation, outcomes });
  }
  return entries.toSorted((a, b) => (a.place.label < b.place.label ? -1 : 1));
}

/** An episode that ended without facts is lost, and counts as a failure like any fault. */
const LOST = { success: false, progress: 0, return: 0, termination: "lost" };

function outcomesOf(items: readonly Pick<ItemRecord, "state" | "response">[]): Entry["outcomes"] {
  const open = items.findIndex(({ state }) => state !== "completed" && state !== "failed");
  const ended = open < 0 ? items : items.slice(0, open);
  return ended.map(({ response }) => (response as EpisodeFacts | undefined) ?? LOST);
}

/** A pair of a comparison, by labels. */
interface LabeledPair extends Pair {
  readonly a: string;
  readonly b: string;
}

/** Judges every pair of policies. A policy whose evaluation failed is not compared: its episodes say nothing about its skill. */
async function pairsOf(entries: readonly Entry[]): Promise<LabeledPair[]> {
  const fair = entries.filter(({ job }) => job.status !== "failed");
  const pairs: LabeledPair[] = [];
  for (const [i, one] of fair.entries()) {
    for (const other of fair.slice(i + 1)) {
      const { policies, metric, stopWhenKnown: mayStop } = one.place;
      const judging = { metric, alpha: ALPHA, pairs: (policies * (policies - 1)) / 2, mayStop };
      pairs.push({ a: one.place.label, b: other.place.label, ...pairOf(one.outcomes, other.outcomes, judging) });
      await breathe();
    }
  }
  return pairs;
}

/** The labels that are known to be better than a policy. */
const betterThan = (pairs: readonly LabeledPair[], label: string): string[] =>
  pairs.flatMap(({ a, b, better }) => {
    if (better === undefined || (a !== label && b !== label)) return [];
    const winner = better === "a" ? a : b;
    return winner === label ? [] : [winner];
  });

/** The policies that none is known to beat; empty before two have a common seed. */
function bestOf(entries: readonly Entry[], pairs: readonly LabeledPair[]): string[] {
  if (pairs.every(({ n }) => n === 0)) return [];
  const fair = entries.filter(({ job }) => job.status !== "failed").map(({ place }) => place.label);
  return fair.filter((label) => betterThan(pairs, label).length === 0);
}

/**
 * Whether one policy of an evaluation's comparison is known to be better than every other, so that the remaining episodes need not run. The
 * answer may be asked for at any time without spoiling its error, because only the anytime-valid sequence decides.
 */
export async function isDecided(sql: Sql, seals: JobSeals, job: JobRecord): Promise<boolean> {
  if (job.comparison === undefined) return false;
  const entries = await entriesOf(sql, seals, await store.jobsOfComparison(sql, job, job.comparison));
  const pairs = await pairsOf(entries);
  const best = bestOf(entries, pairs);
  return best.length === 1 && pairs.every(({ a, b, better }) => ![a, b].includes(best[0]!) || better !== undefined);
}

async function shownComparison(entries: readonly Entry[]): Promise<MessageInitShape<typeof ComparisonSchema>> {
  const first = entries[0]!;
  const { place, request } = first;
  const pairs = await pairsOf(entries);
  const best = bestOf(entries, pairs);
  const status = statusOfAll(entries);
  const isHidden = place.blind && !entries.every(({ job }) => store.hasEnded(job.status));
  const { scenario } = first.evaluation;
  const usages = entries.map(({ evaluation }) => evaluation.usage);
  const total = (read: "episodes" | "costUsd" | "policyCalls" | "policyCostUsd" | "totalCostUsd"): number =>
    usages.reduce((sum, usage) => sum + (usage?.[read] ?? 0), 0);
  return {
    id: place.id,
    object: "evaluation.comparison",
    status,
    createdAt: Math.min(...entries.map(({ job }) => job.created)),
    scenario: scenario ?? { mode: EvaluationMode.SYNC },
    seed: request.seed,
    episodes: request.episodes,
    metric: place.metric === "progress" ? ComparisonMetric.PROGRESS : ComparisonMetric.SUCCESS,
    blind: place.blind,
    stopWhenKnown: place.stopWhenKnown,
    policies: entries.map((entry) => shownPolicy(entry, pairs, isHidden)),
    pairs: pairs.map(shownPair),
    seeds: shownSeeds(entries),
    verdict: { best, known: best.length === 1 && pairs.length > 0, text: wordsOf(entries, pairs, best) },
    estimate: estimateOf(entries.map((entry) => entry.request)),
    usage: {
      episodes: total("episodes"),
      costUsd: total("costUsd"),
      policyCalls: total("policyCalls"),
      policyCostUsd: total("policyCostUsd"),
      totalCostUsd: total("totalCostUsd"),
    },
    ...(request.metadata && { metadata: request.metadata as JsonObject }),
  };
}

function statusOfAll(entries: readonly Entry[]): JobStatus {
  const all = entries.map(({ job }) => job.status);
  if (all.every((status) => status === "queued")) return JobStatus.QUEUED;
  if (!all.every(store.hasEnded)) return JobStatus.RUNNING;
  if (all.includes("cancelled")) return JobStatus.CANCELLED;
  if (all.every((status) => status === "failed")) return JobStatus.FAILED;
  return JobStatus.COMPLETED;
}

function shownPolicy({ place, job, evaluation, outcomes }: Entry, pairs: readonly LabeledPair[], isHidden: boolean) {
  const { policy, scores, error, status } = evaluation;
  const isRanked = job.status !== "failed" && outcomes.length > 0;
  return {
    label: place.label,
    status,
    ...(!isHidden && { ...(policy && { policy }), evaluationId: job.id }),
    ...(isRanked && { rank: 1 + betterThan(pairs, place.label).length }),
    ...(scores && { scores }),
    ...(error && { error }),
  };
}

function shownPair({ a, b, n, success, progress, return: returned, mcnemar, anytime, better }: LabeledPair) {
  const difference = ({ mean, ci95 }: Pair["success"], method: string) => ({
    mean,
    ...(n > 1 && { ci95: { method, ...ci95 } }),
  });
  const method = n < 200 ? "bootstrap" : "normal";
  return {
    ...{ a, b, n, mcnemar },
    success: difference(success, "bonett-price"),
    progress: difference(progress, method),
    return: difference(returned, method),
    anytime: {
      interval: { method: "betting", ...anytime.interval },
      ...(anytime.knownAfter !== undefined && { knownAfter: anytime.knownAfter }),
    },
    ...(better !== undefined && { better: better === "a" ? a : b }),
  };
}

function shownSeeds(entries: readonly Entry[]) {
  const most = Math.max(...entries.map(({ outcomes }) => outcomes.length));
  const { seed } = entries[0]!.request;
  return Array.from({ length: most }, (_, i) => ({
    seed: seed + i,
    outcomes: entries.flatMap(({ place, outcomes }) => {
      const outcome = outcomes[i];
      if (!outcome) return [];
      const { success, progress, termination, return: returned } = outcome;
      return [{ label: place.label, success, progress, return: returned, termination }];
    }),
  }));
}

// The verdict in words.

const percent = (share: number): string => `${Math.round(100 * share)}`;

function wordsOf(entries: readonly Entry[], pairs: readonly LabeledPair[], best: readonly string[]): string {
  const failed = entries.filter(({ job }) => job.status === "failed");
  const left = failed
    .map(({ place, evaluation }) => ` ${place.label} was not compared: ${evaluation.error?.code}.`)
    .join("");
  if (best.length === 0) return `No seed has been completed by two policies.${left}`;
  const [pair] = pairs;
  if (pairs.length === 1 && pair) return `${wordsOfPair(pair, entries[0]!.place.metric)}${left}`;
  if (best.length === 1) return `${best[0]} is better than every other policy.${left}`;
  const all = `${best.slice(0, -1).join(", ")} and ${best.at(-1)}`;
  const beaten = entries.length - failed.length > best.length;
  return `${all} are tied${beaten ? ", and each other policy is known to be worse than one of them" : ""}.${left}`;
}

function wordsOfPair(pair: LabeledPair, metric: Metric): string {
  const { a, b, n, better, anytime } = pair;
  const { mean, ci95 } = metric === "success" ? pair.success : pair.progress;
  const what = metric === "success" ? "success" : "progress";
  const range = n > 1 ? ` (95 % interval ${percent(ci95.low)} to ${percent(ci95.high)})` : "";
  const size = `${a} minus ${b} is ${percent(mean)} points of ${what}${range} on ${n} seeds`;
  if (better !== undefined) {
    const [good, bad] = better === "a" ? [a, b] : [b, a];
    const after = anytime.knownAfter === undefined ? "" : `, known at any time after ${anytime.knownAfter} seeds`;
    return `${good} is better than ${bad}: ${size}${after}.`;
  }
  const needed = metric === "success" ? seedsNeeded(pair) : undefined;
  const more = needed === undefined ? "" : ` About ${needed} seeds would show a difference of this size.`;
  return `Neither is known to be better: ${size}.${more}`;
}
