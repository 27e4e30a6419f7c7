/** Pictures as callers send them, where they are fetched from, and who fetches them. */

import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import sharp, { type Sharp } from "sharp";
import { expect, onTestFinished } from "vitest";
import { pictureTurns, TURN_LIMITS } from "../../src/codecs/pictures/turns.ts";
import { type FrameOptions, FrameRefused, FrameSet, type FrameSource } from "../../src/upstream/pictures/frames.ts";
import { guardedAgent } from "../../src/upstream/transport/guard.ts";
import { eventually } from "./eventually.ts";

/** Reaches what everybody may; every name leads inside. */
export const publicAgent = guardedAgent({
  allowPrivate: false,
  resolve: async () => [{ address: "127.0.0.1", family: 4 }],
});
/** Reaches this machine, too. */
export const privateAgent = guardedAgent({ allowPrivate: true });

/** What the end of a test closes. */
export const open: (() => void)[] = [];

/** What every test ends with. */
export function closeEach(): void {
  for (const close of open.splice(0)) close();
}

/** Waits until no other test's picture is worked on, then takes all turns of the process; returns what gives them back. */
export async function holdTurns(): Promise<() => Promise<void>> {
  await eventually(() => expect(pictureTurns.figures).toMatchObject({ running: 0, waiting: 0 }));
  const { promise, resolve } = Promise.withResolvers<void>();
  const taken = Array.from({ length: TURN_LIMITS.all }, (_, i) =>
    pictureTurns.run({ key: `busy ${i}`, robot: "" }, 1, () => promise),
  );
  const free = async (): Promise<void> => {
    resolve();
    await Promise.all(taken);
  };
  onTestFinished(free);
  return free;
}

/** A web server of ours; counts the requests it gets. */
export async function serve(listener: RequestListener): Promise<{ url: string; requests(): number }> {
  let requests = 0;
  const server = createServer((incoming, response) => {
    requests++;
    listener(incoming, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  open.push(() => server.close().closeAllConnections());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/frame.png`, requests: () => requests };
}

/** How large the pictures are. */
export const WIDTH = 64;
export const HEIGHT = 48;

/** A picture without a straight edge or a flat spot, so that any wrong pixel shows. */
export function landscape(width: number, height: number): Buffer {
  const pixels = Buffer.alloc(width * height * 3);
  const across = Array.from({ length: 3 * width }, (_, i) => 60 * Math.sin((9 * Math.floor(i / 3)) / width + (i % 3)));
  const down = Array.from({ length: 3 * height }, (_, i) => 60 * Math.cos((9 * Math.floor(i / 3)) / height - (i % 3)));
  for (let i = 0; i < pixels.length; i++) {
    const y = Math.floor(i / across.length);
    pixels[i] = 128 + across[i % across.length]! + down[3 * y + (i % 3)]!;
  }
  return pixels;
}

/** The picture itself, and as the files that callers send. */
export const pixels = landscape(WIDTH, HEIGHT);
export const picture = (width = WIDTH, height = HEIGHT, data = pixels): Sharp =>
  sharp(data, { raw: { width, height, channels: 3 } });
export const png = await picture().png().toBuffer();
export const jpeg = await picture().jpeg({ quality: 95 }).toBuffer();
export const webp = await picture().webp({ lossless: true }).toBuffer();

/** One that is not taken. */
export const gif = await picture().gif().toBuffer();

/** A picture within its address. */
export const dataUrl = (bytes: Buffer, type = "image/png"): string => `data:${type};base64,${bytes.toString("base64")}`;
/** A frame of a request. */
export const frameAt = (url: string, path = "observations.0.frames.0"): FrameSource => ({ path, camera: "front", url });
/** The one frame of a request whose address may be public alone. */
export const setOf = (url: string, options: Partial<FrameOptions> = {}): FrameSet =>
  new FrameSet([frameAt(url)], { agent: publicAgent, allowPrivate: false, ...options });
/** For addresses of this machine. */
export const openly = { agent: privateAgent, allowPrivate: true };
/** The size in which nothing is lost. */
export const WHOLE = { width: WIDTH, height: HEIGHT, fit: "pad" } as const;

/** Why a frame was refused; whatever else becomes of it fails the test. */
export async function refusalOf(attempt: unknown): Promise<FrameRefused> {
  const error = await Promise.resolve(attempt).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof FrameRefused)) throw new Error("was not refused as a frame", { cause: error });
  return error;
}
