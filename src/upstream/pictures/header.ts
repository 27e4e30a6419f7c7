/** What the bytes of a picture say of themselves, before anything is fetched or decoded. */
import { type Frame, ImageFormat } from "../../../gen/limber/v1/observation_pb.ts";
import { decodeDataUrl, isDataUrl } from "../../codecs/pictures/data-url.ts";
import { readImageHeader } from "../../codecs/pictures/image.ts";
import type { PictureFacts } from "../../contracts/inputs.ts";

const FORMATS = { png: ImageFormat.PNG, jpeg: ImageFormat.JPEG, webp: ImageFormat.WEBP } as const;

/** Size and encoding of a picture that came as bytes; undefined where it has to be fetched, or is none that can be read. */
export function readPicture({ data, url }: Frame): PictureFacts | undefined {
  const header = readImageHeader(bytesOf(data, url));
  return header && { width: header.width, height: header.height, format: FORMATS[header.format] };
}

function bytesOf(data: Uint8Array, url: string): Buffer {
  if (data.length > 0) return Buffer.from(data.buffer, data.byteOffset, data.length);
  if (!isDataUrl(url)) return NOTHING;
  try {
    return decodeDataUrl(url, MOST_BYTES);
  } catch {
    // What is wrong with the address is told when the picture is wanted.
    return NOTHING;
  }
}

const NOTHING = Buffer.alloc(0);
/** As for pictures that are decoded. */
const MOST_BYTES = 16 << 20;
