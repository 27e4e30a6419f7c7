/** Our own HTTP/2 against node's: calls of every shape, and all that a polite server may do. */
import {
  constants,
  createSecureServer,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type Settings,
} from "node:http2";
import type { AddressInfo } from "node:net";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { replaceAmbient } from "../../../src/ambient.ts";
import { type Field, packFields } from "../../../src/codecs/http2/hpack.ts";
import type { UpstreamFailure } from "../../../src/contracts/failure.ts";
import { guardedLookup } from "../../../src/upstream/guard.ts";
import { Connection } from "../../../src/upstream/http2/connection.ts";
import type { Fields } from "../../../src/upstream/http2/fields.ts";
import type { Stream, StreamHearer } from "../../../src/upstream/http2/stream.ts";
import { eventually } from "../../support/eventually.ts";
import { SERVER_HELLO, startBareServer } from "../../support/h2-server.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { nameOf } from "../../support/wire-calls.ts";
import { FRAME, frame, selfSigned, uint32 } from "../../support/wire-client.ts";
import { seeded } from "../../unit/codecs/fuzz.ts";

const lookup = guardedLookup({ allowPrivate: true });

let server: Http2Server;
let sessions: ServerHttp2Session[] = [];
let serve: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;
let connection: Connection;

async function listen(settings: Settings = {}): Promise<void> {
  server = createServer({ settings, maxHeaderListPairs: 2_000, maxSendHeaderBlockLength: 2 ** 20 });
  sessions = [];
  server.on("session", (session) => sessions.push(session));
  server.on("stream", (stream, headers) => {
    stream.on("error", () => undefined);
    serve(stream, headers);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  connection = connectTo((server.address() as AddressInfo).port);
}

const connectTo = (port: number): Connection =>
  new Connection({ url: new URL(`http://127.0.0.1:${port}`), lookup, authorization: undefined }, () => undefined);

beforeEach(() => {
  server = createServer();
});
afterEach(async () => {
  connection.close();
  for (const session of sessions) session.destroy();
  if (server.listening) await new Promise((resolve) => server.close(resolve));
});

/** Everything that came on one stream. */
class Heard {
  fields: Fields = {};
  after: Fields = {};
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

function open(path = "/", more: readonly Field[] = []): Heard {
  const heard = new Heard();
  const block = packFields([
    [":method", "POST"],
    [":scheme", "http"],
    [":authority", "test"],
    [":path", path],
    ...more,
  ]);
  heard.stream = connection.open(block, heard.hearer);
  return heard;
}

/** Sends back what comes, and says so at the end. */
function echo(stream: ServerHttp2Stream): void {
  stream.respond({ ":status": 200, "x-kind": "echo" }, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0", "x-last": "yes" }));
  stream.pipe(stream);
}

const noise = (bytes: number, seed = 1): Buffer => {
  const random = seeded(seed);
  return Buffer.from(Uint8Array.from({ length: bytes }, () => Math.floor(random() * 256)));
};

describe("a call", () => {
  it("of one message and one answer, of many and one, of one and many, and of many both ways", async () => {
    serve = echo;
    await listen();
    const shapes = [
      [noise(10)],
      [noise(10), noise(20_000, 2), noise(3, 3)],
      [noise(300_000)],
      Array.from({ length: 200 }, (_, i) => noise(i * 7, i)),
    ];
    for (const messages of shapes) {
      const heard = open();
      for (const message of messages.slice(0, -1)) heard.stream?.write(message);
      heard.stream?.end(messages.at(-1)!);
      await heard.closed;
      expect(heard.failure).toBeUndefined();
      expect(heard.fields).toMatchObject({ ":status": "200", "x-kind": "echo" });
      expect(heard.after).toEqual({ "grpc-status": "0", "x-last": "yes" });
      expect(heard.bytes.equals(Buffer.concat(messages))).toBe(true);
    }
    expect(sessions).toHaveLength(1);
  });

  it("hears answers while it still asks", async () => {
    serve = echo;
    await listen();
    const heard = open();
    for (let i = 0; i < 5; i++) {
      heard.stream?.write(Buffer.from([i]));
      await eventually(() => expect(heard.bytes.length).toBe(i + 1));
    }
    heard.stream?.end(Buffer.alloc(0));
    await heard.closed;
    expect([...heard.bytes]).toEqual([0, 1, 2, 3, 4]);
  });

  it("may be answered by trailers that stand alone, and by a head after interim ones", async () => {
    serve = (stream, headers) => {
      if (headers[":path"] === "/interim") stream.additionalHeaders({ ":status": 103, link: "</x>" });
      stream.respond({ ":status": 200, "grpc-status": "5" }, { endStream: true });
    };
    await listen();
    for (const path of ["/", "/interim"]) {
      const heard = open(path);
      heard.stream?.end(noise(5));
      await heard.closed;
      expect([heard.failure, heard.fields["grpc-status"]]).toEqual([undefined, "5"]);
    }
  });

  it("shares its connection with a thousand others, each with its own answer", async () => {
    serve = echo;
    await listen({ maxConcurrentStreams: 1_000 });
    const all = Array.from({ length: 1_000 }, (_, i) => {
      const heard = open();
      heard.stream?.end(noise(1 + (i % 50) * 40, i));
      return heard;
    });
    await Promise.all(all.map(({ closed }) => closed));
    all.forEach((heard, i) => {
      expect(heard.failure).toBeUndefined();
      expect(heard.bytes.equals(noise(1 + (i % 50) * 40, i))).toBe(true);
    });
    expect(sessions).toHaveLength(1);
  });

  it("waits for its turn where a server takes only so many at one time", async () => {
    let [now, most] = [0, 0];
    serve = (stream) => {
      most = Math.max(most, ++now);
      stream.once("close", () => now--);
      setImmediate(() => echo(stream));
    };
    await listen({ maxConcurrentStreams: 3 });
    const first = open();
    first.stream?.end(noise(1));
    await first.closed;
    const all = Array.from({ length: 40 }, () => open());
    for (const heard of all) heard.stream?.end(noise(100));
    all[20]?.stream?.cancel();
    await Promise.all(all.filter((_, i) => i !== 20).map(({ closed }) => closed));
    expect(all.map(({ failure }) => failure).filter(Boolean)).toEqual([]);
    expect(all[20]?.isClosed).toBe(false);
    expect(most).toBe(3);
  });

  it("that is cancelled is reset at the server, and hears nothing more", async () => {
    let code = 0;
    serve = (stream) => {
      stream.respond({ ":status": 200 });
      stream.write("x");
      stream.on("close", () => {
        code = stream.rstCode;
      });
    };
    await listen();
    const heard = open();
    await eventually(() => expect(heard.chunks).toHaveLength(1));
    heard.stream?.cancel();
    heard.stream?.write(noise(10));
    await eventually(() => expect(code).toBe(constants.NGHTTP2_CANCEL));
    expect(heard.isClosed).toBe(false);
  });

  it.each([
    [constants.NGHTTP2_INTERNAL_ERROR, "CONNECTION_LOST"],
    [constants.NGHTTP2_REFUSED_STREAM, "UPSTREAM_BUSY"],
    [constants.NGHTTP2_ENHANCE_YOUR_CALM, "UPSTREAM_BUSY"],
  ])("that the server resets with code %i fails with %s, after what had come", async (code, name) => {
    serve = (stream) => {
      stream.respond({ ":status": 200 }, { waitForTrailers: true });
      stream.write("abc");
      setImmediate(() => stream.close(code));
    };
    await listen();
    const heard = open();
    await heard.closed;
    expect([nameOf(heard.failure!), heard.bytes.toString()]).toEqual([name, "abc"]);
  });
});

describe("header fields", () => {
  it("come whole over many frames, both ways, and the table that both keep stays the same", async () => {
    serve = (stream, headers) => {
      const more = Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith("x-")));
      stream.respond({ ":status": 200, ...more }, { endStream: true });
    };
    await listen();
    for (let round = 0; round < 3; round++) {
      const more = Array.from({ length: 40 }, (_, i): Field => [`x-${i}`, `${round}-`.padEnd(1_000, "é~\u00ff z")]);
      const heard = open("/", more);
      await heard.closed;
      expect(heard.fields).toMatchObject(Object.fromEntries(more));
    }
  });

  it("of any kind come as node's server wrote them, in Huffman's code and from its table", async () => {
    const random = seeded(21);
    const upTo = (limit: number): number => Math.floor(random() * limit);
    // What node lets through in a value: tabs, and all that can be seen, and a byte of which Huffman's code is long.
    const letters = ["\t", ...Array.from({ length: 0x5f }, (_, i) => String.fromCharCode(0x20 + i))].concat(
      Array.from({ length: 0x80 }, (_, i) => String.fromCharCode(0x80 + i)),
    );
    const lists = Array.from({ length: 60 }, (_, round) =>
      Object.fromEntries(
        Array.from({ length: 1 + upTo(20) }, (_, i) => {
          const rare = letters[(round * 20 + i) % letters.length]!;
          const value = `${"a".repeat(40)}${rare}${Array.from({ length: upTo(5) }, () => letters[upTo(letters.length)]).join("")}a`;
          return [`x-${upTo(30)}`, value];
        }),
      ),
    );
    serve = (stream, headers) => {
      stream.respond({ ":status": 200, ...lists[Number(headers[":path"]!.slice(1))] }, { endStream: true });
    };
    await listen();
    for (let i = 0; i < lists.length; i++) {
      const heard = open(`/${i}`);
      await heard.closed;
      expect(heard.fields).toMatchObject(lists[i]!);
    }
  });

  it("are understood by a server that allows no table, and by one that changes its mind", async () => {
    const seen: (string | undefined)[] = [];
    serve = (stream, headers) => {
      seen.push(headers["x-a"] as string);
      echo(stream);
    };
    await listen({ headerTableSize: 0 });
    for (const size of [0, 65_536, 0, 100]) {
      sessions[0]?.settings({ headerTableSize: size });
      const heard = open("/", [["x-a", `v${size}`]]);
      heard.stream?.end(noise(1));
      await heard.closed;
      expect(heard.failure).toBeUndefined();
    }
    expect(seen).toEqual(["v0", "v65536", "v0", "v100"]);
  });
});

describe("flow control", () => {
  it("sends byte by byte to a server whose windows hold one byte", async () => {
    serve = echo;
    await listen({ initialWindowSize: 1 });
    const heard = open();
    heard.stream?.end(noise(1));
    await heard.closed; // its settings are known now
    const slow = open();
    slow.stream?.write(noise(150, 2));
    slow.stream?.end(noise(150, 3));
    await slow.closed;
    expect(slow.bytes.equals(Buffer.concat([noise(150, 2), noise(150, 3)]))).toBe(true);
  });

  it("follows windows that the server changes in mid-stream, below zero too", async () => {
    const bare = await startBareServer((heard, { type, flags, stream }, index) => {
      if (index === 0) heard.send(settings(4, 100), frame(FRAME.settings, 1, 0));
      if (type === FRAME.settings && (flags & 1) === 1 && index > 3) marks.push(sent());
      if (type === FRAME.headers) streams.push(stream);
    });
    const streams: number[] = [];
    const marks: number[] = [];
    const sent = (): number =>
      bare.connections[0]!.frames()
        .filter(({ type }) => type === FRAME.data)
        .reduce((sum, { payload }) => sum + payload.length, 0);
    connection = connectTo(Number(bare.url.port));
    const heard = open();
    heard.stream?.end(noise(1_000));
    await eventually(() => expect(sent()).toBe(1_000)); // what was sent before the settings came counts
    const second = open();
    second.stream?.write(noise(1_000));
    await eventually(() => expect(sent()).toBe(1_100));
    const [link] = bare.connections;
    link?.send(settings(4, 40)); // sixty below zero
    link?.send(frame(FRAME.windowUpdate, 0, 3, uint32(60)), frame(FRAME.ping, 0, 0, Buffer.alloc(8)));
    await eventually(() => expect(link?.frames().at(-1)?.type).toBe(FRAME.ping));
    expect(sent()).toBe(1_100);
    link?.send(frame(FRAME.windowUpdate, 0, 3, uint32(5)));
    await eventually(() => expect(sent()).toBe(1_105));
    link?.send(settings(4, 10_000));
    await eventually(() => expect(sent()).toBe(2_000));
    expect(streams).toEqual([1, 3]);
    await bare.close();
  });

  it("sends large messages in frames no larger than the server takes, and shares the way among streams", async () => {
    const largest: number[] = [];
    const order: number[] = [];
    const bare = await startBareServer((heard, { type, stream, payload }, index) => {
      if (index === 0) heard.send(Buffer.concat([settings(5, 20_000), settings(4, 2 ** 20)]));
      if (type !== FRAME.data) return;
      largest.push(payload.length);
      order.push(stream);
      heard.send(frame(FRAME.windowUpdate, 0, 0, uint32(payload.length)));
    });
    connection = connectTo(Number(bare.url.port));
    const probe = open();
    await eventually(() =>
      expect(bare.connections[0]?.frames().some(({ flags, type }) => type === FRAME.settings && flags === 1)).toBe(
        true,
      ),
    );
    const both = [open(), open()];
    for (const heard of both) heard.stream?.end(noise(400_000));
    await eventually(() => expect(largest.reduce((sum, bytes) => sum + bytes, 0)).toBe(800_000));
    expect(Math.max(...largest)).toBe(20_000);
    const turns = order.filter((stream, i) => stream !== order[i - 1]).length;
    expect(turns).toBeGreaterThan(10);
    probe.stream?.cancel();
    await bare.close();
  });

  it("lets a stalled reader hold its window and no more, while others go on", async () => {
    serve = (stream, headers) => {
      if (headers[":path"] !== "/much") return echo(stream);
      stream.respond({ ":status": 200 });
      const more = (): void => {
        if (!stream.destroyed) stream.write(Buffer.alloc(65_536), more);
      };
      more();
    };
    await listen();
    const stalled = open("/much");
    stalled.reads = false;
    await eventually(() => expect(stalled.bytes.length).toBe(2 ** 20));
    for (let i = 0; i < 3; i++) {
      const other = open();
      other.stream?.end(noise(2_000_000));
      await other.closed;
      expect(other.bytes.length).toBe(2_000_000);
    }
    expect(stalled.bytes.length).toBe(2 ** 20);
    stalled.stream?.release(2 ** 20);
    await eventually(() => expect(stalled.bytes.length).toBe(2 ** 21));
    stalled.stream?.cancel();
  });

  it("gives room back for padding", async () => {
    const bare = await startBareServer((heard, { type }, index) => {
      if (index === 0) heard.send(SERVER_HELLO);
      if (type !== FRAME.headers) return;
      heard.send(frame(FRAME.headers, 4, 1, Buffer.of(0x88)));
      const padded = frame(FRAME.data, 8, 1, Buffer.concat([Buffer.of(255), Buffer.alloc(256)]));
      for (let i = 0; i < 6_000; i++) heard.send(padded);
    });
    connection = connectTo(Number(bare.url.port));
    const heard = open();
    await eventually(() => expect(heard.bytes.length).toBe(6_000));
    await bare.close();
  });
});

const settings = (id: number, value: number): Buffer =>
  frame(FRAME.settings, 0, 0, Buffer.concat([Buffer.from([0, id]), uint32(value)]));

describe("a farewell", () => {
  it("lets the streams that the server heard of end, fails those that it didn't, and sends new ones elsewhere", async () => {
    let times = 0;
    const bare = await startBareServer((heard, { type, stream }, index) => {
      if (index === 0) heard.send(SERVER_HELLO);
      if (type !== FRAME.headers) return;
      if (++times === 2) heard.send(frame(FRAME.goaway, 0, 0, Buffer.concat([uint32(1), uint32(0)])));
      if (times > 2) heard.send(frame(FRAME.headers, 5, stream, Buffer.of(0x88)));
    });
    connection = connectTo(Number(bare.url.port));
    const [first, second] = [open(), open()];
    await second.closed;
    expect(nameOf(second.failure!)).toBe("UPSTREAM_BUSY");
    expect([first.isClosed, first.stream?.lasts]).toEqual([false, false]);
    const third = open();
    await third.closed;
    expect(third.failure).toBeUndefined();
    expect(bare.connections).toHaveLength(2);
    bare.connections[0]?.send(frame(FRAME.headers, 5, 1, Buffer.of(0x88)));
    await first.closed;
    expect(first.failure).toBeUndefined();
    await eventually(() => expect(bare.connections[0]?.socket.destroyed).toBe(true));
    await bare.close();
  });

  it.each([
    [2, "CONNECTION_LOST"],
    [11, "UPSTREAM_BUSY"],
  ])("with code %i fails all with %s", async (code, name) => {
    const bare = await startBareServer((heard, { type }, index) => {
      if (index === 0) heard.send(SERVER_HELLO);
      if (type === FRAME.headers) heard.send(frame(FRAME.goaway, 0, 0, Buffer.concat([uint32(1), uint32(code)])));
    });
    connection = connectTo(Number(bare.url.port));
    const heard = open();
    await heard.closed;
    expect(nameOf(heard.failure!)).toBe(name);
    await bare.close();
  });
});

describe("a connection", () => {
  it("says everything of one turn in one piece, be it of a hundred streams", async () => {
    const bare = await startBareServer(() => undefined);
    connection = connectTo(Number(bare.url.port));
    const all = Array.from({ length: 100 }, () => open());
    for (const heard of all) for (let i = 0; i < 3; i++) heard.stream?.write(noise(30));
    await eventually(() => expect(bare.connections[0]?.frames()).toHaveLength(2 + 100 * 4));
    expect(bare.connections[0]?.pieces).toBe(1);
    await bare.close();
  });

  it("answers signs of life, and asks for them", async () => {
    serve = echo;
    await listen();
    const heard = open();
    heard.stream?.write(noise(1));
    await eventually(() => expect(heard.bytes.length).toBe(1));
    await new Promise<void>((resolve, reject) => sessions[0]!.ping((error) => (error ? reject(error) : resolve())));
    const clock = new ManualClock();
    const restore = replaceAmbient({ clock });
    connection.proveLife();
    expect(clock.pending).toBe(1);
    await eventually(() => expect(clock.pending).toBe(0));
    restore();
    heard.stream?.cancel();
  });

  it("carries the same under TLS", async () => {
    const { key, cert } = selfSigned();
    const secure = createSecureServer({ key, cert }).on("stream", echo);
    await new Promise<void>((resolve) => secure.listen(0, "127.0.0.1", resolve));
    const before = getCACertificates("default");
    setDefaultCACertificates([...before, cert]);
    const url = new URL(`https://localhost:${(secure.address() as AddressInfo).port}`);
    connection = new Connection({ url, lookup, authorization: undefined }, () => undefined);
    const all = [1, 100, 100_000, 3_000_000].map((size) => ({ message: noise(size, size), heard: open() }));
    for (const { heard, message } of all) heard.stream?.end(message);
    for (const { heard, message } of all) {
      await heard.closed;
      expect([heard.failure, heard.bytes.equals(message)]).toEqual([undefined, true]);
    }
    setDefaultCACertificates(before);
    connection.close();
    await new Promise((resolve) => secure.close(resolve));
  });

  it("fails its streams when the server hangs up without a word", async () => {
    serve = () => sessions[0]?.socket.destroy();
    await listen();
    const heard = open();
    await heard.closed;
    expect(nameOf(heard.failure!)).toBe("CONNECTION_LOST");
  });
});
