import { type ChildProcess, spawnSync } from "node:child_process";
import { channel } from "node:diagnostics_channel";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { asMp4, asWebp, FilmFailure, MOST_FILM_BYTES } from "../../../src/jobs/film-encoder.ts";
import type { Film } from "../../../src/scenarios/picture.ts";

const folder = mkdtempSync(join(tmpdir(), "limber-test-film-"));
/** The folder for temporary files, which only these tests use. */
const temporary = join(folder, "tmp");
mkdirSync(temporary);
beforeAll(() => {
  vi.stubEnv("TMPDIR", temporary);
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

/** A bar that moves over a gray background. */
function film(frames: number): Film {
  const [width, height] = [64, 48];
  const rgb = new Uint8Array(3 * width * height * frames).fill(128);
  for (let frame = 0; frame < frames; frame++)
    for (let row = 0; row < height; row++) {
      const at = 3 * ((frame * height + row) * width + 4 * frame);
      rgb.fill(255, at, at + 12);
    }
  return { width, height, frames, frameMs: 100, rgb };
}

let made = 0;
/** A program that stands in for ffmpeg. */
function program(script: string): string {
  const path = join(folder, `ffmpeg-${made++}`);
  writeFileSync(path, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return path;
}

const never = new AbortController().signal;

describe("an animated WebP", () => {
  it("has the film's size, frames and delays", async () => {
    const { bytes, type } = await asWebp(film(5));
    expect(type).toBe("image/webp");
    const { format, width, pageHeight, pages, delay } = await sharp(bytes, { animated: true }).metadata();
    expect({ format, width, pageHeight, pages, delay }).toEqual({
      ...{ format: "webp", width: 64, pageHeight: 48, pages: 5 },
      delay: [100, 100, 100, 100, 100],
    });
  });
});

describe("an ffmpeg", () => {
  it.each([
    ["crashes", "kill -SEGV $$", "ffmpeg ended with a signal"],
    ["exits with an error before it reads", "exit 3", "ffmpeg ended with 3"],
    ["writes nothing", "cat > /dev/null", "ffmpeg did not write the film"],
    ["writes garbage", "cat > /dev/null; echo garbage > film.mp4", "ffmpeg did not write the film"],
    [
      "writes a file that only begins as MP4",
      "cat > /dev/null; printf '\\0\\0\\0\\020ftypisom\\0\\0\\0\\0' > film.mp4",
      "ffmpeg did not write the film",
    ],
    [
      "writes too much",
      `cat > /dev/null; dd if=/dev/zero of=film.mp4 bs=1 seek=${MOST_FILM_BYTES} count=1 2> /dev/null`,
      `ffmpeg wrote ${MOST_FILM_BYTES + 1} bytes`,
    ],
    ["hangs", "exec sleep 60", "ffmpeg took longer than 300 ms"],
  ])("that %s fails the film, and leaves no file behind", async (_, script, message) => {
    const result = asMp4(film(3), program(`export PATH=/usr/bin:/bin; ${script}`), never, {
      mostMs: script.includes("sleep") ? 300 : 20_000,
    });
    const failure = await result.then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(failure).toBeInstanceOf(FilmFailure);
    expect((failure as FilmFailure).message).toBe(message);
    expect(readdirSync(temporary)).toEqual([]);
  });

  it("that cannot be started fails the film", async () => {
    await expect(asMp4(film(3), join(folder, "none"), never)).rejects.toThrow("ffmpeg cannot be started");
  });

  it("that gets no file descriptors fails the film", () => {
    const script = `
      import { openSync } from "node:fs";
      import { asMp4 } from "./src/jobs/film-encoder.ts";
      const film = { width: 2, height: 2, frames: 1, frameMs: 100, rgb: new Uint8Array(12) };
      try { for (;;) openSync("/dev/null"); } catch {}
      await asMp4(film, "/bin/true", new AbortController().signal).catch(({ name, message }) => console.log(name, message));`;
    const run = 'ulimit -n 256; exec "$0" --input-type=module -e "$1"';
    const { stdout, stderr } = spawnSync("sh", ["-c", run, process.execPath, script], { encoding: "utf8" });
    expect(stdout, stderr).toBe("FilmFailure ffmpeg cannot be started\n");
  });

  it("is killed when its job is lost, and the film fails only after it has ended", async () => {
    const lost = new AbortController();
    const created = channel("child_process");
    let isStarted = false;
    let kill: () => void = () => {};
    const hold = (message: unknown): void => {
      const { process: child } = message as { process: ChildProcess };
      const now = child.kill.bind(child);
      isStarted = true;
      child.kill = (sent) => {
        kill = () => now(sent);
        return true;
      };
    };
    created.subscribe(hold);
    const result = asMp4(film(3), program("export PATH=/usr/bin:/bin; exec sleep 60"), lost.signal);
    await vi.waitUntil(() => isStarted);
    created.unsubscribe(hold);
    const ended = vi.fn();
    const failed = result.catch(ended);
    lost.abort(new Error("lost"));
    // A film that failed would have deleted its folder by then.
    for (let i = 0; i < 50; i++) await readdir(temporary);
    expect(ended).not.toHaveBeenCalled();
    expect(readdirSync(temporary)).toHaveLength(1);
    kill();
    await failed;
    expect(ended).toHaveBeenCalledWith(new Error("lost"));
    expect(readdirSync(temporary)).toEqual([]);
  });

  it("gets only fixed arguments, the film's size and rate, and no environment", async () => {
    vi.stubEnv("LIMBER_MASTER_KEY", "a secret of the gateway");
    const path = program(`/usr/bin/env > '${folder}/env'; echo "$@" > '${folder}/args'; exit 1`);
    await expect(asMp4(film(3), path, never)).rejects.toThrow(FilmFailure);
    const said = ["args", "env"].map((name) => readFileSync(join(folder, name), "utf8"));
    expect(said[0]).toContain("-video_size 64x48 -framerate 1000000/100000 -i pipe:0");
    expect(said[1]).toContain("PWD=");
    expect(said[1]).not.toContain("a secret of the gateway");
  });
});

const REAL = spawnSync("ffmpeg", ["-version"], { stdio: "ignore" }).status === 0;

describe.runIf(REAL)("the machine's ffmpeg", () => {
  const path = spawnSync("sh", ["-c", "command -v ffmpeg"], { encoding: "utf8" }).stdout.trim();

  it("writes H.264 in yuv420p with the film's size, rate and frames, and its index before the frames", async () => {
    const { bytes, type } = await asMp4(film(7), path, never);
    expect(type).toBe("video/mp4");
    expect(bytes.indexOf("moov")).toBeLessThan(bytes.indexOf("mdat"));
    const file = join(folder, "real.mp4");
    writeFileSync(file, bytes);
    const { stdout, stderr } = spawnSync(path, ["-i", file, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]);
    expect(stderr.toString()).toMatch(/Video: h264 .*yuv420p.* 64x48.* 10 fps/);
    expect(stdout.length).toBe(7 * 64 * 48 * 3);
  });
});
