/** Pictures that are made to cost much: what a key may have of decoding and of memory is bounded, and the robots of others are served. */
import sharp from "sharp";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { pictureTurns, TURN_LIMITS } from "../../../src/codecs/pictures/turns.ts";
import { redSquare } from "../../../src/upstream/pictures/test-picture.ts";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { robot } from "../../support/loop-client.ts";
import { uniqueNames } from "../../support/names.ts";
import { type OpenpiServer, startOpenpiServer } from "../../support/openpi-server.ts";
import { openWorld } from "../../support/world.ts";

const named = uniqueNames("acme");

let app: App;
let server: OpenpiServer;
let good: Caller;
let attacker: Caller;
let picture: Buffer;

const STEPS = Array.from({ length: 4 }, (_, i) => [i / 10, 0.5]);
const MODEL = `${named.acme}/pixels`;

beforeAll(async () => {
  [app, server, picture] = await Promise.all([openWorld(), startOpenpiServer(), redSquare(0.5, 0.5, 64)]);
  const steps = { kind: "steps", steps: STEPS } as const;
  server.behave(steps, { kind: "steps", steps: STEPS.map(([a, b]) => [a! + 1, b!]) }, steps);
  await app.supply({
    provider: named.acme,
    model: MODEL,
    runtime: "openpi-ws",
    endpoint: server.endpoint,
    action_spaces: ["base_twist_2d"],
    // Attacks keep a busy machine from answering for long: that is no failure of the server.
    timeout_s: 60,
    profile: { frames: [{ key: "observation/image", camera: "front", width: 32, height: 32 }] },
  });
  [good, attacker] = [await app.caller(100), await app.caller(100)];
});
afterEach(async () => {
  await eventually(() => expect(pictureTurns.figures).toMatchObject({ running: 0, waiting: 0 }));
  expect((await act(good, picture)).status).toBe(200);
  await eventually(() => expect(heldBytes()).resolves.toBe(0));
});
afterAll(async () => {
  await server.close();
});

async function heldBytes(): Promise<number> {
  const { text } = await app.call("/metrics", undefined, { admin: "an-operators-token-for-tests" });
  return Number(/^limber_body_bytes_held (\d+)/m.exec(text)?.[1]);
}

const frame = (bytes: Buffer, camera = "front") => ({
  camera,
  url: `data:image/png;base64,${bytes.toString("base64")}`,
});
const actWith = ({ key }: Caller, frames: readonly object[], signal?: AbortSignal) =>
  app.call(
    "/v1/act",
    { model: MODEL, action_space: "base_twist_2d", horizon: 4, observations: [{ frames, proprio: [0.5] }] },
    { key, ...(signal && { signal }) },
  );
const act = (caller: Caller, bytes: Buffer, signal?: AbortSignal) => actWith(caller, [frame(bytes)], signal);

/** The picture with another size in its header, and the sum of that header mended. */
async function lying(width: number, height: number): Promise<Buffer> {
  const { crc32 } = await import("node:zlib");
  const bytes = Buffer.from(picture);
  bytes.writeUInt32BE(width, 16);
  bytes.writeUInt32BE(height, 20);
  bytes.writeUInt32BE(crc32(bytes.subarray(12, 29)), 29);
  return bytes;
}

/** A black picture of 36 megapixels, in about 100 kB. */
const bomb = (): Promise<Buffer> =>
  sharp({ create: { width: 6000, height: 6000, channels: 3, background: "#000" } })
    .png()
    .toBuffer();

/** The most pictures that were worked on at a time while this ran. */
async function mostRunning(work: () => Promise<unknown>): Promise<number> {
  let most = 0;
  let isOver = false;
  const look = (): void => {
    most = Math.max(most, pictureTurns.figures.running);
    if (!isOver) setImmediate(look);
  };
  look();
  await work();
  isOver = true;
  return most;
}

