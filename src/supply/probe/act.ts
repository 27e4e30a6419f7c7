/** What an offering that acts is asked. */

import type { Observation } from "../../../gen/limber/v1/observation_pb.ts";
import * as act from "../../contracts/act.ts";
import { dimensionOf } from "../../contracts/action-spaces.ts";
import { poseOf } from "../../contracts/bounds.ts";
import { commonChecks } from "./common-checks.ts";
import { faultOf, ProbeFault } from "./faults.ts";
import type { ProbeRun, QuestionOptions } from "./run.ts";
import { ELSEWHERE, SQUARE, WARM_CALLS } from "./scene.ts";

const PROBE_HORIZON = 4;

/** Asks for a chunk; answers its numbers, or throws a fault where it is not what was declared. */
export type AskChunk = (observation: Observation, options?: QuestionOptions) => Promise<string>;

/** Asks for chunks of a few steps, of the most that one may have. */
export function chunkAsker(run: ProbeRun, maxHorizon = run.probed.offering.maxHorizon): AskChunk {
  const { offering, target, wire, bounds } = run.probed;
  const space = offering.actionSpaces[0] ?? "";
  let horizon = Math.min(PROBE_HORIZON, maxHorizon);
  const dim = dimensionOf(space, offering.actionDim);
  const input = {
    seed: undefined,
    temperature: undefined,
    sessionId: undefined,
    actionSpace: space,
    returnPrediction: false,
  };
  const limits = (shown: Observation) => bounds && [{ bounds, pose: poseOf(space, [shown], dim) }];
  return async (observation, options = {}) => {
    const speaks = wire.act?.bind(wire);
    if (!speaks) throw new Error(`the wire ${wire.id} does not speak act`);
    const { variant } = options;
    const observations = run.moments(observation, variant);
    const goal = await run.goal(variant);
    const instruction = run.instruction(variant);
    const question = { ...input, instruction, seed: options.seed, horizon: options.horizon ?? horizon, observations };
    const asked = () =>
      speaks({ ...(options.target ?? target), actionDim: dim }, question, run.frames(observations, goal), run.call());
    const answer = await (options.aside ? asked() : run.timed(asked));
    // A server whose chunks have a length of their own is held to the shortest.
    if (answer.chunk !== undefined) run.chunkSteps = Math.min(run.chunkSteps ?? answer.chunk, answer.chunk);
    horizon = Math.min(horizon, run.chunkSteps ?? horizon);
    const failure = act.checkAnswer(answer, { units: options.horizon ?? horizon, dim }, limits(observation));
    if (failure !== undefined) throw new ProbeFault(faultOf(failure, answer.steps[0]?.values.length, dim));
    run.actionDim = answer.steps[0]?.values.length;
    return JSON.stringify(answer.steps.map((step) => step.values));
  };
}

/** Asks for chunks: their shape, whether they depend on what is seen, and how steady they are. `maxHorizon` is as declared. */
export async function probeAct(run: ProbeRun, maxHorizon: number): Promise<void> {
  const { offering } = run.probed;
  const shortest = (): number => Math.min(PROBE_HORIZON, maxHorizon, run.chunkSteps ?? maxHorizon);
  const dim = dimensionOf(offering.actionSpaces[0] ?? "", offering.actionDim);
  const ask = chunkAsker(run, maxHorizon);

  const here = await run.observation(SQUARE, 0);
  let first = "";
  const shaped = await run.check("action_shape", async () => {
    first = await ask(here);
    return `${shortest()} steps of ${dim ?? run.actionDim} finite numbers`;
  });
  if (!shaped) return;
  await run.check("answers_differ", async () => {
    const second = await ask(await run.observation(ELSEWHERE, 1));
    if (second === first) throw new ProbeFault("two different observations gave the same actions: is this a stub?");
    return "two different observations gave different actions";
  });
  await run.check("steady", async () => {
    for (let i = 0; i < WARM_CALLS; i++) await ask(here);
    return `${WARM_CALLS} more calls answered`;
  });
  if (offering.parameters.includes("seed")) {
    await run.check("seed_repeatable", async () => {
      const [one, other] = [await ask(here, { seed: 7, aside: true }), await ask(here, { seed: 7, aside: true })];
      if (one !== other) throw new ProbeFault("the same seed gave two different chunks");
      return "the same seed gave the same chunk";
    });
  }
  const longest = Math.min(maxHorizon, run.chunkSteps ?? maxHorizon);
  if (longest > shortest()) {
    await run.check(
      "longest_horizon",
      async () => {
        await ask(here, { horizon: longest, aside: true });
        const chunk = run.chunkSteps === undefined ? "" : `, of chunks of ${run.chunkSteps}`;
        return `${longest} steps in one answer${chunk}`;
      },
      false,
    );
  }
  await commonChecks(run, ask, here);
}
