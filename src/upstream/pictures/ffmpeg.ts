/** Pictures out of a video file, by `ffmpeg` where the machine has one: nothing else here can decode a video. */
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BRAND } from "../../brand.ts";
import type { Signal } from "../../cancellation.ts";
import { readImageHeader } from "../../codecs/pictures/image.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { calledOff, malformed } from "../transport/failures.ts";

const MAX_OUTPUT_BYTES = 256 * 2 ** 20;
const PNG_START = Buffer.from("89504e470d0a1a0a", "hex");

/** One decoded picture. */
export interface DecodedPicture {
  readonly png: Buffer;
  readonly width: number;
  readonly height: number;
}

/**
 * The first `count` pictures of a video file as PNG. Throws an UpstreamFailure: `UNREADABLE_FRAME` where there is no decoder, or it can't
 * read the file. The file is read from a folder of its own, and no protocol but `file` may be used by what it holds.
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
    child.once("error", (error) => end(unreadable("a video can't be decoded here: there is no ffmpeg", error)));
    child.once("close", (code) => {
      signal.removeEventListener("abort", leave);
      if (failure === undefined && code !== 0) failure = unreadable("the video can't be decoded");
      if (failure === undefined) resolve(Buffer.concat(chunks));
      else reject(failure);
    });
  });
}

const unreadable = (message: string, cause?: unknown): UpstreamFailure =>
  new UpstreamFailure(AttemptFailure.UNREADABLE_FRAME, message, cause);

/** PNG files one behind the other, each from its first chunk to its last. */
function picturesIn(stream: Buffer): DecodedPicture[] {
  const pictures: DecodedPicture[] = [];
  for (let at = 0; at < stream.length; ) {
    if (!stream.subarray(at, at + 8).equals(PNG_START))
      throw malformed("the decoder gave something else than pictures");
    const end = endOfPng(stream, at);
    const png = stream.subarray(at, end);
    const header = readImageHeader(png);
    if (header === undefined) throw malformed("the decoder gave something else than pictures");
    pictures.push({ png, width: header.width, height: header.height });
    at = end;
  }
  return pictures;
}

function endOfPng(stream: Buffer, from: number): number {
  for (let at = from + 8; at + 12 <= stream.length; at += 12 + stream.readUInt32BE(at)) {
    if (stream.toString("latin1", at + 4, at + 8) === "IEND") return at + 12;
  }
  throw malformed("the decoder stopped within a picture");
}
