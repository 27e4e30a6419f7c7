/** Where everything came from: motion between two brightness planes, found by matching blocks. */
import { halve, type Plane } from "./luma.ts";

/** Velocity of every pixel of the newer plane, in pixels per frame: what is at (x, y) was at (x - vx, y - vy) one frame before. */
export interface Flow {
  readonly width: number;
  readonly height: number;
  readonly vx: Float32Array;
  readonly vy: Float32Array;
}

/** Side of the squares that get one vector each, in pixels. */
const BLOCK = 8;
/** How far a square is searched at half size: motion of up to twice this many pixels per frame is found. */
const RANGE = 12;
/** Mean absolute difference (grey levels) that a vector must win over standing still, so that sensor noise doesn't move. */
const STILL_BIAS = 1.2;
/** The same, over a vector that neighbours share, so that plain areas move with their surroundings. */
const STRAY_BIAS = 0.6;

interface Vector {
  x: number;
  y: number;
}

/** Mean absolute difference between a `size` square of `now` at (left, top) and the same square of `before` shifted back by (dx, dy); leaves early past `limit`. */
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

/** Every shift of the search, nearest first, so that good matches come early and cut the rest short. */
const SHIFTS: readonly Vector[] = Array.from({ length: (2 * RANGE + 1) ** 2 }, (_, i) => ({
  x: (i % (2 * RANGE + 1)) - RANGE,
  y: Math.floor(i / (2 * RANGE + 1)) - RANGE,
})).sort((a, b) => a.x * a.x + a.y * a.y - (b.x * b.x + b.y * b.y));

/** The motion from `before` to `now` (planes of one size): block search at half size, refined to fractions of a pixel, then chosen pixel by pixel. */
export function estimateFlow(before: Plane, now: Plane): Flow {
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

/** Gives each pixel the vector of its own or a neighbouring block that fits the 5 by 5 pixels around it best: edges of movers come out sharp. */
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
