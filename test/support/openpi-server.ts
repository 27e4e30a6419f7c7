/** A server of the openpi wire that does as it's told. Its bytes are its own: nothing of the gateway's encoding is used. */
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import {
  type ActServer,
  type Behaviour,
  Behaviours,
  type Oddity,
  OVERSIZED_BYTES,
  type ReceivedAct,
} from "./act-server.ts";
import { listening } from "./listening.ts";
import { pack, unpack } from "./plain-msgpack.ts";

/** How a server differs from a plain one. */
export interface OpenpiOptions {
  /** The first frame of every connection; undefined sends none. */
  readonly metadata?: Buffer | undefined;
  /** Refuses the upgrade with this status. */
  readonly refuse?: number;
  /** Where a 3xx leads. */
  readonly location?: string;
  /** The status of `/healthz`. */
  readonly health?: number;
  /** Answers messages whose `endpoint` is `reset`; a text goes as a text. */
  readonly resetAnswer?: string | Buffer;
  /** Makes the answer of some steps to a message; openpi's own form by default. */
  readonly answer?: (steps: readonly (readonly number[])[], message: Buffer) => Buffer | string;
  /** Answers messages that are no acts, some with nothing; undefined for acts. `client` is the connection that they came on. */
  readonly aside?: (message: Buffer, client: WebSocket) => Buffer | "nothing" | undefined;
  /** Reads an act; openpi's own form by default. */
  readonly read?: (message: Buffer, headers: IncomingHttpHeaders) => ReceivedAct;
  /** Makes the answer that tells of an error; a text and the end of the connection by default. */
  readonly error?: (text: string, message: Buffer) => Buffer;
  /** The path of its health; `/healthz` by default. */
  readonly healthPath?: string;
}

/** A server with what is particular to this wire. */
export interface OpenpiServer extends ActServer {
  /** Every request as it came. */
  readonly requests: readonly Buffer[];
  /** The headers of every `GET /healthz`. */
  readonly healthChecks: readonly IncomingHttpHeaders[];
  /** How many connections there are. */
  open(): number;
}

/** The metadata of most openpi servers. */
const NO_METADATA = Buffer.from([0x80]);

/** An array as openpi-client packs it. */
export const ndarray = (dtype: string, shape: readonly number[], data: Buffer): Map<unknown, unknown> =>
  new Map<unknown, unknown>([
    [Buffer.from("__ndarray__"), true],
    [Buffer.from("data"), data],
    [Buffer.from("dtype"), dtype],
    [Buffer.from("shape"), shape],
  ]);

/** Rows of numbers as `<f4` of shape [T, D]. */
export function f4(
  steps: readonly (readonly number[])[],
  shape = [steps.length, steps[0]?.length ?? 0],
): Map<unknown, unknown> {
  return ndarray("<f4", shape, Buffer.from(Float32Array.from(steps.flat()).buffer));
}

/** openpi's answer. */
export const plainAnswer = (steps: readonly (readonly number[])[]): Buffer => {
  const timing = new Map([["infer_ms", 2.5]]);
  return pack(
    new Map<unknown, unknown>([
      ["actions", f4(steps)],
      ["server_timing", timing],
    ]),
  );
};

const TRACEBACK_CLOSE = "Internal server error. Traceback included in previous frame.";

