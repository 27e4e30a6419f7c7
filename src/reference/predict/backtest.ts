/** How far the extrapolation deserves belief, judged on a frame that has already been seen. */
import type { RgbImage } from "../image.ts";
import type { Moved } from "./warp.ts";

/** Side of the squares that are judged together with their neighbours, in pixels. */
const CELL = 12;
/** Squared grey levels of difference that a square must show before it is believed in full: noise alone proves nothing. */
const CAUTION = 2000;

/** Belief per square of `CELL` pixels: 0 keeps the last frame, 1 takes the moved picture. */
export interface Trust {
  readonly columns: number;
  readonly rows: number;
  readonly share: Float32Array;
}

/**
 * The share of `moved` over `still` that would have come closest to `truth` in each square and its eight neighbours (least squares,
 * cut to 0..1); squares where the two do not differ get 0.
 */
export function backtest(still: RgbImage, moved: RgbImage, truth: RgbImage): Trust {
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

/** The 1-2-1 weighted sum around a cell; what lies outside the picture counts nothing. */
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

/** The last frame where trust is low and the moved picture where it is high; trust travels with the motion that earned it. */
export function blend(last: RgbImage, moved: Moved, trust: Trust, steps: number): RgbImage {
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
