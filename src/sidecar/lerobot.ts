/**
 * LeRobot's inference server, on the robot itself: its unmodified client gets the models of a gateway. It adds what that client's
 * protocol lacks, TLS and a key, so it listens on the robot alone. `pretrained_name_or_path` is the slug of a model, or an alias.
 * `LIMBER_URL=https://… LIMBER_KEY=lmb_sk_… npx limber lerobot --listen 127.0.0.1:8081 [--action-space joint_pos_7] [--preset name]
 * [--robot name]`
 * Source: huggingface/lerobot, src/lerobot/async_inference/policy_server.py.
 */
import { createServer, type Http2Session, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { after } from "../clock.ts";
import { addressUnder } from "../codecs/base-address.ts";
import { frameMessage, MessageReader } from "../codecs/grpc.ts";
import { encoded } from "../codecs/pictures/raw-pictures.ts";
import { isLerobotMessage } from "../codecs/python/lerobot.ts";
import { newId } from "../ids.ts";
import { LerobotClients, NotSetUp } from "./clients.ts";
import { type LerobotObservation, type LerobotSetup, readNumber, readPicture } from "./messages.ts";
import { readObservation, readSetup } from "./pickles.ts";
import { readObservation as readTensorObservation, readSetup as readTensorSetup } from "./tensors.ts";

/** What it serves, and for whom. */
export interface LerobotOptions {
  readonly host: string;
  /** 0 picks one. */
  readonly port: number;
  /** The gateway's address. */
  readonly gateway: string;
  readonly key: string;
  /** The model's first one when absent. */
  readonly actionSpace?: string | undefined;
  readonly preset?: string | undefined;
  /** The robot's name, by which it is stopped. */
  readonly robotId?: string | undefined;
  readonly log: (text: string) => void;
}

/** The server while it listens. */
export interface LerobotServer {
  readonly port: number;
  close(): Promise<void>;
}

/** How long an empty-handed client waits for actions, as LeRobot's own server has it. */
const POLL_MS = 2_000;
const MAX_MESSAGE_BYTES = 64 << 20;
/** The most bytes of one observation. */
const MOST_BYTES = 64 << 20;
const DEADLINE_MS = 10_000;
const TRANSFER_BEGIN = 1;
const TRANSFER_END = 3;

/** Listens. */
export async function serveLerobot(options: LerobotOptions): Promise<LerobotServer> {
  const clients = new LerobotClients<LerobotRobot>();
  const sessions = new Set<Http2Session>();
  const server = createServer({ settings: { initialWindowSize: 4 << 20 } });
  server.on("session", (session) => {
    sessions.add(session);
    clients.opened(session, new LerobotRobot(options, clients));
    session.on("error", () => undefined);
    session.once("close", () => sessions.delete(session));
  });
  server.on("stream", (stream, headers) => {
    stream.on("error", () => undefined);
    const robot = stream.session && clients.of(stream.session);
    if (robot) serve(stream, String(headers[":path"]), robot, options.log);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port, options.host, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port, // a TCP server's address is never a string
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const session of sessions) session.destroy();
      }),
  };
}

const EMPTY = Buffer.alloc(0);

/** gRPC's codes, none of which LeRobot's channel retries by itself: its client prints them with their message, and asks again. */
const Code = { INVALID_ARGUMENT: 3, RESOURCE_EXHAUSTED: 8, FAILED_PRECONDITION: 9 } as const;

/** The gateway answered no, or not at all. The message is for the person at the robot. */
class Refused extends Error {
  override readonly name = "Refused";
  readonly code: number;

  constructor(message: string, code: number) {
    super(message);
    this.code = code;
  }
}

const MOST_MESSAGE = 1_000;

/** Encodes a text for the trailer `grpc-message`, cut to `MOST_MESSAGE` characters. */
const grpcMessage = (text: string): string => encodeURI(text.slice(0, MOST_MESSAGE).toWellFormed());

/** The trailers of a call that failed. */
function trailersOf(thrown: unknown): Record<string, string> {
  const text = thrown instanceof Error ? thrown.message : String(thrown);
  if (thrown instanceof NotSetUp)
    return { "grpc-status": String(Code.FAILED_PRECONDITION), "grpc-message": grpcMessage(text) };
  if (thrown instanceof Refused) return { "grpc-status": String(thrown.code), "grpc-message": grpcMessage(text) };
  return {
    "grpc-status": String(Code.INVALID_ARGUMENT),
    "grpc-message": grpcMessage(`the message cannot be read: ${text}`),
  };
}

