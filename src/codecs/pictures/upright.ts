/** Pictures that their EXIF data turns, set upright. */
import sharp, { type Sharp } from "sharp";
import { type Orientation, UPRIGHTING } from "./exif.ts";
import type { ImageFormat, ImageHeader } from "./image.ts";

/** Returns the picture upright, then turned clockwise by `degrees`. Use it only if no other step follows: sharp may reorder steps. */
export function uprighted(picture: Sharp, orientation: Orientation, degrees: 0 | 180 = 0): Sharp {
  const { flip, flop, degrees: own } = UPRIGHTING[orientation];
  const turn = (own + degrees) % 360;
  return turn === 0 ? picture.flip(flip).flop(flop) : picture.flip(flip).flop(flop).rotate(turn);
}

/**
 * The same picture upright and without metadata, in its own format. It takes all of it in memory and one of Node's threads: a turn of
 * `pictureTurns` is due. Rejects with sharp's error.
 */
export async function uprightFile(
  file: Buffer,
  { format, orientation = 1, width, height, isDepth }: ImageHeader,
  timeoutS: number,
): Promise<Buffer> {
  const opened = sharp(file, { failOn: "error", limitInputPixels: width * height }).timeout({ seconds: timeoutS });
  const picture = uprighted(isDepth ? opened.toColourspace("grey16") : opened, orientation);
  return WRITE[format](picture).toBuffer();
}

/** Colors keep their full resolution: points are read off these pixels. */
const WRITE: Readonly<Record<ImageFormat, (picture: Sharp) => Sharp>> = {
  jpeg: (picture) => picture.jpeg({ quality: 95, chromaSubsampling: "4:4:4" }),
  png: (picture) => picture.png({ compressionLevel: 1, adaptiveFiltering: false }),
  webp: (picture) => picture.webp({ quality: 95, effort: 0 }),
};
