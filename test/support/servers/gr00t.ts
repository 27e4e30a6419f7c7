/** An Isaac-GR00T server that does as it's told: ZMTP and npy by its own hand, nothing of the gateway's encoding. */
import { createServer, type Socket } from "node:net";
import { type ActServer, Behaviours, type Oddity, OVERSIZED_BYTES, type ReceivedAct } from "../act-server.ts";
import { listening } from "../listening.ts";
import { pack, unpack } from "../plain-msgpack.ts";

/** How a server differs from an N1.6 one without a token. */
export interface Gr00tOptions {
  /** Its generation; N1.6 unless said. */
  readonly generation?: "n1_5" | "n1_6" | "n1_7";
  /** The token that every message has to show. */
  readonly token?: string;
  /** The answer of `get_modality_config`. */
  readonly config?: Buffer;
  /** The parts of an answer, a column each; all columns under `base` when absent. */
  readonly parts?: readonly string[];
  /** Makes the steps of an answer from the message, whatever was told. */
  readonly policy?: (message: Map<string, unknown>) => Steps;
  /** Answers every endpoint, with whatever the message holds. */
  readonly open?: boolean;
}

type Steps = readonly (readonly number[])[];

/** A server with every message that came. */
export interface Gr00tServer extends ActServer {
  readonly messages: readonly Map<string, unknown>[];
  readonly raw: readonly Buffer[];
}

