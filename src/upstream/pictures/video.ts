/** Pictures that a server predicted: as an array of pixels, as a video file, or as files of their own. */
import sharp from "sharp";
import { ImageFormat } from "../../../gen/limber/v1/observation_pb.ts";
import type { PredictedFrame } from "../../../gen/limber/v1/prediction_pb.ts";
import type { Signal } from "../../cancellation.ts";
import { CodecError } from "../../codecs/error.ts";
import { readImageHeader } from "../../codecs/pictures/image.ts";
import { countMp4Frames, isMp4 } from "../../codecs/pictures/mp4.ts";
import { pictureTurns } from "../../codecs/pictures/turns.ts";
import type { NdArray } from "../../codecs/python/ndarray.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { malformed } from "../transport/failures.ts";
import { decodeVideo } from "./ffmpeg.ts";

const MAX_PREDICTED = 256;
const MAX_SIDE = 4_096;

/** The frames of an array u1 [T, H, W, 3], or [1, T, H, W, 3], as PNG pictures `dtMs` apart; at most `most`. Throws an UpstreamFailure. */
export async function framesIn(video: NdArray, dtMs: number, most = MAX_PREDICTED): Promise<PredictedFrame[]> {
  const shape = video.shape.length === 5 && video.shape[0] === 1 ? video.shape.slice(1) : video.shape;
  const [count = 0, height = 0, width = 0, channels] = shape;
  const isVideo = shape.length === 4 && channels === 3 && video.dtype === "|u1" && width > 0 && height > 0;
  if (!isVideo || count > MAX_PREDICTED || width > MAX_SIDE || height > MAX_SIDE) {
    throw malformed(`a video of shape [${video.shape}]`);
  }
  const size = width * height * 3;
  return Promise.all(
    Array.from({ length: Math.min(most, count) }, async (_, index) => {
      const pixels = video.data.subarray(index * size, (index + 1) * size);
      const png = (): Promise<Buffer> =>
        sharp(pixels, { raw: { width, height, channels: 3 } })
          .png()
          .toBuffer();
      const data = await pictureTurns.run(MODELS, width * height, png);
      const tMs = (index + 1) * dtMs;
      const facts = { width, height, format: ImageFormat.PNG };
      return { $typeName: "limber.v1.PredictedFrame" as const, index, tMs, camera: "", ...facts, data };
    }),
  );
}

/** Pictures that models made share turns: no caller has more of them for its own. */
export const MODELS = { key: "models", robot: "" } as const;

const FORMATS = { png: ImageFormat.PNG, jpeg: ImageFormat.JPEG, webp: ImageFormat.WEBP } as const;

/**
 * `horizon` frames of a server's files, `dtMs` apart: pictures as they are, or the pictures of one MP4 video. World models begin a video
 * with the picture that they were given, so of more pictures than asked for the first is left out, unless `start` says where to begin. Their number is read from the container before
 * anything is decoded. Throws an UpstreamFailure: fewer than asked for, or files that are neither.
 */
export async function framesOfFiles(
  files: readonly Buffer[],
  {
    horizon,
    dtMs,
    signal,
    start: begin,
  }: { horizon: number; dtMs: number; signal: Signal; start?: number | undefined },
): Promise<PredictedFrame[]> {
  const [first] = files;
  if (first === undefined) throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the answer has no pictures");
  if (!isMp4(first))
    return files
      .slice(startIn(files.length, horizon, begin))
      .slice(0, horizon)
      .map((file, i) => pictureOf(file, i, dtMs));
  const start = startIn(picturesInVideo(first), horizon, begin);
  const decoded = (await decodeVideo(first, start + horizon, signal)).slice(start);
  if (decoded.length < horizon)
    throw new UpstreamFailure(
      AttemptFailure.WRONG_STEP_COUNT,
      "the video holds fewer pictures than its container says",
    );
  return decoded.map(({ png }, i) => pictureOf(png, i, dtMs));
}

function startIn(count: number, horizon: number, begin: number | undefined): number {
  if (count >= horizon) return begin ?? (count > horizon ? 1 : 0);
  throw new UpstreamFailure(AttemptFailure.WRONG_STEP_COUNT, `${count} pictures, of ${horizon} asked for`);
}

/** How many pictures a video's container says that it holds. Throws an UpstreamFailure. */
export function picturesInVideo(video: Buffer): number {
  try {
    return countMp4Frames(video);
  } catch (error) {
    if (error instanceof CodecError) throw malformed(`the video's container is ${error.reason}`, error);
    throw error;
  }
}

function pictureOf(data: Buffer, index: number, dtMs: number): PredictedFrame {
  const header = readImageHeader(data);
  if (header === undefined) throw new UpstreamFailure(AttemptFailure.UNREADABLE_FRAME, "a file that is no picture");
  const { width, height } = header;
  const tMs = (index + 1) * dtMs;
  return {
    $typeName: "limber.v1.PredictedFrame",
    index,
    tMs,
    camera: "",
    width,
    height,
    format: FORMATS[header.format],
    data,
  };
}
