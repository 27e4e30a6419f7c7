/** Small copies of camera pictures, for people who watch a robot. */
import sharp, { type Sharp } from "sharp";
import { type Frame, ImageFormat } from "../../../gen/limber/v1/observation_pb.ts";
import { CodecError } from "../../codecs/error.ts";
import { decodeDataUrl, isDataUrl } from "../../codecs/pictures/data-url.ts";
import { readImageHeader } from "../../codecs/pictures/image.ts";
import { pixelsIn } from "../../codecs/pictures/raw-pictures.ts";
import { pictureTurns } from "../../codecs/pictures/turns.ts";
import { FORMATS } from "./header.ts";

/** A small picture. */
interface Thumbnail {
  readonly format: ImageFormat;
  readonly data: Uint8Array;
}

/** Files of at most so many bytes and pixels are passed on unchanged: a few bytes may hold more pixels than a browser has memory for. */
const SMALL_BYTES = 16_384;
const SMALL_PIXELS = 1 << 20;
/** The longer side of a scaled copy. */
const SIDE = 320;
const QUALITY = 60;
const MOST_BYTES = 16 << 20;
const MOST_PIXELS = 16_384 * 4_096;
const TIMEOUT_S = 1;
/** All scaled copies queue as one party, so robots' own pictures come first. */
const ASKER = { key: "watchers", robot: "" } as const;

/** The picture's own bytes if they are few enough; otherwise a function that scales it; undefined if it has to be fetched or is unreadable. */
export function thumbnailOf(frame: Frame): Thumbnail | (() => Promise<Thumbnail | undefined>) | undefined {
  const pixels = pixelsIn(frame.data);
  if (pixels !== undefined) {
    const { data, width, height } = pixels;
    return scaled(width * height, () => sharp(data, { raw: { width, height, channels: 3 } }));
  }
  const bytes = bytesOf(frame);
  const header = bytes && readImageHeader(bytes);
  if (bytes === undefined || header === undefined) return undefined;
  const size = header.width * header.height;
  // Of its own memory: the message that it came in is much larger.
  if (bytes.length <= SMALL_BYTES && size <= SMALL_PIXELS)
    return { format: FORMATS[header.format], data: Uint8Array.from(bytes) };
  return scaled(size, () => sharp(bytes, { limitInputPixels: MOST_PIXELS, failOn: "error" }).rotate());
}

const scaled = (pixels: number, open: () => Sharp) => (): Promise<Thumbnail | undefined> =>
  pictureTurns
    .run(ASKER, pixels, () =>
      open()
        .resize({ width: SIDE, height: SIDE, fit: "inside", withoutEnlargement: true })
        .timeout({ seconds: TIMEOUT_S })
        .jpeg({ quality: QUALITY })
        .toBuffer(),
    )
    // A picture that cannot be decoded is a fault that the robot's own calls report.
    .then(
      (data) => ({ format: ImageFormat.JPEG, data }),
      () => undefined,
    );

function bytesOf({ data, url }: Frame): Buffer | undefined {
  if (data.length > 0) return Buffer.from(data.buffer, data.byteOffset, data.length);
  if (!isDataUrl(url)) return undefined;
  try {
    return decodeDataUrl(url, MOST_BYTES);
  } catch (thrown) {
    if (thrown instanceof CodecError) return undefined;
    throw thrown;
  }
}