describe("a picture", () => {
  it.each([
    ["claims 64 megapixels and has 4,096 pixels", 8000, 8000, "frame_not_an_image"],
    ["claims 900 megapixels", 30_000, 30_000, "frame_too_large"],
    ["claims one line of 4 billion pixels", 4_000_000_000, 1, "frame_too_large"],
    ["claims to be higher than it is", 64, 6_400, "frame_not_an_image"],
  ])("that %s is refused after at most one attempt", async (_, width, height, type) => {
    const before = pictureTurns.figures.begun;
    const { status, body } = await act(attacker, await lying(width, height));
    expect([status, body.error.code]).toEqual([422, "frame_refused"]);
    expect(body.error.details.violations).toMatchObject([{ path: "observations.0.frames.0", type }]);
    expect(pictureTurns.figures.begun - before).toBeLessThanOrEqual(1);
  });

  it("of 36 megapixels is decoded alone, and not after its caller left", async () => {
    const file = await bomb();
    const caller = new AbortController();
    const before = pictureTurns.figures;
    const bombs = TURN_LIMITS.all + 3;
    const answers = 5;
    const most = await mostRunning(async () => {
      const attack = Array.from({ length: bombs }, () => act(attacker, file, caller.signal).catch(() => undefined));
      await eventually(() => expect(pictureTurns.figures.waiting).toBeGreaterThan(0));
      for (let i = 0; i < answers; i++) expect((await act(good, picture)).status).toBe(200);
      caller.abort();
      await Promise.all(attack);
    });
    expect(most).toBeLessThanOrEqual(TURN_LIMITS.all);
    await eventually(() => expect(pictureTurns.figures).toMatchObject({ running: 0, waiting: 0 }));
    const { begun, left } = pictureTurns.figures;
    // A good call decodes its picture and resizes it; a bomb is both at once.
    expect(begun - before.begun).toBeGreaterThanOrEqual(2 * answers + 1);
    expect(begun - before.begun + left - before.left).toBeLessThanOrEqual(2 * answers + bombs);
  });
});

describe("many pictures", () => {
  it("of 30 cameras are refused with the field, undecoded", async () => {
    const before = pictureTurns.figures.begun;
    const frames = Array.from({ length: 30 }, (_, i) => frame(picture, `camera ${i}`));
    const { status, body } = await actWith(attacker, frames);
    expect([status, body.error.code, body.error.param]).toEqual([422, "validation_failed", "observations.0.frames"]);
    expect(pictureTurns.figures.begun).toBe(before);
  });

  it("of 16 cameras are decoded only if the model reads them", async () => {
    const before = pictureTurns.figures.begun;
    const frames = Array.from({ length: 16 }, (_, i) => frame(picture, i === 7 ? "front" : `camera ${i}`));
    expect((await actWith(attacker, frames)).status).toBe(200);
    expect(pictureTurns.figures.begun - before).toBe(2);
  });
});

describe("a robot", () => {
  it("that sends 30 MiB in each of many observations has only the newest decoded, and delays no other robot", async () => {
    const OBSERVATIONS = 4;
    // A whole picture, and as much behind its end as a frame may have.
    const padded = Buffer.concat([picture, Buffer.alloc((15 << 20) - picture.length)]);
    const open = { model: MODEL, actionSpace: "base_twist_2d", horizon: 4 };
    const before = pictureTurns.figures.begun;
    const loop = robot(app, attacker.key, open);
    await loop.expect("opened");
    const frames = ["front", "wrist"].map((camera) => ({ camera, data: padded }));
    for (let step = 1; step <= OBSERVATIONS; step++) loop.observe(step, { observations: [{ proprio: [0.5], frames }] });
    const answers = 5;
    for (let i = 0; i < answers; i++) expect((await act(good, picture)).status).toBe(200);
    for (;;) {
      const told = await loop.next();
      if (told === undefined) throw new Error("the loop ended");
      if (told.kind === "chunk" && told.value.startStep === OBSERVATIONS) break;
      if (told.kind === "hold" && told.value.step === OBSERVATIONS) {
        // An answer that came too late on a busy machine.
        expect(told.value.reason).not.toBe(HoldReason.INVALID_OBSERVATION);
        break;
      }
    }
    loop.leave();
    expect(pictureTurns.figures.begun - before).toBeLessThanOrEqual(2 * (answers + OBSERVATIONS));
  }, 120_000);
});
