/** Pictures for benchmarks: JPEGs of noise, which are as large as a camera's. */
import sharp from "sharp";

/** So many JPEGs of about 24 kB each, none like another. */
export function pictures(count: number): Promise<Buffer[]> {
  return Promise.all(
    Array.from({ length: count }, (_, seed) => {
      const pixels = Buffer.alloc(3 * 208 * 156);
      for (let i = 0, x = seed + 1; i < pixels.length; i++) {
        x = (x * 1103515245 + 12345) % 2 ** 31;
        pixels[i] = x >> 16;
      }
      const raw = { width: 208, height: 156, channels: 3 } as const;
      return sharp(pixels, { raw }).jpeg({ quality: 85 }).toBuffer();
    }),
  );
}