/** One call: its messages are gathered, then answered with one. A fault is logged, and is the status that LeRobot's client prints. */
function serve(stream: ServerHttp2Stream, path: string, robot: LerobotRobot, log: (text: string) => void): void {
  const method = METHODS[path.slice("/transport.AsyncInference/".length)];
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  let trailers: Record<string, string> = { "grpc-status": method ? "0" : "12" };
  stream.on("wantTrailers", () => stream.sendTrailers(trailers));
  if (!method) {
    stream.resume().end();
    return;
  }
  const messages: Buffer[] = [];
  let bytes = 0;
  const reader = new MessageReader(MAX_MESSAGE_BYTES, (message) => {
    bytes += message.length;
    if (bytes > MOST_BYTES) stream.close(8);
    else messages.push(message);
  });
  const fail = (thrown: unknown): void => {
    const text = thrown instanceof Error ? thrown.message : String(thrown);
    // Its client asks again and again.
    if (!(thrown instanceof NotSetUp) || thrown.isFirst) log(`${path}: ${text}`);
    trailers = trailersOf(thrown);
    if (!stream.destroyed) stream.end();
  };
  stream.on("data", (chunk: Buffer) => {
    try {
      reader.push(chunk);
    } catch (thrown) {
      fail(thrown);
    }
  });
  stream.on("end", () => {
    method(robot, messages, stream).then((answer) => {
      if (!stream.destroyed) stream.end(frameMessage(answer));
    }, fail);
  });
}

type LerobotMethod = (
  robot: LerobotRobot,
  messages: readonly Buffer[],
  stream: ServerHttp2Stream,
) => Promise<Uint8Array>;

const METHODS: Readonly<Record<string, LerobotMethod | undefined>> = {
  Ready: async (robot) => {
    robot.begin();
    return EMPTY;
  },
  SendPolicyInstructions: async (robot, [message = EMPTY]) => {
    await robot.setUp(setupIn(bytesIn(message, 1)));
    return EMPTY;
  },
  SendObservations: async (robot, messages) => {
    const seen = transfersIn(messages).map(observationIn);
    await robot.resume();
    for (const each of seen) robot.see(each);
    return EMPTY;
  },
  GetActions: async (robot, _, stream) => {
    await robot.resume();
    const actions = await robot.actions(() => stream.destroyed);
    return actions.length === 0 ? EMPTY : new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(actions).finish();
  },
};

/** LeRobot's clients write pickles, or JSON and safetensors. */
const setupIn = (bytes: Buffer): LerobotSetup => (isLerobotMessage(bytes) ? readTensorSetup : readSetup)(bytes);
const observationIn = (bytes: Buffer): LerobotObservation =>
  (isLerobotMessage(bytes) ? readTensorObservation : readObservation)(bytes);

/** A field of bytes. */
function bytesIn(message: Buffer, wanted: number): Buffer {
  const reader = new BinaryReader(message);
  let found: Uint8Array = EMPTY;
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (field === wanted && type === WireType.LengthDelimited) found = reader.bytes();
    else reader.skip(type, field);
  }
  return Buffer.from(found.buffer, found.byteOffset, found.length);
}

/** The pieces of each object put together: BEGIN drops what was gathered, END completes it. */
function transfersIn(messages: readonly Buffer[]): Buffer[] {
  const whole: Buffer[] = [];
  let pieces: Buffer[] = [];
  for (const message of messages) {
    const reader = new BinaryReader(message);
    let state = 0;
    while (reader.pos < reader.len) {
      const [field, type] = reader.tag();
      if (field === 1 && type === WireType.Varint) state = reader.int32();
      else reader.skip(type, field);
    }
    if (state === TRANSFER_BEGIN) pieces = [];
    pieces.push(bytesIn(message, 2));
    if (state !== TRANSFER_END) continue;
    whole.push(Buffer.concat(pieces));
    pieces = [];
  }
  return whole;
}

/** Pictures of the one robot that this runs on. */
const ROBOT = { key: "", robot: "" } as const;

/** One connection of a client: its setup, and the newest observation that was not answered. */
class LerobotRobot {
  readonly #options: LerobotOptions;
  readonly #clients: LerobotClients<LerobotRobot>;
  #setup: LerobotSetup | undefined;
  #actionSpace: string | undefined;
  #seen: LerobotObservation | undefined;
  readonly #session = newId("req");
  #episode = 1;
  #wake = (): void => {};

  #resuming: Promise<void> | undefined;

  constructor(options: LerobotOptions, clients: LerobotClients<LerobotRobot>) {
    this.#options = options;
    this.#clients = clients;
    this.#actionSpace = options.actionSpace;
  }

  get isSetUp(): boolean {
    return this.#setup !== undefined;
  }

