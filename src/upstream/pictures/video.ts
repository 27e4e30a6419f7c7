/** Predicted images: as an array of pixels, as a video file, or as separate files. */
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { ImageFormat } from "../../../gen/limber/v1/observation_pb.ts";
import type { PredictedFrame } from "../../../gen/limber/v1/prediction_pb.ts";
import { BRAND } from "../../brand.ts";
import type { Signal } from "../../cancellation.ts";
import { CodecError } from "../../codecs/error.ts";
import { readImageHeader } from "../../codecs/pictures/image.ts";
import { countMp4Frames, isMp4 } from "../../codecs/pictures/mp4.ts";
import { pictureTurns } from "../../codecs/pictures/turns.ts";
import type { NdArray } from "../../codecs/python/ndarray.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { calledOff, malformed } from "../transport/failures.ts";
import { FORMATS } from "./header.ts";

const MAX_PREDICTED = 256;
const MAX_SIDE = 4_096;

/** Returns the frames of an array u1 [T, H, W, 3], or [1, T, H, W, 3], as PNG images `dtMs` apart; at most `most`. Throws an UpstreamFailure. */
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

/** Images from models share one caller's turns, because no caller submits them. */
export const MODELS = { key: "models", robot: "" } as const;

/**
 * Returns `horizon` frames of a server's files, `dtMs` apart: images unchanged, or the images of one MP4 video. World models begin a video with
 * the given image, so the first of more images than requested is left out, unless `start` gives the first index. Their number is read from the
 * container before decoding. Throws an UpstreamFailure for fewer than requested, or other files.
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
  if (first === undefined) throw new UpstreamFailure(AttemptFailure.EMPTY_ANSWER, "the response contains no images");
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
      "the video contains fewer images than its container declares",
    );
  return decoded.map(({ png }, i) => pictureOf(png, i, dtMs));
}

function startIn(count: number, horizon: number, begin: number | undefined): number {
  if (count >= horizon) return begin ?? (count > horizon ? 1 : 0);
  throw new UpstreamFailure(AttemptFailure.WRONG_STEP_COUNT, `${count} pictures, of ${horizon} asked for`);
}

/** Returns the number of images in a video's container. Throws an UpstreamFailure. */
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
  if (header === undefined) throw new UpstreamFailure(AttemptFailure.UNREADABLE_FRAME, "the file is not an image");
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

const MAX_OUTPUT_BYTES = 256 * 2 ** 20;
const PNG_START = Buffer.from("89504e470d0a1a0a", "hex");

/** One decoded picture. */
interface DecodedPicture {
  readonly png: Buffer;
  readonly width: number;
  readonly height: number;
}

/**
 * Returns the first `count` images of a video file as PNG. Throws an UpstreamFailure: `UNREADABLE_FRAME` without a decoder, or if it cannot read
 * the file. The file is in its own folder, and its contents can use no protocol but `file`.
 */
export async function decodeVideo(bytes: Buffer, count: number, signal: Signal): Promise<DecodedPicture[]> {
  const folder = await mkdtemp(join(tmpdir(), `${BRAND}-video-`));
  try {
    const file = join(folder, "video");
    await writeFile(file, bytes);
    return picturesIn(await run(file, count, signal));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function run(file: string, count: number, signal: Signal): Promise<Buffer> {
  const quiet = ["-nostdin", "-hide_banner", "-loglevel", "quiet", "-protocol_whitelist", "file"];
  const what = ["-i", file, "-map", "0:v:0", "-frames:v", String(count), "-fps_mode", "passthrough"];
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(calledOff(signal));
    const child = spawn("ffmpeg", [...quiet, ...what, "-f", "image2pipe", "-c:v", "png", "-"], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    const chunks: Buffer[] = [];
    let length = 0;
    let failure: UpstreamFailure | undefined;
    const end = (why: UpstreamFailure): void => {
      failure ??= why;
      child.kill("SIGKILL");
    };
    const leave = (): void => end(calledOff(signal));
    signal.addEventListener("abort", leave, { once: true });
    child.stdout.on("data", (chunk: Buffer) => {
      chunks.push(chunk);
      length += chunk.length;
      if (length > MAX_OUTPUT_BYTES)
        end(new UpstreamFailure(AttemptFailure.ANSWER_TOO_LARGE, "the video is too large"));
    });
    child.once("error", (error) =>
      end(unreadable("cannot decode a video: ffmpeg is not installed on the gateway", error)),
    );
    child.once("close", (code) => {
      signal.removeEventListener("abort", leave);
      if (failure === undefined && code !== 0) failure = unreadable("the video cannot be decoded");
      if (failure === undefined) resolve(Buffer.concat(chunks));
      else reject(failure);
    });
  });
}

const unreadable = (message: string, cause?: unknown): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.UNREADABLE_FRAME, message, cause);

/** Splits consecutive PNG files, each from its first chunk to its last. */
function picturesIn(stream: Buffer): DecodedPicture[] {
  const pictures: DecodedPicture[] = [];
  for (let at = 0; at < stream.length; ) {
    if (!stream.subarray(at, at + 8).equals(PNG_START)) throw malformed("the decoder did not return images");
    const end = endOfPng(stream, at);
    const png = stream.subarray(at, end);
    const header = readImageHeader(png);
    if (header === undefined) throw malformed("the decoder did not return images");
    pictures.push({ png, width: header.width, height: header.height });
    at = end;
  }
  return pictures;
}

function endOfPng(stream: Buffer, from: number): number {
  for (let at = from + 8; at + 12 <= stream.length; at += 12 + stream.readUInt32BE(at)) {
    if (stream.toString("latin1", at + 4, at + 8) === "IEND") return at + 12;
  }
  throw malformed("the decoder stopped in the middle of an image");
}
