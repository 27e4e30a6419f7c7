/** What the wires of world models have in common: the newest picture as a file, and an answer of files as a prediction. */

import { CodecError } from "../../codecs/error.ts";
import { decodeDataUrl } from "../../codecs/pictures/data-url.ts";
import type { PredictAnswerPart, PredictInput } from "../../contracts/contract.ts";
import type { EncodedFrame, FrameSet } from "../pictures/frames.ts";
import { picturesIn } from "../pictures/order.ts";
import { framesOfFiles } from "../pictures/video.ts";
import { malformed } from "../transport/failures.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";
import { rejected } from "./observe.ts";

const MAX_FILE_BYTES = 64 * 2 ** 20;

/** The first picture of the newest observation. Throws an UpstreamFailure `INPUT_REJECTED` when there is none. */
export function newestPicture({ observations }: PredictInput, frames: FrameSet): Promise<EncodedFrame> {
  const newest = observations.at(-1);
  if (newest === undefined || newest.frames.length === 0) throw rejected("there is no picture to go on from");
  return frames.bytes(picturesIn(observations.slice(0, -1)));
}

/** A picture as a `data:` URL. */
export const dataUrlOf = ({ bytes, format }: EncodedFrame): string =>
  `data:image/${format};base64,${bytes.toString("base64")}`;

/** The bytes of a `data:` URL, or of bare base64; addresses aren't fetched. Throws an UpstreamFailure. */
export function fileIn(text: unknown): Buffer {
  if (typeof text !== "string" || /^https?:/i.test(text)) throw malformed("a file that isn't in the answer itself");
  try {
    return decodeDataUrl(text.startsWith("data:") ? text : `data:;base64,${text}`, MAX_FILE_BYTES);
  } catch (error) {
    if (error instanceof CodecError) throw malformed(`a file is ${error.reason}`, error);
    throw error;
  }
}

/** The files of an answer as the parts of a prediction. Throws an UpstreamFailure. */
export async function* partsOfFiles(
  files: readonly Buffer[],
  { dtMs }: UpstreamTarget,
  { horizon, fps }: PredictInput,
  { signal }: CallOptions,
): AsyncGenerator<PredictAnswerPart> {
  const interval = fps === undefined ? dtMs : 1_000 / fps;
  for (const frame of await framesOfFiles(files, { horizon, dtMs: interval, signal })) yield { kind: "frame", frame };
  yield { kind: "summary", gpuSeconds: 0, note: "" };
}
