/** Leaderboards: published results of one scenario or suite, ranked. */
import { mcnemarExact, signFlip } from "../scenarios/paired.ts";
import { normalQuantile, type Stratum, stratifiedMean, stratifiedWilson, wilson } from "../scenarios/scores.ts";
import { type Strength, strengthsOf } from "../scenarios/strengths.ts";
import { type SuiteTask, sharesOf } from "../scenarios/suite.ts";
import { inSlices, type Sliced } from "../slices.ts";
import type { RankedResult } from "../store/jobs/publications.ts";
import { shownStrength } from "./evaluation-compared.ts";

const ALPHA = 0.05;
/** The policies and seeds from which strengths are computed, and the leaderboards and suites that are cached. */
const MOST_STRENGTHS = 16;
const MOST_SEEDS = 1_000;
const MOST_BOARDS = 64;
const MOST_SUITES = 64;

/** Leaderboards. They take long to compute and anyone may call them, so each is cached until its publications change. */
export class Leaderboards {
  readonly #boards = new Map<string, Promise<Entry[]>>();
  readonly #tasks = new Map<string, readonly SuiteTask[]>();

  /** The entries for these results, best first; `tasks` are those of a suite. */
  of(results: readonly RankedResult[], tasks?: readonly SuiteTask[]): Promise<Entry[]> {
    const key = JSON.stringify(results.map(({ publicationId, label, publisher }) => [publicationId, label, publisher]));
    const known = this.#boards.get(key);
    if (known) return known;
    const board = inSlices(boardOf(results, tasks));
    keep(this.#boards, MOST_BOARDS, key, board);
    return board;
  }

  /** The tasks of the suite with this digest, which `read` returns from a document of megabytes. A digest has the same tasks for ever. */
  async tasksOf(
    digest: string,
    read: () => Promise<readonly SuiteTask[] | undefined>,
  ): Promise<readonly SuiteTask[] | undefined> {
    const known = this.#tasks.get(digest);
    if (known) return known;
    const tasks = await read();
    if (tasks) keep(this.#tasks, MOST_SUITES, digest, tasks);
    return tasks;
  }
}

/** Caches a value, and drops the oldest beyond `most`. */
function keep<T>(cache: Map<string, T>, most: number, key: string, value: T): void {
  cache.set(key, value);
  const [oldest] = cache.keys();
  if (cache.size > most && oldest !== undefined) cache.delete(oldest);
}

type Entry = ReturnType<typeof entryOf> & { readonly strength?: ReturnType<typeof shownStrength> };

function* boardOf(results: readonly RankedResult[], tasks: readonly SuiteTask[] | undefined): Sliced<Entry[]> {
  const rows = results.map((result) => ({ result, strata: strataOf(result, tasks) }));
  const tests = Math.max(1, (results.length * (results.length - 1)) / 2);
  const ranked = [];
  for (const row of rows) {
    let rank = 1;
    for (const other of rows) {
      const level = ALPHA / tests / Math.max(row.result.attempts, other.result.attempts);
      if (other !== row && isBetter(other.strata, row.strata, level)) rank += 1;
      yield;
    }
    ranked.push({ ...row, entry: entryOf(row.result, row.strata, rank) });
  }
  ranked.sort((a, b) => a.entry.rank - b.entry.rank || b.entry.successRate - a.entry.successRate);
  const strengths = yield* strengthsAmong(ranked.slice(0, MOST_STRENGTHS).map(({ strata }) => strata));
  return ranked.map(({ entry }, i) => ({ ...entry, ...(strengths[i] && { strength: shownStrength(strengths[i]) }) }));
}

/** The successes of a result by task. */
function strataOf({ outcomes }: RankedResult, tasks: readonly SuiteTask[] | undefined): Stratum[] {
  const values = [...outcomes].map(Number);
  if (!tasks) return [{ share: 1, values }];
  const shares = sharesOf(tasks);
  let from = 0;
  return tasks.map(({ episodes }, task) => {
    const own = values.slice(from, from + episodes);
    from += episodes;
    return { share: shares[task]!, values: own };
  });
}

/** Whether one result is known to be better on the common seeds. */
function isBetter(one: readonly Stratum[], other: readonly Stratum[], level: number): boolean {
  const differences = one.map(({ share, values }, task) => {
    const n = Math.min(values.length, other[task]!.values.length);
    return { share, values: values.slice(0, n).map((value, i) => value - other[task]!.values[i]!) };
  });
  if (stratifiedMean(differences) <= 0) return false;
  const [only] = differences;
  if (differences.length > 1 || !only)
    return signFlip(differences.flatMap(({ share, values }) => values.map((d) => (share * d) / values.length))) < level;
  return mcnemarExact(only.values.filter((d) => d > 0).length, only.values.filter((d) => d < 0).length) < level;
}

function entryOf(result: RankedResult, strata: readonly Stratum[], rank: number) {
  const { outcomes, attempts, revision, model, publisher, publicationId, progress, rate } = result;
  const episodes = outcomes.length;
  const successes = outcomes.replaceAll("0", "").length;
  const z = normalQuantile(1 - ALPHA / attempts / 2);
  const interval = strata.length === 1 ? wilson(successes, episodes, z) : stratifiedWilson(strata, z);
  return {
    ...{ rank, model, publisher, publicationId, successes, episodes, progress, attempts },
    ...(revision !== undefined && { revision }),
    successRate: rate,
    interval: { method: "wilson", ...interval },
  };
}

/** The strengths of at least three results; none for fewer. */
function* strengthsAmong(rows: readonly (readonly Stratum[])[]): Sliced<Strength[]> {
  const [first] = rows;
  if (!first || rows.length < 3) return [];
  const sizes = first.map((_, task) => Math.max(...rows.map((strata) => strata[task]!.values.length)));
  const all = sizes.reduce((sum, size) => sum + size, 0);
  const kept = Math.min(1, MOST_SEEDS / all);
  const games = first.map(({ share }, task) => ({
    weight: (share * all * kept) / Math.ceil(kept * sizes[task]!),
    results: rows.map((strata) => strata[task]!.values.slice(0, Math.ceil(kept * sizes[task]!))),
  }));
  return yield* strengthsOf(games);
}
