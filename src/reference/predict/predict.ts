/** reference/block-flow: the next frames, if everything keeps moving as it did. */
import { type RgbFrame, type RgbImage, shrink } from "../image.ts";
import { UnsupportedObservation } from "../unsupported.ts";
import { backtest, blend, type Trust } from "./backtest.ts";
import { estimateFlow, type Flow } from "./flow.ts";
import { toLuma } from "./luma.ts";
import { moveAlong } from "./warp.ts";

/** What is asked besides the frames: `horizon` 1 to 256. `actions` and `seed` change nothing: this model is not action-conditioned and has no chance in it. */
export interface PredictOptions {
  readonly horizon: number;
  readonly actions?: readonly (readonly number[])[];
  readonly seed?: number;
}

/** Exactly `horizon` frames of the input's size, each one input interval after the one before and computed when it is asked for. */
export interface Prediction {
  /** One sentence for the caller on how the frames were made. */
  readonly note: string;
  readonly frames: Iterable<RgbImage>;
}

/** Motion is searched on a brightness plane of at most this many pixels a side; larger frames are averaged down for the search alone. */
const SEARCH_SIDE = 400;

/**
 * Extrapolates the frames of one camera, given oldest first and evenly spaced in time. Uses the last three: motion from the last two,
 * and the first to test that motion, square by square, against keeping still. With two frames the motion goes untested, with one the
 * frame is repeated; the note says so. Throws `UnsupportedObservation` on no frames, mixed cameras or sizes, or a horizon out of range.
 */
export function predict(frames: readonly RgbFrame[], options: PredictOptions): Prediction {
  const images = checkedFrames(frames, options.horizon);
  const notes = [HOW[images.length - 1]!];
  if (options.actions !== undefined && options.actions.length > 0)
    notes.push("The given actions were not used: this model is not action-conditioned.");
  return { note: notes.join(" "), frames: extrapolate(images, options.horizon) };
}

const HOW = [
  "One frame shows no motion, so it is repeated; give two or three for a prediction.",
  "Motion between the two frames, extrapolated at constant velocity; a third frame would let it be tested first.",
  "Motion of the last frames, extrapolated at constant velocity where that would have foretold the last frame better than standing still.",
];

function checkedFrames(frames: readonly RgbFrame[], horizon: number): RgbImage[] {
  const last = frames.at(-1);
  if (last === undefined) throw new UnsupportedObservation("predict needs at least one frame");
  if (!Number.isInteger(horizon) || horizon < 1 || horizon > 256)
    throw new UnsupportedObservation("horizon must be a whole number from 1 to 256");
  for (const { camera, image } of frames) {
    if (camera !== last.camera) throw new UnsupportedObservation("all frames must come from one camera, oldest first");
    if (image.width !== last.image.width || image.height !== last.image.height) {
      throw new UnsupportedObservation("all frames must have the same size");
    }
  }
  return frames.slice(-3).map((frame) => frame.image);
}

function* extrapolate(images: readonly RgbImage[], horizon: number): Generator<RgbImage> {
  const last = images.at(-1)!;
  const scale = Math.ceil(Math.max(last.width, last.height) / SEARCH_SIDE);
  const planes = images.map((image) => toLuma(shrink(image, scale)));
  const flows: Flow[] = planes.slice(1).map((plane, i) => estimateFlow(planes[i]!, plane));
  const newest = flows.at(-1);
  const trust = flows.length === 2 ? foretell(images, flows[0]!, scale) : undefined;
  for (let step = 1; step <= horizon; step++) {
    yield newest === undefined ? last : advance(last, newest, scale, step, trust);
  }
}

function foretell(images: readonly RgbImage[], flow: Flow, scale: number): Trust {
  const [, middle, last] = images;
  return backtest(middle!, moveAlong(middle!, flow, scale, 1).image, last!);
}

function advance(last: RgbImage, flow: Flow, scale: number, step: number, trust: Trust | undefined): RgbImage {
  const moved = moveAlong(last, flow, scale, step);
  return trust === undefined ? moved.image : blend(last, moved, trust, step);
}
