/** What an offering that acts is asked. */

import type { Observation } from "../../../gen/limber/v1/observation_pb.ts";
import * as act from "../../contracts/act.ts";
import { dimensionOf } from "../../contracts/action-spaces.ts";
import { poseOf } from "../../contracts/bounds.ts";
import { Contract } from "../../contracts/contract.ts";
import type { Offering } from "../../routing/index.ts";
import { faultOf, ProbeFault } from "./faults.ts";
import { manners } from "./manners.ts";
import type { ProbeRun, Twist } from "./run.ts";
import { ELSEWHERE, INSTRUCTION, intentFor, SQUARE, WARM_CALLS } from "./scene.ts";

const PROBE_HORIZON = 4;

/** Asks for a chunk; answers its numbers, or throws a fault where it is not what was declared. */
export type AskChunk = (observation: Observation, twist?: Twist) => Promise<string>;

/** Asks for chunks of a few steps. */
export function chunkAsker(run: ProbeRun): AskChunk {
  const { offering, target, wire, bounds } = run.probed;
  const space = offering.actionSpaces[0] ?? "";
  const horizon = horizonOf(offering);
  const dim = dimensionOf(space, offering.actionDim);
  const intent = intentFor(offering, Contract.ACT, space, horizon);
  const input = {
    instruction: INSTRUCTION,
    seed: undefined,
    temperature: undefined,
    sessionId: undefined,
    actionSpace: space,
    horizon,
    returnPrediction: false,
  };
  const limits = (shown: Observation) => bounds && [{ bounds, pose: poseOf(space, [shown], dim) }];
  return async (observation, twist = {}) => {
    const speaks = wire.act?.bind(wire);
    if (!speaks) throw new Error(`the wire ${wire.id} does not speak act`);
    const units = twist.horizon ?? horizon;
    const question = { ...input, seed: twist.seed, horizon: units, observations: [observation] };
    const asked = () =>
      speaks({ ...(twist.target ?? target), actionDim: dim }, question, run.frames([observation]), run.call());
    const answer = await (twist.aside ? asked() : run.timed(asked));
    const failure = act.checkAnswer(answer, { intent: { ...intent, units }, dim }, limits(observation));
    if (failure !== undefined) throw new ProbeFault(faultOf(failure, answer.steps[0]?.values.length, dim));
    run.actionDim = answer.steps[0]?.values.length;
    return JSON.stringify(answer.steps.map((step) => step.values));
  };
}

const horizonOf = ({ maxHorizon }: Offering): number => Math.min(PROBE_HORIZON, maxHorizon);

/** Asks for chunks: their shape, whether they depend on what is seen, and how steady they are. */
export async function probeAct(run: ProbeRun): Promise<void> {
  const { offering } = run.probed;
  const horizon = horizonOf(offering);
  const dim = dimensionOf(offering.actionSpaces[0] ?? "", offering.actionDim);
  const ask = chunkAsker(run);

  const here = await run.observation(SQUARE, 0);
  let first = "";
  const shaped = await run.check("action_shape", async () => {
    first = await ask(here);
    return `${horizon} steps of ${dim ?? run.actionDim} finite numbers`;
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
  if (offering.maxHorizon > horizon) {
    await run.check(
      "longest_horizon",
      async () => {
        await ask(here, { horizon: offering.maxHorizon, aside: true });
        return `${offering.maxHorizon} steps in one answer`;
      },
      false,
    );
  }
  await manners(run, ask, here);
}
