/** Reads image headers before anything is fetched or decoded. */
import { type Frame, ImageFormat } from "../../../gen/limber/v1/observation_pb.ts";
import { CodecError } from "../../codecs/error.ts";
import { decodeDataUrl, isDataUrl, startOfDataUrl } from "../../codecs/pictures/data-url.ts";
import { type ImageHeader, readImageHeader } from "../../codecs/pictures/image.ts";
import { samplePicture } from "../../codecs/pictures/samples.ts";
import type { PictureFacts } from "../../contracts/inputs.ts";
import { SideNote } from "../../side-note.ts";

/** The encodings by the schema's numbers. */
export const FORMATS = { png: ImageFormat.PNG, jpeg: ImageFormat.JPEG, webp: ImageFormat.WEBP } as const;

/** The number of bytes that contain an image's header: most headers are in the first few, some follow a preview. */
const BEGINNINGS = [3 * 1024, 96 * 1024] as const;

/** Cached, because several contracts may read one image. */
const known = new SideNote<Frame, { readonly facts: PictureFacts | undefined }>("facts");

/** Returns size and encoding of an image that came as bytes; undefined if it must be fetched or its start is unreadable. */
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
  if (!isDataUrl(url)) {
    const sample = samplePicture(url);
    return sample && readImageHeader(sample);
  }
  try {
    for (const most of BEGINNINGS) {
      const { bytes, isWhole } = startOfDataUrl(url, most);
      const header = readImageHeader(bytes);
      // The orientation can follow the pixels.
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
