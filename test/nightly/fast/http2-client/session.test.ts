/** Our own HTTP/2 against node's: calls of every shape, farewells, and a connection's life. */
import { constants, createSecureServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ClientConnection } from "../../../../src/fast/http2-client/connection.ts";
import { replaceAmbient } from "../../../support/ambient.ts";
import { eventually } from "../../../support/eventually.ts";
import { SERVER_HELLO, startBareServer } from "../../../support/h2-server.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { nameOf } from "../../../support/wire-calls.ts";
import { FRAME, frame, selfSigned, uint32 } from "../../../support/wire-client.ts";
import { beginEach, connectTo, echo, endEach, link, listen, lookup, noise, open } from "./caller.ts";

beforeEach(beginEach);
afterEach(endEach);

describe("a call", () => {
  it("of one message and one answer, of many and one, of one and many, and of many both ways", async () => {
    link.serve = echo;
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
    expect(link.sessions).toHaveLength(1);
  });

  it("hears answers while it still asks", async () => {
    link.serve = echo;
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
    link.serve = (stream, headers) => {
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
    link.serve = echo;
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
    expect(link.sessions).toHaveLength(1);
  });

  it("waits for its turn where a server takes only so many at one time", async () => {
    let [now, most] = [0, 0];
    link.serve = (stream) => {
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
    link.serve = (stream) => {
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
    link.serve = (stream) => {
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

describe("a farewell", () => {
  it("lets the streams that the server heard of end, fails those that it didn't, and sends new ones elsewhere", async () => {
    let times = 0;
    const bare = await startBareServer((heard, { type, stream }, index) => {
      if (index === 0) heard.send(SERVER_HELLO);
      if (type !== FRAME.headers) return;
      if (++times === 2) heard.send(frame(FRAME.goaway, 0, 0, Buffer.concat([uint32(1), uint32(0)])));
      if (times > 2) heard.send(frame(FRAME.headers, 5, stream, Buffer.of(0x88)));
    });
    link.connection = connectTo(Number(bare.url.port));
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
    link.connection = connectTo(Number(bare.url.port));
    const heard = open();
    await heard.closed;
    expect(nameOf(heard.failure!)).toBe(name);
    await bare.close();
  });
});

describe("a connection", () => {
  it("says everything of one turn in one piece, be it of a hundred streams", async () => {
    const bare = await startBareServer(() => undefined);
    link.connection = connectTo(Number(bare.url.port));
    const all = Array.from({ length: 100 }, () => open());
    for (const heard of all) for (let i = 0; i < 3; i++) heard.stream?.write(noise(30));
    await eventually(() => expect(bare.connections[0]?.frames()).toHaveLength(2 + 100 * 4));
    expect(bare.connections[0]?.pieces).toBe(1);
    await bare.close();
  });

  it("answers signs of life, and asks for them", async () => {
    link.serve = echo;
    await listen();
    const heard = open();
    heard.stream?.write(noise(1));
    await eventually(() => expect(heard.bytes.length).toBe(1));
    await new Promise<void>((resolve, reject) =>
      link.sessions[0]!.ping((error) => (error ? reject(error) : resolve())),
    );
    const clock = new ManualClock();
    const restore = replaceAmbient({ clock });
    link.connection?.proveLife();
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
    link.connection = new ClientConnection({ url, lookup, authorization: undefined }, () => undefined);
    const all = [1, 100, 100_000, 3_000_000].map((size) => ({ message: noise(size, size), heard: open() }));
    for (const { heard, message } of all) heard.stream?.end(message);
    for (const { heard, message } of all) {
      await heard.closed;
      expect([heard.failure, heard.bytes.equals(message)]).toEqual([undefined, true]);
    }
    setDefaultCACertificates(before);
    link.connection.close();
    await new Promise((resolve) => secure.close(resolve));
  });

  it("fails its streams when the server hangs up without a word", async () => {
    link.serve = () => link.sessions[0]?.socket.destroy();
    await listen();
    const heard = open();
    await heard.closed;
    expect(nameOf(heard.failure!)).toBe("CONNECTION_LOST");
  });
});
