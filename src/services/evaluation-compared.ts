/** What the evaluations of a comparison show: pairs, ranks, tables and a verdict. */
import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import {
  ComparisonMetric,
  type ComparisonSchema,
  type Evaluation,
  EvaluationMode,
} from "../../gen/limber/v1/evaluation_pb.ts";
import { JobStatus } from "../../gen/limber/v1/job_pb.ts";
import {
  type Difference,
  type McNemar,
  type Metric,
  type Outcome,
  type Pair,
  pairOf,
  seedsNeeded,
  weightedPairOf,
} from "../scenarios/paired.ts";
import { type Strength, strengthsOf } from "../scenarios/strengths.ts";
import { sharesOf } from "../scenarios/suite.ts";
import { overallOf } from "../scenarios/suite-published.ts";
import { breathe, inSlices } from "../slices.ts";
import type { Sql } from "../store/database/tx.ts";
import type { ItemRecord, JobRecord } from "../store/jobs/jobs.ts";
import * as store from "../store/jobs/jobs.ts";
import { estimateOf, shownEvaluation } from "./evaluation.ts";
import type { ComparisonPlace, EpisodeFacts, EvaluationRequest } from "./evaluation-run.ts";
import type { JobSeals } from "./job.ts";

/** The chance of any error among all pairs of a comparison. */
const ALPHA = 0.05;

/** One evaluation of a comparison. */
interface Part {
  readonly job: JobRecord;
  readonly place: ComparisonPlace;
  readonly request: EvaluationRequest;
  readonly evaluation: Evaluation;
  /** Completed seeds, without gaps from the first one on. */
  readonly outcomes: readonly (Outcome & { readonly termination: string })[];
}

/** One policy of a comparison, with an evaluation for each task of the suite; with one for a scenario. */
interface Entry {
  readonly label: string;
  readonly parts: readonly Part[];
}

/** The policies of a comparison, by label. */
export async function entriesOf(sql: Sql, seals: JobSeals, jobs: readonly JobRecord[]): Promise<Entry[]> {
  const items = await store.itemsOfJobs(
    sql,
    jobs.map(({ id }) => id),
  );
  const parts: Part[] = [];
  for (const kept of jobs) {
    const seal = await seals.of(kept);
    const own = items.get(kept.id) ?? [];
    const request = seal.job(kept).request as EvaluationRequest;
    const evaluation = shownEvaluation(kept, own, seal);
    const outcomes = outcomesOf(own.map((item) => seal.item(item)));
    parts.push({ job: kept, place: request.comparison!, request, evaluation, outcomes });
  }
  const byLabel = Map.groupBy(parts, ({ place }) => place.label);
  return [...byLabel]
    .map(([label, own]) => ({ label, parts: own.toSorted((a, b) => taskIndex(a) - taskIndex(b)) }))
    .toSorted((a, b) => (a.label < b.label ? -1 : 1));
}

const taskIndex = ({ place }: Part): number => place.inSuite?.index ?? 0;

/** An episode that ended without facts is lost, and counts as a failure like any fault. */
const LOST = { success: false, progress: 0, return: 0, termination: "lost" };

function outcomesOf(items: readonly Pick<ItemRecord, "state" | "response">[]): Part["outcomes"] {
  const open = items.findIndex(({ state }) => state !== "completed" && state !== "failed");
  const ended = open < 0 ? items : items.slice(0, open);
  return ended.map(({ response }) => (response as EpisodeFacts | undefined) ?? LOST);
}

/** A pair of a comparison, by labels: in one task, or over all tasks of a suite. */
interface LabeledPair extends Pick<Pair, "n" | "success" | "progress" | "anytime" | "better"> {
  readonly a: string;
  readonly b: string;
  readonly return?: Difference;
  readonly mcnemar?: McNemar;
  /** Of the sign-flip test over all tasks. */
  readonly p?: number;
}

const isFailed = ({ job }: Part): boolean => job.status === "failed";

/** Policies without a failed evaluation: the episodes of a failed one say nothing about its policy's skill. */
const fairOf = (entries: readonly Entry[]): Entry[] => entries.filter(({ parts }) => !parts.some(isFailed));

