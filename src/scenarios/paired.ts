/** Policies compared on equal seeds: paired differences, an exact test, and a sequence that stays valid whenever it is looked at. */
import { bootstrapMean, type Interval, normalBelow, stratifiedInterval, stratifiedMean, Z } from "./scores.ts";

/** The outcome of one episode, as far as policies are compared by it. */
export interface Outcome {
  readonly success: boolean;
  /** 0 to 1. */
  readonly progress: number;
  readonly return: number;
}

/** What decides which policy is better. Both are between 0 and 1, which the anytime-valid sequence needs. */
export type Metric = "success" | "progress";

/** The mean difference of two policies over their common seeds, the first minus the second. */
export interface Difference {
  readonly mean: number;
  readonly ci95: Interval;
}

/** McNemar's exact test: seeds that only one of the two solved, and the two-sided p-value. */
export interface McNemar {
  readonly onlyA: number;
  readonly onlyB: number;
  readonly p: number;
}

/** A difference that was watched from the first seed on. */
export interface Sequence {
  /** Contains the true difference at all times at once, with the chance of the level that it was made for. */
  readonly interval: Interval;
  /** The number of seeds after which the interval first excluded zero, for good; undefined while it contains zero. */
  readonly knownAfter: number | undefined;
}

/** Two policies on their common seeds. */
export interface Pair {
  /** Common seeds. */
  readonly n: number;
  readonly success: Difference;
  readonly progress: Difference;
  readonly return: Difference;
  readonly mcnemar: McNemar;
  readonly anytime: Sequence;
  /** Which of the two is better at the level; undefined where that is open. */
  readonly better: "a" | "b" | undefined;
}

/** How pairs are judged. */
export interface Judging {
  readonly metric: Metric;
  /** The chance of any error among all pairs, such as 0.05; each pair gets its share (Bonferroni). */
  readonly alpha: number;
  readonly pairs: number;
  /** Whether the comparison may stop as soon as a difference is known, so that only the anytime-valid sequence may decide. */
  readonly mayStop: boolean;
}

/** Compares two policies, each with its outcomes in the order of the same seeds. */
export function pairOf(a: readonly Outcome[], b: readonly Outcome[], judging: Judging): Pair {
  const n = Math.min(a.length, b.length);
  const differences = (read: (outcome: Outcome) => number): number[] =>
    Array.from({ length: n }, (_, i) => read(a[i]!) - read(b[i]!));
  const by = {
    success: differences(({ success }) => Number(success)),
    progress: differences(({ progress }) => progress),
    return: differences((outcome) => outcome.return),
  };
  const alpha = judging.alpha / judging.pairs;
  const onlyA = by.success.filter((d) => d > 0).length;
  const onlyB = by.success.filter((d) => d < 0).length;
  const mcnemar = { onlyA, onlyB, p: mcnemarExact(onlyA, onlyB) };
  const watched = new Betting(alpha);
  for (const difference of by[judging.metric]) watched.add(difference);
  const anytime = watched.sequence();
  const pair = {
    n,
    success: { mean: meanOf(by.success), ci95: rateDifference(onlyA, onlyB, n) },
    progress: { mean: meanOf(by.progress), ci95: bootstrapMean(by.progress) },
    return: { mean: meanOf(by.return), ci95: bootstrapMean(by.return) },
    mcnemar,
    anytime,
  };
  return { ...pair, better: betterOf(pair, by.progress, alpha, judging) };
}

function betterOf(
  { mcnemar, anytime }: Omit<Pair, "better">,
  progress: readonly number[],
  alpha: number,
  { metric, mayStop }: Judging,
): Pair["better"] {
  if (mayStop) return anytime.knownAfter === undefined ? undefined : sideOf(anytime.interval.low);
  if (metric === "success") return mcnemar.p < alpha ? sideOf(mcnemar.onlyA - mcnemar.onlyB) : undefined;
  const { low, high } = bootstrapMean(progress, alpha);
  return low > 0 || high < 0 ? sideOf(low) : undefined;
}

const sideOf = (difference: number): "a" | "b" => (difference > 0 ? "a" : "b");

/** The two-sided exact p-value of McNemar's test (1947): among seeds that only one policy solved, each is as likely to be either's. */
export function mcnemarExact(onlyA: number, onlyB: number): number {
  const n = onlyA + onlyB;
  let log = -n * Math.LN2;
  let below = 0;
  for (let k = 0; k <= Math.min(onlyA, onlyB); k++) {
    below += Math.exp(log);
    log += Math.log((n - k) / (k + 1));
  }
  return Math.min(1, 2 * below);
}

/**
 * The 95 % interval of the difference of two success rates on equal seeds (Bonett and Price, Journal of Educational and Behavioral Statistics
 * 37, 2012): one seed is added to each side. Resampling would give an interval of no width where few seeds differ.
 */
