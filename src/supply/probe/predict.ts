/** What an offering that predicts is asked. */

import type { Observation } from "../../../gen/limber/v1/observation_pb.ts";
import type { PredictAnswer } from "../../contracts/contract.ts";
import * as predict from "../../contracts/predict.ts";
import { commonChecks } from "./common-checks.ts";
import { faultOf, ProbeFault } from "./faults.ts";
import type { ProbeRun, QuestionOptions } from "./run.ts";

const PROBE_FRAMES = 2;

/** Asks for so many frames; answers their bytes, or throws a fault where they are not what was asked for. */
export function frameAsker(
  run: ProbeRun,
  horizon: number,
): (observations: readonly Observation[], options?: QuestionOptions) => Promise<string> {
  const { target, wire } = run.probed;
  return async (observations, options = {}) => {
    const speaks = wire.predict?.bind(wire);
    if (!speaks) throw new Error(`the wire ${wire.id} does not speak predict`);
    const input = {
      observations,
      instruction: run.instruction(options.variant),
      seed: undefined,
      temperature: undefined,
      sessionId: undefined,
      horizon,
      actions: [],
      actionSpace: undefined,
      fps: undefined,
      resolution: undefined,
    };
    const asked = async () => {
      const whole: PredictAnswer = { frames: [], gpuSeconds: 0, note: "" };
      const frames = run.frames(observations, await run.goal(options.variant));
      for await (const part of speaks(options.target ?? target, input, frames, run.call())) {
        if (part.kind === "frame") whole.frames.push(part.frame);
      }
      return whole;
    };
    const answer = await (options.aside ? asked() : run.timed(asked));
    const failure = predict.checkAnswer(answer, { units: horizon });
    if (failure !== undefined) throw new ProbeFault(faultOf(failure, answer.frames.length, horizon));
    return Buffer.concat(answer.frames.map((frame) => frame.data)).toString("base64");
  };
}

/** Asks for frames: whether they can be read, and whether they depend on what is seen. */
export async function probePredict(run: ProbeRun): Promise<void> {
  const horizon = Math.min(PROBE_FRAMES, run.probed.offering.maxHorizon);
  const ask = frameAsker(run, horizon);
  const passing = (places: readonly { x: number; y: number }[]): Promise<Observation[]> =>
    Promise.all(places.map((place) => run.observation(place, 0)));
  const here = await passing([0.3, 0.35, 0.4].map((x) => ({ x, y: 0.5 })));
  let first = "";
  const shaped = await run.check("frames", async () => {
    first = await ask(here);
    return `${horizon} frames that can be read`;
  });
  if (!shaped) return;
  await run.check("answers_differ", async () => {
    const second = await ask(await passing([0.7, 0.65, 0.6].map((y) => ({ x: 0.6, y }))));
    if (second === first) throw new ProbeFault("two different observations gave the same frames: is this a stub?");
    return "two different observations gave different frames";
  });
  await commonChecks(
    run,
    (observation, options) => ask(run.moments(observation, options?.variant), options),
    here.at(-1)!,
  );
}
