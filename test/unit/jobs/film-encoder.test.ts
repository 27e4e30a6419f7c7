import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, describe, expect, it } from "vitest";
import { BRAND } from "../../../src/brand.ts";
import { asMp4, asWebp, FilmFailure, MOST_FILM_BYTES } from "../../../src/jobs/film-encoder.ts";
import type { Film } from "../../../src/scenarios/picture.ts";

const folder = mkdtempSync(join(tmpdir(), "limber-test-film-"));
afterAll(() => rmSync(folder, { recursive: true }));

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
const leftovers = (): string[] => readdirSync(tmpdir()).filter((name) => name.startsWith(`${BRAND}-film-`));

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
    const before = leftovers();
    const result = asMp4(film(3), program(`export PATH=/usr/bin:/bin; ${script}`), never, {
      mostMs: script.includes("sleep") ? 300 : 20_000,
    });
    const failure = await result.then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(failure).toBeInstanceOf(FilmFailure);
    expect((failure as FilmFailure).message).toBe(message);
    expect(leftovers()).toEqual(before);
  });

  it("that cannot be started fails the film", async () => {
    await expect(asMp4(film(3), join(folder, "none"), never)).rejects.toThrow("ffmpeg cannot be started");
  });

  it("is killed when its job is lost", async () => {
    const lost = new AbortController();
    const result = asMp4(film(3), program("export PATH=/usr/bin:/bin; exec sleep 60"), lost.signal);
    lost.abort(new Error("lost"));
    await expect(result).rejects.toThrow("lost");
  });

  it("gets only fixed arguments, the film's size and rate, and no environment", async () => {
    const path = program(`/usr/bin/env > '${folder}/env'; echo "$@" > '${folder}/args'; exit 1`);
    await expect(asMp4(film(3), path, never)).rejects.toThrow(FilmFailure);
    const said = ["args", "env"].map((name) => readFileSync(join(folder, name), "utf8"));
    expect(said[0]).toContain("-video_size 64x48 -framerate 1000000/100000 -i pipe:0");
    expect(said[1]).not.toContain("HOME=");
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
