/** Seeded episodes of the controllers in a closed loop, with the model and with those who look at nothing. */

import { expect } from "vitest";
import { CONTROLLERS, plan } from "../../../src/reference/act/plan.ts";
import type { ActionSpace, ActOutput } from "../../../src/reference/act/types.ts";
import type { RgbFrame } from "../../../src/reference/image.ts";
import { runs } from "../../support/runs.ts";
import { between, seeded } from "../../support/scenes.ts";

/** How many episodes of each kind. */
export const EPISODES = runs(5);
/** Rows of each chunk that are carried out before the next is asked for. */
export const REPLAN = 8;

/** Numbers of a seed, from 0 to below 1. */
export type Random = () => number;
/** What a controller is given. */
export type Observation = { proprio: number[]; frames?: RgbFrame[]; instruction?: string };
/** Who acts: gives a chunk of at least `REPLAN` rows for what is observed. */
export type Actor = (space: ActionSpace, observation: Observation, random: Random) => ActOutput;

/** The reference provider's own. */
export const model: Actor = (actionSpace, observation) =>
  plan({ actionSpace, horizon: 16, frames: [], ...observation });

/** A chunk of the right shape that looks at nothing. */
const withNumbers =
  (number: (random: Random) => number): Actor =>
  (space, _, random) => {
    const { dim, dtMs } = CONTROLLERS[space].declaration;
    return { steps: Float64Array.from({ length: REPLAN * dim }, () => number(random)), dim, dtMs, note: "" };
  };
const idle = withNumbers(() => 0);
const erratic = withNumbers((random) => between(random, -1, 1));

/** How many of the seeded episodes succeed. */
function successes(episode: (actor: Actor, random: Random) => boolean, actor: Actor): number {
  return Array.from({ length: EPISODES }, (_, i) => episode(actor, seeded(i + 1))).filter(Boolean).length;
}

/** The rows of a chunk that are carried out. */
export function rowsOf({ steps, dim }: ActOutput): Float64Array[] {
  return Array.from({ length: REPLAN }, (_, row) => steps.subarray(row * dim, (row + 1) * dim));
}

/** All succeed with the model; of the episodes that nobody steers, at most two do by luck. */
export function expectOnlyTheModelToSucceed(episode: (actor: Actor, random: Random) => boolean): void {
  expect(successes(episode, model)).toBe(EPISODES);
  expect(successes(episode, idle)).toBeLessThanOrEqual(2);
  expect(successes(episode, erratic)).toBeLessThanOrEqual(2);
}
