/** Encodes films: as MP4 with ffmpeg, or as animated WebP. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { constants, setPriority, tmpdir } from "node:os";
import { join } from "node:path";
import { BRAND } from "../brand.ts";
import { ioClock } from "../clock.ts";
import { countMp4Frames, isMp4 } from "../codecs/pictures/mp4.ts";
import { animated, type Film } from "../scenarios/picture.ts";

/** The maximum size of a film, in bytes. gRPC clients receive messages of up to 4 MiB by default. */
export const MOST_FILM_BYTES = 4_000_000;
/** The time limit of ffmpeg, in milliseconds. 300 frames of 480 x 480 pixels took 1.0 to 2.2 s on a machine with two busy cores. */
const MOST_MS = 60_000;

/** An encoded film. */
export interface EncodedFilm {
  readonly bytes: Buffer;
  readonly type: "video/mp4" | "image/webp";
}

/** A film that cannot be encoded. */
export class FilmFailure extends Error {
  override readonly name = "FilmFailure";
}

/** Encodes a film as animated WebP. Throws `FilmFailure` if it is larger than `MOST_FILM_BYTES`. */
export async function asWebp(film: Film): Promise<EncodedFilm> {
  const bytes = await animated(film, "webp");
  if (bytes.length > MOST_FILM_BYTES) throw new FilmFailure(`the film takes ${bytes.length} bytes as WebP`);
  return { bytes, type: "image/webp" };
}

/**
 * Encodes a film as MP4: H.264 in yuv420p, with its index at the beginning. Throws `FilmFailure` if ffmpeg fails, takes too long, or writes
 * anything but such a film, and the signal's reason if that is aborted.
 */
export async function asMp4(
  film: Film,
  ffmpeg: string,
  signal: AbortSignal,
  { mostMs = MOST_MS }: { readonly mostMs?: number } = {},
): Promise<EncodedFilm> {
  const folder = await mkdtemp(join(tmpdir(), `${BRAND}-film-`));
  try {
    await run(ffmpeg, film, { folder, signal, mostMs });
    const file = join(folder, FILE);
    const { size } = await stat(file).catch(() => ({ size: 0 }));
    if (size > MOST_FILM_BYTES) throw new FilmFailure(`ffmpeg wrote ${size} bytes`);
    const bytes = size === 0 ? Buffer.alloc(0) : await readFile(file);
    if (!isMp4(bytes) || framesIn(bytes) !== film.frames) throw new FilmFailure("ffmpeg did not write the film");
    return { bytes, type: "video/mp4" };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const FILE = "film.mp4";

/** Options of a run of ffmpeg. */
interface RunOptions {
  /** Its working directory. */
  readonly folder: string;
  readonly signal: AbortSignal;
  readonly mostMs: number;
}

/** Returns the arguments of ffmpeg; only size and frame rate vary. ffmpeg stops at the maximum size, and `asMp4` checks the size again. */
const argumentsFor = ({ width, height, frameMs }: Film): string[] => [
  ...["-nostdin", "-hide_banner", "-loglevel", "quiet", "-protocol_whitelist", "pipe,file"],
  ...["-f", "rawvideo", "-pix_fmt", "rgb24", "-video_size", `${width}x${height}`],
  ...["-framerate", `1000000/${Math.round(frameMs * 1000)}`, "-i", "pipe:0"],
  ...["-c:v", "libx264", "-preset", "veryfast", "-crf", "24", "-pix_fmt", "yuv420p", "-threads", "1"],
  ...["-movflags", "+faststart", "-fs", String(MOST_FILM_BYTES), "-f", "mp4", FILE],
];

/** Resolves or rejects when the process has ended, so its folder can be deleted. */
function run(ffmpeg: string, film: Film, { folder, signal, mostMs }: RunOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    // Without the gateway's environment, which holds secrets.
    const child: ChildProcess = spawn(ffmpeg, argumentsFor(film), {
      cwd: folder,
      env: {},
      stdio: ["pipe", "ignore", "ignore"],
    });
    /** Why it was killed. */
    let killed: { readonly reason: unknown } | undefined;
    const kill = (reason: unknown): void => {
      killed ??= { reason };
      child.kill("SIGKILL");
    };
    const abort = (): void => kill(signal.reason);
    const cancelTimeout = ioClock.after(mostMs, () => kill(new FilmFailure(`ffmpeg took longer than ${mostMs} ms`)));
    signal.addEventListener("abort", abort, { once: true });
    const release = (): void => {
      cancelTimeout();
      signal.removeEventListener("abort", abort);
      child.stdin?.destroy();
    };
    child.on("error", (cause) => {
      // A process that was started ends by its exit, even if it could not be killed at once.
      if (child.pid !== undefined) return;
      release();
      reject(new FilmFailure("ffmpeg cannot be started", { cause }));
    });
    child.once("exit", (code) => {
      release();
      if (killed !== undefined) reject(killed.reason);
      else if (code === 0) resolve();
      else reject(new FilmFailure(`ffmpeg ended with ${code ?? "a signal"}`));
    });
    // It can exit before it has read everything; its exit code decides.
    child.stdin?.on("error", () => {});
    // Without a free file descriptor there is no pipe, and the process was not started.
    child.stdin?.end(film.rgb);
    yieldTo(child.pid);
  });
}

/** Gives a process the lowest priority. */
function yieldTo(pid: number | undefined): void {
  try {
    if (pid !== undefined) setPriority(pid, constants.priority.PRIORITY_LOW);
  } catch {
    // It has exited already, or the machine has no priorities.
  }
}

function framesIn(mp4: Buffer): number | undefined {
  try {
    return countMp4Frames(mp4);
  } catch {
    return undefined;
  }
}
