/** Robots that ask with pictures, over each wire that callers speak: each asks again as soon as it was answered. */
import { type ClientHttp2Stream, connect } from "node:http2";
import { connect as connectTcp, type Socket } from "node:net";
import { create, toBinary } from "@bufbuild/protobuf";
import { Pool } from "undici";
import { WebSocket } from "ws";
import { ActRequestSchema, ActStreamRequestSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage, MessageReader } from "../../../src/codecs/grpc.ts";
import { encodeGr00t } from "../../../src/codecs/python/gr00t.ts";
import type { Packable } from "../../../src/codecs/python/msgpack.ts";
import { encodeNumpy, NdArray } from "../../../src/codecs/python/ndarray.ts";
import { GREETING, READY, requestHead, ZmtpReader } from "../../../src/codecs/zmtp.ts";
import { GRPC_PATH } from "./act-call.ts";
import { CAMERAS, countedCopy, SIDE, type Stamped, shotsOf, stampedBytes, stampedText } from "./cameras.ts";
import type { Load } from "./load.ts";
import { LOOP_PATH } from "./loop-load.ts";

/** The wires that callers speak. */
export const CALLER_WIRES = ["REST", "gRPC", "loop", "openpi", "gr00t"] as const;
export type CallerWire = (typeof CALLER_WIRES)[number];

/** Robots on their connections, until they are closed. */
export interface Robots {
  /** So many calls, by all of them together. */
  load(calls: number): Promise<Load>;
  /** Each asks so many times a second, answered or not, for so long. What is not answered in time has failed. Loops alone. */
  paced?(hz: number, seconds: number): Promise<Load>;
  close(): Promise<void>;
}

const MODEL = "bench/instant";
const INSTRUCTION = "pick up the cup";
const PROPRIO = Array.from({ length: 14 }, (_, i) => i / 16);
/** Callers on one HTTP/2 connection. */
const ON_ONE = 4;
const MOST_ANSWER = 1 << 20;

/** One caller: resolves to whether it was answered well. */
interface Caller {
  ask(): Promise<boolean>;
  close(): unknown;
}

/** Where a program listens, and the key that it wants; "" for one that wants none. */
export interface Listens {
  readonly port: number;
  /** The port of GR00T's clients, where it is another. */
  readonly gr00tPort?: number;
  readonly key: string;
}

/** Opens `count` robots with so many pictures each. */
export async function robotsOf(wire: CallerWire, pictures: number, at: Listens, count: number): Promise<Robots> {
  const messages = await MESSAGES[wire](pictures, at.key);
  let next = 0;
  const message = (): Buffer => countedCopy(messages[next++ % messages.length]!);
  const callers = await CALLERS[wire](at, count, message);
  return {
    load: (calls) => closed(callers, calls),
    ...(wire === "loop" && { paced: (hz: number, seconds: number) => paced(callers as LoopCaller[], hz, seconds) }),
    async close() {
      for (const caller of callers) await caller.close();
    },
  };
}

async function closed(callers: readonly Caller[], calls: number): Promise<Load> {
  const load: Load = { answered: 0, failed: 0, latencies: [] };
  let left = calls;
  await Promise.all(
    callers.map(async (caller) => {
      while (left-- > 0) {
        const began = performance.now();
        if (await caller.ask()) {
          load.answered++;
          load.latencies.push(performance.now() - began);
        } else load.failed++;
      }
    }),
  );
  load.latencies.sort((a, b) => a - b);
  return load;
}

/** How long the last of paced messages may take. */
const LAST_MS = 500;

async function paced(callers: readonly LoopCaller[], hz: number, seconds: number): Promise<Load> {
  const period = 1000 / hz;
  const began = performance.now();
  const state = callers.map((caller, i) => ({
    caller,
    next: began + (i / callers.length) * period,
    left: hz * seconds,
  }));
  for (const { caller } of state) caller.latencies.length = 0;
  await new Promise<void>((resolve) => {
    const turn = (): void => {
      const now = performance.now();
      let open = 0;
      for (const each of state) {
        if (each.left > 0 && each.next <= now) {
          each.next += period;
          each.left -= 1;
          each.caller.send();
        }
        open += each.left;
      }
      if (open === 0) resolve();
      else setTimeout(turn, 1);
    };
    turn();
  });
  await new Promise((resolve) => setTimeout(resolve, LAST_MS));
  const latencies = callers.flatMap((caller) => caller.latencies).sort((a, b) => a - b);
  return { answered: latencies.length, failed: callers.length * hz * seconds - latencies.length, latencies };
}

// What is sent.

/** A message for each of the pictures that a camera has. */
async function each(pictures: number, make: (jpegs: Buffer[], pixels: Buffer[]) => Stamped): Promise<Stamped[]> {
  const films = await shotsOf(pictures);
  const count = films[0]?.length ?? 1;
  return Array.from({ length: count }, (_, i) => {
    const shots = films.map((film) => film[i]!);
    return make(
      shots.map(({ jpeg }) => jpeg),
      shots.map(({ pixels }) => pixels),
    );
  });
}

