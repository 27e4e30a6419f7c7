/**
 * What robots of openpi's and GR00T's own clients may send to do harm: each is bounded in what a key takes of memory and of work with
 * pictures, and the calls of others are served meanwhile.
 */
import { once } from "node:events";
import { connect } from "node:net";
import sharp from "sharp";
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { WebSocket } from "ws";
import { pictureTurns } from "../../../src/codecs/pictures/turns.ts";
import { decodeGr00t, encodeGr00t } from "../../../src/codecs/python/gr00t.ts";
import type { Packable } from "../../../src/codecs/python/msgpack.ts";
import { encodeNumpy, NdArray } from "../../../src/codecs/python/ndarray.ts";
import { GREETING, READY, requestHead, ZmtpReader } from "../../../src/codecs/zmtp.ts";
import { BODY_MEMORY, UNCOUNTED_BYTES } from "../../../src/edge/body-memory.ts";
import { redSquare } from "../../../src/upstream/pictures/test-picture.ts";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import type { Model } from "../../support/model.ts";
import { type OpenpiServer, startOpenpiServer } from "../../support/openpi-server.ts";
import { pack } from "../../support/plain-msgpack.ts";
import { tree } from "../../support/servers/vla-eval.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let server: OpenpiServer;
let talker: Model;
let good: Caller;
let attacker: Caller;
let picture: Buffer;

const SIDE = 32;
const STEPS = Array.from({ length: 4 }, (_, i) => [i / 10, 0.5]);
const PIXELS = "acme/pixels";
/** Answers as much as one call may. */
const TALKER = "acme/talker";
const MOST_STEPS = 256;
const DIM = 7;
const ADMIN = "an-operators-token-for-tests";

beforeAll(async () => {
  [app, server, talker, picture] = await Promise.all([
    ownGateway({ gr00tPort: 0 }),
    startOpenpiServer(),
    openModel(),
    redSquare(0.5, 0.5, 64),
  ]);
  const steps = { kind: "steps", steps: STEPS } as const;
  server.behave(steps, { kind: "steps", steps: STEPS.map(([a, b]) => [a! + 1, b!]) }, steps);
  const profile = { frames: [{ key: "observation/image", camera: "front", width: SIDE, height: SIDE }] };
  const pixels = { provider: "acme", model: PIXELS, runtime: "openpi-ws", action_spaces: ["base_twist_2d"], profile };
  await app.supply({ ...pixels, endpoint: server.endpoint });
  const much = { model: TALKER, action_spaces: ["joint_pos_7"], max_horizon: MOST_STEPS };
  await app.supply({ provider: "talker", endpoint: talker.endpoint, ...much });
  const rate_limit = { requests: 1_000_000, window_s: 60, burst: 100_000 };
  [good, attacker] = [await app.caller(100, { rate_limit }), await app.caller(100, { rate_limit })];
});
afterEach(async () => {
  await eventually(() => expect(pictureTurns.figures).toMatchObject({ running: 0, waiting: 0 }));
  await goodAct();
  await eventually(() => expect(heldBytes()).resolves.toBe(0));
});
afterAll(async () => {
  await server.close();
});

async function heldBytes(): Promise<number> {
  const { text } = await app.call("/metrics", undefined, { admin: ADMIN });
  return Number(/^limber_body_bytes_held (\d+)/m.exec(text)?.[1]);
}

/** How many calls of somebody else there were. */
let goodActs = 0;

/** A call of somebody else, with a picture that has to become pixels. */
async function goodAct(): Promise<void> {
  const url = `data:image/png;base64,${picture.toString("base64")}`;
  const observations = [{ frames: [{ camera: "front", url }], proprio: [0.5] }];
  const asked = { model: PIXELS, action_space: "base_twist_2d", horizon: 4, observations };
  const { status, text } = await app.call("/v1/act", asked, { key: good.key });
  expect([status, text]).toEqual([200, text]);
  goodActs += 1;
}

/** Calls of somebody else until the work is done, at least so many; answers the most bytes that were held meanwhile. */
async function served(least: number, work: Promise<unknown>): Promise<number> {
  let most = 0;
  let isDone = false;
  void work.catch(() => undefined).finally(() => (isDone = true));
  for (let calls = 0; calls < least || !isDone; calls++) {
    await goodAct();
    most = Math.max(most, await heldBytes());
  }
  await work;
  return most;
}

