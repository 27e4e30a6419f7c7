/** Our own HTTP/2 as a test calls with it, and a server of node's to call. */
import {
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type Settings,
} from "node:http2";
import type { AddressInfo } from "node:net";
import type { UpstreamFailure } from "../../../../src/contracts/failure.ts";
import { ClientConnection } from "../../../../src/fast/http2-client/connection.ts";
import type { HeaderFields } from "../../../../src/fast/http2-client/fields.ts";
import type { Stream, StreamHearer } from "../../../../src/fast/http2-client/stream.ts";
import { type Field, packFields } from "../../../../src/fast/http2-frames/hpack.ts";
import { guardedLookup } from "../../../../src/upstream/transport/guard.ts";
import { FRAME, frame, uint32 } from "../../../support/wire-client.ts";
import { seeded } from "../../../unit/codecs/fuzz.ts";

export const lookup = guardedLookup({ allowPrivate: true });

/** The server of node's that a test talks to, and the connection to it. */
export const link: {
  sessions: ServerHttp2Session[];
  serve: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;
  connection: ClientConnection | undefined;
} = { sessions: [], serve: () => undefined, connection: undefined };
let server: Http2Server;

/** Listens, and makes the connection. */
export async function listen(settings: Settings = {}): Promise<void> {
  server = createServer({ settings, maxHeaderListPairs: 2_000, maxSendHeaderBlockLength: 2 ** 20 });
  link.sessions = [];
  server.on("session", (session) => link.sessions.push(session));
  server.on("stream", (stream, headers) => {
    stream.on("error", () => undefined);
    link.serve(stream, headers);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  link.connection = connectTo((server.address() as AddressInfo).port);
}

/** A connection to a server that a test has opened by itself. */
export const connectTo = (port: number): ClientConnection =>
  new ClientConnection({ url: new URL(`http://127.0.0.1:${port}`), lookup, authorization: undefined }, () => undefined);

/** What every test begins with. */
export function beginEach(): void {
  server = createServer();
}

/** What every test ends with. */
export async function endEach(): Promise<void> {
  link.connection?.close();
  for (const session of link.sessions) session.destroy();
  if (server.listening) await new Promise((resolve) => server.close(resolve));
}

/** Everything that came on one stream. */
export class Heard {
  fields: HeaderFields = {};
  after: HeaderFields = {};
  readonly chunks: Buffer[] = [];
  failure: UpstreamFailure | undefined;
  isClosed = false;
  /** Gives room back as it comes. */
  reads = true;
  stream: Stream | undefined;
  readonly #closed = Promise.withResolvers<void>();
  readonly closed = this.#closed.promise;

  readonly hearer: StreamHearer = {
    head: (fields) => {
      this.fields = fields;
    },
    data: (bytes) => {
      this.chunks.push(Buffer.from(bytes));
      if (this.reads) this.stream?.release(bytes.length);
    },
    trailers: (fields) => {
      this.after = fields;
    },
    closed: (failure) => {
      this.failure = failure;
      this.isClosed = true;
      this.#closed.resolve();
    },
  };

  get bytes(): Buffer {
    return Buffer.concat(this.chunks);
  }
}

/** Opens a stream. */
export function open(path = "/", more: readonly Field[] = []): Heard {
  const heard = new Heard();
  const block = packFields([
    [":method", "POST"],
    [":scheme", "http"],
    [":authority", "test"],
    [":path", path],
    ...more,
  ]);
  heard.stream = link.connection?.open(block, heard.hearer);
  return heard;
}

/** Sends back what comes, and says so at the end. */
export function echo(stream: ServerHttp2Stream): void {
  stream.respond({ ":status": 200, "x-kind": "echo" }, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0", "x-last": "yes" }));
  stream.pipe(stream);
}

/** Bytes of no sense, always the same. */
export const noise = (bytes: number, seed = 1): Buffer => {
  const random = seeded(seed);
  return Buffer.from(Uint8Array.from({ length: bytes }, () => Math.floor(random() * 256)));
};

/** A frame that sets one thing. */
export const settings = (id: number, value: number): Buffer =>
  frame(FRAME.settings, 0, 0, Buffer.concat([Buffer.from([0, id]), uint32(value)]));