/** How the pairs of a comparison are judged. */
function judgingOf({ policies, metric, stopWhenKnown: mayStop }: ComparisonPlace) {
  return { metric, alpha: ALPHA, pairs: (policies * (policies - 1)) / 2, mayStop };
}

/** Judges every pair of policies in one task. */
async function pairsIn(parts: readonly Part[]): Promise<LabeledPair[]> {
  const fair = parts.filter((part) => !isFailed(part));
  const pairs: LabeledPair[] = [];
  for (const [i, one] of fair.entries()) {
    for (const other of fair.slice(i + 1)) {
      const judged = pairOf(one.outcomes, other.outcomes, judgingOf(one.place));
      pairs.push({ a: one.place.label, b: other.place.label, ...judged });
      await breathe();
    }
  }
  return pairs;
}

/** Judges every pair of policies, with a suite over all of its tasks. */
async function pairsOf(entries: readonly Entry[]): Promise<LabeledPair[]> {
  const fair = fairOf(entries);
  if (fair.every(({ parts }) => parts[0]!.place.inSuite === undefined))
    return pairsIn(fair.flatMap(({ parts }) => parts));
  const pairs: LabeledPair[] = [];
  for (const [i, one] of fair.entries()) {
    const shares = sharesOfParts(one.parts);
    for (const other of fair.slice(i + 1)) {
      const tasks = one.parts.map(({ outcomes }, at) => ({
        ...{ share: shares[at]!, a: outcomes, b: other.parts[at]!.outcomes },
      }));
      const judged = weightedPairOf(tasks, judgingOf(one.parts[0]!.place));
      if (judged) pairs.push({ a: one.label, b: other.label, ...judged });
      await breathe();
    }
  }
  return pairs;
}

/** The share of each task in the overall score. */
const sharesOfParts = (parts: readonly Part[]): number[] =>
  sharesOf(parts.map(({ place }) => ({ weight: place.inSuite?.task.weight ?? 1 })));

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
  const fair = fairOf(entries).map(({ label }) => label);
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