/** A connection of a robot, in the hands of a test. */
interface Robot {
  /** `behind` goes in the same piece, as it is. */
  send(message: Buffer, behind?: Buffer): void;
  /** The next answer: what it tells of an error, or undefined where it has actions. Rejects where the connection ends. */
  answer(): Promise<string | undefined>;
  stopReading(): void;
  readOn(): void;
  /** With the code that it was closed with, where the wire has codes. */
  readonly closed: Promise<unknown>;
  close(): void;
}

type Pictures = Readonly<Record<string, Packable<NdArray>>>;

/** What is said on a wire. */
interface RobotWire {
  open(model: string): Promise<Robot>;
  /** An observation with pictures [height, width, 3] by their cameras. */
  message(pictures: Pictures, model?: string): Buffer;
  /** An array whose shape is not that of its bytes. */
  lie(shape: readonly number[], data: Buffer): Packable<NdArray>;
}

const SPACES: Readonly<Record<string, string>> = { [PIXELS]: "base_twist_2d", [TALKER]: "joint_pos_7" };
const horizonOf = (model: string): number => (model === TALKER ? MOST_STEPS : 4);

/** Answers in their order, for who asks for them before they come and after. */
class Answers {
  readonly #come: (string | undefined)[] = [];
  readonly closed: Promise<unknown>;
  #wake = (): void => {};

  constructor(closed: Promise<unknown>) {
    this.closed = closed;
  }

  add(error: string | undefined): void {
    this.#come.push(error);
    this.#wake();
  }