  /**
   * Makes sure of a setup: gRPC opens a connection again by itself after a break, and the client goes on without another handshake. It gets the
   * setup of the connection that it lost, in a session of its own, so that no chunk of before is used. Rejects with NotSetUp.
   */
  async resume(): Promise<void> {
    if (this.#setup) return;
    this.#resuming ??= this.#takeOver().finally(() => {
      this.#resuming = undefined;
    });
    await this.#resuming;
  }

  async #takeOver(): Promise<void> {
    const lost = await this.#clients.lostBy(this);
    if (this.#setup) return; // by a handshake meanwhile
    this.#setup = lost.#setup;
    this.#actionSpace = lost.#actionSpace;
    const { log } = this.#options;
    log(`a client returned without a handshake and continues with ${lost.#setup?.model} in a new episode`);
  }

  begin(): void {
    this.#episode += 1;
    this.#seen = undefined;
  }

  async setUp(setup: LerobotSetup): Promise<void> {
    this.#setup = setup;
    this.#clients.supersede(this);
    if (this.#options.actionSpace !== undefined || this.#options.preset !== undefined) return;
    try {
      const body = await this.#ask(`/v1/models/${setup.model.split(":")[0]}`);
      this.#actionSpace = (body as { action_spaces?: string[] }).action_spaces?.[0];
    } catch (thrown) {
      // Aliases are no models, and the first act says what else is wrong.
      if (!(thrown instanceof Refused)) throw thrown;
      this.#options.log(thrown.message);
    }
  }

  see(seen: LerobotObservation): void {
    this.#seen = seen;
    this.#wake();
  }

  /** Actions for the newest observation; empty when none came in time. Rejects with Refused where the gateway has none for it. */
  async actions(gone: () => boolean): Promise<Buffer> {
    if (!this.#seen) await this.#observation();
    const [setup, seen] = [this.#setup, this.#seen];
    // A client that has left takes no observation from the one that comes after it.
    if (!setup || !seen || gone()) return EMPTY;
    this.#seen = undefined;
    const body = await this.#ask("/v1/act", await this.#request(setup, seen), (text) => inOwnNames(text, setup));
    const { steps, dt_ms } = (body as { action: { steps: number[][]; dt_ms: number } }).action;
    return setup.actions(seen, steps.slice(0, setup.chunk), dt_ms);
  }

  #observation(): Promise<void> {
    return new Promise((resolve) => {
      const forget = after(POLL_MS, resolve);
      this.#wake = () => {
        forget();
        resolve();
      };
    });
  }

  async #request({ model, motors: names, cameras, chunk }: LerobotSetup, seen: LerobotObservation): Promise<object> {
    const { task } = seen;
    const proprio = names.map((name) => readNumber(seen, name));
    const frames = cameras.map(async (camera) => {
      const data = Buffer.from(await encoded(readPicture(seen, camera), camera, { asker: ROBOT })).toString("base64");
      return { camera, url: `data:image/png;base64,${data}` };
    });
    const { preset, robotId } = this.#options;
    return {
      model,
      instruction: task,
      // As LeRobot's own server cuts a chunk: the client names the most that it takes.
      horizon: Math.max(1, Math.min(256, chunk)),
      whole_chunk: true,
      observations: [{ frames: await Promise.all(frames), proprio, proprio_names: names }],
      episode: this.#episode,
      provider: { session_id: `lerobot ${this.#session}`, deadline_ms: DEADLINE_MS },
      ...(this.#actionSpace !== undefined && { action_space: this.#actionSpace }),
      ...(preset !== undefined && { preset }),
      ...(robotId !== undefined && { robot_id: robotId }),
    };
  }

  /** The answer of the gateway. Rejects with Refused, in words that `named` has put into the client's own names. */
  async #ask(path: string, body?: object, named = (text: string): string => text): Promise<unknown> {
    const { gateway, key } = this.#options;
    const response = await fetch(addressUnder(gateway, path), {
      method: body === undefined ? "GET" : "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      signal: AbortSignal.timeout(DEADLINE_MS + 1_000),
      ...(body !== undefined && { body: JSON.stringify(body) }),
    }).catch((thrown: unknown) => {
      const text = thrown instanceof Error ? thrown.message : String(thrown);
      throw new Refused(`the gateway cannot be reached: ${text}`, Code.FAILED_PRECONDITION);
    });
    const answer: unknown = await response.json().catch(() => undefined);
    if (response.ok && answer !== undefined) return answer;
    const { status } = response;
    const code = status === 429 || status === 503 ? Code.RESOURCE_EXHAUSTED : Code.FAILED_PRECONDITION;
    throw new Refused(named(`${path} answered ${status}: ${reasonIn(answer)}`), code);
  }
}

interface ErrorBody {
  readonly error?: { readonly code?: string; readonly message?: string; readonly request_id?: string };
}

/** The gateway's reason, in a line. */
function reasonIn(answer: unknown): string {
  const { code, message, request_id: id } = (answer as ErrorBody | undefined)?.error ?? {};
  return message === undefined ? "no reason" : `${code}: ${message} [${id}]`;
}

/** Paths of an act request, as refusals have them, in the names of the robot's own observation. */
function inOwnNames(text: string, { cameras }: LerobotSetup): string {
  return text
    .replace(/\bobservations\.0\.frames\.(\d+)(?:\.\w+)?/g, (path, place) => {
      const camera = cameras[Number(place)];
      return camera === undefined ? path : `observation.images.${camera}`;
    })
    .replaceAll("observations.0.frames", "observation.images")
    .replace(/\bobservations\.0\.proprio(?:_names)?\b/g, "observation.state")
    .replace(/\binstruction(?= is (?:missing|not read)\b)/g, "task");
}
