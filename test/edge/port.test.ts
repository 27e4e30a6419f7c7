/** One port for every protocol, in the clear and under TLS, and streams that are taken from it. */

import { once } from "node:events";
import type * as http from "node:http";
import * as http2 from "node:http2";
import type { AddressInfo } from "node:net";
import Fastify from "fastify";
import { afterEach, describe, expect, it } from "vitest";
import type { StreamServer } from "../../src/edge/server/http2.ts";
import { onePort, type PortHandler, type PortOptions } from "../../src/edge/server/port.ts";
import { answersIn, endOf, FRAME, framesIn, HELLO, request } from "../support/wire-client.ts";
import {
  bodyOf,
  cleanUp,
  cleanups,
  firstAnswer,
  GET,
  getHttp1,
  getHttp2,
  listen,
  saying,
  sayVersion,
  sessionTo,
  tls,
  wireTo,
} from "./port-wires.ts";

afterEach(cleanUp);

/** Takes streams for `/fast`. */
const takingFast = (serve: (stream: http2.ServerHttp2Stream) => void): StreamServer => ({
  take(stream, headers) {
    if (headers[":path"] !== "/fast") return false;
    serve(stream);
    return true;
  },
});

describe("one cleartext port", () => {
  it("answers HTTP/1.1 and HTTP/2 with prior knowledge", async () => {
    const { port } = await listen(sayVersion);
    expect(await getHttp1(`http://127.0.0.1:${port}`)).toBe("GET 1.1");
    expect(await getHttp2(sessionTo(`http://127.0.0.1:${port}`))).toBe("GET 2.0");
  });

  it("answers an upgrade to h2c as plain HTTP/1.1", async () => {
    const { port } = await listen(sayVersion);
    const wire = await wireTo(port);
    wire.send(
      GET.replace(
        "\r\n\r\n",
        "\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
      ),
    );
    expect(await wire.until(firstAnswer)).toMatchObject({ status: 200, body: "GET 1.1" });
  });

  it.each<[string, Buffer, (bytes: Buffer) => unknown]>([
    ["HTTP/2", Buffer.concat([HELLO, request(1, "/")]), (bytes: Buffer) => endOf(bytes, 1)],
    ["HTTP/1.1", Buffer.from(GET), firstAnswer],
    ["HTTP/1.1 with a method that starts like the preface", Buffer.from(GET.replace("GET", "POST")), firstAnswer],
  ])("accepts %s byte by byte", async (_name, bytes, answered) => {
    const { port } = await listen(sayVersion);
    const wire = await wireTo(port);
    wire.socket.setNoDelay(true);
    for (const byte of bytes) {
      wire.send(Buffer.of(byte));
      await new Promise(setImmediate);
    }
    expect(await wire.until(answered)).toBeDefined();
  });

  it("keeps an HTTP/1.1 connection for the next request", async () => {
    const { port } = await listen(sayVersion);
    const wire = await wireTo(port);
    wire.send(GET);
    await wire.until(firstAnswer);
    wire.send(GET);
    expect(await wire.until((bytes) => answersIn(bytes)[1])).toMatchObject({ status: 200, body: "GET 1.1" });
  });

  it("opens HTTP/2 sessions with wide windows and a bound on streams and headers", async () => {
    const { port } = await listen(sayVersion, { maxSessionStreams: 7 });
    const session = sessionTo(`http://127.0.0.1:${port}`);
    const [settings] = (await once(session, "remoteSettings")) as [http2.Settings];
    expect(settings).toMatchObject({ initialWindowSize: 1 << 20, maxConcurrentStreams: 7, maxHeaderListSize: 16384 });
    const wire = await wireTo(port);
    wire.send(HELLO);
    const update = await wire.until((bytes) => framesIn(bytes).find(({ type }) => type === FRAME.windowUpdate));
    expect(65_535 + update.payload.readUInt32BE(0)).toBe(8 << 20);
  });

  it("sends 100-continue for a valid request that waits for it", async () => {
    const { port } = await listen((request, response) => {
      request.resume().once("end", () => response.end("thanks"));
    });
    const wire = await wireTo(port);
    wire.send("POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    await wire.until((bytes) => bytes.toString() === "HTTP/1.1 100 Continue\r\n\r\n" || undefined);
    wire.send("x");
    expect(await wire.until((bytes) => (bytes.toString().endsWith("thanks") ? "both" : undefined))).toBe("both");
  });
});

describe("the same port under TLS", () => {
  it("negotiates HTTP/2 or HTTP/1.1 by ALPN, and HTTP/1.1 without ALPN", async () => {
    const { port } = await listen(sayVersion, { tls });
    expect(await getHttp1(`https://127.0.0.1:${port}`)).toBe("GET 1.1");
    expect(await getHttp2(sessionTo(`https://127.0.0.1:${port}`))).toBe("GET 2.0");
    const wire = await wireTo(port, { alpn: [] });
    wire.send(GET);
    expect(await wire.until(firstAnswer)).toMatchObject({ status: 200, body: "GET 1.1" });
  });

  it("answers no cleartext, and keeps serving", async () => {
    const { port } = await listen(sayVersion, { tls });
    const wire = await wireTo(port);
    wire.send(GET);
    expect((await wire.closed).toString("latin1")).not.toContain("HTTP");
    expect(await getHttp1(`https://127.0.0.1:${port}`)).toBe("GET 1.1");
  });
});

describe.each([
  ["cleartext", undefined],
  ["TLS", tls],
])("streams over %s", (_name, certificate) => {
  it("gives claimed streams to the claimant and others to the handler", async () => {
    const handled: (string | undefined)[] = [];
    const { port } = await listen(
      (request, response) => {
        handled.push(request.url);
        response.end("handler");
      },
      {
        ...(certificate && { tls: certificate }),
        streams: takingFast((stream) => {
          stream.respond({ ":status": 200 });
          stream.end("taken");
        }),
      },
    );
    const session = sessionTo(`${certificate ? "https" : "http"}://127.0.0.1:${port}`);
    expect(await getHttp2(session, "/fast")).toBe("taken");
    expect(await getHttp2(session, "/slow")).toBe("handler");
    expect(handled).toEqual(["/slow"]);
  });
});

it("survives a claimed stream that its client resets", async () => {
  let taken: http2.ServerHttp2Stream | undefined;
  let closed = 0;
  const { port } = await listen(sayVersion, {
    streams: takingFast((stream) => {
      taken = stream.on("close", () => closed++).resume();
    }),
  });
  const session = sessionTo(`http://127.0.0.1:${port}`);
  const stream = session.request({ ":path": "/fast" }, { endStream: false });
  stream.on("error", () => undefined);
  await expect.poll(() => taken).toBeDefined();
  stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
  await expect.poll(() => [taken?.destroyed, closed]).toEqual([true, 1]);
  expect(await getHttp2(session)).toBe("GET 2.0");
});

describe("under Fastify", () => {
  async function start(options: PortOptions = {}) {
    const app = Fastify({
      serverFactory: (handler) => onePort(handler as PortHandler, options) as http.Server,
      clientErrorHandler: () => undefined,
    });
    app.get("/version", (request) => ({ version: request.raw.httpVersion }));
    app.post("/echo", (request) => request.body);
    await app.listen({ port: 0, host: "127.0.0.1" });
    cleanups.push(() => app.close());
    return { app, port: (app.server.address() as AddressInfo).port };
  }

  it("serves routes and bodies on both protocols", async () => {
    const { port } = await start();
    expect(JSON.parse(await getHttp1(`http://127.0.0.1:${port}/version`))).toEqual({ version: "1.1" });
    const session = sessionTo(`http://127.0.0.1:${port}`);
    expect(JSON.parse(await getHttp2(session, "/version"))).toEqual({ version: "2.0" });
    const post = session.request({ ":method": "POST", ":path": "/echo", "content-type": "application/json" });
    post.end('{"a":[1]}');
    expect(JSON.parse(await bodyOf(post))).toEqual({ a: [1] });
  });

  it("answers malformed headers with the port's error only", async () => {
    const { port } = await start({ refusal: (_status, code) => JSON.stringify({ code }) });
    const wire = await saying(port, "NONSENSE\r\n\r\n");
    expect(answersIn(await wire.closed)).toMatchObject([{ status: 400, body: '{"code":"malformed_request"}' }]);
  });

  it("closes with a session open", async () => {
    const { app, port } = await start();
    const session = sessionTo(`http://127.0.0.1:${port}`);
    await getHttp2(session, "/version");
    await app.close();
    await expect.poll(() => session.closed).toBe(true);
  });
});
