/** Shared code of world-model wires: the newest image as a file, and files as a prediction. */

import sharp from "sharp";
import type { Signal } from "../../cancellation.ts";
import { CodecError } from "../../codecs/error.ts";
import { decodeDataUrl } from "../../codecs/pictures/data-url.ts";
import { isMp4 } from "../../codecs/pictures/mp4.ts";
import { pictureTurns } from "../../codecs/pictures/turns.ts";
import {
  AttemptFailure,
  type PredictAnswerPart,
  type PredictInput,
  UpstreamFailure,
} from "../../contracts/contract.ts";
import { type EncodedFrame, type FrameSet, picturesIn } from "../pictures/frames.ts";
import { decodeVideo, framesOfFiles, MODELS, picturesInVideo } from "../pictures/video.ts";
import { malformed } from "../transport/failures.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";
import { rejected } from "./observe.ts";

const MAX_FILE_BYTES = 64 * 2 ** 20;

/** Returns the first image of the newest observation. Throws an UpstreamFailure `INPUT_REJECTED` if there is none. */
export function newestPicture({ observations }: PredictInput, frames: FrameSet): Promise<EncodedFrame> {
  const newest = observations.at(-1);
  if (newest === undefined || newest.frames.length === 0) throw rejected("the request contains no image to start from");
  return frames.bytes(picturesIn(observations.slice(0, -1)));
}

/** Returns an image as a `data:` URL. */
export const dataUrlOf = ({ bytes, format }: EncodedFrame): string =>
  `data:image/${format};base64,${bytes.toString("base64")}`;

/** Returns the bytes of a `data:` URL, or of bare base64; other addresses are not fetched. Throws an UpstreamFailure. */
export function fileIn(text: unknown): Buffer {
  if (typeof text !== "string" || /^https?:/i.test(text)) throw malformed("the file is not included in the response");
  try {
    return decodeDataUrl(text.startsWith("data:") ? text : `data:;base64,${text}`, MAX_FILE_BYTES);
  } catch (error) {
    if (error instanceof CodecError) throw malformed(`a file is ${error.reason}`, error);
    throw error;
  }
}

/** Most models produce videos of one image more than a multiple of these: Wan and HunyuanVideo 4k+1, LTX and Cosmos 8k+1. */
const MULTIPLES = [4, 8] as const;
const MAX_SERVERS = 1_024;
/** The maximum number of further attempts with another length per prediction. */
const MOST_LESSONS = 3;

/** A prediction, with the number of images to request from the server. */
export type VideoQuestion = PredictInput & { readonly pictures: number };

/** The known properties of one server's videos. */
interface Lengths {
  /** Their lengths are `extra` more than a multiple of this, and at least `least`. */
  readonly multiple: number;
  readonly extra: 0 | 1;
  readonly least: number;
  /** The only supported lengths, ascending; empty if there are others. */
  readonly only: readonly number[];
  /** Whether they begin with the image that was sent to the server. */
  readonly withGiven: boolean;
  /** Whether all properties are known. */
  readonly isSettled: boolean;
}

const ANY: Lengths = { multiple: 1, extra: 1, least: 1, only: [], withGiven: true, isSettled: false };

/** Returns the next supported length; `pictures` itself beyond the longest. */
function lawful({ multiple, extra, least, only }: Lengths, pictures: number): number {
  if (only.length > 0) return only.find((length) => length >= pictures) ?? pictures;
  return Math.ceil((Math.max(pictures, least) - extra) / multiple) * multiple + extra;
}

/**
 * The lengths that world-model servers support. The next supported length is requested, and the surplus is cut. If the offering declares no
 * rule, it is learned from short videos and refusals, once per server.
 */
export class VideoLengths {
  readonly #byServer = new Map<string, Lengths>();

  /**
   * Returns the parts of a prediction from a server whose `make` returns files for a number of images. `fixed`: the number follows from the
   * actions, and is one more than the horizon. Throws an UpstreamFailure.
   */
  async *predict(
    target: UpstreamTarget,
    { horizon, fps, given }: PredictInput & { readonly given: EncodedFrame },
    { signal }: CallOptions,
    make: (pictures: number) => Promise<readonly Buffer[]>,
    fixed = false,
  ): AsyncGenerator<PredictAnswerPart> {
    const server = `${target.endpoint} ${target.profile?.serverModel ?? target.model}`;
    const declared = target.profile?.frameMultiple;
    let known = this.#byServer.get(server) ?? (declared === undefined ? ANY : { ...ANY, multiple: declared });
    let [asked, files]: [number, readonly Buffer[]] = [0, []];
    for (let lessons = 0; ; lessons++) {
      const isLast = fixed || lessons >= MOST_LESSONS;
      asked = fixed ? horizon + 1 : lawful(known, horizon + 1);
      let next: Lengths | undefined;
      try {
        files = await make(asked);
        next = declared === undefined ? lessonOfVideo(files, known, { asked, horizon }) : undefined;
        // The requested number is ambiguous: without the given image, or rounded down to a video that begins with it.
        if (next !== undefined && known.multiple === 1 && next.multiple > 1)
          if (picturesInVideo(files[0]!) === horizon && !(await beginsWith(files[0]!, given, signal))) next = undefined;
      } catch (thrown) {
        next = thrown instanceof UpstreamFailure ? lessonOfRefusal(thrown, known) : undefined;
        if (isLast || next === undefined || lawful(next, horizon + 1) === asked) throw thrown;
      }
      if (isLast || next === undefined) break;
      known = next;
      this.#note(server, known);
      // Learned from a sufficient video.
      if (lawful(known, horizon + 1) === asked || known.isSettled) break;
    }
    const dtMs = fps === undefined ? target.dtMs : 1_000 / fps;
    const start = known.withGiven ? undefined : 0;
    for (const frame of await framesOfFiles(files, { horizon, dtMs, signal, start })) yield { kind: "frame", frame };
    yield { kind: "summary", gpuSeconds: 0, note: noteOf(known, { asked, horizon }) };
  }

