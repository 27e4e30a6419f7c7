/** What the bytes of a picture say of themselves, before anything is fetched or decoded. */
import { type Frame, ImageFormat } from "../../../gen/limber/v1/observation_pb.ts";
import { decodeDataUrl, isDataUrl } from "../../codecs/pictures/data-url.ts";
import { readImageHeader } from "../../codecs/pictures/image.ts";
import type { PictureFacts } from "../../contracts/inputs.ts";

/** The encodings as the schema numbers them. */
export const FORMATS = { png: ImageFormat.PNG, jpeg: ImageFormat.JPEG, webp: ImageFormat.WEBP } as const;

/** What stands at the beginning of a picture stands in so many bytes. A multiple of three, which base64 writes whole. */
const BEGINNING = 96 * 1024;

/** Several contracts may want to know of one picture. */
const known = new WeakMap<Frame, { readonly facts: PictureFacts | undefined }>();

/** Size and encoding of a picture that came as bytes; undefined where it has to be fetched, or is none that can be read by its beginning. */
export function readPicture(frame: Frame): PictureFacts | undefined {
  const before = known.get(frame);
  if (before) return before.facts;
  const header = readImageHeader(beginningOf(frame));
  const facts = header && { width: header.width, height: header.height, format: FORMATS[header.format] };
  known.set(frame, { facts });
  return facts;
}

function beginningOf({ data, url }: Frame): Buffer {
  if (data.length > 0) return Buffer.from(data.buffer, data.byteOffset, Math.min(data.length, BEGINNING));
  if (!isDataUrl(url)) return NOTHING;
  try {
    return decodeDataUrl(url.slice(0, url.indexOf(",") + 1 + (BEGINNING / 3) * 4), BEGINNING);
  } catch {
    // What is wrong with the address is told when the picture is wanted.
    return NOTHING;
  }
}

const NOTHING = Buffer.alloc(0);