const framesOf = (jpegs: readonly Buffer[]) => jpegs.map((data, i) => ({ camera: CAMERAS[i]!, data }));

/** Raw pictures have no comment: their first pixels are counted in. */
function rawStamped(message: Buffer, pixels: readonly Buffer[]): Stamped {
  return { message, places: pixels.map((each) => message.indexOf(each)) };
}

const rest = (pictures: number): Promise<Stamped[]> =>
  each(pictures, (jpegs) => {
    const frames = jpegs.map((jpeg, i) => ({
      camera: CAMERAS[i],
      url: `data:image/jpeg;base64,${jpeg.toString("base64")}`,
    }));
    const observations = [{ frames, proprio: PROPRIO }];
    return stampedText(Buffer.from(JSON.stringify({ model: MODEL, instruction: INSTRUCTION, observations })));
  });

const grpc = (pictures: number): Promise<Stamped[]> =>
  each(pictures, (jpegs) => {
    const observations = [{ frames: framesOf(jpegs), proprio: PROPRIO }];
    const request = create(ActRequestSchema, { model: MODEL, instruction: INSTRUCTION, observations });
    return stampedBytes(frameMessage(toBinary(ActRequestSchema, request)));
  });

/** A step that takes four bytes as a varint, which is written over at every message. */
const FIRST_STEP = 2 ** 21;

const loop = (pictures: number): Promise<Stamped[]> =>
  each(pictures, (jpegs) => {
    const observations = [{ frames: framesOf(jpegs), proprio: PROPRIO }];
    const value = { step: FIRST_STEP, observations };
    const request = create(ActStreamRequestSchema, { message: { case: "observation", value } });
    return stampedBytes(frameMessage(toBinary(ActStreamRequestSchema, request)));
  });

const openpi = (pictures: number): Promise<Stamped[]> =>
  each(pictures, (_, pixels) => {
    const fields: Record<string, Packable<NdArray>> = { prompt: INSTRUCTION };
    for (const [i, data] of pixels.entries())
      fields[`observation/${CAMERAS[i]}`] = NdArray.uint8(data, [SIDE, SIDE, 3]);
    fields["observation/state"] = NdArray.float64(PROPRIO);
    return rawStamped(encodeNumpy(fields), pixels);
  });

const gr00t = (pictures: number, key: string): Promise<Stamped[]> =>
  each(pictures, (_, pixels) => {
    const video = Object.fromEntries(
      pixels.map((data, i) => [CAMERAS[i]!, NdArray.uint8(data, [1, 1, SIDE, SIDE, 3])] as const),
    );
    const state = { base: NdArray.float32(PROPRIO, [1, 1, PROPRIO.length]) };
    const observation = { video, state, language: { task: [[INSTRUCTION]] } };
    const token = key === "" ? {} : { api_token: key };
    const message = encodeGr00t({ endpoint: "get_action", ...token, data: { observation, options: null } });
    return rawStamped(message, pixels);
  });

const MESSAGES: Record<CallerWire, (pictures: number, key: string) => Promise<Stamped[]>> = {
  REST: rest,
  gRPC: grpc,
  loop,
  openpi,
  gr00t,
};

// Who sends it.

type Open = (at: Listens, count: number, message: () => Buffer) => Promise<Caller[]>;

const restCallers: Open = async ({ port, key }, count, message) => {
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections: count, pipelining: 1 });
  const headers = ["content-type", "application/json", "authorization", `Bearer ${key}`];
  const ask = (): Promise<boolean> =>
    new Promise((resolve) => {
      let status = 0;
      pool.dispatch(
        { method: "POST", path: "/v1/act", headers, body: message() },
        {
          onRequestStart() {},
          onResponseStart(_controller, code) {
            status = code;
          },
          onResponseData() {},
          onResponseEnd: () => resolve(status === 200),
          onResponseError: () => resolve(false),
        },
      );
    });
  return Array.from({ length: count }, (_, i) => ({ ask, close: () => (i === 0 ? pool.close() : undefined) }));
};

const headOf = (path: string, key: string) => ({
  ":method": "POST",
  ":path": path,
  "content-type": "application/grpc",
  te: "trailers",
  authorization: `Bearer ${key}`,
});

const sessionsOf = (port: number, count: number) =>
  Array.from({ length: Math.ceil(count / ON_ONE) }, () => {
    const session = connect(`http://127.0.0.1:${port}`, { settings: { initialWindowSize: 1 << 20 } });
    return session.on("error", () => undefined);
  });

const grpcCallers: Open = async ({ port, key }, count, message) => {
  const sessions = sessionsOf(port, count);
  return Array.from({ length: count }, (_, i) => {
    const session = sessions[i % sessions.length]!;
    const ask = (): Promise<boolean> => {
      const stream = session.request(headOf(GRPC_PATH, key));
      return new Promise((resolve) => {
        let ok = false;
        let bytes = 0;
        stream.on("response", (head) => (ok = head["grpc-status"] === undefined || head["grpc-status"] === "0"));
        stream.on("trailers", (trailers) => (ok = trailers["grpc-status"] === "0"));
        stream.on("data", (chunk: Buffer) => (bytes += chunk.length));
        stream.on("error", () => resolve(false));
        stream.on("close", () => resolve(ok && bytes > 0));
        stream.end(message());
      });
    };
    return { ask, close: () => session.destroy() };
  });
};

