/** Published comparisons on suites: their weighted results, and what verifies them. */
import { type Metric, type Outcome, weightedPairOf } from "./paired.ts";
import { type Stratum, stratifiedInterval, stratifiedMean, stratifiedWilson } from "./scores.ts";
import { sharesOf, suiteDigestOf, type TaskFacts } from "./suite.ts";

/** The suite of a published comparison. */
export interface PublishedSuite {
  readonly title: string;
  readonly digest: string;
  readonly tasks: readonly TaskFacts[];
}

/** One evaluation of a published comparison, as far as the suite's results depend on it. */
interface TaskEvaluation {
  readonly label?: string;
  readonly task?: number;
  readonly scenario: { readonly digest: string };
  readonly seed: number;
  readonly requested_episodes: number;
  readonly episodes: readonly Outcome[];
}

/** The weighted means of a policy over all tasks. */
export function overallOf(shares: readonly number[], tasks: readonly (readonly Outcome[])[]) {
  const strata = (read: (outcome: Outcome) => number): Stratum[] =>
    tasks.map((outcomes, task) => ({ share: shares[task]!, values: outcomes.map(read) }));
  const success = strata((outcome) => Number(outcome.success));
  const progress = strata((outcome) => outcome.progress);
  const interval = stratifiedInterval(progress);
  return {
    success: { mean: stratifiedMean(success), ci95: stratifiedWilson(success) },
    progress: { mean: stratifiedMean(progress), ...(Number.isFinite(interval.low) && { ci95: interval }) },
  };
}

/** The weighted means of each policy, and its pairs over all tasks. */
export function suiteResults(
  evaluations: readonly TaskEvaluation[],
  judged: { readonly metric: Metric; readonly policies: number; readonly stop_when_known: boolean },
  suite: PublishedSuite,
): { overall: object[]; pairs: object[] } {
  const { metric, policies, stop_when_known: mayStop } = judged;
  const judging = { metric, alpha: 0.05, pairs: (policies * (policies - 1)) / 2, mayStop };
  const shares = sharesOf(suite.tasks);
  const played = [...byLabel(evaluations)].map(([label, tasks]) => ({
    label,
    tasks: suite.tasks.map((_, task) => tasks.get(task)?.episodes ?? []),
  }));
  const overall = played
    .filter(({ tasks }) => tasks.every(({ length }) => length > 0))
    .map(({ label, tasks }) => ({ label, ...overallOf(shares, tasks) }));
  const pairs = played.flatMap((one, i) =>
    played.slice(i + 1).flatMap((other) => {
      const pair = weightedPairOf(
        shares.map((share, task) => ({ share, a: one.tasks[task]!, b: other.tasks[task]! })),
        judging,
      );
      if (!pair) return [];
      const { n, success, progress, better, p } = pair;
      const difference = ({ mean, ci95 }: typeof success) => ({ mean, ...(Number.isFinite(ci95.low) && { ci95 }) });
      return {
        ...{ a: one.label, b: other.label, n },
        success: difference(success),
        progress: difference(progress),
        // Six digits do not depend on how a platform computes logarithms.
        sign_flip: { p: Number(p.toPrecision(6)) },
        ...(better !== undefined && { better: better === "a" ? one.label : other.label }),
      };
    }),
  );
  return { overall, pairs };
}

/** What of a suite does not follow from its content, or does not agree with its evaluations. */
export function suiteFaults(evaluations: readonly TaskEvaluation[], { digest, tasks }: PublishedSuite): string[] {
  const computed = suiteDigestOf(tasks);
  const faults =
    computed === digest ? [] : [`the digest differs: the document states ${digest}, its tasks have ${computed}`];
  for (const { label = "", task: at = -1, scenario, seed, requested_episodes } of evaluations) {
    const task = tasks[at];
    if (!task) faults.push(`the evaluation of ${label} has no task ${at}`);
    else if (task.digest !== scenario.digest || task.seed !== seed || task.episodes !== requested_episodes)
      faults.push(`the evaluation of ${label} in task ${at} has another scenario, seed or number of episodes`);
  }
  const policies = byLabel(evaluations);
  const distinct = [...policies.values()].reduce((sum, own) => sum + own.size, 0);
  if (distinct < evaluations.length) faults.push("a policy has two evaluations of one task");
  for (const [label, own] of policies)
    for (const [at] of tasks.entries()) if (!own.has(at)) faults.push(`${label} has no evaluation of task ${at}`);
  return faults;
}

/** The evaluations of each policy by task. */
function byLabel(evaluations: readonly TaskEvaluation[]): Map<string, Map<number, TaskEvaluation>> {
  const found = new Map<string, Map<number, TaskEvaluation>>();
  for (const evaluation of evaluations) {
    const { label = "", task = -1 } = evaluation;
    const own = found.get(label) ?? new Map<number, TaskEvaluation>();
    found.set(label, own.set(task, evaluation));
  }
  return found;
}
