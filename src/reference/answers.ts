/** The reference models with the messages of `limber.policy.v1`, for both of the provider's servers. */
import { create } from "@bufbuild/protobuf";
import {
  type ActCall,
  type ActChunk,
  ActChunkSchema,
  type GroundRequest,
  type GroundResponse,
  GroundResponseSchema,
  type PredictRequest,
  type PredictResponse,
  PredictResponseSchema,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { type Frame, ImageFormat, type Observation } from "../../gen/limber/v1/observation_pb.ts";
import { plan } from "./act/plan.ts";
import type { ActInput, ActOutput } from "./act/types.ts";
import { missingNote } from "./ground.ts";
import { decodeImage, type RgbFrame } from "./image.ts";
import { REFERENCE_MODELS, type ReferenceModel } from "./models.ts";
import type { EncodedPicture, Pictures } from "./pictures.ts";
import { UnsupportedObservation } from "./unsupported.ts";

/** Answers an act call. Throws `UnsupportedObservation` and `UnreadableImage`. */
export async function act(call: ActCall): Promise<ActChunk> {
  const { cameras, slug } = modelOf(call.model, "act", call.actionSpace);
  const { frames, proprio, proprioNames } = newest(call.observations);
  const input: ActInput = {
    actionSpace: call.actionSpace,
    horizon: call.horizon,
    proprio,
    proprioNames,
    instruction: call.instruction,
    frames: await Promise.all((cameras.most > 0 ? frames : []).map(decoded)),
    ...(call.goalImage !== undefined && { goal: await decoded(call.goalImage) }),
  };
  const output = plan(input, slug);
  return create(ActChunkSchema, { steps: rowsOf(output), dtMs: output.dtMs, note: output.note });
}

/** Answers a predict call frame by frame, the summary last. Throws as `act` does, and `Busy`. */
export async function* predict(request: PredictRequest, pictures: Pictures): AsyncGenerator<PredictResponse> {
  modelOf(request.model, "predict");
  const { camera } = firstFrame(newest(request.observations));
  const film = request.observations.flatMap(({ frames }) => frames.filter((frame) => frame.camera === camera));
  const actions = request.actions.map(({ values }) => values);
  const { note, frames } = await pictures.predict(film.map(encoded), request.horizon, actions);
  const everyMs = intervalOf(request);
  let index = 0;
  for await (const { width, height, bytes } of frames) {
    const tMs = (index + 1) * everyMs;
    const frame = { index, tMs, camera, width, height, format: ImageFormat.PNG, data: bytes };
    yield create(PredictResponseSchema, { body: { case: "frame", value: frame } });
    index++;
  }
  yield create(PredictResponseSchema, { body: { case: "summary", value: { note } } });
}

/** Answers a ground call. Throws as `act` does. */
export async function ground(request: GroundRequest, pictures: Pictures): Promise<GroundResponse> {
  modelOf(request.model, "ground");
  const observation = newest(request.observation === undefined ? [] : [request.observation]);
  firstFrame(observation);
  const found = await Promise.all(
    observation.frames.map(async (each, frame) => {
      const { points, boxes } = await pictures.ground(encoded(each), request.instruction);
      const at = <T>(place: T) => ({ ...place, frame, camera: each.camera });
      return { points: points.map(at), boxes: boxes.map(at) };
    }),
  );
  const points = found.flatMap((each) => each.points);
  const boxes = found.flatMap((each) => each.boxes);
  return create(GroundResponseSchema, {
    points,
    boxes,
    note: missingNote(request.instruction, new Set(points.map(({ label }) => label))) ?? "",
    inputTokens: wordsIn(request.instruction),
    outputTokens: points.length + boxes.length,
  });
}

/** Returns the model with this slug. Throws `UnsupportedObservation` if there is none, or none for this contract and action space. */
function modelOf(slug: string, contract: "act" | "predict" | "ground", space?: string): ReferenceModel {
  const model = REFERENCE_MODELS.find((known) => known.slug === slug && known.contracts.includes(contract));
  if (model === undefined) throw new UnsupportedObservation(`model not found for ${contract}`);
  if (space !== undefined && !model.actions.some((action) => action.space === space)) {
    throw new UnsupportedObservation(`${model.slug} has no actions in this action space`);
  }
  return model;
}

/** A chunk's rows as messages. */
const rowsOf = ({ steps, dim }: ActOutput): { values: number[] }[] =>
  Array.from({ length: steps.length / dim }, (_, row) => ({
    values: Array.from(steps.subarray(row * dim, (row + 1) * dim)),
  }));

function newest(observations: readonly Observation[]): Observation {
  const observation = observations.at(-1);
  if (observation === undefined) throw new UnsupportedObservation("the request contains no observation");
  return observation;
}

function firstFrame({ frames }: Observation): Frame {
  const [frame] = frames;
  if (frame === undefined) throw new UnsupportedObservation("the newest observation has no frame");
  return frame;
}

const decoded = async ({ camera, data }: Frame): Promise<RgbFrame> => ({ camera, image: await decodeImage(data) });

const encoded = ({ camera, data }: Frame): EncodedPicture => ({ camera, bytes: data });

const DEFAULT_INTERVAL_MS = 100;

/** The interval of predicted frames: that of the given ones by their times, otherwise the requested rate. */
function intervalOf({ observations, fps }: PredictRequest): number {
  const [before, last] = observations.slice(-2).map(({ tMs }) => tMs);
  if (before !== undefined && last !== undefined && last > before) return last - before;
  return fps !== undefined && fps > 0 ? 1000 / fps : DEFAULT_INTERVAL_MS;
}

/** The token count of a model that reads words. */
const wordsIn = (text: string): number => text.split(/\s+/).filter((word) => word !== "").length;