/** Starts a server on loopback. */
export async function startOpenpiServer(options: OpenpiOptions = {}): Promise<OpenpiServer> {
  const metadata = "metadata" in options ? options.metadata : NO_METADATA;
  const answer = options.answer ?? plainAnswer;
  const behaviours = new Behaviours();
  const acts: ReceivedAct[] = [];
  const requests: Buffer[] = [];
  const healthChecks: IncomingHttpHeaders[] = [];
  const counts = { connections: 0, cancelled: 0 };
  const webSockets = new WebSocketServer({ noServer: true, perMessageDeflate: false });

  const serve = (client: WebSocket, socket: Socket, headers: IncomingHttpHeaders): void => {
    let pending = 0;
    client.on("error", () => undefined);
    client.on("close", () => {
      counts.cancelled += pending;
    });
    if (metadata !== undefined) client.send(metadata);
    client.on("message", (data) => {
      requests.push(data as Buffer);
      if (options.resetAnswer !== undefined && isReset(data as Buffer)) return client.send(options.resetAnswer);
      const aside = options.aside?.(data as Buffer, client);
      if (aside !== undefined) return aside === "nothing" ? undefined : client.send(aside);
      pending++;
      acts.push((options.read ?? readRequest)(data as Buffer, headers));
      const settled = act(behaviours.next(), { client, socket, message: data as Buffer }, { ...options, answer });
      void settled.then(() => pending--);
    });
  };

  const make = () => {
    const http = createServer((request, response) => {
      healthChecks.push(request.headers);
      if (request.url === (options.healthPath ?? "/healthz")) response.writeHead(options.health ?? 200).end("OK\n");
      else response.writeHead(426).end();
    });
    return http.on("upgrade", (request, socket: Socket, head) => {
      counts.connections++;
      if (options.refuse === undefined) {
        webSockets.handleUpgrade(request, socket, head, (client) => serve(client, socket, request.headers));
      } else {
        const location = options.location === undefined ? "" : `location: ${options.location}\r\n`;
        socket.end(`HTTP/1.1 ${options.refuse} No\r\n${location}content-length: 6\r\n\r\nsecret`);
      }
    });
  };
  const { port, restart, close } = await listening(make);
  return {
    endpoint: `ws://127.0.0.1:${port}/policy`,
    acts,
    requests,
    healthChecks,
    open: () => webSockets.clients.size,
    counts,
    behave: (...list) => behaviours.set(list),
    restart,
    close,
  };
}

/** Does it, and resolves when the act is settled; an act that's never answered never is. */
async function act(
  behaviour: Behaviour,
  { client, socket, message }: { client: WebSocket; socket: Socket; message: Buffer },
  { answer, error }: Required<Pick<OpenpiOptions, "answer">> & Pick<OpenpiOptions, "error">,
): Promise<void> {
  switch (behaviour.kind) {
    case "steps":
      return client.send(answer(behaviour.steps, message));
    case "later":
      await behaviour.after;
      return client.send(answer(behaviour.steps, message));
    case "twice":
      client.send(answer(behaviour.steps, message));
      return client.send(
        answer(
          behaviour.steps.map((step) => step.map((value) => -value)),
          message,
        ),
      );
    case "garbage":
      return client.send(Buffer.from("c1ff00c1", "hex"));
    case "error":
      if (error) return client.send(error(behaviour.text, message));
      client.send(behaviour.text);
      return client.close(1011, TRACEBACK_CLOSE);
    case "reset":
      return void socket.write(frameHead(1_000, 100), () => socket.resetAndDestroy());
    case "truncated":
      return void socket.end(frameHead(1_000, 100));
    case "oversized":
      return void socket.write(frameHead(OVERSIZED_BYTES, 65_536));
    case "silence":
      return new Promise(() => undefined);
    case "text":
      return client.send("<html>200 OK</html>");
    default:
      return client.send(ODD[behaviour.kind]);
  }
}

const holding = (actions: unknown): Buffer => pack(new Map([["actions", actions]]));

/** One message each. */
const ODD: Readonly<Record<Exclude<Oddity, "text">, Buffer>> = {
  bomb: Buffer.alloc(10_000, 0x91),
  batch: holding(f4(Array(4).fill([1, 2]), [2, 2, 2])),
  objects: holding(ndarray("|O", [2, 2], Buffer.alloc(32))),
  short: holding(f4([[1, 2]], [2, 2])),
};

/** The head of an unmasked binary frame of `length` bytes, and the first `sent` of them. */
function frameHead(length: number, sent: number): Buffer {
  const head = Buffer.alloc(10 + sent);
  head[0] = 0x82;
  head[1] = 127;
  head.writeBigUInt64BE(BigInt(length), 2);
  return head;
}

const isReset = (bytes: Buffer): boolean => (unpack(bytes) as Map<string, unknown>).get("endpoint") === "reset";

function readRequest(bytes: Buffer, headers: IncomingHttpHeaders): ReceivedAct {
  const observation = unpack(bytes) as Map<string, unknown>;
  const state = observation.get("observation/state") as Map<string, unknown> | undefined;
  const data = state?.get("data") as Buffer | undefined;
  const proprio = data === undefined ? [] : [...new Float32Array(new Uint8Array(data).buffer)];
  return { instruction: String(observation.get("prompt")), proprio, headers };
}
