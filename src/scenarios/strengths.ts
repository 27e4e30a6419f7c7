/** Strengths of policies that met on common seeds, by the model of Bradley and Terry (Biometrika 39, 1952). */
import type { Sliced } from "../slices.ts";
import { seeded } from "./chance.ts";
import type { Interval } from "./scores.ts";

/** The results of policies on one task, one list per policy in the order of the same seeds: the higher wins. */
export interface Games {
  /** What a seed counts. */
  readonly weight: number;
  readonly results: readonly (readonly number[])[];
}

/** A policy's strength: the difference of two is the logarithm of the odds that one wins on a seed. All are 0 on average. */
export interface Strength {
  readonly value: number;
  /** At 95 %, by bootstrap over seeds. */
  readonly ci95: Interval;
}

/** Games that each policy won, and lost, against an average one: so few that they matter only where a policy always wins or loses. */
const PRIOR = 0.5;
const RESAMPLES = 400;
const MOST_STEPS = 1_000;
const TOLERANCE = 1e-6;

/**
 * The strengths of at least two policies. A tie counts half a win for both. The fit always converges: its prior keeps even a policy that won every
 * seed finite.
 */
export function* strengthsOf(games: readonly Games[]): Sliced<Strength[]> {
  const players = games[0]?.results.length ?? 0;
  const wins = games.map((game) => seedsOf(game));
  const whole = fitted(totalOf(players, wins, (n) => Array.from({ length: n }, (_, i) => i)));
  const random = seeded(wins.reduce((sum, { n }) => sum + n, 0));
  const drawn: number[][] = [];
  while (drawn.length < RESAMPLES) {
    const total = totalOf(players, wins, (n) => Array.from({ length: n }, () => Math.floor(random() * n)));
    drawn.push(fitted(total, whole));
    yield;
  }
  return whole.map((value, i) => {
    const sorted = drawn.map((each) => each[i]!).sort((a, b) => a - b);
    const ci95 = { low: sorted[Math.floor(RESAMPLES * 0.025)]!, high: sorted[Math.ceil(RESAMPLES * 0.975) - 1]! };
    return { value, ci95 };
  });
}

/** The results of a task by seed; those of policies that have not run it are missing at the end. */
interface Seeds {
  readonly weight: number;
  readonly n: number;
  readonly results: Games["results"];
}

const seedsOf = ({ weight, results }: Games): Seeds => ({
  weight,
  n: Math.max(0, ...results.map(({ length }) => length)),
  results,
});

/** Wins of each policy against each other one, in rows. */
function totalOf(players: number, tasks: readonly Seeds[], seedsFor: (n: number) => readonly number[]): Float64Array {
  const wins = new Float64Array(players * players);
  for (const { weight, n, results } of tasks)
    for (const seed of seedsFor(n))
      for (let a = 0; a < players; a++) {
        const one = results[a]![seed];
        if (one === undefined) continue;
        for (let b = a + 1; b < players; b++) {
          const other = results[b]![seed];
          if (other === undefined) continue;
          const won = one === other ? 0.5 : Number(one > other);
          wins[a * players + b]! += weight * won;
          wins[b * players + a]! += weight * (1 - won);
        }
      }
  return wins;
}

/**
 * The strengths of largest likelihood with the prior, by the MM algorithm of Hunter, "MM algorithms for generalized Bradley-Terry models" (The
 * Annals of Statistics 32, 2004), equation 3.
 */
function fitted(wins: Float64Array, from?: readonly number[]): number[] {
  const players = Math.sqrt(wins.length);
  const worth = Float64Array.from({ length: players }, (_, i) => Math.exp(from?.[i] ?? 0));
  for (let step = 0; step < MOST_STEPS; step++) {
    let change = 0;
    for (let a = 0; a < players; a++) {
      let won = PRIOR;
      let played = (2 * PRIOR) / (worth[a]! + 1);
      for (let b = 0; b < players; b++) {
        if (a === b) continue;
        const here = wins[a * players + b]!;
        won += here;
        played += (here + wins[b * players + a]!) / (worth[a]! + worth[b]!);
      }
      const next = won / played;
      change = Math.max(change, Math.abs(Math.log(next / worth[a]!)));
      worth[a] = next;
    }
    if (change < TOLERANCE) break;
  }
  const logs = [...worth].map(Math.log);
  const mean = logs.reduce((sum, log) => sum + log, 0) / players;
  return logs.map((log) => log - mean);
}
