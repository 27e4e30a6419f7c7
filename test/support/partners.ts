/** A lab that brings its model server, and what its own client would get. */
import sharp from "sharp";
import { afterEach, beforeAll, expect } from "vitest";
import { WebSocket } from "ws";
import type { Answer, App, Caller } from "./app.ts";
import { centreOfRed } from "./centre-of-red.ts";
import { uniqueName } from "./names.ts";
import { f4, type OpenpiOptions, type OpenpiServer, startOpenpiServer } from "./openpi-server.ts";
import { pack, unpack } from "./plain-msgpack.ts";
import type { Chat } from "./servers/chat.ts";
import { openWorld } from "./world.ts";

/** Where labs register, declare and call. */
export interface Lab {
  /** Where. */
  app: App;
  /** Who calls what has joined. */
  robot: Caller;
  /** What the end of a test closes. */
  open: { close(): unknown }[];
  /** Registers, declares and verifies; the last answer. */
  join(declaration: object): Promise<{ model: string; status: number; body: Answer["body"] }>;
  /** A policy server of openpi's. */
  openpi(policy: (request: Buffer) => number[][], more?: OpenpiOptions): Promise<OpenpiServer>;
}

/** A gateway for all tests of a file. */
export function useLab(): Lab {
  const app = {} as App;
  const supplier = {} as Caller;
  const robot = {} as Caller;
  const open: { close(): unknown }[] = [];
  beforeAll(async () => {
    Object.assign(app, await openWorld());
    Object.assign(supplier, await app.caller(0, { role: "supplier" }));
    Object.assign(robot, await app.caller(10));
  });
  afterEach(async () => {
    for (const each of open.splice(0)) await each.close();
  });

  async function join(declaration: object): Promise<{ model: string; status: number; body: Answer["body"] }> {
    const provider = uniqueName("lab");
    const model = `${provider}/policy`;
    const { key } = supplier;
    await app.call("/v1/supply/providers", { name: provider }, { key });
    const body = {
      hardware: "RTX 4090",
      region: "eu",
      contracts: ["act"],
      action_spaces: ["ee_delta_6d_grip"],
      max_horizon: 10,
      model,
      ...declaration,
    };
    const declared = await app.call(`/v1/supply/providers/${provider}/models`, body, { key });
    expect([declared.status, declared.text]).toEqual([201, expect.any(String)]);
    const verified = await app.call(`/v1/supply/offerings/${declared.body.id}/verify`, {}, { key });
    return { model, status: verified.status, body: verified.body };
  }

  async function openpi(policy: (request: Buffer) => number[][], more: OpenpiOptions = {}): Promise<OpenpiServer> {
    const server: OpenpiServer = await startOpenpiServer({
      ...more,
      // What the policy throws on is answered as openpi does: with its traceback as text.
      answer: () => {
        try {
          return pack(new Map([["actions", f4(policy(server.requests.at(-1)!))]]));
        } catch (error) {
          return `Traceback (most recent call last):\n${error}`;
        }
      },
    });
    server.behave({ kind: "steps", steps: [] });
    open.push(server);
    return server;
  }

  return { app, robot, open, join, openpi };
}

/** What MessagePack unpacks to. */
export type Tree = Map<string, Tree>;

/** Pictures are squares of so many pixels. */
export const SIDE = 224;

/** A picture that is the same from nowhere else, as pixels and as the file that a robot's camera makes of it. */
export async function scene(seed: number): Promise<{ pixels: Buffer; png: Buffer }> {
  const pixels = Buffer.alloc(SIDE * SIDE * 3);
  for (let i = 0; i < pixels.length; i++) pixels[i] = (i * 7 + (i >> 8) * 13 + seed * 31) & 0xff;
  const png = await sharp(pixels, { raw: { width: SIDE, height: SIDE, channels: 3 } })
    .png()
    .toBuffer();
  return { pixels, png };
}

/** The checks that a report says failed, and why. */
export const failedChecks = ({ report }: Answer["body"]): [string, string][] =>
  report.checks
    .filter((check: { passed: boolean }) => !check.passed)
    .map(({ name, detail }: { name: string; detail: string }) => [name, detail]);

/** An openpi LIBERO policy of ten steps that depends on every pixel, on the state and on the prompt. */
export const libero = (request: Buffer): number[][] => {
  const observation = unpack(request) as Tree;
  const data = observation.get("observation/image")?.get("data") as unknown as Buffer;
  const state = observation.get("observation/state")?.get("data") as unknown as Buffer;
  const values = [...new Float64Array(new Uint8Array(state).buffer)];
  const seen = data.reduce((sum, byte, i) => (sum + byte * (1 + (i % 251))) % 100_003, 0);
  const prompt = String(observation.get("prompt")).length;
  return Array.from({ length: 10 }, (_, t) =>
    values.slice(0, 7).map((value, d) => value + seen / 100_003 + prompt / 100 + t * d),
  );
};

/** A picture upside down, as LIBERO turns it. */
export const turned = (pixels: Buffer): Buffer => {
  const out = Buffer.alloc(pixels.length);
  for (let i = 0; i < pixels.length; i += 3) pixels.copy(out, pixels.length - 3 - i, i, i + 3);
  return out;
};

/** What openpi's own client does: reads the metadata, sends one map, reads one map. */
export function ownOpenpiClient(endpoint: string, observation: Map<string, unknown>): Promise<number[][]> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(endpoint, { perMessageDeflate: false });
    socket.once("error", reject);
    socket.once("message", () => {
      socket.send(pack(observation));
      socket.once("message", (data) => {
        const actions = (unpack(data as Buffer) as Tree).get("actions")!;
        const [rows = 0, columns = 0] = actions.get("shape") as unknown as number[];
        const values = new Float32Array(new Uint8Array(actions.get("data") as unknown as Buffer).buffer);
        socket.close();
        resolve(Array.from({ length: rows }, (_, t) => [...values.subarray(t * columns, (t + 1) * columns)]));
      });
    });
  });
}

/** What `get_modality_config` answers. */
export function modalities(video: string[], state: string[], action: string[]): Buffer {
  const of = (modality_keys: string[]) =>
    new Map<string, unknown>([
      ["__ModalityConfig_class__", true],
      [
        "as_json",
        new Map<string, unknown>([
          ["modality_keys", modality_keys],
          ["delta_indices", [0]],
        ]),
      ],
    ]);
  return pack(
    new Map([
      ["video", of(video)],
      ["state", of(state)],
      ["action", of(action)],
    ]),
  );
}

/** Finds the red of a picture, as a model of the Qwen3-VL kind would say it: in thousandths. */
export async function redOf(chat: Chat): Promise<[number, number]> {
  const url = chat.messages[0]!.content[0]!.image_url!.url;
  const centre = await centreOfRed(Buffer.from(url.slice(url.indexOf(",") + 1), "base64"), 1_000);
  if (centre === undefined) throw new Error("nothing is red");
  return [Math.round(1_000 * centre.x), Math.round(1_000 * centre.y)];
}
