/** The part of a gRPC server that the reference provider needs, on node:http2: no compression, reflection or interceptors. */
import {
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo } from "node:net";
import { after } from "../clock.ts";
import { frameMessage, MessageReader } from "../codecs/grpc.ts";

/** gRPC status codes. */
export const Status = {
  ok: 0,
  invalidArgument: 3,
  deadlineExceeded: 4,
  resourceExhausted: 8,
  unimplemented: 12,
  internal: 13,
} as const;

/** Ends a call with this status; the client receives the text. */
export class StatusError extends Error {
  override readonly name = "StatusError";
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** The limits of one client's concurrent calls and message size. */
const MAX_STREAMS = 256;
const MAX_MESSAGE_BYTES = 64 * 2 ** 20;

/** One request, any number of responses. The signal is aborted when the client leaves or its deadline passes. */
export interface StreamMethod {
  readonly kind: "stream";
  answer(request: Buffer, signal: AbortSignal): AsyncIterable<Uint8Array>;
}

/** A stream of requests and responses. `open` receives a response writer and returns the request handler; `signal` as above. */
export interface BidiMethod {
  readonly kind: "bidi";
  open(answer: (message: Uint8Array) => void, signal: AbortSignal): (request: Buffer) => void;
}

/** A listening server. */
export interface GrpcServer {
  readonly port: number;
  /** Closes every connection at once. */
  close(): Promise<void>;
}

/** Serves methods by path, such as `/limber.policy.v1.PolicyService/Act`, in cleartext; port 0 selects a free one. */
export async function serveGrpc(
  methods: Readonly<Record<string, StreamMethod | BidiMethod>>,
  listen: { readonly host: string; readonly port: number },
): Promise<GrpcServer> {
  const sessions = new Set<ServerHttp2Session>();
  const server = createServer({
    settings: { maxConcurrentStreams: MAX_STREAMS, initialWindowSize: 4 * 2 ** 20 },
    maxSessionMemory: 256,
  });
  server.on("session", (session) => {
    sessions.add(session);
    session.setLocalWindowSize(32 * 2 ** 20);
    session.once("close", () => sessions.delete(session));
    session.on("error", () => undefined); // the client's connection broke: its streams are notified
  });
  server.on("stream", (stream, headers) => new Call(stream, headers).run(methods[headers[":path"] ?? ""]));
  await listening(server, listen);
  return {
    port: (server.address() as AddressInfo).port, // a TCP server's address is never a string
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const session of sessions) session.destroy();
      }),
  };
}

const listening = (server: Http2Server, { host, port }: { host: string; port: number }): Promise<void> =>
  new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, resolve);
  });

class Call {
  readonly #stream: ServerHttp2Stream;
  readonly #headers: IncomingHttpHeaders;
  readonly #controller = new AbortController();
  #trailers: OutgoingHttpHeaders = { "grpc-status": String(Status.ok) };

  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders) {
    this.#stream = stream;
    this.#headers = headers;
    const cancelTimeout = inTime(headers, () =>
      this.#end(new StatusError(Status.deadlineExceeded, "deadline exceeded")),
    );
    stream.on("error", () => undefined); // the client reset it: `close` follows
    stream.once("close", () => {
      cancelTimeout();
      this.#controller.abort();
    });
  }

  run(method: StreamMethod | BidiMethod | undefined): void {
    const isGrpc = this.#headers["content-type"]?.startsWith("application/grpc") === true;
    if (!isGrpc || this.#headers[":method"] !== "POST") {
      this.#stream.respond({ ":status": 415 }, { endStream: true });
      return;
    }
    if (method === undefined) {
      this.#end(new StatusError(Status.unimplemented, "unknown method"));
      return;
    }
    this.#stream.respond({ ":status": 200, "content-type": "application/grpc+proto" }, { waitForTrailers: true });
    this.#stream.once("wantTrailers", () => this.#stream.sendTrailers(this.#trailers));
    if (method.kind === "bidi") this.#converse(method);
    else this.#answer(method).catch((error: unknown) => this.#end(error));
  }

  async #answer(method: StreamMethod): Promise<void> {
    const requests: Buffer[] = [];
    const reader = readerFor((request) => requests.push(request));
    for await (const chunk of this.#stream.iterator({ destroyOnReturn: false })) reader.push(chunk);
    reader.end();
    const [request] = requests;
    if (request === undefined || requests.length > 1)
      throw new StatusError(Status.invalidArgument, "the request must be a single message");
    for await (const message of method.answer(request, this.#controller.signal)) {
      if (this.#stream.destroyed) return;
      if (!this.#stream.write(frameMessage(message))) await this.#drained();
    }
    this.#stream.end();
  }

  #converse(method: BidiMethod): void {
    const { signal } = this.#controller;
    const reader = readerFor(
      method.open((message) => {
        if (this.#stream.destroyed || this.#stream.writableEnded) return;
        // Stop reading a client that does not read its responses.
        if (!this.#stream.write(frameMessage(message))) this.#stream.pause();
      }, signal),
    );
    this.#stream.on("data", (chunk: Buffer) => {
      try {
        reader.push(chunk);
      } catch (error) {
        this.#end(error);
      }
    });
    this.#stream.on("drain", () => this.#stream.resume());
    this.#stream.on("end", () => this.#stream.end());
  }

  #drained(): Promise<void> {
    if (this.#stream.destroyed) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        this.#stream.off("drain", done).off("close", done);
        resolve();
      };
      this.#stream.on("drain", done).on("close", done);
    });
  }

  #end(error: unknown): void {
    if (this.#stream.destroyed || this.#stream.writableEnded) return;
    const status = error instanceof StatusError ? error.status : Status.internal;
    const message = error instanceof Error ? encodeURIComponent(error.message) : "";
    const trailers = { "grpc-status": String(status), "grpc-message": message };
    if (this.#stream.headersSent) {
      this.#trailers = trailers;
      this.#stream.end();
    } else {
      const headers = { ":status": 200, "content-type": "application/grpc+proto", ...trailers };
      this.#stream.respond(headers, { endStream: true });
    }
    this.#controller.abort();
  }
}

const readerFor = (deliver: (message: Buffer) => void): MessageReader =>
  new MessageReader(MAX_MESSAGE_BYTES, (message, compressed) => {
    if (compressed) throw new StatusError(Status.unimplemented, "messages must not be compressed");
    deliver(message);
  });

const UNIT_MS: Readonly<Record<string, number>> = { n: 1e-6, u: 1e-3, m: 1, S: 1e3, M: 6e4, H: 36e5 };

/** Calls `run` at the client's deadline, unless it is canceled or there is no deadline. */
function inTime(headers: IncomingHttpHeaders, run: () => void): () => void {
  const [, digits, unit] = /^(\d{1,8})([numSMH])$/.exec(String(headers["grpc-timeout"] ?? "")) ?? [];
  if (digits === undefined) return () => undefined;
  return after(Number(digits) * (UNIT_MS[unit ?? ""] ?? 1), run);
}