const openFrame = frameMessage(
  toBinary(
    ActStreamRequestSchema,
    create(ActStreamRequestSchema, {
      message: { case: "open", value: { model: MODEL, instruction: INSTRUCTION } },
    }),
  ),
);

/** A chunk is field 2 of an answer. */
const CHUNK = 0x12;
/** The step's tag, and its first value as a varint. */
const STEP = Buffer.from([0x08, 0x80, 0x80, 0x80, 0x01]);

/** A robot on a stream of its own. Answers come in the order of the questions; a hold answers one too, and is no success. */
class LoopCaller implements Caller {
  readonly latencies: number[] = [];
  readonly opened: Promise<void>;
  readonly #stream: ClientHttp2Stream;
  readonly #message: () => Buffer;
  readonly #asked: number[] = [];
  #step = 0;
  #told: (isChunk: boolean) => void = () => undefined;

  constructor(stream: ClientHttp2Stream, message: () => Buffer) {
    this.#stream = stream;
    this.#message = message;
    const opened = Promise.withResolvers<void>();
    this.opened = opened.promise;
    let isFirst = true;
    const reader = new MessageReader(MOST_ANSWER, (answer) => {
      if (isFirst) opened.resolve();
      else this.#hear(answer);
      isFirst = false;
    });
    stream.on("error", () => opened.reject(new Error("the loop's stream broke")));
    stream.on("data", (chunk: Buffer) => reader.push(chunk));
    stream.write(openFrame);
  }

  send(): void {
    const bytes = this.#message();
    const value = FIRST_STEP + ++this.#step;
    const at = bytes.indexOf(STEP) + 1;
    for (let i = 0; i < 4; i++) bytes[at + i] = ((value >> (7 * i)) & 0x7f) | (i < 3 ? 0x80 : 0);
    this.#asked.push(performance.now());
    this.#stream.write(bytes);
  }

  ask(): Promise<boolean> {
    return new Promise((resolve) => {
      this.#told = resolve;
      this.send();
    });
  }

  close(): void {
    this.#stream.session?.destroy();
  }

  #hear(answer: Buffer): void {
    const asked = this.#asked.shift();
    const isChunk = answer[0] === CHUNK;
    if (isChunk && asked !== undefined) this.latencies.push(performance.now() - asked);
    this.#told(isChunk);
  }
}

const loopCallers: Open = async ({ port, key }, count, message) => {
  const sessions = sessionsOf(port, count);
  const callers = Array.from({ length: count }, (_, i) => {
    const session = sessions[i % sessions.length]!;
    return new LoopCaller(session.request(headOf(LOOP_PATH, key)), message);
  });
  await Promise.all(callers.map(({ opened }) => opened));
  return callers;
};

const openpiCallers: Open = ({ port, key }, count, message) =>
  Promise.all(
    Array.from({ length: count }, async () => {
      const client = new WebSocket(`ws://127.0.0.1:${port}/v1/openpi/${MODEL}`, {
        perMessageDeflate: false,
        headers: { authorization: `Api-Key ${key}` },
      });
      let told: (isAnswer: boolean) => void = () => undefined;
      client.on("error", () => told(false));
      // A refusal is a text.
      await new Promise((resolve) => client.once("message", resolve));
      client.on("message", (_, isBinary) => told(isBinary));
      return {
        ask: () =>
          new Promise<boolean>((resolve) => {
            told = resolve;
            client.send(message());
          }),
        close: () => client.terminate(),
      };
    }),
  );

/** An answer that tells of an error is a map of one text. */
const isError = (answer: Buffer): boolean => answer.subarray(0, 8).includes("error");

const gr00tCallers: Open = ({ port, gr00tPort = port }, count, message) =>
  Promise.all(
    Array.from({ length: count }, async () => {
      const socket: Socket = connectTcp({ port: gr00tPort, host: "127.0.0.1", noDelay: true });
      let told: (isAnswer: boolean) => void = () => undefined;
      const ready = Promise.withResolvers<void>();
      const reader = new ZmtpReader(MOST_ANSWER, {
        onGreeting: () => void socket.write(READY),
        onCommand: () => ready.resolve(),
        onMessage: (answer) => told(!isError(answer)),
      });
      socket.on("error", () => told(false));
      socket.on("data", (chunk) => reader.push(chunk));
      socket.write(GREETING);
      await ready.promise;
      return {
        ask: () =>
          new Promise<boolean>((resolve) => {
            told = resolve;
            const body = message();
            socket.cork();
            socket.write(requestHead(body.length));
            socket.write(body);
            socket.uncork();
          }),
        close: () => socket.destroy(),
      };
    }),
  );

const CALLERS: Record<CallerWire, Open> = {
  REST: restCallers,
  gRPC: grpcCallers,
  loop: loopCallers,
  openpi: openpiCallers,
  gr00t: gr00tCallers,
};
