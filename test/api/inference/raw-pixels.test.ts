/** Cameras as pixels on both sides: what a robot sends so comes to the model so, and no file is made of it unless a model reads files. */
import { once } from "node:events";
import sharp from "sharp";
import { afterAll, beforeAll, expect, it } from "vitest";
import { WebSocket } from "ws";
import { pictureTurns } from "../../../src/codecs/pictures/turns.ts";
import { decodeNumpy, encodeNumpy, NdArray } from "../../../src/codecs/python/ndarray.ts";
import type { App, Caller } from "../../support/app.ts";
import { uniqueNames } from "../../support/names.ts";
import { type OpenpiServer, startOpenpiServer } from "../../support/openpi-server.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme", "failing", "serving");

const SIDE = 32;

let app: App;
let server: OpenpiServer;
let caller: Caller;

beforeAll(async () => {
  [app, server] = await Promise.all([openWorld(), startOpenpiServer()]);
  const steps = (first: number) =>
    ({ kind: "steps", steps: Array.from({ length: 4 }, (_, i) => [first + i / 10, 0.5]) }) as const;
  server.behave(steps(0), steps(1), steps(0));
  await app.supply({
    provider: named.acme,
    model: `${named.acme}/pixels`,
    runtime: "openpi-ws",
    endpoint: server.endpoint,
    action_spaces: ["base_twist_2d"],
    profile: { frames: [{ key: "observation/image", camera: "front", width: SIDE, height: SIDE }] },
  });
  caller = await app.caller(10);
});
afterAll(async () => {
  await server.close();
});

/** A picture of no two equal rows, [side, side, 3]. */
const noise = (side: number): Buffer =>
  Buffer.from(Uint8Array.from({ length: side * side * 3 }, (_, i) => (i * 37) % 251));

/** Sends a camera's array as openpi's client does; how many pictures were worked on for it. */
async function asked(model: string, picture: NdArray): Promise<{ worked: number }> {
  const before = pictureTurns.figures.begun;
  const url = `${app.url.replace("http", "ws")}/v1/openpi/${model}?horizon=4`;
  const socket = new WebSocket(url, { headers: { authorization: `Api-Key ${caller.key}` } });
  await once(socket, "message");
  socket.send(encodeNumpy({ "observation/front": picture, "observation/state": NdArray.float32([0.5]), prompt: "go" }));
  const [answer, isBinary] = await once(socket, "message");
  socket.close();
  expect([isBinary, String(answer).slice(0, 300)]).toEqual([true, expect.anything()]);
  return { worked: pictureTurns.figures.begun - before };
}

/** The same, and what the model was shown. */
async function shown(picture: NdArray): Promise<{ data: Buffer; shape: readonly number[]; worked: number }> {
  const { worked } = await asked(`${named.acme}/pixels`, picture);
  const request = decodeNumpy(server.requests.at(-1)!) as Map<string, NdArray>;
  const image = request.get("observation/image")!;
  return { data: Buffer.from(image.data), shape: image.shape, worked };
}

it("pixels of the model's size are forwarded unchanged", async () => {
  const pixels = noise(SIDE);
  const { data, shape, worked } = await shown(NdArray.uint8(pixels, [SIDE, SIDE, 3]));
  expect(shape).toEqual([SIDE, SIDE, 3]);
  expect(data.equals(pixels)).toBe(true);
  expect(worked).toBe(0);
});

it("pixels of another size are resized like an encoded image", async () => {
  const pixels = noise(2 * SIDE);
  const raw = { width: 2 * SIDE, height: 2 * SIDE, channels: 3 } as const;
  const { data, worked } = await shown(NdArray.uint8(pixels, [2 * SIDE, 2 * SIDE, 3]));
  const file = await sharp(pixels, { raw }).png().toBuffer();
  const wanted = await sharp(file).resize(SIDE, SIDE, { fit: "fill", kernel: "linear" }).raw().toBuffer();
  expect(data.equals(wanted)).toBe(true);
  expect(worked).toBe(1);
});

it.each([
  ["with channels first", [3, SIDE, SIDE], (pixel: number, channel: number) => channel * SIDE * SIDE + pixel],
  ["in floats", [SIDE, SIDE, 3], (pixel: number, channel: number) => 3 * pixel + channel],
] as const)("%s are put in order once", async (name, shape, place) => {
  const pixels = noise(SIDE);
  const values = new Float32Array(pixels.length);
  for (let i = 0; i < pixels.length; i++) values[place(Math.floor(i / 3), i % 3)] = pixels[i]! / 255;
  const isFloat = name === "in floats";
  const array = isFloat
    ? NdArray.float32(values, shape)
    : NdArray.uint8(
        Uint8Array.from(values, (value) => Math.round(value * 255)),
        shape,
      );
  const { data, worked } = await shown(array);
  expect(data.equals(pixels)).toBe(true);
  expect(worked).toBe(1);
});

it("pixels for a model that reads files are encoded once for all attempted servers", async () => {
  const [failing, serving] = await Promise.all([openModel(), openModel()]);
  const offering = { model: `${named.acme}/files`, action_spaces: ["base_twist_2d"] };
  await app.supply({ provider: named.failing, endpoint: failing.endpoint, price_per_action_step: 0, ...offering });
  await app.supply({ provider: named.serving, endpoint: serving.endpoint, price_per_action_step: 0.001, ...offering });
  failing.script.act = (_call, _answer, { stream }) => stream.close(2);
  const tried = failing.acts.length;
  const pixels = noise(SIDE);
  const { worked } = await asked(`${named.acme}/files`, NdArray.uint8(pixels, [SIDE, SIDE, 3]));
  const [file] = serving.acts.at(-1)!.observations[0]!.frames;
  expect(await sharp(file!.data).raw().toBuffer()).toEqual(pixels);
  expect(file).toMatchObject({ width: SIDE, height: SIDE });
  expect([failing.acts.length - tried, worked]).toEqual([1, 1]);
});
