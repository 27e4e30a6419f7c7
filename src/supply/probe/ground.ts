/** What an offering that grounds is asked. */

import type { Observation } from "../../../gen/limber/v1/observation_pb.ts";
import type { GroundAnswer } from "../../contracts/contract.ts";
import * as ground from "../../contracts/ground.ts";
import { commonChecks } from "./common-checks.ts";
import { faultOf, ProbeFault } from "./faults.ts";
import type { ProbeRun, QuestionOptions } from "./run.ts";
import { ELSEWHERE, SQUARE, WARM_CALLS } from "./scene.ts";

/** Asks where the red square is; throws a fault where the answer is none. */
export function placeAsker(
  run: ProbeRun,
): (observation: Observation, options?: QuestionOptions) => Promise<GroundAnswer> {
  const { target, wire } = run.probed;
  return async (observation, options = {}) => {
    const speaks = wire.ground?.bind(wire);
    if (!speaks) throw new Error(`the wire ${wire.id} does not speak ground`);
    const input = {
      observations: [observation] as const,
      instruction: "the red square",
      seed: undefined,
      temperature: undefined,
      sessionId: undefined,
    };
    const asked = () => speaks(options.target ?? target, input, run.frames([observation]), run.call());
    const answer = await (options.aside ? asked() : run.timed(asked));
    const failure = ground.checkAnswer(answer, observation.frames.length);
    if (failure !== undefined) throw new ProbeFault(faultOf(failure, undefined, undefined));
    return answer;
  };
}

/** One square at a known, asymmetric place shows swapped axes and wrong units at once. */
export async function probeGround(run: ProbeRun): Promise<void> {
  const ask = placeAsker(run);
  const here = await run.observation(SQUARE, 0);
  let first = "";
  const found = await run.check("square_found", async () => {
    const answer = await ask(here);
    first = placesIn(answer);
    if (!isAt(answer, SQUARE))
      throw new ProbeFault(
        `a red square at (${SQUARE.x}, ${SQUARE.y}) was not found there: check the order and unit of coordinates`,
      );
    return "the red square was found where it is";
  });
  if (!found) return;
  await run.check("answers_differ", async () => {
    const second = placesIn(await ask(await run.observation(ELSEWHERE, 1)));
    if (second === first) throw new ProbeFault("two different observations gave the same places: is this a stub?");
    return "two different observations gave different places";
  });
  await run.check("steady", async () => {
    for (let i = 0; i < WARM_CALLS; i++) await ask(here);
    return `${WARM_CALLS} more calls answered`;
  });
  await commonChecks(run, async (observation, options) => placesIn(await ask(observation, options)), here);
}

const placesIn = ({ points, boxes }: GroundAnswer): string =>
  JSON.stringify([
    points.map(({ x, y }) => [x, y]),
    boxes.map(({ xMin, yMin, xMax, yMax }) => [xMin, yMin, xMax, yMax]),
  ]);

/** Whether something was found about there. */
function isAt({ points, boxes }: GroundAnswer, place: { x: number; y: number }): boolean {
  const near = (x: number, y: number): boolean => Math.abs(x - place.x) < 0.1 && Math.abs(y - place.y) < 0.1;
  return (
    points.some(({ x, y }) => near(x, y)) ||
    boxes.some((box) => near((box.xMin + box.xMax) / 2, (box.yMin + box.yMax) / 2))
  );
}