export async function shownComparison(entries: readonly Entry[]): Promise<MessageInitShape<typeof ComparisonSchema>> {
  const parts = entries.flatMap((entry) => entry.parts);
  const { place, request, evaluation } = parts[0]!;
  const { inSuite } = place;
  const pairs = await pairsOf(entries);
  const best = bestOf(entries, pairs);
  const strengths = await strengthsOfEntries(entries);
  const isHidden = place.blind && !parts.every(({ job }) => store.hasEnded(job.status));
  const usages = parts.map((part) => part.evaluation.usage);
  const total = (read: "episodes" | "costUsd" | "policyCalls" | "policyCostUsd" | "totalCostUsd"): number =>
    usages.reduce((sum, usage) => sum + (usage?.[read] ?? 0), 0);
  return {
    id: place.id,
    object: "evaluation.comparison",
    status: statusOfAll(parts),
    createdAt: Math.min(...parts.map(({ job }) => job.created)),
    ...(inSuite
      ? { suite: inSuite.suite, tasks: await shownTasks(entries, isHidden) }
      : {
          scenario: evaluation.scenario ?? { mode: EvaluationMode.SYNC },
          seed: request.seed,
          seeds: shownSeeds(parts),
        }),
    episodes: entries[0]!.parts.reduce((sum, part) => sum + part.request.episodes, 0),
    metric: place.metric === "progress" ? ComparisonMetric.PROGRESS : ComparisonMetric.SUCCESS,
    blind: place.blind,
    stopWhenKnown: place.stopWhenKnown,
    policies: entries.map((entry) => ({
      ...shownPolicy(entry, pairs, isHidden),
      ...(strengths.has(entry.label) && { strength: strengths.get(entry.label)! }),
    })),
    pairs: pairs.map(shownPair),
    verdict: { best, known: best.length === 1 && pairs.length > 0, text: wordsOf(entries, pairs, best) },
    estimate: estimateOf(parts.map((part) => part.request)),
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

function statusOfAll(parts: readonly Part[]): JobStatus {
  const all = parts.map(({ job }) => job.status);
  if (all.every((status) => status === "queued")) return JobStatus.QUEUED;
  if (!all.every(store.hasEnded)) return JobStatus.RUNNING;
  if (all.includes("cancelled")) return JobStatus.CANCELLED;
  if (all.every((status) => status === "failed")) return JobStatus.FAILED;
  return JobStatus.COMPLETED;
}

function shownPolicy({ label, parts }: Entry, pairs: readonly LabeledPair[], isHidden: boolean) {
  const first = parts[0]!;
  const { policy, scores } = first.evaluation;
  const failed = parts.find(isFailed);
  const hasOutcomes = parts.every(({ outcomes }) => outcomes.length > 0);
  const isRanked = failed === undefined && hasOutcomes;
  const error = failed?.evaluation.error;
  return {
    label,
    status: statusOfPolicy(parts),
    ...(!isHidden && policy && { policy }),
    ...(isRanked && { rank: 1 + betterThan(pairs, label).length }),
    ...(error && { error }),
    ...(first.place.inSuite
      ? isRanked && { overall: shownOverall(parts) }
      : { ...(scores && { scores }), ...(!isHidden && { evaluationId: first.job.id }) }),
  };
}

/** The status of a policy's evaluations together: `failed` once one has failed. */
function statusOfPolicy(parts: readonly Part[]): JobStatus {
  const failed = parts.find(isFailed) ?? (parts.length === 1 ? parts[0] : undefined);
  if (failed) return failed.evaluation.status;
  const expired = parts.find(({ job }) => job.status === "expired");
  const all = statusOfAll(parts);
  return all === JobStatus.COMPLETED && expired ? expired.evaluation.status : all;
}

/** The weighted means over all tasks. */
function shownOverall(parts: readonly Part[]) {
  const { success, progress } = overallOf(
    sharesOfParts(parts),
    parts.map(({ outcomes }) => outcomes),
  );
  const method = resampling(parts.reduce((sum, { outcomes }) => sum + outcomes.length, 0));
  return {
    success: { mean: success.mean, ci95: { method: "wilson", ...success.ci95 } },
    progress: { mean: progress.mean, ...(progress.ci95 && { ci95: { method, ...progress.ci95 } }) },
  };
}

/** The strengths of at least three policies that were compared, by label. A task counts by its weight, whatever its number of seeds. */
async function strengthsOfEntries(entries: readonly Entry[]) {
  const compared = fairOf(entries).filter(({ parts }) => parts.every(({ outcomes }) => outcomes.length > 0));
  const [first] = compared;
  if (!first || compared.length < 3) return new Map<string, ReturnType<typeof shownStrength>>();
  const { metric } = first.parts[0]!.place;
  const sizes = first.parts.map((_, task) => Math.max(...compared.map(({ parts }) => parts[task]!.outcomes.length)));
  const all = sizes.reduce((sum, size) => sum + size, 0);
  const games = sharesOfParts(first.parts).map((share, task) => ({
    weight: (share * all) / sizes[task]!,
    results: compared.map(({ parts }) => parts[task]!.outcomes.map((outcome) => Number(outcome[metric]))),
  }));
  const strengths = await inSlices(strengthsOf(games));
  return new Map(compared.map(({ label }, i) => [label, shownStrength(strengths[i]!)]));
}

/** A strength as messages have it. */
export const shownStrength = ({ value, ci95 }: Strength) => ({ value, ci95: { method: "bootstrap", ...ci95 } });

/** The tables of each task of a suite. */
async function shownTasks(entries: readonly Entry[], isHidden: boolean) {
  const shown = [];
  for (const [index, first] of entries[0]!.parts.entries()) {
    const { instruction, weight, seed, episodes } = first.place.inSuite!.task;
    const parts = entries.map((entry) => entry.parts[index]!);
    shown.push({
      ...{ index, weight, seed, episodes },
      scenario: first.evaluation.scenario ?? { mode: EvaluationMode.SYNC },
      ...(instruction !== undefined && { instruction }),
      policies: parts.map(({ place, job, evaluation: { status, scores, error } }) => ({
        label: place.label,
        status,
        ...(!isHidden && { evaluationId: job.id }),
        ...(scores && { scores }),
        ...(error && { error }),
      })),
      pairs: (await pairsIn(parts)).map(shownPair),
      seeds: shownSeeds(parts),
    });
  }
  return shown;
}

/** How an interval of a mean of `n` values was computed. */
const resampling = (n: number): string => (n < 200 ? "bootstrap" : "normal");

function shownPair({ a, b, n, success, progress, return: returned, mcnemar, anytime, better, p }: LabeledPair) {
  const difference = ({ mean, ci95 }: Difference, method: string) => ({
    mean,
    ...(n > 1 && Number.isFinite(ci95.low) && { ci95: { method, ...ci95 } }),
  });
  return {
    ...{ a, b, n },
    ...(mcnemar && { mcnemar }),
    success: difference(success, "bonett-price"),
    progress: difference(progress, resampling(n)),
    ...(returned && { return: difference(returned, resampling(n)) }),
    anytime: {
      interval: { method: "betting", ...anytime.interval },
      ...(anytime.knownAfter !== undefined && { knownAfter: anytime.knownAfter }),
    },
    ...(better !== undefined && { better: better === "a" ? a : b }),
    ...(p !== undefined && { signFlip: { p } }),
  };
}

function shownSeeds(parts: readonly Part[]) {
  const most = Math.max(...parts.map(({ outcomes }) => outcomes.length));
  const { seed } = parts[0]!.request;
  return Array.from({ length: most }, (_, i) => ({
    seed: seed + i,
    outcomes: parts.flatMap(({ place, outcomes }) => {
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
  const failed = entries.flatMap(({ parts }) => parts.find(isFailed) ?? []);
  const left = failed
    .map(({ place, request, evaluation }) => {
      const where = place.inSuite ? ` in task ${place.inSuite.index} (${request.scenario})` : "";
      return ` ${place.label} was not compared: ${evaluation.error?.code}${where}.`;
    })
    .join("");
  const { metric, inSuite } = entries[0]!.parts[0]!.place;
  if (best.length === 0 && inSuite) return `No two policies have completed a common seed of every task.${left}`;
  if (best.length === 0) return `No seed has been completed by two policies.${left}`;
  const [pair] = pairs;
  if (pairs.length === 1 && pair && best.length <= 2) return `${wordsOfPair(pair, metric)}${left}`;
  if (best.length === 1) return `${best[0]} is better than every other policy.${left}`;
  const all = `${best.slice(0, -1).join(", ")} and ${best.at(-1)}`;
  const beaten = entries.length - failed.length > best.length;
  return `${all} are tied${beaten ? ", and each other policy is known to be worse than one of them" : ""}.${left}`;
}

function wordsOfPair(pair: LabeledPair, metric: Metric): string {
  const { a, b, n, better, anytime, mcnemar } = pair;
  const { mean, ci95 } = metric === "success" ? pair.success : pair.progress;
  const what = mcnemar ? metric : `weighted ${metric}`;
  const range =
    n > 1 && Number.isFinite(ci95.low) ? ` (95 % interval ${percent(ci95.low)} to ${percent(ci95.high)})` : "";
  const size = `${a} minus ${b} is ${percent(mean)} points of ${what}${range} on ${n} seeds`;
  if (better !== undefined) {
    const [good, bad] = better === "a" ? [a, b] : [b, a];
    const unit = mcnemar ? "seeds" : "rounds of all tasks";
    const after = anytime.knownAfter === undefined ? "" : `, known at any time after ${anytime.knownAfter} ${unit}`;
    return `${good} is better than ${bad}: ${size}${after}.`;
  }
  const needed = metric === "success" && mcnemar ? seedsNeeded({ ...pair, mcnemar }) : undefined;
  const more = needed === undefined ? "" : ` About ${needed} seeds would show a difference of this size.`;
  return `Neither is known to be better: ${size}.${more}`;
}
