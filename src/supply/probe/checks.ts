/** The checks of the probe, for each contract and for all. */
import { create } from "@bufbuild/protobuf";
import {
  type CameraSpec,
  ContractSource,
  type InputContract,
  InputNeed,
} from "../../../gen/limber/v1/input_contract_pb.ts";
import {
  FrameSchema,
  ImageFormat,
  type Observation,
  ObservationSchema,
} from "../../../gen/limber/v1/observation_pb.ts";
import * as act from "../../contracts/act.ts";
import { poseOf } from "../../contracts/act.ts";
import {
  AttemptFailure,
  dimensionOf,
  type GroundAnswer,
  type PredictAnswer,
  UpstreamFailure,
} from "../../contracts/contract.ts";
import * as ground from "../../contracts/ground.ts";
import { dimensionOfLayout } from "../../contracts/inputs.ts";
import * as predict from "../../contracts/predict.ts";
import { Refusal } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { grainyPicture } from "../../upstream/pictures/test-picture.ts";
import {
  ELSEWHERE,
  faultOf,
  type InputVariant,
  ProbeFault,
  type ProbeRun,
  type QuestionOptions,
  SQUARE,
  WARM_CALLS,
} from "./run.ts";

const hasFixedSize = ({ anySize, width, height, formats }: CameraSpec): boolean =>
  (!anySize && (width !== undefined || height !== undefined)) ||
  (formats.length > 0 && !formats.includes(ImageFormat.JPEG));

/** How far a measured figure may lie above the advertised one: the probe is not where callers are. */
const SLACK = 2;
/** An observation that no model can make sense of. */
const NONSENSE = create(ObservationSchema, { proprio: Array.from({ length: 97 }, () => 1e30), proprioNames: ["none"] });
/** How a server says that it cannot take what it was shown. */
const HARMLESS: ReadonlySet<AttemptFailure> = new Set([AttemptFailure.INPUT_REJECTED, AttemptFailure.UPSTREAM_ERROR]);

/** Checks of every contract beyond its responses: large images, invalid input, wrong secrets, latency. */
async function commonChecks(
  run: ProbeRun,
  ask: (observation: Observation, options?: QuestionOptions) => Promise<string>,
  here: Observation,
): Promise<void> {
  const specs = run.input?.cameras?.cameras;
  if (here.frames.length > 0 && !specs?.every(hasFixedSize))
    await run.check("large_picture", () => takesLargePictures(ask, here, specs), false);
  await readsItsContract(run, ask);
  await run.check("wrong_input_refused", () => refusesNonsense((options) => ask(NONSENSE, options)), false);
  await figures(run, (options) => ask(here, options));
}

/**
 * Whether declared inputs are accepted, in all variants that the declaration allows. Inputs derived only from a profile never cause a
 * rejection.
 */
async function readsItsContract(
  run: ProbeRun,
  ask: (observation: Observation, options: QuestionOptions) => Promise<string>,
): Promise<void> {
  const { declared, actionSpaces } = run.probed.offering;
  if (declared?.input === undefined) return;
  const variants = variantsOf(declared.input, actionSpaces[0] ?? "");
  const look = async (): Promise<string> => {
    for (const [words, variant] of variants) {
      const observation = await run.observation(SQUARE, 0, variant);
      await ask(observation, { variant, aside: true }).catch((thrown: unknown) => {
        if (!(thrown instanceof UpstreamFailure) || !HARMLESS.has(thrown.failure)) throw thrown;
        throw new ProbeFault(`the server rejects input that it declares to accept: ${words}`);
      });
    }
    return `the declared inputs were accepted: ${variants.map(([words]) => words).join(", ") || "in one form"}`;
  };
  await run.check("input_contract", look, declared.inputSource !== ContractSource.PROFILE);
}

/** Layouts of proprioception that are tried beside the first. */
const MOST_LAYOUTS = 4;
const OTHER_SIZE = { width: 320, height: 240 } as const;

/** Observations beside the plain one that a contract admits, in words. */
function variantsOf(
  { cameras, proprio, language, goalImage, history }: InputContract,
  space: string,
): (readonly [words: string, variant: InputVariant])[] {
  const layouts = proprio.filter(({ actionSpace }) => !actionSpace || actionSpace === space);
  const specs = cameras?.cameras ?? [];
  const variants: (readonly [string, InputVariant])[] = layouts
    .slice(1, 1 + MOST_LAYOUTS)
    .map((layout) => [`${dimensionOfLayout(layout) ?? "any number of"} values`, { layout }]);
  if (layouts[0] && layouts[0].names.length > 0) variants.push(["values without names", { unnamed: true }]);
  if (specs.some(({ required }) => !required)) variants.push(["only the required images", { requiredAlone: true }]);
  if (specs.some(({ anySize }) => anySize)) variants.push(["images of another size", { size: OTHER_SIZE }]);
  if (language?.need === InputNeed.OPTIONAL || language?.need === InputNeed.IGNORED)
    variants.push(["no instruction", { wordless: true }]);
  if (goalImage?.need === InputNeed.OPTIONAL) variants.push(["a goal", { withGoal: true }]);
  const { least = 1, most = least } = history ?? {};
  if (most > least) variants.push([`${most} observations`, { mostMoments: true }]);
  return variants;
}

