/**
 * Whether this process has its core to itself. Two hardware threads share one, and a guest is not told what its neighbour on the other
 * one does: while that one works, code that keeps the core busy takes nearly twice as long, whatever was compiled of it, and seconds
 * later as long as before. So a fixed piece of such work is timed before and after each round of what is measured, and rounds are told apart by it.
 */
import { median } from "./processes.ts";

/** Figures of one round in microseconds, and what the fixed work took around it. */
export interface Round {
  readonly p50: number;
  readonly p99: number;
  readonly ruler: number;
}

/** What rounds say: the medians of those with a core to themselves, the median of those without, and how many of all the first were. */
export interface Figure {
  readonly p50: number;
  readonly p99: number;
  /** NaN when there were none. */
  readonly sharedP50: number;
  readonly ownShare: number;
}

/** Long enough for the optimising compiler, whose turn comes after seconds and not after calls. */
const WARM_MS = 1500;

/** Rounds are short, so that one seldom sees a neighbour come or go; and many, so that some see none. */
const ROUNDS = 30;
const ROUND_MS = 30;

/** A core is this process's own while the fixed work takes at most so many times its least. */
const SHARED = 1.3;
const HANDFUL = 10;

/** Times calls in many short rounds, after a warm-up. */
export function roundsOf(run: () => unknown): Round[] {
  for (const start = performance.now(); performance.now() - start < WARM_MS; ) {
    run();
    fixedWork();
  }
  return Array.from({ length: ROUNDS }, () => roundOf(run));
}

function roundOf(run: () => unknown): Round {
  const took: number[] = [];
  const before = rulerMicros();
  for (const start = performance.now(); performance.now() - start < ROUND_MS || took.length === 0; ) {
    took.push(microsOf(run));
  }
  took.sort((a, b) => a - b);
  const ruler = Math.max(before, rulerMicros());
  return { p50: took[took.length >> 1]!, p99: took[Math.floor(took.length * 0.99)]!, ruler };
}

/** The fixed work's least time in a handful, the first of which find the caches full of something else. */
const rulerMicros = (): number => Math.min(...Array.from({ length: HANDFUL }, () => microsOf(fixedWork)));

function microsOf(run: () => unknown): number {
  const start = process.hrtime.bigint();
  run();
  return Number(process.hrtime.bigint() - start) / 1000;
}

/** What the fixed work takes on a core of its own, as far as these rounds know. */
export const leastRuler = (rounds: readonly Round[]): number => Math.min(...rounds.map(({ ruler }) => ruler));

/** The figure of rounds, where the fixed work takes `least` on a core of its own. */
export function figureOf(rounds: readonly Round[], least: number): Figure {
  const own = rounds.filter(({ ruler }) => ruler <= SHARED * least);
  const shared = rounds.filter(({ ruler }) => ruler > SHARED * least);
  const of = (some: readonly Round[], name: "p50" | "p99"): number =>
    some.length === 0 ? Number.NaN : median(some.map((round) => round[name]));
  return {
    p50: of(own, "p50"),
    p99: of(own, "p99"),
    sharedP50: of(shared, "p50"),
    ownShare: own.length / rounds.length,
  };
}

const LENGTH = 1024;
const PASSES = 4;
const factors = new Float64Array(LENGTH).fill(1.5);
const others = new Float64Array(LENGTH).fill(2.5);
const places = Uint32Array.from({ length: LENGTH }, (_, i) => (i * 769) % LENGTH);

/** Reads and products that don't wait for each other, so that all of the core has something to do. Little memory: what is measured finds its own in the caches. */
function fixedWork(): number {
  let [a, b, c, d] = [0, 0, 0, 0];
  for (let pass = 0; pass < PASSES; pass++) {
    for (let i = 0; i < LENGTH; i += 4) {
      a += factors[places[i]!]! * others[i]!;
      b += factors[places[i + 1]!]! * others[i + 1]!;
      c += factors[places[i + 2]!]! * others[i + 2]!;
      d += factors[places[i + 3]!]! * others[i + 3]!;
    }
  }
  return a + b + c + d;
}
