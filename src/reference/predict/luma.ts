/** Brightness planes: what motion is searched on. */
import type { RgbImage } from "../image.ts";

/** One number per pixel, 0 to 255, row by row. */
export interface Plane {
  readonly width: number;
  readonly height: number;
  readonly data: Float32Array;
}

/** The brightness (Rec. 601) of a picture. */
export function toLuma({ width, height, data }: RgbImage): Plane {
  const luma = new Float32Array(width * height);
  for (let i = 0; i < luma.length; i++) {
    luma[i] = 0.299 * data[3 * i]! + 0.587 * data[3 * i + 1]! + 0.114 * data[3 * i + 2]!;
  }
  return { width, height, data: luma };
}

/** The plane at half its size. */
export function halve(plane: Plane): Plane {
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
