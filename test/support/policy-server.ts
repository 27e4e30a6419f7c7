/** A server of `limber.policy.v1` that does as it's told, on bare HTTP/2: the framing and the trailers are its own. */
import { createServer, type IncomingHttpHeaders, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  ActRequestSchema,
  ActResponseSchema,
  CallErrorCode,
  DescribeResponseSchema,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { type ActServer, type Behaviour, Behaviours, OVERSIZED_BYTES, type ReceivedAct } from "./act-server.ts";
import { listening } from "./listening.ts";

/** One stream of a call, in the server's hands. */
export interface Served {
  readonly stream: ServerHttp2Stream;
  readonly headers: IncomingHttpHeaders;
  /** Every message so far. */
  readonly messages: readonly Buffer[];
  /** Resolves when the client has sent all that it will. */
  readonly ended: Promise<void>;
  /** Writes one framed message. */
  send(message: Uint8Array): void;
  /** Ends with this gRPC status. */
  end(status?: number, message?: string): void;
}

/** How a server differs from a plain one. */
export interface PolicyOptions {
  /** Answers these methods, by name, instead of the server. */
  readonly methods?: Readonly<Record<string, (served: Served) => void | Promise<void>>>;
}

/** A server with what is particular to this wire. */
export interface PolicyServer extends ActServer {
  /** Every act's message as it came. */
  readonly requests: readonly Buffer[];
  /** Asks every client to make no new calls on its connection; resolves when all have read it. */
  goAway(): Promise<void>;
  /** Calls `listener` whenever a connection has ended. */
  onDisconnect(listener: () => void): void;
}

/** A message behind gRPC's prefix; `length` is what the prefix says. */
export function prefixed(message: Uint8Array, { length = message.length, flag = 0 } = {}): Buffer {
  const prefix = Buffer.alloc(5);
  prefix[0] = flag;
  prefix.writeUInt32BE(length, 1);
  return Buffer.concat([prefix, message]);
}

/** Starts a server on loopback. */
export async function startPolicyServer({ methods = {} }: PolicyOptions = {}): Promise<PolicyServer> {
  const behaviours = new Behaviours();
  const acts: ReceivedAct[] = [];
  const requests: Buffer[] = [];
  const counts = { connections: 0, cancelled: 0 };
  const sessions = new Set<ServerHttp2Session>();
  const onDisconnect: (() => void)[] = [];

  const serveAct = (served: Served): void => {
    const read = (message: Buffer): void => {
      const { callId, body } = fromBinary(ActRequestSchema, message);
      if (body.case === "cancel") counts.cancelled++;
      if (body.case !== "call") return;
      requests.push(message);
      const proprio = body.value.observations.at(-1)?.proprio ?? [];
      acts.push({ instruction: body.value.instruction, proprio, headers: served.headers });
      void act(behaviours.next(), callId, served);
    };
    follow(served, read);
  };

  const make = () => {
    const server = createServer();
    server.on("session", (session) => {
      sessions.add(session);
      session.once("close", () => sessions.delete(session));
    });
    return server.on("stream", (stream, headers) => {
      const method = headers[":path"]?.split("/").at(-1) ?? "";
      const served = serve(stream, headers);
      void (methods[method] ?? (method === "Act" ? serveAct : answerDescribe))(served);
    });
  };
  const { port, restart, close } = await listening(make, (socket) => {
    counts.connections++;
    socket.once("close", () => {
      for (const listener of onDisconnect) listener();
    });
  });
  return {
    endpoint: `grpc://127.0.0.1:${port}`,
    acts,
    requests,
    counts,
    behave: (...list) => behaviours.set(list),
    goAway: async () => {
      // Clients answer the ping after they have read what came before it.
      const read = [...sessions].map((session) => {
        session.goaway(0);
        return new Promise<void>((resolve) => session.ping(() => resolve()));
      });
      await Promise.all(read);
    },
    onDisconnect: (listener) => onDisconnect.push(listener),
    restart,
    close,
  };
}

function serve(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Served {
  const messages: Buffer[] = [];
  stream.on("error", () => undefined);
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  let trailers: Record<string, string> = { "grpc-status": "0" };
  stream.on("wantTrailers", () => stream.sendTrailers(trailers));
  let rest = Buffer.alloc(0);
  stream.on("data", (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const end = 5 + rest.readUInt32BE(1);
      messages.push(rest.subarray(5, end));
      rest = rest.subarray(end);
      stream.emit("grpc-message");
    }
  });
  return {
    stream,
    headers,
    messages,
    ended: new Promise((resolve) => stream.once("end", resolve)),
    send: (message) => void (stream.destroyed || stream.write(prefixed(message))),
    end: (status = 0, message = "") => {
      trailers = { "grpc-status": String(status), ...(message !== "" && { "grpc-message": message }) };
      stream.end();
    },
  };
}

function follow({ stream, messages }: Served, read: (message: Buffer) => void): void {
  let next = 0;
  stream.on("grpc-message", () => {
    while (next < messages.length) read(messages[next++]!);
  });
}

const answerDescribe = async ({ ended, send, end }: Served): Promise<void> => {
  await ended;
  send(toBinary(DescribeResponseSchema, create(DescribeResponseSchema, { models: [{ slug: "test/model" }] })));
  end();
};

async function act(behaviour: Behaviour, callId: number, { stream, send }: Served): Promise<void> {
  const answer = (steps: readonly (readonly number[])[]): Uint8Array =>
    response(callId, {
      case: "chunk",
      value: { steps: steps.map((values) => ({ values: [...values] })), gpuSeconds: 0.0025 },
    });
  switch (behaviour.kind) {
    case "steps":
      return send(answer(behaviour.steps));
    case "later":
      await behaviour.after;
      return send(answer(behaviour.steps));
    case "twice":
      send(answer(behaviour.steps));
      return send(answer(behaviour.steps.map((step) => step.map((value) => -value))));
    case "garbage":
      return send(Buffer.from("ffffffffff", "hex"));
    case "error":
      return send(
        response(callId, { case: "error", value: { code: CallErrorCode.INTERNAL, message: behaviour.text } }),
      );
    case "reset":
      stream.write(prefixed(Buffer.alloc(100), { length: 1_000 }));
      return stream.close(2); // INTERNAL_ERROR
    case "truncated":
      stream.end(prefixed(Buffer.alloc(100), { length: 1_000 }));
      return;
    case "oversized":
      stream.write(prefixed(Buffer.alloc(65_536), { length: OVERSIZED_BYTES }));
      return;
    case "silence":
      return;
    case "bomb":
      return send(Buffer.alloc(10_000, 0x0b)); // groups inside groups
    case "text":
      return send(Buffer.from("<html>200 OK</html>"));
    default:
      return send(answer([[1, 2]]).subarray(0, 9)); // a chunk that claims more than there is
  }
}

/** One answer on an act stream. */
export const response = (callId: number, body: MessageInitShape<typeof ActResponseSchema>["body"]): Uint8Array =>
  toBinary(ActResponseSchema, create(ActResponseSchema, { callId, ...(body !== undefined && { body }) }));