export const rateDifference = (onlyA: number, onlyB: number, n: number): Interval =>
  weightedRateDifference([{ share: 1, onlyA, onlyB, n }]);

/** A task's share of the weights, and the seeds that only one of two policies solved. */
interface RateStratum {
  readonly share: number;
  readonly onlyA: number;
  readonly onlyB: number;
  readonly n: number;
}

/** The same over tasks. The seed on each side is divided among them, because one in each would hide a difference of many small tasks. */
function weightedRateDifference(tasks: readonly RateStratum[]): Interval {
  const added = 1 / tasks.length;
  let [mean, variance] = [0, 0];
  for (const { share, onlyA, onlyB, n } of tasks) {
    const size = n + 2 * added;
    const [a, b] = [(onlyA + added) / size, (onlyB + added) / size];
    mean += share * (a - b);
    // What the added seed does for one task, a sample's correction does for many.
    variance += (share ** 2 * (a + b - (a - b) ** 2) * (n / (n - 1 + added))) / size;
  }
  const half = Z * Math.sqrt(variance);
  return { low: Math.max(-1, mean - half), high: Math.min(1, mean + half) };
}

/** One task of a suite: its share of the weights, and the outcomes of two policies in the order of the same seeds. */
export interface PairedTask {
  readonly share: number;
  readonly a: readonly Outcome[];
  readonly b: readonly Outcome[];
}

/** Two policies on the common seeds of every task of a suite. */
export interface WeightedPair extends Pick<Pair, "n" | "success" | "progress" | "anytime" | "better"> {
  /** Two-sided p-value of the sign-flip test of the weighted difference by the metric. */
  readonly p: number;
}

/**
 * Compares two policies over the tasks of a suite by the weighted mean of their differences; undefined before they have a common seed in every
 * task. The anytime-valid sequence watches the weighted differences of rounds, one seed of every task each, until a task has no more.
 */
export function weightedPairOf(tasks: readonly PairedTask[], judging: Judging): WeightedPair | undefined {
  const parts = tasks.map(({ share, a, b }) => ({ share, a, b, n: Math.min(a.length, b.length) }));
  if (parts.some(({ n }) => n === 0)) return undefined;
  const by = (read: (outcome: Outcome) => number) =>
    parts.map(({ share, a, b, n }) => ({
      share,
      values: Array.from({ length: n }, (_, i) => read(a[i]!) - read(b[i]!)),
    }));
  const strata = { success: by(({ success }) => Number(success)), progress: by(({ progress }) => progress) };
  const alpha = judging.alpha / judging.pairs;
  const watched = new Betting(alpha);
  const judged = strata[judging.metric];
  const rounds = Math.min(...parts.map(({ n }) => n));
  for (let i = 0; i < rounds; i++) watched.add(judged.reduce((sum, { share, values }) => sum + share * values[i]!, 0));
  const anytime = watched.sequence();
  const rates = strata.success.map(({ share, values }) => ({
    share,
    n: values.length,
    onlyA: values.filter((d) => d > 0).length,
    onlyB: values.filter((d) => d < 0).length,
  }));
  const p = signFlip(judged.flatMap(({ share, values }) => values.map((d) => (share * d) / values.length)));
  const isKnown = judging.mayStop ? anytime.knownAfter !== undefined : p < alpha;
  const side = judging.mayStop ? anytime.interval.low : stratifiedMean(judged);
  return {
    n: parts.reduce((sum, { n }) => sum + n, 0),
    success: { mean: stratifiedMean(strata.success), ci95: weightedRateDifference(rates) },
    progress: { mean: stratifiedMean(strata.progress), ci95: stratifiedInterval(strata.progress) },
    p,
    anytime,
    better: isKnown ? sideOf(side) : undefined,
  };
}

/**
 * The two-sided p-value of Fisher's sign-flip test (1935): if two policies are equally good, each difference is as likely to have the other sign.
 * The chance that a sum of such signs is at least as far from zero follows from its saddlepoint (Lugannani and Rice, Advances in Applied
 * Probability 12, 1980), corrected for continuity by the smallest difference. Exact if all differences have the same sign; for equal differences
 * within a tenth of McNemar's p-value.
 */
