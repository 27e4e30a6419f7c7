/** Computes scores from episodes: rates with their uncertainty. */
import { type Random, seeded } from "./chance.ts";
import type { EpisodeRecord } from "./episode.ts";
import { FAULTS, type Termination } from "./scenario.ts";

/** The bounds of a figure, at 95 %. */
export interface Interval {
  readonly low: number;
  readonly high: number;
}

/** The normal quantile of 97.5 %. */
export const Z = 1.959963984540054;

/** Wilson's score interval (1927) of `successes` in `n` trials, by default at 95 %; [0, 1] without trials. */
export function wilson(successes: number, n: number, z = Z): Interval {
  if (n === 0) return { low: 0, high: 1 };
  const rate = successes / n;
  const scale = 1 + (z * z) / n;
  const middle = (rate + (z * z) / (2 * n)) / scale;
  const half = (z / scale) * Math.sqrt((rate * (1 - rate)) / n + (z * z) / (4 * n * n));
  return {
    low: successes === 0 ? 0 : Math.max(0, middle - half),
    high: successes === n ? 1 : Math.min(1, middle + half),
  };
}

/** The exact interval of Clopper and Pearson (1934), at 95 %: never too narrow. */
export function clopperPearson(successes: number, n: number): Interval {
  if (n === 0) return { low: 0, high: 1 };
  const low = successes === 0 ? 0 : root((p) => 1 - binomialBelow(successes - 1, n, p) - 0.025);
  const high = successes === n ? 1 : root((p) => 0.025 - binomialBelow(successes, n, p));
  return { low, high };
}

