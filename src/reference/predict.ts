/** reference/block-flow: predicts the next frames by constant motion. */
import { type RgbFrame, type RgbImage, shrink } from "./image.ts";
import { UnsupportedObservation } from "./unsupported.ts";

/**
 * The parameters besides the frames: `horizon` 1 to 256. `actions` and `seed` have no effect: this model is deterministic and not
 * action-conditioned.
 */
interface PredictOptions {
  readonly horizon: number;
  readonly actions?: readonly (readonly number[])[];
  readonly seed?: number;
}

/** Exactly `horizon` frames of the input's size, one input interval apart and computed on demand. */
interface Prediction {
  /** One sentence for the caller on how the frames were made. */
  readonly note: string;
  readonly frames: Iterable<RgbImage>;
}

/** Motion is searched on a brightness plane of at most this many pixels per side; larger frames are averaged down for the search only. */
const SEARCH_SIDE = 400;

/**
 * Extrapolates the frames of one camera, given oldest first and evenly spaced in time. Uses the last three: motion from the last two, and the
 * first to test that motion against standing still, square by square. With two frames the motion is untested, with one the frame is repeated;
 * the note states it. Throws `UnsupportedObservation` for no frames, mixed cameras or sizes, or a horizon out of range.
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
    throw new UnsupportedObservation("horizon must be a whole number between 1 and 256");
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

/** Side of the squares that are evaluated together with their neighbors, in pixels. */
const CELL = 12;
/** Squared gray levels of difference in a square for full confidence, so that noise alone has no effect. */
const CAUTION = 2000;

/** Confidence per square of `CELL` pixels: 0 keeps the last frame, 1 uses the moved image. */
interface Trust {
  readonly columns: number;
  readonly rows: number;
  readonly share: Float32Array;
}

/**
 * The share of `moved` over `still` that is closest to `truth` in each square and its eight neighbors (least squares, clipped to 0..1); 0 for
 * squares without a difference.
 */
function backtest(still: RgbImage, moved: RgbImage, truth: RgbImage): Trust {
  const columns = Math.ceil(truth.width / CELL);
  const rows = Math.ceil(truth.height / CELL);
  const gain = new Float64Array(columns * rows);
  const spread = new Float64Array(columns * rows);
  const rowBytes = truth.width * 3;
  for (let i = 0; i < truth.data.length; i++) {
    const shift = moved.data[i]! - still.data[i]!;
    if (shift === 0) continue;
    const cell = Math.floor(i / rowBytes / CELL) * columns + Math.floor((i % rowBytes) / (3 * CELL));
    gain[cell] = gain[cell]! + shift * (truth.data[i]! - still.data[i]!);
    spread[cell] = spread[cell]! + shift * shift;
  }
  const share = new Float32Array(columns * rows);
  for (let cell = 0; cell < share.length; cell++) {
    const g = blurAt(gain, columns, rows, cell);
    const s = blurAt(spread, columns, rows, cell);
    share[cell] = Math.max(0, Math.min(1, g / (s + CAUTION)));
  }
  return { columns, rows, share };
}

/** The 1-2-1 weighted sum around a cell; outside the image it is zero. */
function blurAt(values: Float64Array, columns: number, rows: number, cell: number): number {
  const column = cell % columns;
  const row = Math.floor(cell / columns);
  let sum = 0;
  for (let y = Math.max(0, row - 1); y <= Math.min(rows - 1, row + 1); y++) {
    for (let x = Math.max(0, column - 1); x <= Math.min(columns - 1, column + 1); x++) {
      sum += values[y * columns + x]! * (x === column ? 2 : 1) * (y === row ? 2 : 1);
    }
  }
  return sum;
}

/** Blends the last frame and the moved image by confidence, which moves with its motion. */
function blend(last: RgbImage, moved: Moved, trust: Trust, steps: number): RgbImage {
  const { width, height } = last;
  const data = new Uint8Array(last.data);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = y * width + x;
      const vx = moved.vx[at]!;
      const vy = moved.vy[at]!;
      if (vx === 0 && vy === 0) continue;
      const column = cellOf(x - vx * steps, trust.columns);
      const row = cellOf(y - vy * steps, trust.rows);
      const share = trust.share[row * trust.columns + column]!;
      for (let i = at * 3; i < at * 3 + 3; i++) {
        data[i] = Math.round(last.data[i]! + share * (moved.image.data[i]! - last.data[i]!));
      }
    }
  }
  return { width, height, data };
}