export function signFlip(differences: readonly number[]): number {
  const largest = differences.reduce((most, d) => Math.max(most, Math.abs(d)), 0);
  // Differences of one task often have the same size.
  const sizes = new Map<number, number>();
  for (const d of differences)
    if (d !== 0) sizes.set(Math.abs(d) / largest, (sizes.get(Math.abs(d) / largest) ?? 0) + 1);
  const total = (read: (size: number) => number): number =>
    [...sizes].reduce((sum, [size, count]) => sum + count * read(size), 0);
  const observed = Math.abs(differences.reduce((sum, d) => sum + d, 0)) / (largest || 1);
  if (observed > total((size) => size) - 1e-9) return Math.min(1, 2 ** (1 - total(() => 1)));
  const sum = observed - Math.min(...sizes.keys());
  if (sum < 1e-9) return 1;
  // The tilt under which the observed sum is the mean.
  let [low, high] = [0, 1];
  const tiltedMean = (tilt: number): number => total((size) => size * Math.tanh(size * tilt));
  while (tiltedMean(high) < sum && high < 1e6) high *= 2;
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (tiltedMean(middle) < sum) low = middle;
    else high = middle;
  }
  const logs = total((size) => size * low + Math.log1p(Math.exp(-2 * size * low)) - Math.LN2);
  const spread = total((size) => (size / Math.cosh(size * low)) ** 2);
  const r = Math.sqrt(2 * Math.max(0, low * sum - logs));
  if (r < 1e-3) return 1;
  const density = Math.exp((-r * r) / 2) / Math.sqrt(2 * Math.PI);
  return Math.min(1, Math.max(0, 2 * (normalBelow(-r) + density * (1 / (low * Math.sqrt(spread)) - 1 / r))));
}

/** The seeds that a comparison of this size needs to show its difference with a power of 80 % at 5 %; undefined without a difference. */
export function seedsNeeded({ n, success, mcnemar }: Pick<Pair, "n" | "success" | "mcnemar">): number | undefined {
  if (n === 0 || success.mean === 0) return undefined;
  const variance = (mcnemar.onlyA + mcnemar.onlyB) / n - success.mean ** 2;
  return Math.max(n + 1, Math.ceil(((Z + POWER) ** 2 * Math.max(variance, 1 / n)) / success.mean ** 2));
}

/** The normal quantile of 80 %. */
const POWER = 0.8416212335729143;

/** The largest share of its wealth that a bet may lose on one seed. */
const MOST = 0.5;

/**
 * A confidence sequence of the mean of differences in [-1, 1]: the hedged capital process of Waudby-Smith and Ramdas, "Estimating means of
 * bounded random variables by betting" (Journal of the Royal Statistical Society B 86, 2024), section 4.1, with their predictable bets. A
 * gambler bets against every mean at once, half of the money on each side. Where the mean is true the wealth is a nonnegative martingale, so it
 * exceeds 1/alpha with a chance of at most alpha, ever (Ville 1939): the means against which it never did contain the true one at all times.
 */
export class Betting {
  readonly #alpha: number;
  /** Values moved to [0, 1], and the bet on each, which depends on earlier values only. */
  readonly #values: number[] = [];
  readonly #bets: number[] = [];
  #sum = 0;
  #squares = 0;
  /** Log wealth against "no difference", on either side. */
  #above = 0;
  #below = 0;
  #knownAfter: number | undefined;

  constructor(alpha: number) {
    this.#alpha = alpha;
  }

  /** The number of differences after which zero was excluded. */
  get knownAfter(): number | undefined {
    return this.#knownAfter;
  }

  add(difference: number): void {
    const value = (difference + 1) / 2;
    const t = this.#values.length + 1;
    const mean = (0.5 + this.#sum) / t;
    const variance = (0.25 + this.#squares) / t;
    const bet = Math.sqrt((2 * Math.log(2 / this.#alpha)) / (variance * t * Math.log(1 + t)));
    this.#values.push(value);
    this.#bets.push(bet);
    this.#sum += value;
    this.#squares += (value - mean) ** 2;
    this.#above += gain(value, bet, 0.5);
    this.#below += gain(1 - value, bet, 0.5);
    if (Math.max(this.#above, this.#below) >= this.#enough) this.#knownAfter ??= t;
  }

  /** The sequence after the differences so far. */
  sequence(): Sequence {
    const mirrored = this.#values.map((value) => 1 - value);
    const low = this.#excludedBelow(this.#values);
    const high = 1 - this.#excludedBelow(mirrored);
    const interval = { low: 2 * low - 1, high: 2 * high - 1 };
    return { interval, knownAfter: this.#knownAfter };
  }

  /** The log of the wealth that excludes a mean. */
  get #enough(): number {
    return Math.log(2 / this.#alpha);
  }

  /** The largest mean against which the wealth ever sufficed; a bet on more wins less against a larger mean, so it is found by halving. */
  #excludedBelow(values: readonly number[]): number {
    let [low, high] = [0, 1];
    for (let i = 0; i < 24; i++) {
      const middle = (low + high) / 2;
      if (this.#isExcluded(values, middle)) low = middle;
      else high = middle;
    }
    return low;
  }

  #isExcluded(values: readonly number[], mean: number): boolean {
    let wealth = 0;
    for (const [i, value] of values.entries()) {
      wealth += gain(value, this.#bets[i]!, mean);
      if (wealth >= this.#enough) return true;
    }
    return false;
  }
}

/** What a bet on more than `mean` adds to the log of the wealth. */
const gain = (value: number, bet: number, mean: number): number =>
  Math.log1p(Math.min(bet, MOST / mean) * (value - mean));

const meanOf = (values: readonly number[]): number =>
  values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