/** Finds where an increasing function of a probability crosses zero. */
function root(rising: (p: number) => number): number {
  let [low, high] = [0, 1];
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (rising(middle) < 0) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** The probability of at most `k` successes in `n` trials. */
function binomialBelow(k: number, n: number, p: number): number {
  if (p <= 0) return 1;
  if (p >= 1) return k >= n ? 1 : 0;
  const odds = Math.log(p / (1 - p));
  let log = n * Math.log(1 - p);
  let sum = Math.exp(log);
  for (let i = 1; i <= k; i++) {
    log += Math.log((n - i + 1) / i) + odds;
    sum += Math.exp(log);
  }
  return Math.min(1, sum);
}

const RESAMPLES = 2000;

/** The interval of a mean by resampling (Efron 1979), at 95 %; reproducible for equal values. */
export const bootstrap = (values: readonly number[]): Interval => resampled(values, 0.025);

/**
 * The same for few values: its tails are widened as Hesterberg (The American Statistician 69, 2015) does for the spread of a small sample.
 * From `MANY` values on the normal interval is the same to three digits, and is computed instead.
 */
export function bootstrapMean(values: readonly number[], alpha = 0.05): Interval {
  const n = values.length;
  if (n < 2) return { low: Number.NEGATIVE_INFINITY, high: Number.POSITIVE_INFINITY };
  const tail = normalBelow(-Math.sqrt(n / (n - 1)) * studentQuantile(normalQuantile(1 - alpha / 2), n - 1));
  if (n < MANY) return resampled(values, tail);
  const { mean, std } = spreadOf(values);
  const half = (normalQuantile(1 - tail) * std) / Math.sqrt(n);
  return { low: mean - half, high: mean + half };
}

const MANY = 200;

/** Student's quantile from the normal one (Cornish and Fisher 1937), exact to 0.01 from 4 degrees of freedom on. */
function studentQuantile(z: number, freedom: number): number {
  const first = (z ** 3 + z) / 4;
  const second = (5 * z ** 5 + 16 * z ** 3 + 3 * z) / 96;
  const third = (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / 384;
  return z + first / freedom + second / freedom ** 2 + third / freedom ** 3;
}

/** The chance of a normal value below `z` (Zelen and Severo 1964, 26.2.17), to 1e-7. */
export function normalBelow(z: number): number {
  if (z > 0) return 1 - normalBelow(-z);
  const t = 1 / (1 - 0.2316419 * z);
  const series = [0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429];
  const tail = series.reduceRight((sum, factor) => (sum + factor) * t, 0);
  return (Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI)) * tail;
}

/** The inverse of `normalBelow`, by halving. */
export function normalQuantile(p: number): number {
  let [low, high] = [-9, 9];
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (normalBelow(middle) < p) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

const resampled = (values: readonly number[], tail: number): Interval =>
  values.length === 0
    ? { low: 0, high: 0 }
    : betweenTails(seeded(values.length), tail, (random) => resampledMean(values, random));

/** The bounds between which a figure lies when it is drawn many times, without the share `tail` on each side. */
function betweenTails(random: Random, tail: number, draw: (random: Random) => number): Interval {
  const drawn = Array.from({ length: RESAMPLES }, () => draw(random)).sort((a, b) => a - b);
  return { low: drawn[Math.floor(RESAMPLES * tail)]!, high: drawn[Math.ceil(RESAMPLES * (1 - tail)) - 1]! };
}

/** The mean of as many values, drawn with replacement. */
function resampledMean(values: readonly number[], random: Random): number {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[Math.floor(random() * values.length)]!;
  return sum / values.length;
}

/** The values of one task, and its share of the weights: all shares are 1 together. */
export interface Stratum {
  readonly share: number;
  readonly values: readonly number[];
}

/** The mean of the tasks' means, by their shares. Every task has a value. */
export const stratifiedMean = (strata: readonly Stratum[]): number =>
  total(strata.map(({ share, values }) => share * meanOf(values)));

/**
 * The interval of `stratifiedMean`: values are resampled within each task, and their spread is corrected for the task's size. The degrees of
 * freedom are those of Satterthwaite (1946). Unbounded if a task has fewer than two values.
 */
export function stratifiedInterval(strata: readonly Stratum[], alpha = 0.05): Interval {
  const [first] = strata;
  if (strata.length === 1 && first) return bootstrapMean(first.values, alpha);
  if (strata.some(({ values }) => values.length < 2))
    return { low: Number.NEGATIVE_INFINITY, high: Number.POSITIVE_INFINITY };
  const parts = strata.map(({ share, values }) => {
    const { mean, std } = spreadOf(values);
    const freedom = values.length - 1;
    return {
      share,
      values,
      mean,
      freedom,
      stretch: Math.sqrt(values.length / freedom),
      variance: (share * std) ** 2 / freedom,
    };
  });
  const mean = total(parts.map((part) => part.share * part.mean));
  const variance = total(parts.map((part) => part.variance));
  if (variance === 0) return { low: mean, high: mean };
  const freedom = variance ** 2 / total(parts.map((part) => part.variance ** 2 / part.freedom));
  const quantile = studentQuantile(normalQuantile(1 - alpha / 2), freedom);
  const n = total(parts.map(({ values }) => values.length));
  if (n >= MANY) {
    const half = quantile * Math.sqrt(variance);
    return { low: mean - half, high: mean + half };
  }
  return betweenTails(seeded(n), normalBelow(-quantile), (random) => {
    let sum = 0;
    for (const part of parts)
      sum += part.share * (part.mean + part.stretch * (resampledMean(part.values, random) - part.mean));
    return sum;
  });
}

/** Wilson's interval of a weighted success rate, for as many trials as would give its variance if all tasks were equally hard. */
export function stratifiedWilson(strata: readonly Stratum[], z = Z): Interval {
  const n = 1 / total(strata.map(({ share, values }) => share ** 2 / values.length));
  return wilson(stratifiedMean(strata) * n, n, z);
}

/** The input of scores. */
export type EpisodeScore = Omit<EpisodeRecord, "actions">;

/** Scores over episodes. An episode with a fault counts as a failure. */
export interface Scores {
  readonly successRate: {
    readonly value: number;
    readonly successes: number;
    readonly n: number;
    readonly ci95: Interval;
    readonly ci95Exact: Interval;
  };
  readonly return: Spread & { readonly ci95: Interval };
  readonly progress: number;
  readonly steps: Spread;
  /** Of the successes; undefined without one. */
  readonly medianTimeToSuccessS: number | undefined;
  readonly terminations: Readonly<Partial<Record<Termination, number>>>;
  readonly clippedStepFraction: number;
  readonly meanActionDelta: number;
  readonly policyLatencyMs: { readonly p50: number; readonly p95: number; readonly max: number };
  readonly policyCalls: number;
  /** Realtime only: steps under an old action, and new chunks per second of simulated time. */
  readonly staleActionRatio: number;
  readonly effectiveHz: number;
  /** The mean of each of the scenario's metrics. */
  readonly metrics: Readonly<Record<string, number>>;
}

/** The distribution of values. */
export interface Spread {
  readonly mean: number;
  readonly std: number;
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** Scores of finished episodes, at least one. */
export function scoresOf(episodes: readonly EpisodeScore[]): Scores {
  const n = episodes.length;
  const successful = episodes.filter(({ success }) => success);
  const returns = episodes.map((episode) => episode.return);
  const steps = total(episodes.map((episode) => episode.steps));
  const seconds = total(episodes.map(({ simTimeS }) => simTimeS));
  const calls = total(episodes.map(({ policyCalls }) => policyCalls));
  const latencies = episodes.flatMap(({ latenciesMs }) => latenciesMs).sort((a, b) => a - b);
  return {
    successRate: {
      value: successful.length / n,
      successes: successful.length,
      n,
      ci95: wilson(successful.length, n),
      ci95Exact: clopperPearson(successful.length, n),
    },
    return: { ...spreadOf(returns), ci95: bootstrap(returns) },
    progress: meanOf(episodes.map(({ progress }) => progress)),
    steps: spreadOf(episodes.map((episode) => episode.steps)),
    medianTimeToSuccessS:
      successful.length === 0 ? undefined : spreadOf(successful.map(({ simTimeS }) => simTimeS)).median,
    terminations: countOf(episodes.map(({ termination }) => termination)),
    clippedStepFraction: steps === 0 ? 0 : total(episodes.map(({ clippedSteps }) => clippedSteps)) / steps,
    meanActionDelta: meanOf(episodes.map(({ meanActionDelta }) => meanActionDelta)),
    policyLatencyMs: {
      p50: quantile(latencies, 0.5),
      p95: quantile(latencies, 0.95),
      max: latencies.at(-1) ?? 0,
    },
    policyCalls: calls,
    staleActionRatio: steps === 0 ? 0 : total(episodes.map(({ staleSteps }) => staleSteps)) / steps,
    effectiveHz: seconds === 0 ? 0 : calls / seconds,
    metrics: meansOf(episodes.map(({ metrics }) => metrics)),
  };
}

/** Whether an episode does not measure the policy's skill, and is not charged. */
export const isFault = ({ termination }: Pick<EpisodeRecord, "termination">): boolean => FAULTS.has(termination);

const total = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0);
const meanOf = (values: readonly number[]): number => (values.length === 0 ? 0 : total(values) / values.length);

/** A quantile of sorted values, by nearest rank; 0 for none. */
const quantile = (sorted: readonly number[], share: number): number =>
  sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;

/** The median of sorted values; 0 for none. */
function medianOf(sorted: readonly number[]): number {
  const half = sorted.length / 2;
  return sorted.length === 0 ? 0 : (sorted[Math.ceil(half) - 1]! + sorted[Math.floor(half)]!) / 2;
}

function spreadOf(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const mean = meanOf(values);
  const variance = meanOf(values.map((value) => (value - mean) ** 2));
  return {
    mean,
    std: Math.sqrt(variance),
    median: medianOf(sorted),
    min: sorted[0] ?? 0,
    max: sorted.at(-1) ?? 0,
  };
}

function countOf<K extends string>(words: readonly K[]): Partial<Record<K, number>> {
  const counts: Partial<Record<K, number>> = {};
  for (const word of words) counts[word] = (counts[word] ?? 0) + 1;
  return counts;
}

function meansOf(all: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const names = new Set(all.flatMap((metrics) => Object.keys(metrics)));
  return Object.fromEntries([...names].map((name) => [name, meanOf(all.map((metrics) => metrics[name] ?? 0))]));
}
