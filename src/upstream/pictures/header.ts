/** What the bytes of a picture say of themselves, before anything is fetched or decoded. */
import { type Frame, ImageFormat } from "../../../gen/limber/v1/observation_pb.ts";
import { CodecError } from "../../codecs/error.ts";
import { decodeDataUrl, isDataUrl, startOfDataUrl } from "../../codecs/pictures/data-url.ts";
import { type ImageHeader, readImageHeader } from "../../codecs/pictures/image.ts";
import type { PictureFacts } from "../../contracts/inputs.ts";
import { SideNote } from "../../side-note.ts";

/** The encodings as the schema numbers them. */
export const FORMATS = { png: ImageFormat.PNG, jpeg: ImageFormat.JPEG, webp: ImageFormat.WEBP } as const;

/** What stands at the beginning of a picture stands in so many bytes: of most in the first few, of some behind a preview. */
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

function headerOf({ data, url }: Frame): ImageHeader | undefined {
  if (data.length > 0) return readImageHeader(Buffer.from(data.buffer, data.byteOffset, data.length));
  if (!isDataUrl(url)) return undefined;
  try {
    for (const most of BEGINNINGS) {
      const { bytes, isWhole } = startOfDataUrl(url, most);
      const header = readImageHeader(bytes);
      // The orientation may stand behind the pixels.
      if (header?.orientation !== undefined || isWhole) return header;
      if (header !== undefined) return readImageHeader(decodeDataUrl(url, MOST_BYTES));
    }
  } catch (thrown) {
    // An invalid address is reported when the image is fetched.
    if (!(thrown instanceof CodecError)) throw thrown;
  }
  return undefined;
}

/** Larger pictures are refused when a wire reads them. */
const MOST_BYTES = 16 << 20;