  async next(): Promise<string | undefined> {
    while (this.#come.length === 0) {
      const more = new Promise<void>((resolve) => (this.#wake = resolve));
      const gone = this.closed.then(() => Promise.reject(new Error("the connection ended")));
      await Promise.race([more, gone]);
    }
    return this.#come.shift();
  }
}

const openpi: RobotWire = {
  async open(model) {
    const address = `${app.url.replace("http", "ws")}/v1/openpi/${model}`;
    const query = `action_space=${SPACES[model]}&horizon=${horizonOf(model)}`;
    const headers = { authorization: `Api-Key ${attacker.key}` };
    const client = new WebSocket(`${address}?${query}`, { headers, perMessageDeflate: false });
    const answers = new Answers(new Promise((resolve) => client.once("close", resolve)));
    client.on("error", () => undefined);
    await once(client, "message");
    client.on("message", (data, isBinary) => answers.add(isBinary ? undefined : String(data)));
    onTestFinished(() => client.terminate());
    return {
      send: (message) => client.send(message),
      answer: () => answers.next(),
      stopReading: () => client.pause(),
      readOn: () => client.resume(),
      closed: answers.closed,
      close: () => client.terminate(),
    };
  },
  message: (pictures) =>
    encodeNumpy({
      ...Object.fromEntries(Object.entries(pictures).map(([camera, value]) => [`observation/${camera}`, value])),
      "observation/state": NdArray.float32([0.5]),
      prompt: "go",
    }),
  lie: (shape, data) => ({ __ndarray__: true, data, dtype: "|u1", shape }),
};

const gr00t: RobotWire = {
  async open() {
    const socket = connect({ port: app.gateway.gr00tPort!, host: "127.0.0.1", noDelay: true });
    const answers = new Answers(new Promise((resolve) => socket.once("close", resolve)));
    const ready = Promise.withResolvers<void>();
    const reader = new ZmtpReader(1 << 20, {
      onGreeting: () => void socket.write(READY),
      onCommand: () => ready.resolve(),
      onMessage: (body) => {
        const answer = decodeGr00t(body);
        const error = answer instanceof Map ? answer.get("error") : undefined;
        answers.add(error === undefined ? undefined : String(error));
      },
    });
    socket.on("error", () => undefined).on("data", (chunk) => reader.push(chunk));
    socket.write(GREETING);
    await ready.promise;
    onTestFinished(() => void socket.destroy());
    return {
      send: (message, behind = Buffer.alloc(0)) =>
        void socket.write(Buffer.concat([requestHead(message.length), message, behind])),
      answer: () => answers.next(),
      stopReading: () => socket.pause(),
      readOn: () => socket.resume(),
      closed: answers.closed,
      close: () => socket.destroy(),
    };
  },
  message(pictures, model = PIXELS) {
    const film = (value: Packable<NdArray>): Packable<NdArray> =>
      value instanceof NdArray ? new NdArray(value.dtype, [1, 1, ...value.shape], value.data) : value;
    const video = Object.fromEntries(Object.entries(pictures).map(([camera, value]) => [camera, film(value)]));
    const state = { base: NdArray.float32([0.5], [1, 1, 1]) };
    const observation = { video, state, language: { task: [["go"]] } };
    const options = { model, action_space: SPACES[model]!, horizon: horizonOf(model) };
    const message = { endpoint: "get_action", api_token: attacker.key, data: { observation, options } };
    return encodeGr00t(message, "numpy");
  },
  lie: (shape, data) =>
    new Map<Uint8Array, Packable>([
      [Buffer.from("nd"), true],
      [Buffer.from("type"), "|u1"],
      [Buffer.from("kind"), Buffer.alloc(0)],
      [Buffer.from("shape"), [1, 1, ...shape]],
      [Buffer.from("data"), data],
    ]),
};

const small = NdArray.uint8(new Uint8Array(SIDE * SIDE * 3), [SIDE, SIDE, 3]);

describe.each([
  ["openpi", openpi],
  ["GR00T", gr00t],
])("a robot of %s", (name, wire) => {
  it("that sends 30 cameras is refused before decoding, and may continue", async () => {
    const robot = await wire.open(PIXELS);
    const before = pictureTurns.figures.begun;
    const side = 256;
    const large = new NdArray("<f4", [3, side, side], new Uint8Array(3 * side * side * 4));
    const turned = NdArray.uint8(new Uint8Array(3 * side * side), [side, side, 3]);
    const cameras = Array.from({ length: 30 }, (_, i) => [`camera${i}`, name === "openpi" ? large : turned]);
    robot.send(wire.message(Object.fromEntries(cameras)));
    expect(await robot.answer()).toContain("16");
    expect(pictureTurns.figures.begun).toBe(before);
    robot.send(wire.message({ front: small }));
    expect(await robot.answer()).toBeUndefined();
  });

  it.each([
    ["more pixels than it has", [4096, 4096, 3], 12],
    ["fewer pixels than it has", [1, 1, 3], 12],
    ["more pixels than a number counts", [2 ** 31, 2 ** 31, 3], 12],
    ["sizes below nothing", [-1, -4, 3], 12],
    ["no pixels", [0, 0, 3], 0],
    ["one line of 20 million pixels", [1, 20_000_000, 3], 60_000_000],
  ])("whose image claims %s is refused, and may continue", async (_, shape, bytes) => {
    const robot = await wire.open(PIXELS);
    const before = [pictureTurns.figures.begun, server.requests.length];
    robot.send(wire.message({ front: wire.lie(shape, Buffer.alloc(bytes)) }));
    expect(await robot.answer()).toMatch(/malformed_body|validation_failed/);
    expect([pictureTurns.figures.begun, server.requests.length]).toEqual(before);
    robot.send(wire.message({ front: small }));
    expect(await robot.answer()).toBeUndefined();
  });

  it("that sends files instead of pixels is refused before decoding", async () => {
    const robot = await wire.open(PIXELS);
    const before = pictureTurns.figures.begun;
    robot.send(wire.message({ front: await bomb() }));
    expect(await robot.answer()).toContain("validation_failed");
    expect(pictureTurns.figures.begun).toBe(before);
  });

  it("that sends 32 MiB repeatedly holds at most its key's memory, with one image decoded at a time", async () => {
    const side = 3344;
    const message = wire.message({ front: NdArray.uint8(new Uint8Array(side * side * 3), [side, side, 3]) });
    const before = pictureTurns.figures;
    goodActs = 0;
    const ROUNDS = 3;
    const AT_ONCE = 4;
    const GOOD = 20;
    let sent = 0;
    const attack = async (): Promise<void> => {
      for (let round = 0; round < ROUNDS; round++) {
        const robot = await wire.open(PIXELS);
        for (let i = 0; i < AT_ONCE; i++) robot.send(message);
        sent += AT_ONCE;
        // It is answered, or hung up on.
        await robot.answer().catch(() => undefined);
        robot.close();
        await robot.closed;
      }
    };
    const most = await served(GOOD, attack());
    expect(most).toBeLessThanOrEqual(BODY_MEMORY.perKey);
    await eventually(() => expect(pictureTurns.figures).toMatchObject({ running: 0, waiting: 0 }));
    const { begun, left } = pictureTurns.figures;
    expect(sent).toBe(ROUNDS * AT_ONCE);
    const own = begun - before.begun + left - before.left - 2 * goodActs;
    expect(own).toBeLessThanOrEqual(sent);
  });

  it("that never reads its answers is paused or disconnected, and they count as its key's memory", async () => {
    const robot = await wire.open(TALKER);
    robot.stopReading();
    const before = talker.acts.length;
    const message = wire.message({}, TALKER);
    // Much more than the network takes of its own accord.
    const ENOUGH = Math.ceil((32 << 20) / (MOST_STEPS * DIM * 4));
    let sent = 0;
    let most = 0;
    /** Whether all that was sent came to the model while others were served some calls. */
    const isHeard = async (): Promise<boolean> => {
      for (let calls = 0; calls < 20; calls++) {
        for (let turns = 0; turns < 100; turns++) {
          if (talker.acts.length - before >= sent) return true;
          await new Promise(setImmediate);
        }
        await goodAct();
      }
      return false;
    };
    while (sent < ENOUGH) {
      robot.send(message);
      sent += 1;
      if (!(await isHeard())) break;
      if (sent % 64 === 0) most = Math.max(most, await heldBytes());
    }
    expect(sent).toBeLessThan(ENOUGH);
    most = Math.max(most, await heldBytes());
    expect(most).toBeLessThanOrEqual((1 << 20) + UNCOUNTED_BYTES);
    robot.readOn();
    if (name === "openpi") expect(await robot.closed).toBe(1008);
    else for (let i = 0; i < sent; i++) expect(await robot.answer()).toBeUndefined();
    robot.close();
  }, 120_000);
});

it.each([
  [8, "has all of them answered"],
  [9, "is hung up on"],
])("a robot of GR00T that sends %i messages in one piece %s", async (count) => {
  const robot = await gr00t.open(PIXELS);
  const message = encodeGr00t({ endpoint: "ping" });
  const one = Buffer.concat([requestHead(message.length), message]);
  // What heads the first is written by `send`.
  const rest = Buffer.concat(Array<Buffer>(count - 1).fill(one));
  robot.send(message, rest);
  if (count > 8) await robot.closed;
  else for (let i = 0; i < count; i++) expect(await robot.answer()).toBeUndefined();
});

describe("a robot of the harness", () => {
  it.each([
    ["a benchmark that turns its pictures", "x:LIBERO"],
    ["another benchmark", "x:Simpler"],
  ])(
    "of %s that sends files of 36 megapixels is refused, or has one decoded at a time",
    async (_, benchmark) => {
      const authorization = `Basic ${Buffer.from(`acme%2Fpixels:${attacker.key}`).toString("base64")}`;
      const url = `${app.url.replace("http", "ws")}/v1/vla-eval/acme/pixels`;
      const file = await bomb();
      const before = pictureTurns.figures;
      goodActs = 0;
      const BOMBS = 4;
      let seq = 0;
      const attack = async (): Promise<void> => {
        const client = new WebSocket(url, { headers: { authorization }, perMessageDeflate: false });
        onTestFinished(() => client.terminate());
        await once(client, "open");
        const ask = async (type: string, payload: unknown): Promise<void> => {
          const heard = once(client, "message");
          client.send(pack(tree({ type, payload, seq: ++seq, timestamp: 1.5 })));
          await heard;
        };
        await ask("hello", { harness_version: "0.8.0", protocol_version: 1, benchmark });
        const front = { __image__: true, format: "png", data: file, shape: [6000, 6000, 3] };
        for (let i = 0; i < BOMBS; i++) await ask("observation", { images: { front }, task_description: "pick" });
        client.close();
      };
      await served(5, attack());
      const { begun, left } = pictureTurns.figures;
      expect(begun - before.begun + left - before.left).toBeLessThanOrEqual(2 * goodActs + BOMBS);
    },
    120_000,
  );
});

/** A black picture of 36 megapixels, in about 100 kB. */
const bomb = (): Promise<Buffer> =>
  sharp({ create: { width: 6000, height: 6000, channels: 3, background: "#000" } })
    .png()
    .toBuffer();