/** What `np.save` writes, version 1.0. */
export function npy(descr: string, shape: readonly number[], data: Buffer): Buffer {
  const tuple = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${tuple}), }`;
  const length = Math.ceil((10 + text.length + 1) / 64) * 64 - 10;
  const head = Buffer.from([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, length & 0xff, length >> 8]);
  return Buffer.concat([head, Buffer.from(text.padEnd(length - 1)), Buffer.from("\n"), data]);
}

const tagged = (file: Buffer): Map<string, unknown> =>
  new Map<string, unknown>([
    ["__ndarray_class__", true],
    ["as_npy", file],
  ]);

const floats = (steps: Steps): Buffer => Buffer.from(Float32Array.from(steps.flat()).buffer);
const width = (steps: Steps): number => steps[0]?.length ?? 0;

/** The answer with an action named `base`, as each generation writes it. */
const ANSWERS: Readonly<Record<string, (steps: Steps) => unknown>> = {
  n1_5: (steps) => new Map([["action.base", tagged(npy("<f4", [steps.length, width(steps)], floats(steps)))]]),
  n1_6: (steps) => [new Map([["base", tagged(npy("<f4", [1, steps.length, width(steps)], floats(steps)))]]), new Map()],
  n1_7: (steps) => [new Map([["base", numpy(steps)]]), new Map()],
};

/** As msgpack_numpy writes an array. */
const numpy = (steps: Steps): Map<unknown, unknown> =>
  new Map<unknown, unknown>([
    [Buffer.from("nd"), true],
    [Buffer.from("type"), "<f4"],
    [Buffer.from("kind"), Buffer.alloc(0)],
    [Buffer.from("shape"), [1, steps.length, width(steps)]],
    [Buffer.from("data"), floats(steps)],
  ]);

/** The columns of N1.7's answer under names of their own. */
const inParts = (parts: readonly string[]) => (steps: Steps) => [
  new Map(parts.map((part, column) => [part, numpy(steps.map((step) => [step[column] ?? 0]))])),
  new Map(),
];

const holding = (array: unknown): Buffer => pack([new Map([["base", array]]), new Map()]);

const ODD: Readonly<Record<Oddity, Buffer>> = {
  bomb: Buffer.alloc(10_000, 0x91),
  text: Buffer.from("<html>200 OK</html>"),
  batch: holding(tagged(npy("<f4", [2, 2, 2], Buffer.alloc(32)))),
  objects: holding(tagged(npy("|O", [1, 2, 2], Buffer.alloc(32)))),
  short: holding(tagged(npy("<f4", [1, 2, 2], Buffer.alloc(8)))),
};

function greeting(): Buffer {
  const bytes = Buffer.alloc(64);
  bytes.set([0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1]);
  bytes.write("NULL", 12);
  return bytes;
}

/** A command: its name, then the peer's kind. */
const READY = Buffer.from("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REP", "latin1");

/** A reply as REP sends it. */
function framed(body: Buffer, announced = body.length): Buffer {
  const head = Buffer.alloc(11);
  head.set([1, 0, 2]);
  head.writeBigUInt64BE(BigInt(announced), 3);
  return Buffer.concat([head, body]);
}

/** Starts a server on loopback. */
export async function startGr00tServer(options: Gr00tOptions = {}): Promise<Gr00tServer> {
  const answer = options.parts ? inParts(options.parts) : ANSWERS[options.generation ?? "n1_6"]!;
  const behaviours = new Behaviours();
  const acts: ReceivedAct[] = [];
  const messages: Map<string, unknown>[] = [];
  const raw: Buffer[] = [];
  const counts = { connections: 0, cancelled: 0 };

  const serve = (socket: Socket): void => {
    counts.connections++;
    let pending = 0;
    socket.once("close", () => {
      counts.cancelled += pending;
    });
    socket.write(greeting());
    let rest = Buffer.alloc(0);
    let greeted = false;
    socket.on("data", (chunk) => {
      rest = Buffer.concat([rest, chunk]);
      if (!greeted && rest.length >= 64) {
        greeted = true;
        rest = rest.subarray(64);
        socket.write(READY);
      }
      for (let frame = greeted ? frameIn(rest) : undefined; frame; frame = frameIn(rest)) {
        rest = rest.subarray(frame.end);
        if (frame.flags & 4 || frame.body.length === 0) continue; // a command, or the delimiter
        raw.push(frame.body);
        const message = unpack(frame.body) as Map<string, unknown>;
        messages.push(message);
        pending++;
        void reply(message, socket).then(() => pending--);
      }
    });
  };

  const reply = async (message: Map<string, unknown>, socket: Socket): Promise<void> => {
    const send = (value: unknown): void => void socket.write(framed(pack(value)));
    const endpoint = message.get("endpoint");
    const error = (text: string): void => send(new Map([["error", text]]));
    if (options.token !== undefined && message.get("api_token") !== options.token)
      return error("Unauthorized: Invalid API token");
    if (endpoint === "ping")
      return send(
        new Map([
          ["status", "ok"],
          ["message", "Server is running"],
        ]),
      );
    if (endpoint === "reset") return send(new Map());
    if (endpoint === "get_modality_config" && options.config) return void socket.write(framed(options.config));
    if (endpoint !== "get_action") return options.open ? send(new Map()) : error(`Unknown endpoint: ${endpoint}`);
    acts.push(readAct(message));
    if (options.policy) return send(answer(options.policy(message)));
    const behaviour = behaviours.next();
    switch (behaviour.kind) {
      case "steps":
        return send(answer(behaviour.steps));
      case "later":
        await behaviour.after;
        return send(answer(behaviour.steps));
      case "twice":
        socket.write(
          Buffer.concat([
            framed(pack(answer(behaviour.steps))),
            framed(pack(answer(behaviour.steps.map((step) => step.map((value) => -value))))),
          ]),
        );
        return;
      case "garbage":
        return void socket.write(framed(Buffer.from("c1ff00c1", "hex")));
      case "error":
        return error(behaviour.text);
      case "reset":
        return void socket.write(framed(Buffer.alloc(100), 1_000), () => socket.resetAndDestroy());
      case "truncated":
        return void socket.end(framed(Buffer.alloc(100), 1_000));
      case "oversized":
        return void socket.write(framed(Buffer.alloc(65_536), OVERSIZED_BYTES));
      case "silence":
        return new Promise(() => undefined);
      default:
        return void socket.write(framed(ODD[behaviour.kind]));
    }
  };

  const { port, restart, close } = await listening(() => createServer(serve));
  return {
    endpoint: `tcp://127.0.0.1:${port}`,
    acts,
    messages,
    raw,
    counts,
    behave: (...list) => behaviours.set(list),
    restart,
    close,
  };
}

function frameIn(bytes: Buffer): { flags: number; body: Buffer; end: number } | undefined {
  const flags = bytes[0] ?? 0;
  const head = flags & 2 ? 9 : 2;
  if (bytes.length < head) return undefined;
  const length = flags & 2 ? Number(bytes.readBigUInt64BE(1)) : bytes.readUInt8(1);
  if (bytes.length < head + length) return undefined;
  return { flags, body: bytes.subarray(head, head + length), end: head + length };
}

type Tree = Map<string, Tree>;

function readAct(message: Map<string, unknown>): ReceivedAct {
  const observation = (message as Tree).get("data")?.get("observation");
  const file = observation?.get("state")?.get("base")?.get("as_npy") as unknown as Buffer | undefined;
  const numbers = file === undefined ? [] : [...new Float32Array(new Uint8Array(file.subarray(-12)).buffer)];
  const text = observation?.get("language")?.values().next().value as unknown as string[][] | undefined;
  const token = message.get("api_token");
  const headers = token === undefined ? {} : { authorization: String(token) };
  return { instruction: text?.[0]?.[0] ?? "", proprio: numbers, headers };
}
