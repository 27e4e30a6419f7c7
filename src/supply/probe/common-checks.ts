/** What every contract is asked beyond its answers. */
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
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { dimensionOfLayout } from "../../contracts/inputs.ts";
import { Refusal } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { grainyPicture } from "../../upstream/pictures/test-picture.ts";
import { ProbeFault } from "./faults.ts";
import type { InputVariant, ProbeRun, QuestionOptions } from "./run.ts";
import { SQUARE } from "./scene.ts";

const hasFixedSize = ({ anySize, width, height, formats }: CameraSpec): boolean =>
  (!anySize && (width !== undefined || height !== undefined)) ||
  (formats.length > 0 && !formats.includes(ImageFormat.JPEG));

/** How far a measured figure may lie above the advertised one: the probe is not where callers are. */
const SLACK = 2;
/** An observation that no model can make sense of. */
const NONSENSE = create(ObservationSchema, { proprio: Array.from({ length: 97 }, () => 1e30), proprioNames: ["none"] });
/** How a server says that it cannot take what it was shown. */
const HARMLESS: ReadonlySet<AttemptFailure> = new Set([AttemptFailure.INPUT_REJECTED, AttemptFailure.UPSTREAM_ERROR]);

/** What every contract is asked beyond its answers: large pictures, nonsense, wrong secrets, and how long it all takes. */
export async function commonChecks(
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

/** Whether what it says that it reads is answered, whichever of what that admits is sent. What only follows from a profile rejects nobody. */
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
        throw new ProbeFault(`it says that it reads this, and rejects it: ${words}`);
      });
    }
    return `what it says that it reads was answered: ${variants.map(([words]) => words).join(", ") || "in one form"}`;
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
  if (specs.some(({ required }) => !required))
    variants.push(["the pictures that have to be there alone", { requiredAlone: true }]);
  if (specs.some(({ anySize }) => anySize)) variants.push(["pictures of another size", { size: OTHER_SIZE }]);
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
  return `pictures of 1280 by 720 (${Math.round(data.length / 1000)} kB) were taken`;
}

/** What a server makes of an observation without a picture, of a robot that it doesn't know. */
async function refusesNonsense(ask: (options: QuestionOptions) => Promise<string>): Promise<string> {
  try {
    await ask({ aside: true });
  } catch (thrown) {
    if (thrown instanceof UpstreamFailure && HARMLESS.has(thrown.failure))
      return "an observation that makes no sense was refused";
    if (thrown instanceof Refusal) return "an observation that makes no sense never reaches it";
    throw thrown;
  }
  throw new ProbeFault("an observation that makes no sense was answered as if it did");
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
        if (answered) throw new ProbeFault("it answers calls with a wrong secret");
        return "a wrong secret is refused";
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
