/** A model server over gRPC that does as it's told; what it reads and writes is given, message by message. */
import { createServer, type IncomingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import { type ActServer, Behaviours, type Oddity, OVERSIZED_BYTES, type ReceivedAct } from "../act-server.ts";
import { listening } from "../listening.ts";

type Steps = readonly (readonly number[])[];

/** What makes a server speak one wire. */
export interface GrpcSpeech {
  /** The method that answers acts, such as `ModelInfer`. */
  readonly method: string;
  /** Reads the messages of an act, with what was sent to it; undefined when there is none. */
  readonly read: (messages: readonly Buffer[], headers: IncomingHttpHeaders) => ReceivedAct | undefined;
  readonly answer: (steps: Steps, messages: readonly Buffer[]) => Buffer;
  readonly odd: Readonly<Record<Oddity, Buffer>>;
  /** The answer where there is no act; an empty message unless said. */
  readonly nothing?: Buffer;
  /** Other methods: what each answers, or throws a status. */
  readonly others: Readonly<Record<string, (messages: readonly Buffer[], headers: IncomingHttpHeaders) => Buffer>>;
}

/** A status that a method ends with. */
export class GrpcStatus extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** A server with the name of every method that was called. */
export interface GrpcActServer extends ActServer {
  readonly asked: readonly string[];
}

const prefixed = (message: Buffer, announced = message.length): Buffer => {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(announced, 1);
  return Buffer.concat([head, message]);
};

/** Starts a server on loopback. */
export async function startGrpcServer(speech: GrpcSpeech): Promise<GrpcActServer> {
  const behaviours = new Behaviours();
  const acts: ReceivedAct[] = [];
  const asked: string[] = [];
  const counts = { connections: 0, cancelled: 0 };

  const serve = async (stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<void> => {
    stream.on("error", () => undefined);
    let trailers: Record<string, string> = { "grpc-status": "0" };
    stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers(trailers));
    const fail = (status: number, message: string): void => {
      trailers = { "grpc-status": String(status), "grpc-message": encodeURIComponent(message) };
      stream.end();
    };
    let bytes = Buffer.alloc(0);
    for await (const chunk of stream) bytes = Buffer.concat([bytes, chunk as Buffer]);
    const messages: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += 5 + bytes.readUInt32BE(at + 1))
      messages.push(bytes.subarray(at + 5, at + 5 + bytes.readUInt32BE(at + 1)));
    const method = headers[":path"]?.split("/").at(-1) ?? "";
    asked.push(method);
    if (method !== speech.method) {
      try {
        const other = speech.others[method];
        if (other === undefined) return fail(12, "unknown method");
        stream.end(prefixed(other(messages, headers)));
      } catch (error) {
        fail(error instanceof GrpcStatus ? error.status : 2, String(error));
      }
      return;
    }
    const read = speech.read(messages, headers);
    if (read === undefined) return void stream.end(prefixed(speech.nothing ?? Buffer.alloc(0)));
    acts.push(read);
    let settled = false;
    stream.once("close", () => {
      if (!settled) counts.cancelled++;
    });
    const behaviour = behaviours.next();
    if (behaviour.kind === "silence") return;
    if (behaviour.kind === "later") await behaviour.after;
    settled = true;
    if (stream.destroyed) return;
    switch (behaviour.kind) {
      case "steps":
      case "later":
      case "twice": // a stream of its own has no later call to be mistaken for
        return void stream.end(prefixed(speech.answer(behaviour.steps, messages)));
      case "garbage":
        return void stream.end(prefixed(Buffer.from("ffffffffff", "hex")));
      case "error":
        return fail(2, behaviour.text);
      case "reset":
        stream.write(prefixed(Buffer.alloc(100), 1_000));
        return stream.close(2); // INTERNAL_ERROR
      case "truncated":
        return void stream.end(prefixed(Buffer.alloc(100), 1_000));
      case "oversized":
        return void stream.write(prefixed(Buffer.alloc(65_536), OVERSIZED_BYTES));
      default:
        return void stream.end(prefixed(speech.odd[behaviour.kind]));
    }
  };

  const make = () => {
    const server = createServer();
    return server.on("stream", (stream, headers) => void serve(stream, headers).catch(() => stream.destroy()));
  };
  const { port, restart, close } = await listening(make, () => counts.connections++);
  return {
    endpoint: `grpc://127.0.0.1:${port}`,
    acts,
    asked,
    counts,
    behave: (...list) => behaviours.set(list),
    restart,
    close,
  };
}

/** One field of bytes, as protobuf writes it. */
export function bytesField(field: number, value: Buffer | string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes]);
}

/** One field of a number, as protobuf writes it. */
export const numberField = (field: number, value: number): Buffer => Buffer.concat([varint(field << 3), varint(value)]);

/** A number below 2^31 in base 128. */
export function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128);
  return Buffer.from([...bytes, rest]);
}

/** The fields of bytes in a message, in order; others are left out. */
export function fieldsIn(message: Buffer): [number, Buffer][] {
  const fields: [number, Buffer][] = [];
  let at = 0;
  const next = (): number => {
    let [value, factor] = [0, 1];
    for (;;) {
      const byte = message[at++]!;
      value += (byte & 127) * factor;
      factor *= 128;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const tag = next();
    if ((tag & 7) === 0) next();
    else {
      const length = next();
      fields.push([tag >> 3, message.subarray(at, at + length)]);
      at += length;
    }
  }
  return fields;
}