const cellOf = (place: number, cells: number): number => Math.max(0, Math.min(cells - 1, Math.floor(place / CELL)));

/** Velocity of every pixel of the newer plane, in pixels per frame: the content at (x, y) was at (x - vx, y - vy) one frame before. */
interface Flow {
  readonly width: number;
  readonly height: number;
  readonly vx: Float32Array;
  readonly vy: Float32Array;
}

/** Side of the squares with one vector each, in pixels. */
const BLOCK = 8;
/** The search range at half size: motion of up to twice this many pixels per frame is found. */
const RANGE = 12;
/** Mean absolute difference (gray levels) that a vector must gain over standing still, so that sensor noise causes no motion. */
const STILL_BIAS = 1.2;
/** The same, over a vector that neighbors share, so that plain areas move with their surroundings. */
const STRAY_BIAS = 0.6;

interface Vector {
  x: number;
  y: number;
}

/**
 * Mean absolute difference between a `size` square of `now` at (left, top) and the same square of `before` shifted back by (dx, dy); stops early
 * above `limit`.
 */
function mismatch(
  now: Plane,
  before: Plane,
  left: number,
  top: number,
  size: number,
  dx: number,
  dy: number,
  limit: number,
): number {
  const { width, height } = now;
  const stop = limit * size * size;
  let sum = 0;
  for (let j = 0; j < size; j++) {
    const y = clamp(top + j, height);
    const row = y * width;
    const past = clamp(y - dy, height) * width;
    for (let i = 0; i < size; i++) {
      const x = clamp(left + i, width);
      sum += Math.abs(now.data[row + x]! - before.data[past + clamp(x - dx, width)]!);
    }
    if (sum > stop) return Infinity;
  }
  return sum / (size * size);
}

const clamp = (value: number, size: number): number => (value < 0 ? 0 : value >= size ? size - 1 : value);

/** Every shift of the search, nearest first, so that good matches are found early and shorten the search. */
const SHIFTS: readonly Vector[] = Array.from({ length: (2 * RANGE + 1) ** 2 }, (_, i) => ({
  x: (i % (2 * RANGE + 1)) - RANGE,
  y: Math.floor(i / (2 * RANGE + 1)) - RANGE,
})).sort((a, b) => a.x * a.x + a.y * a.y - (b.x * b.x + b.y * b.y));

/** The motion from `before` to `now` (planes of one size): block search at half size, refined to fractions of a pixel, then chosen pixel by pixel. */
function estimateFlow(before: Plane, now: Plane): Flow {
  const columns = Math.ceil(now.width / BLOCK);
  const rows = Math.ceil(now.height / BLOCK);
  const coarse = searchBlocks(halve(before), halve(now), columns, rows);
  const fine = refineBlocks(before, now, coarse, columns, rows);
  return choosePerPixel(before, now, fine, columns, rows);
}

function searchBlocks(before: Plane, now: Plane, columns: number, rows: number): Vector[] {
  const half = BLOCK / 2;
  return Array.from({ length: columns * rows }, (_, b) => {
    const left = (b % columns) * half - half / 2;
    const top = Math.floor(b / columns) * half - half / 2;
    let best: Vector = { x: 0, y: 0 };
    let least = mismatch(now, before, left, top, BLOCK, 0, 0, Infinity) - STILL_BIAS;
    for (const shift of SHIFTS) {
      if (least <= 0) break;
      const cost = mismatch(now, before, left, top, BLOCK, shift.x, shift.y, least);
      if (cost < least) {
        least = cost;
        best = shift;
      }
    }
    return { x: best.x * 2, y: best.y * 2 };
  });
}

function refineBlocks(before: Plane, now: Plane, coarse: Vector[], columns: number, rows: number): Vector[] {
  const size = BLOCK + 4;
  return coarse.map((own, b) => {
    const column = b % columns;
    const row = Math.floor(b / columns);
    const left = column * BLOCK - 2;
    const top = row * BLOCK - 2;
    const cost = (x: number, y: number, limit: number): number => mismatch(now, before, left, top, size, x, y, limit);
    let best: Vector = { x: 0, y: 0 };
    let least = cost(0, 0, Infinity) - STILL_BIAS;
    if (least <= 0) return best;
    const consider = (x: number, y: number, bias: number): void => {
      const found = cost(x, y, least - bias) + bias;
      if (found < least) {
        least = found;
        best = { x, y };
      }
    };
    for (const near of neighbours(coarse, column, row, columns, rows)) consider(near.x, near.y, 0);
    for (let i = 0; i < 25; i++) consider(own.x + (i % 5) - 2, own.y + Math.floor(i / 5) - 2, STRAY_BIAS);
    const rough = best;
    for (let i = 0; i < 9; i++) consider(rough.x + (i % 3) - 1, rough.y + Math.floor(i / 3) - 1, 0);
    return subpixel(best, cost);
  });
}

