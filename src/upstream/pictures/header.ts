/** What the bytes of a picture say of themselves, before anything is fetched or decoded. */
import { type Frame, ImageFormat } from "../../../gen/limber/v1/observation_pb.ts";
import { decodeDataUrl, isDataUrl } from "../../codecs/pictures/data-url.ts";
import { type ImageHeader, readImageHeader } from "../../codecs/pictures/image.ts";
import type { PictureFacts } from "../../contracts/inputs.ts";
import { SideNote } from "../../side-note.ts";

/** The encodings as the schema numbers them. */
export const FORMATS = { png: ImageFormat.PNG, jpeg: ImageFormat.JPEG, webp: ImageFormat.WEBP } as const;

/**
 * What stands at the beginning of a picture stands in so many bytes: of most in the first few, of some behind a preview. Multiples of
 * three, which base64 writes whole.
 */
const BEGINNINGS = [3 * 1024, 96 * 1024] as const;

/** Several contracts may want to know of one picture. */
const known = new SideNote<Frame, { readonly facts: PictureFacts | undefined }>("facts");

/** Size and encoding of a picture that came as bytes; undefined where it has to be fetched, or is none that can be read by its beginning. */
export function readPicture(frame: Frame): PictureFacts | undefined {
  const before = known.of(frame);
  if (before) return before.facts;
  const header = headerOf(frame);
  const facts = header && { width: header.width, height: header.height, format: FORMATS[header.format] };
  known.set(frame, { facts });
  return facts;
}

function headerOf(frame: Frame): ImageHeader | undefined {
  for (const most of BEGINNINGS) {
    const bytes = beginningOf(frame, most);
    const header = readImageHeader(bytes);
    if (header !== undefined || bytes.length < most) return header;
  }
  return undefined;
}

function beginningOf({ data, url }: Frame, most: number): Buffer {
  if (data.length > 0) return Buffer.from(data.buffer, data.byteOffset, Math.min(data.length, most));
  if (!isDataUrl(url)) return NOTHING;
  try {
    return decodeDataUrl(url.slice(0, url.indexOf(",") + 1 + (most / 3) * 4), most);
  } catch {
    // What is wrong with the address is told when the picture is wanted.
    return NOTHING;
  }
}

const NOTHING = Buffer.alloc(0);
