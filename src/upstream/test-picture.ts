/** Pictures that the conformance probe shows to a server: small, generated, and of a thing at a known place. */
import sharp from "sharp";

/** A red square on grey as a PNG of `size` by `size` pixels; its centre at (`x`, `y`), normalised. */
export function redSquare(x: number, y: number, size = 224): Promise<Buffer> {
  const side = Math.round(size / 5);
  const square = { create: { width: side, height: side, channels: 3 as const, background: { r: 220, g: 20, b: 20 } } };
  return sharp({ create: { width: size, height: size, channels: 3, background: { r: 128, g: 128, b: 128 } } })
    .composite([{ input: square, left: Math.round(x * size - side / 2), top: Math.round(y * size - side / 2) }])
    .png()
    .toBuffer();
}