/** Whether pictures may be as large as cameras make them. */
async function takesLargePictures(
  ask: (observation: Observation, options: QuestionOptions) => Promise<string>,
  here: Observation,
  specs: readonly CameraSpec[] | undefined,
): Promise<string> {
  const data = await grainyPicture();
  // A camera whose size is fixed is shown no other.
  const fixed = new Set((specs ?? []).filter(hasFixedSize).map(({ name }) => name));
  const frames = here.frames.map((frame) =>
    fixed.has(frame.camera) ? frame : create(FrameSchema, { camera: frame.camera, data }),
  );
  await ask(create(ObservationSchema, { ...here, frames }), { aside: true });
  return `images of 1280 by 720 (${Math.round(data.length / 1000)} kB) were accepted`;
}

/** What a server makes of an observation without a picture, of a robot that it doesn't know. */
async function refusesNonsense(ask: (options: QuestionOptions) => Promise<string>): Promise<string> {
  try {
    await ask({ aside: true });
  } catch (thrown) {
    if (thrown instanceof UpstreamFailure && HARMLESS.has(thrown.failure)) return "an invalid observation was rejected";
    if (thrown instanceof Refusal) return "an invalid observation never reaches the server";
    throw thrown;
  }
  throw new ProbeFault("an invalid observation was accepted");
}

/** Credentials and figures, once it is known what an answer looks like. */
async function figures(run: ProbeRun, ask: (options: QuestionOptions) => Promise<string>): Promise<void> {
  const { target, offering } = run.probed;
  if (target.auth.type !== "none") {
    await run.check(
      "auth_enforced",
      async () => {
        const stranger = { ...target, auth: { ...target.auth, secret: `not-${newId("req")}` } };
        const answered = await ask({ target: stranger, aside: true }).then(
          () => true,
          () => false,
        );
        if (answered) throw new ProbeFault("the server accepts calls with a wrong secret");
        return "a wrong secret is rejected";
      },
      false,
    );
  }
  await run.check(
    "latency",
    async () => {
      const { p50Ms, p95Ms } = run.measured();
      const told = offering.advertised;
      if (told.p50Ms !== undefined && p50Ms > told.p50Ms * SLACK)
        throw new ProbeFault(`the median is ${p50Ms} ms, and ${told.p50Ms} ms is advertised`);
      if (told.p95Ms !== undefined && p95Ms > told.p95Ms * SLACK)
        throw new ProbeFault(`the 95th percentile is ${p95Ms} ms, and ${told.p95Ms} ms is advertised`);
      return `median ${p50Ms} ms, 95th percentile ${p95Ms} ms`;
    },
    false,
  );
}

const PROBE_HORIZON = 4;

/** Asks for a chunk; answers its numbers, or throws a fault where it is not what was declared. */
type AskChunk = (observation: Observation, options?: QuestionOptions) => Promise<string>;

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
    if (!speaks) throw new Error(`the wire ${wire.id} does not support act`);
    const { variant } = options;
    const observations = run.moments(observation, variant);
    const goal = await run.goal(variant);
    const instruction = run.instruction(variant);
    const asked = options.horizon ?? horizon;
    const question = { ...input, instruction, seed: options.seed, horizon: asked, observations };
    const send = () =>
      speaks({ ...(options.target ?? target), actionDim: dim }, question, run.frames(observations, goal), run.call());
    const answer = await (options.aside ? send() : run.timed(send));
    // A server that returns fewer steps than requested has a chunk length of its own. The shortest chunk counts.
    const { steps } = answer;
    const chunk = answer.chunk ?? (steps.length > 0 && steps.length < asked ? steps.length : undefined);
    if (chunk !== undefined) run.chunkSteps = Math.min(run.chunkSteps ?? chunk, chunk);
    horizon = Math.min(horizon, run.chunkSteps ?? horizon);
    const units = Math.min(asked, run.chunkSteps ?? asked);
    const failure = act.checkAnswer(answer, { units, dim }, limits(observation));
    if (failure !== undefined) throw new ProbeFault(faultOf(failure, answer.steps[0]?.values.length, dim));
    run.actionDim = answer.steps[0]?.values.length;
    return JSON.stringify(answer.steps.map((step) => step.values));
  };
}

/** The last of the samples that an act policy may answer differently. */
const FARTHEST_SAMPLE = 4;

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
    for (let sample = 1; sample <= FARTHEST_SAMPLE; sample++)
      if ((await ask(await run.observation(ELSEWHERE, sample))) !== first)
        return "two different observations gave different actions";
    throw new ProbeFault("two different observations gave the same actions: is this a stub?");
  });
  await run.check("steady", async () => {
    for (let i = 0; i < WARM_CALLS; i++) await ask(here);
    return `${WARM_CALLS} more calls succeeded`;
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
        if (run.chunkSteps === undefined) return `${longest} steps in one response`;
        return `${Math.min(longest, run.chunkSteps)} steps in one answer, of chunks of ${run.chunkSteps}`;
      },
      false,
    );
  }
  await commonChecks(run, ask, here);
}

const PROBE_FRAMES = 2;

/** Requests frames and returns their bytes. Throws a fault if the response differs from the request. */
export function frameAsker(
  run: ProbeRun,
  horizon: number,
): (observations: readonly Observation[], options?: QuestionOptions) => Promise<string> {
  const { target, wire } = run.probed;
  return async (observations, options = {}) => {
    const speaks = wire.predict?.bind(wire);
    if (!speaks) throw new Error(`the wire ${wire.id} does not support predict`);
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

/** Asks where the red square is; throws a fault where the answer is none. */
export function placeAsker(
  run: ProbeRun,
): (observation: Observation, options?: QuestionOptions) => Promise<GroundAnswer> {
  const { target, wire } = run.probed;
  return async (observation, options = {}) => {
    const speaks = wire.ground?.bind(wire);
    if (!speaks) throw new Error(`the wire ${wire.id} does not support ground`);
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
    return `${WARM_CALLS} more calls succeeded`;
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
