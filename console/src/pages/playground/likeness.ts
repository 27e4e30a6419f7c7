/** How near pictures are to each other: the peak signal-to-noise ratio of their pixels. */

/** Pixels as red, green, blue and opacity, a byte each. */
export interface Pixels {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8ClampedArray;
}

/** The pixels of a picture, scaled to a size where one is given. Rejects what is no picture. */
export async function pixelsOf(
  source: Blob | string,
  size?: { readonly width: number; readonly height: number },
): Promise<Pixels> {
  const image = new Image();
  const url = typeof source === "string" ? source : URL.createObjectURL(source);
  try {
    image.src = url;
    await image.decode();
    const { width, height } = size ?? { width: image.naturalWidth, height: image.naturalHeight };
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    const paint = canvas.getContext("2d", { willReadFrequently: true })!;
    paint.drawImage(image, 0, 0, width, height);
    return { width, height, data: paint.getImageData(0, 0, width, height).data };
  } finally {
    if (typeof source !== "string") URL.revokeObjectURL(url);
  }
}

/** PSNR of two pictures of one size over red, green and blue, in decibels; infinite where they are equal. */
export function psnr({ data: one }: Pixels, { data: other }: Pixels): number {
  let squares = 0;
  for (let i = 0; i < one.length; i += 4)
    for (let channel = 0; channel < 3; channel++) {
      const difference = (one[i + channel] ?? 0) - (other[i + channel] ?? 0);
      squares += difference * difference;
    }
  const mean = squares / ((one.length / 4) * 3);
  return mean === 0 ? Number.POSITIVE_INFINITY : 10 * Math.log10((255 * 255) / mean);
}
