/** Moving a picture along its flow. */
import type { RgbImage } from "../image.ts";
import type { Flow } from "./flow.ts";

/** A moved picture and, per pixel, the velocity (pixels per frame) of the motion that put or uncovered what is there; zero where nothing happened. */
export interface Moved {
  readonly image: RgbImage;
  readonly vx: Float32Array;
  readonly vy: Float32Array;
}

const STILL = 0;
const CARRIED = 1;
const UNCOVERED = 2;

/**
 * The picture `steps` frames later if everything keeps its velocity. Movers cover what stands still; the ground that a mover
 * uncovers is filled with the nearest ground behind it, so no pixel is left empty. `flow` may be `scale` times smaller than the picture.
 */
export function moveAlong(image: RgbImage, flow: Flow, scale: number, steps: number): Moved {
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

/** Writes the colour at a fractional place, clamped to the picture's edge, into `out` at byte `to`. */
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

/** Fills an uncovered pixel with the first settled one against the motion that uncovered it, or along it when the picture ends first. */
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