  #note(server: string, lengths: Lengths): void {
    if (!this.#byServer.has(server) && this.#byServer.size >= MAX_SERVERS) this.#byServer.clear();
    this.#byServer.set(server, lengths);
  }
}

/** The maximum mean difference between two equal images after video compression. */
const MOST_APART = 20;
const THUMBNAIL = { width: 16, height: 16, fit: "fill" } as const;
const thumbnailOf = (picture: Buffer): Promise<Buffer> =>
  sharp(picture).removeAlpha().resize(THUMBNAIL).raw().toBuffer();

/** Whether a video begins with an image, compared by thumbnails. Throws an UpstreamFailure. */
async function beginsWith(video: Buffer, { bytes }: EncodedFrame, signal: Signal): Promise<boolean> {
  const [first] = await decodeVideo(video, 1, signal);
  if (first === undefined) return false;
  const work = (): Promise<Buffer[]> => Promise.all([first.png, bytes].map(thumbnailOf));
  const [one, other] = await pictureTurns.run(MODELS, first.width * first.height, work);
  const apart = one!.reduce((sum, value, i) => sum + Math.abs(value - other![i]!), 0);
  return apart / one!.length <= MOST_APART;
}

const noteOf = (known: Lengths, { asked, horizon }: { asked: number; horizon: number }): string =>
  asked > horizon + 1
    ? `the server makes videos of ${lengthsOf(known)} images: ${asked} requested, ${horizon} returned`
    : "";

/** Returns the rule that a video's length implies; undefined without new information. */
function lessonOfVideo(
  files: readonly Buffer[],
  known: Lengths,
  { asked, horizon }: { asked: number; horizon: number },
): Lengths | undefined {
  const [first] = files;
  if (known.isSettled || first === undefined || !isMp4(first)) return undefined;
  const count = picturesInVideo(first);
  if (count >= asked || count === 0) return undefined;
  // One less than a length that several rules allow, so it leaves out the given image.
  if (count === asked - 1 && known.multiple > 1) return { ...ANY, withGiven: false, isSettled: true };
  const next = MULTIPLES.find(
    (multiple) =>
      multiple > known.multiple && (count - 1) % multiple === 0 && lawful({ ...known, multiple }, horizon + 1) > asked,
  );
  if (next !== undefined && count <= horizon) return { ...known, multiple: next };
  // No known rule: it returns the same length for any request.
  return count <= horizon && known.multiple > 1 ? { ...ANY, isSettled: true } : undefined;
}

function lengthsOf({ multiple, extra, least, only }: Lengths): string {
  if (only.length > 0) return only.join(", ");
  return multiple > 1 ? `${multiple}k${extra > 0 ? "+1" : ""}` : `at least ${least}`;
}

/** Rules in refusal texts: "4k+1", "k * 4 + 1", "divisible by 8", "(num_frames - 1) % 8", "greater than or equal to 25". */
const RULE =
  /(\d{1,2})\s*[*×]?\s*[a-z]\s*\+\s*1|\b[a-z]\s*[*×]\s*(\d{1,2})\s*\+\s*1|(?:divisible|multiple)\s(?:by|of)\s(\d{1,2})|%\s*(\d{1,2})/i;
/** Words for one more than a multiple. */
const ONE_MORE =
  /[+-]\s*1\b|\b(?:plus|minus) (?:1|one)\b|\b(?:one|1) more\b|%\s*\d{1,2}\s*(?:==|=|!=|is|must be|should be)\s*1\b/i;
/** A list of lengths: "must be one of [25, 49, 81]", pydantic's "Input should be 81 or 121". */
const ONLY =
  /(?:one of|should be|must be)\s*:?\s*[[({]?((?:'?\d{1,3}'?(?:\s*,\s*(?:or\s+)?|\s+or\s+)){1,32}'?\d{1,3}\b)/i;
const LEAST = /(?:at least|>=|≥|greater than or equal to|minimum(?: of| is)?:?|no less than)\s*(\d{1,3})\b/i;
const OF_FRAMES = /frame/i;
/** The characters of a refusal that are read. */
const MOST_LESSON = 2_000;

/** Returns the rule in a refusal's text; undefined if it is about something else. */
function lessonOfRefusal({ failure, message: whole }: UpstreamFailure, known: Lengths): Lengths | undefined {
  if (failure !== AttemptFailure.INPUT_REJECTED && failure !== AttemptFailure.UPSTREAM_ERROR) return undefined;
  // The expressions take quadratic time for runs of spaces.
  const message = whole.slice(0, MOST_LESSON).replace(/\s+/g, " ");
  if (!OF_FRAMES.test(message)) return undefined;
  const only = (ONLY.exec(message)?.[1]?.match(/\d+/g) ?? []).map(Number).sort((a, b) => a - b);
  if (only.length > 0) return known.only.length > 0 ? undefined : { ...known, only };
  const rule = RULE.exec(message);
  const multiple = Number(rule?.slice(1).find((number) => number !== undefined) ?? known.multiple);
  const extra = rule === null ? known.extra : ONE_MORE.test(message) ? 1 : 0;
  const least = Number(LEAST.exec(message)?.[1] ?? known.least);
  if (!(multiple >= 1 && multiple <= 64 && least >= 1 && least <= 256)) return undefined;
  const isKnown = multiple === known.multiple && extra === known.extra && least === known.least;
  return isKnown ? undefined : { ...known, multiple, extra, least };
}