function neighbours(vectors: Vector[], column: number, row: number, columns: number, rows: number): Vector[] {
  const found: Vector[] = [];
  for (let y = Math.max(0, row - 1); y <= Math.min(rows - 1, row + 1); y++) {
    for (let x = Math.max(0, column - 1); x <= Math.min(columns - 1, column + 1); x++)
      found.push(vectors[y * columns + x]!);
  }
  return found;
}

/** Moves a whole-pixel vector to the bottom of the parabola through its neighbours' costs, one axis at a time. */
function subpixel(at: Vector, cost: (x: number, y: number, limit: number) => number): Vector {
  if (at.x === 0 && at.y === 0) return at;
  const here = cost(at.x, at.y, Infinity);
  const bottom = (less: number, more: number): number => {
    const bend = less + more - 2 * here;
    return bend > 1e-6 ? Math.max(-0.5, Math.min(0.5, (less - more) / (2 * bend))) : 0;
  };
  return {
    x: at.x + bottom(cost(at.x - 1, at.y, Infinity), cost(at.x + 1, at.y, Infinity)),
    y: at.y + bottom(cost(at.x, at.y - 1, Infinity), cost(at.x, at.y + 1, Infinity)),
  };
}

/** Gives each pixel the vector of its own or a neighboring block that fits its 5 by 5 neighborhood best, for sharp edges. */
function choosePerPixel(before: Plane, now: Plane, blocks: Vector[], columns: number, rows: number): Flow {
  const { width, height } = now;
  const vx = new Float32Array(width * height);
  const vy = new Float32Array(width * height);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const choices = distinct(neighbours(blocks, column, row, columns, rows));
      if (choices.length === 1 && choices[0]!.x === 0 && choices[0]!.y === 0) continue;
      for (let y = row * BLOCK; y < Math.min(height, (row + 1) * BLOCK); y++) {
        for (let x = column * BLOCK; x < Math.min(width, (column + 1) * BLOCK); x++) {
          const best = fittest(before, now, x, y, choices);
          vx[y * width + x] = best.x;
          vy[y * width + x] = best.y;
        }
      }
    }
  }
  return { width, height, vx, vy };
}

function fittest(before: Plane, now: Plane, x: number, y: number, choices: Vector[]): Vector {
  let best = choices[0]!;
  let least = Infinity;
  for (const choice of choices) {
    const bias = choice.x === 0 && choice.y === 0 ? -STILL_BIAS : 0;
    const cost =
      mismatch(now, before, x - 2, y - 2, 5, Math.round(choice.x), Math.round(choice.y), least - bias) + bias;
    if (cost < least) {
      least = cost;
      best = choice;
    }
  }
  return best;
}

function distinct(vectors: Vector[]): Vector[] {
  const kept: Vector[] = [];
  for (const v of vectors) if (!kept.some((k) => k.x === v.x && k.y === v.y)) kept.push(v);
  return kept;
}

/** One number per pixel, 0 to 255, row by row. */
interface Plane {
  readonly width: number;
  readonly height: number;
  readonly data: Float32Array;
}

/** The brightness (Rec. 601) of an image. */
function toLuma({ width, height, data }: RgbImage): Plane {
  const luma = new Float32Array(width * height);
  for (let i = 0; i < luma.length; i++) {
    luma[i] = 0.299 * data[3 * i]! + 0.587 * data[3 * i + 1]! + 0.114 * data[3 * i + 2]!;
  }
  return { width, height, data: luma };
}

/** The plane at half its size. */
function halve(plane: Plane): Plane {
  const width = Math.max(1, plane.width >> 1);
  const height = Math.max(1, plane.height >> 1);
  const data = new Float32Array(width * height);
  const right = plane.width > 1 ? 1 : 0;
  const below = plane.height > 1 ? plane.width : 0;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = 2 * y * plane.width + 2 * x;
      const { data: from } = plane;
      data[y * width + x] = (from[at]! + from[at + right]! + from[at + below]! + from[at + below + right]!) / 4;
    }
  }
  return { width, height, data };
}

/** A moved image and, per pixel, the velocity (pixels per frame) of the motion that moved or uncovered it; zero without motion. */
interface Moved {
  readonly image: RgbImage;
  readonly vx: Float32Array;
  readonly vy: Float32Array;
}

const STILL = 0;
const CARRIED = 1;
const UNCOVERED = 2;

/**
 * Returns the image `steps` frames later at constant velocity. Moving objects cover static ones; uncovered ground is filled with the nearest
 * ground behind it, so no pixel is empty. `flow` can be `scale` times smaller than the image.
 */
function moveAlong(image: RgbImage, flow: Flow, scale: number, steps: number): Moved {
  const { width, height } = image;
  const count = width * height;
  const state = new Uint8Array(count);
  const vx = new Float32Array(count);
  const vy = new Float32Array(count);
  const speed = new Float32Array(count);
  const data = new Uint8Array(image.data);
  const source = (x: number, y: number): number =>
    Math.min(flow.height - 1, Math.floor(y / scale)) * flow.width + Math.min(flow.width - 1, Math.floor(x / scale));

  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const from = source(x, y);
      const dx = flow.vx[from]! * scale;
      const dy = flow.vy[from]! * scale;
      if (dx === 0 && dy === 0) continue;
      const at = y * width + x;
      if (state[at] === STILL) {
        state[at] = UNCOVERED;
        vx[at] = dx;
        vy[at] = dy;
      }
      const pace = dx * dx + dy * dy;
      const toX = x + dx * steps;
      const toY = y + dy * steps;
      for (let corner = 0; corner < 4; corner++) {
        const tx = Math.floor(toX) + (corner & 1);
        const ty = Math.floor(toY) + (corner >> 1);
        if (tx < 0 || ty < 0 || tx >= width || ty >= height) continue;
        if ((1 - Math.abs(tx - toX)) * (1 - Math.abs(ty - toY)) < 0.2) continue;
        const to = ty * width + tx;
        if (state[to] === CARRIED && speed[to]! >= pace) continue;
        state[to] = CARRIED;
        speed[to] = pace;
        vx[to] = dx;
        vy[to] = dy;
      }
    }
  }
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = y * width + x;
      if (state[at] === CARRIED) sample(image, x - vx[at]! * steps, y - vy[at]! * steps, data, at * 3);
    }
  }
  const settled = new Uint8Array(data);
  for (let at = 0; at < count; at++) {
    if (state[at] === UNCOVERED) fillFromBehind(settled, state, width, height, at, vx[at]!, vy[at]!, data);
  }
  return { image: { width, height, data }, vx, vy };
}

/** Writes the color at a fractional position, clamped to the image's edge, into `out` at byte `to`. */
function sample(image: RgbImage, x: number, y: number, out: Uint8Array, to: number): void {
  const cx = Math.max(0, Math.min(image.width - 1, x));
  const cy = Math.max(0, Math.min(image.height - 1, y));
  const x0 = Math.max(0, Math.min(image.width - 2, Math.floor(cx)));
  const y0 = Math.max(0, Math.min(image.height - 2, Math.floor(cy)));
  const fx = cx - x0;
  const fy = cy - y0;
  const at = (y0 * image.width + x0) * 3;
  const right = image.width > 1 ? 3 : 0;
  const below = image.height > 1 ? image.width * 3 : 0;
  for (let c = 0; c < 3; c++) {
    const d = image.data;
    const top = d[at + c]! * (1 - fx) + d[at + right + c]! * fx;
    const bottom = d[at + below + c]! * (1 - fx) + d[at + below + right + c]! * fx;
    out[to + c] = Math.round(top * (1 - fy) + bottom * fy);
  }
}

/** Fills an uncovered pixel with the first filled one against the motion that uncovered it, or along it at the image's edge. */
function fillFromBehind(
  settled: Uint8Array,
  state: Uint8Array,
  width: number,
  height: number,
  at: number,
  vx: number,
  vy: number,
  out: Uint8Array,
): void {
  const length = Math.hypot(vx, vy);
  const x = at % width;
  const y = Math.floor(at / width);
  for (const way of [-1, 1]) {
    for (let step = 1; ; step++) {
      const px = Math.round(x + (way * step * vx) / length);
      const py = Math.round(y + (way * step * vy) / length);
      if (px < 0 || py < 0 || px >= width || py >= height) break;
      const from = py * width + px;
      if (state[from] === UNCOVERED) continue;
      for (let c = 0; c < 3; c++) out[at * 3 + c] = settled[from * 3 + c]!;
      return;
    }
  }
}
