import { once } from "node:events";
import { ServerResponse } from "node:http";
import { constants } from "node:http2";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { replaceAmbient } from "../../src/ambient.ts";
import { onePort, type PortHandler, type PortOptions } from "../../src/edge/port.ts";
import { ManualClock } from "../support/manual-clock.ts";
import {
  answersIn,
  endOf,
  FLAG,
  FRAME,
  fieldBlock,
  frame,
  framesIn,
  goawayIn,
  HELLO,
  openWire,
  PREFACE,
  request,
  selfSigned,
  uint32,
  type Wire,
  type WireOptions,
} from "../support/wire-client.ts";

const tls = selfSigned();
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** A port whose handler reads every body, says "ok" and keeps the paths it was called with. */
async function start(options: PortOptions = {}) {
  const paths: (string | undefined)[] = [];
  const handler: PortHandler = (request, response) => {
    paths.push(request.url);
    request.on("error", () => undefined).resume();
    request.once("end", () => response.end("ok"));
  };
  const port = await listen(handler, options);
  return { port, paths };
}

async function listen(handler: PortHandler, options: PortOptions): Promise<number> {
  const server = onePort(handler, options);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  cleanups.push(() => {
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    return closed;
  });
  return (server.address() as AddressInfo).port;
}

async function saying(port: number, bytes: string | Uint8Array, options: WireOptions = {}): Promise<Wire> {
  const wire = await openWire(port, options);
  cleanups.push(() => wire.socket.destroy());
  wire.send(bytes);
  return wire;
}

const GET = "GET /good HTTP/1.1\r\nHost: localhost\r\n\r\n";
const CHUNKED = "POST /bad HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
const get = (...lines: string[]): string => ["GET /bad HTTP/1.1", "Host: a", ...lines, "", ""].join("\r\n");
const post = (...lines: string[]): string => ["POST /bad HTTP/1.1", "Host: a", ...lines, "", "0", "", ""].join("\r\n");

/** A client of good manners on a connection of its own: each call is one request and its answer. */
async function goodClient(port: number): Promise<() => Promise<string>> {
  const wire = await saying(port, "");
  let asked = 0;
  return async () => {
    const nth = asked++;
    wire.send(GET);
    const answer = await wire.until((bytes) => (bytes.length > 0 ? answersIn(bytes)[nth] : undefined));
    return answer.body;
  };
}

describe("a head or body that two servers could read in two ways is refused, unrun, and the connection closed", () => {
  const long = "x".repeat(17_000);
  it.each<[string, number, string]>([
    ["two Hosts", 400, get("Host: b")],
    ["two equal Hosts", 400, get("host: a")],
    ["no Host", 400, "GET /bad HTTP/1.1\r\n\r\n"],
    ["a Host with a space", 400, "GET /bad HTTP/1.1\r\nHost: a b\r\n\r\n"],
    ["a Host that is a list", 400, "GET /bad HTTP/1.1\r\nHost: a, b\r\n\r\n"],
    ["a Host with a path", 400, "GET /bad HTTP/1.1\r\nHost: a/b\r\n\r\n"],
    ["a Host with user info", 400, "GET /bad HTTP/1.1\r\nHost: a@b\r\n\r\n"],
    ["two Hosts in HTTP/1.0", 400, "GET /bad HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"],
    ["a second Host behind a thousand headers", 400, get(...Array<string>(1100).fill("x:"), "Host: b")],
    ["Transfer-Encoding in HTTP/1.0", 400, post("Transfer-Encoding: chunked").replace("1.1", "1.0")],
    ["gzip before chunked", 501, post("Transfer-Encoding: gzip, chunked")],
    ["identity, then chunked", 501, post("Transfer-Encoding: identity", "Transfer-Encoding: chunked")],
    ["an empty coding before chunked", 501, post("Transfer-Encoding: ,chunked")],
    ["Chunked in another case", 501, post("Transfer-Encoding: Chunked")],
    ["gzip alone", 501, post("Transfer-Encoding: gzip")],
    ["identity alone", 501, post("Transfer-Encoding: identity")],
    ["chunked twice", 400, post("Transfer-Encoding: chunked, chunked")],
    ["chunked in two headers", 400, post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked")],
    ["chunked with a parameter", 501, post("Transfer-Encoding: chunked;a=b")],
    ["chunked in quotes", 501, post('Transfer-Encoding: "chunked"')],
    ["chunked after a vertical tab", 400, post("Transfer-Encoding: \x0bchunked")],
    ["chunked on a folded line", 400, post("Transfer-Encoding:", " chunked")],
    ["chunked with a space before the colon", 400, post("Transfer-Encoding : chunked")],
    ["an empty Transfer-Encoding", 400, post("Transfer-Encoding:")],
    ["an unknown coding", 501, post("Transfer-Encoding: xchunked")],
    ["a length before chunked", 400, post("Content-Length: 4", "Transfer-Encoding: chunked")],
    ["chunked before a length", 400, post("Transfer-Encoding: chunked", "Content-Length: 4")],
    ["two lengths", 400, post("Content-Length: 5", "Content-Length: 6")],
    ["two equal lengths", 400, post("Content-Length: 5", "Content-Length: 5")],
    ["a list of lengths", 400, post("Content-Length: 5, 5")],
    ["a signed length", 400, post("Content-Length: +5")],
    ["a negative length", 400, post("Content-Length: -5")],
    ["a hexadecimal length", 400, post("Content-Length: 0x5")],
    ["a length past every integer", 400, post("Content-Length: 99999999999999999999")],
    ["an empty length", 400, post("Content-Length:")],
    ["a folded length", 400, post("Content-Length:", " 5")],
    ["a folded header", 400, get("X: a", " b")],
    ["a header before the first one's name", 400, "GET /bad HTTP/1.1\r\n Host: a\r\n\r\n"],
    ["a header without a colon", 400, get("X")],
    ["a header without a name", 400, get(": x")],
    ["a NUL in a name", 400, get("X\0: a")],
    ["a NUL in a value", 400, get("X: a\0b")],
    ["a bare line feed after the request line", 400, "GET /bad HTTP/1.1\nHost: a\r\n\r\n"],
    ["a bare line feed after a header", 400, "GET /bad HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"],
    ["a bare carriage return", 400, "GET /bad HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"],
    ["a space in the target", 400, "GET /bad b HTTP/1.1\r\nHost: a\r\n\r\n"],
    ["a control character in the target", 400, "GET /bad\x01 HTTP/1.1\r\nHost: a\r\n\r\n"],
    ["an unknown method", 400, "GETT /bad HTTP/1.1\r\nHost: a\r\n\r\n"],
    ["a method of WebDAV", 501, "PROPFIND /bad HTTP/1.1\r\nHost: a\r\n\r\n"],
    ["a tunnel", 501, "CONNECT bad:1 HTTP/1.1\r\nHost: a\r\n\r\n"],
    ["RTSP", 501, "PLAY /bad RTSP/1.0\r\nHost: a\r\n\r\n"],
    ["HTTP/0.9", 505, "GET /bad HTTP/0.9\r\nHost: a\r\n\r\n"],
    ["HTTP/1.2", 505, "GET /bad HTTP/1.2\r\nHost: a\r\n\r\n"],
    ["HTTP/2.0 as text", 505, "GET /bad HTTP/2.0\r\nHost: a\r\n\r\n"],
    ["HTTP/3.0 as text", 505, "GET /bad HTTP/3.0\r\nHost: a\r\n\r\n"],
    ["a protocol in lower case", 400, "GET /bad http/1.1\r\nHost: a\r\n\r\n"],
    ["an HTTP/2 preface that goes wrong", 400, "PRI * HTTP/2.0\r\n\r\nNO\r\n\r\n"],
    ["an expectation other than 100-continue", 417, post("Expect: tea")],
    ["two Hosts of which 100-continue is expected", 400, post("Host: b", "Content-Length: 5", "Expect: 100-continue")],
    ["headers past the limit", 431, get(`X: ${long}`)],
    ["a target past the limit", 431, `GET /${long} HTTP/1.1\r\nHost: a\r\n\r\n`],
    ["a TLS greeting in cleartext", 400, "\x16\x03\x01\x00\x05hello"],
  ])("%s: %d", async (_name, status, bytes) => {
    const { port, paths } = await start();
    const wire = await saying(port, bytes);
    expect(answersIn(await wire.closed)).toMatchObject([{ status, headers: { connection: "close" } }]);
    expect(paths).toEqual([]);
  });

  it.each<[string, number, string]>([
    ["a chunk size in 0x", 400, `${CHUNKED}0x1\r\na\r\n0\r\n\r\n`],
    ["a chunk size with a space before", 400, `${CHUNKED} 1\r\na\r\n0\r\n\r\n`],
    ["a chunk size with a space behind", 400, `${CHUNKED}1 \r\na\r\n0\r\n\r\n`],
    ["a negative chunk size", 400, `${CHUNKED}-1\r\na\r\n0\r\n\r\n`],
    ["a chunk size past every integer", 400, `${CHUNKED}fffffffffffffffff\r\na\r\n0\r\n\r\n`],
    ["chunks that end in bare line feeds", 400, `${CHUNKED}1\na\n0\n\n`],
    ["a bare line feed in a chunk extension", 400, `${CHUNKED}1;a\nb\r\na\r\n0\r\n\r\n`],
    ["a chunk longer than its size", 400, `${CHUNKED}1\r\nab\r\n0\r\n\r\n`],
    ["a chunk without its end", 400, `${CHUNKED}1\r\na0\r\n\r\n`],
    ["a length in the trailers", 400, `${CHUNKED}0\r\nContent-Length: 5\r\n\r\n`],
    ["chunk extensions past the limit", 413, `${CHUNKED}1;${"x".repeat(17_000)}\r\na\r\n0\r\n\r\n`],
  ])("%s: %d", async (_name, status, bytes) => {
    const { port } = await start();
    const wire = await saying(port, bytes);
    expect(answersIn(await wire.closed)).toMatchObject([{ status, headers: { connection: "close" } }]);
  });
});

describe("sound requests pass the same checks", () => {
  it.each([
    ["HTTP/1.0 without Host", "GET /good HTTP/1.0\r\n\r\n"],
    ["a Host with a port", "GET /good HTTP/1.1\r\nHost: limber.dev:8080\r\n\r\n"],
    ["an IPv6 Host", "GET /good HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n"],
    ["an empty Host", "GET /good HTTP/1.1\r\nHost:\r\n\r\n"],
    ["a chunked body with trailers", CHUNKED.replace("/bad", "/good").concat("1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n")],
    ["a body in GET", "GET /good HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na"],
    ["an upgrade to h2c", "GET /good HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"],
    ["a head just under the limit", `GET /good HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(16_000)}\r\n\r\n`],
  ])("%s", async (_name, bytes) => {
    const { port, paths } = await start();
    const wire = await saying(port, bytes);
    const answer = await wire.until((got) => (got.length > 0 ? got.toString("latin1") : undefined));
    expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(paths).toEqual(["/good"]);
  });
});

describe("pipelined requests", () => {
  it.each([
    ["a head that the port refuses", get("Host: b")],
    ["a head that cannot be parsed", "NONSENSE\r\n\r\n"],
    ["a tunnel", "CONNECT bad:1 HTTP/1.1\r\nHost: a\r\n\r\n"],
  ])("none runs behind %s, and those before it are answered first", async (_name, bad) => {
    const { port, paths } = await start();
    const wire = await saying(port, `${GET}${bad}${GET}${GET}`);
    expect(answersIn(await wire.closed).map(({ status }) => status)).toEqual([
      200,
      bad.startsWith("CONNECT") ? 501 : 400,
    ]);
    expect(paths).toEqual(["/good"]);
  });

  it("a refused answer never overtakes one that its client still waits for", async () => {
    const ends: (() => unknown)[] = [];
    const port = await listen((_request, response) => void ends.push(() => response.end("slow")), {});
    const wire = await saying(port, GET);
    await expect.poll(() => ends.length).toBe(1);
    wire.send(get("Host: b"));
    wire.send("NONSENSE\r\n\r\n");
    const good = await goodClient(port);
    const later = good();
    await expect.poll(() => ends.length).toBe(2);
    expect(wire.received()).toHaveLength(0);
    for (const end of ends) end();
    expect(answersIn(await wire.closed)).toMatchObject([{ status: 200, body: "slow" }, { status: 400 }]);
    expect(await later).toBe("slow");
  });

  it("a body that breaks after its answer began ends the connection without a second answer", async () => {
    const port = await listen((_request, response) => {
      if (response instanceof ServerResponse) response.write("begun");
    }, {});
    const wire = await saying(port, CHUNKED);
    await wire.until((bytes) => (bytes.includes("begun") ? "begun" : undefined));
    wire.send("nonsense\r\n");
    expect((await wire.closed).toString().match(/HTTP\/1\.1/g)).toHaveLength(1);
  });
});

describe("a refusal", () => {
  it("is the house's JSON, with a request id in body and header, and nothing of Node's", async () => {
    const { port } = await start({
      refusal: (status, code, message, requestId) => JSON.stringify({ status, code, message, requestId }),
    });
    const [answer] = answersIn(await (await saying(port, "NONSENSE\r\n\r\n")).closed);
    const requestId = answer?.headers["x-request-id"];
    expect(requestId).toMatch(/^req_/i);
    expect(JSON.parse(answer?.body ?? "")).toEqual({
      status: 400,
      code: "malformed_request",
      message: "The bytes received are not a valid HTTP/1.1 request.",
      requestId: expect.stringMatching(new RegExp(`^${requestId}$`, "i")),
    });
    expect(answer?.headers["content-type"]).toBe("application/json; charset=utf-8");
  });

  it.each([
    ["what the parser refuses", "POST / HTTP/1.1\r\nHost : a\r\nContent-Length: 4000000\r\n\r\n"],
    ["what the port refuses", "POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 4000000\r\n\r\n"],
  ])("reaches a client that is still sending %s, and no reset with it", async (_name, head) => {
    const { port } = await start();
    const wire = await saying(port, head);
    await wire.until((bytes) => (bytes.length > 0 ? answersIn(bytes)[0] : undefined));
    wire.send("x".repeat(4_000_000));
    expect(answersIn(await wire.closed)).toMatchObject([{ status: 400 }]);
    expect(wire.broken()).toBeUndefined();
  });

  it("of a tunnel survives a client that resets its connection", async () => {
    const ends: (() => unknown)[] = [];
    const port = await listen((_request, response) => void ends.push(() => response.end("ok")), {});
    const wire = await saying(port, `${GET}CONNECT bad:1 HTTP/1.1\r\nHost: a\r\n\r\n`);
    await expect.poll(() => ends.length).toBe(1);
    wire.socket.resetAndDestroy();
    const good = (await goodClient(port))();
    await expect.poll(() => ends.length).toBe(2);
    for (const end of ends) end();
    expect(await good).toBe("ok");
  });

  it("is made under TLS too", async () => {
    const { port } = await start({ tls });
    const wire = await saying(port, get("Host: b"), { alpn: ["http/1.1"] });
    expect(answersIn(await wire.closed)).toMatchObject([{ status: 400 }]);
  });
});

describe("slow clients", () => {
  const soon = { headersTimeoutMs: 200, requestTimeoutMs: 200, lingerMs: 100 };

  it.each<[string, string | Uint8Array, WireOptions & PortOptions]>([
    ["nothing at all", "", {}],
    ["nothing at all under TLS", "", { tls, alpn: ["http/1.1"] }],
    ["nothing at all after choosing HTTP/2 under TLS", "", { tls, alpn: ["h2"] }],
    ["no TLS greeting", "", { tls }],
    ["half a preface", PREFACE.subarray(0, 12), {}],
    ["a preface and no settings", PREFACE, {}],
    ["a preface and half of its settings", HELLO.subarray(0, -4), {}],
  ])("one that says %s is closed", async (_name, bytes, { alpn, ...options }) => {
    const { port } = await start({ ...soon, ...options });
    const wire = await saying(port, bytes, alpn ? { alpn } : {});
    expect((await wire.closed).includes("200 OK")).toBe(false);
  });

  it.each([
    ["part of a head", "GET / HTTP/1.1\r\nHost: loc", 408],
    ["one letter that could begin a preface", "P", undefined],
    ["part of its second head", `${GET}GET / HT`, 408],
    ["part of a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", 408],
  ])("one that says %s is told so and closed", async (_name, bytes, status) => {
    const { port } = await start(soon);
    const wire = await saying(port, bytes);
    const got = await wire.closed;
    expect(got.length > 0 ? answersIn(got).at(-1)?.status : undefined).toBe(status);
  });

  it("one that has greeted is not held to the time for greeting", async () => {
    const { port } = await start({ headersTimeoutMs: 100 });
    const http1 = await saying(port, GET);
    const http2 = await saying(port, Buffer.concat([HELLO, request(1, "/good"), frame(FRAME.settings, FLAG.ack, 0)]));
    await http1.until((bytes) => (bytes.length > 0 ? answersIn(bytes)[0] : undefined));
    await http2.until((bytes) => endOf(bytes, 1));
    const silent = await saying(port, "");
    await silent.closed;
    http1.send(GET);
    http2.send(request(3, "/good"));
    expect(await http1.until((bytes) => answersIn(bytes)[1])).toMatchObject({ status: 200 });
    expect(await http2.until((bytes) => endOf(bytes, 3))).toMatchObject({ type: FRAME.data });
  });

  it("three hundred that dribble their heads are closed while a good client is served", async () => {
    const { port, paths } = await start({ ...soon, headersTimeoutMs: 500 });
    const slow = await Promise.all(Array.from({ length: 300 }, () => saying(port, "GET /slow HTTP/1.1\r\n")));
    let open = slow.length;
    for (const wire of slow) void wire.closed.then(() => open--);
    const good = await goodClient(port);
    while (open > 0) {
      for (const wire of slow) if (!wire.socket.destroyed) wire.send("x");
      expect(await good()).toBe("ok");
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    const statuses = await Promise.all(slow.map(async (wire) => (await wire.closed).toString().slice(9, 12)));
    expect(new Set(statuses)).toEqual(new Set(["408"]));
    expect(new Set(paths)).toEqual(new Set(["/good"]));
  });
});

describe("an HTTP/2 session that costs more than it asks", () => {
  const CALM = constants.NGHTTP2_ENHANCE_YOUR_CALM;
  const HEADERS_ONLY = frame(FRAME.headers, FLAG.endStream, 1, fieldBlock({ ":method": "GET" }));
  const times = (count: number, make: (nth: number) => Buffer): Buffer =>
    Buffer.concat(Array.from({ length: count }, (_, i) => make(i)));
  const reset = (stream: number): Buffer => frame(FRAME.reset, 0, stream, uint32(constants.NGHTTP2_CANCEL));

  it.each<[string, number | undefined, Buffer]>([
    [
      "opens and resets streams",
      undefined,
      times(2000, (i) => Buffer.concat([request(2 * i + 1, "/"), reset(2 * i + 1)])),
    ],
    [
      "opens streams and makes us reset them",
      undefined,
      times(2000, (i) =>
        Buffer.concat([
          request(2 * i + 1, "/", { method: "POST", end: false, more: { "content-length": "1" } }),
          frame(FRAME.data, 0, 2 * i + 1, Buffer.from("two")),
        ]),
      ),
    ],
    ["pings without end", CALM, times(2000, () => frame(FRAME.ping, 0, 0, Buffer.alloc(8)))],
    ["sends settings without end", CALM, times(2000, () => frame(FRAME.settings, 0, 0))],
    [
      "continues its headers without end",
      undefined,
      Buffer.concat([HEADERS_ONLY, times(2000, () => frame(FRAME.continuation, 0, 1, fieldBlock({ x: "y" })))]),
    ],
    [
      "sends empty data without end",
      undefined,
      Buffer.concat([request(1, "/", { method: "POST", end: false }), times(3000, () => frame(FRAME.data, 0, 1))]),
    ],
    ["sends frames of no sense", undefined, frame(FRAME.data, 0, 0, Buffer.alloc(5))],
  ])("is closed when it %s, while a good client is served", async (_name, code, bytes) => {
    const { port } = await start();
    const good = await goodClient(port);
    expect(await good()).toBe("ok");
    const wire = await saying(port, Buffer.concat([HELLO, bytes]));
    let open = true;
    const goaway = wire.closed.then(goawayIn).finally(() => {
      open = false;
    });
    while (open) expect(await good()).toBe("ok");
    if (code !== undefined) expect(await goaway).toBe(code);
    expect(await good()).toBe("ok");
  });

  it("is stopped in the middle of a read that spends its budget of resets", async () => {
    const { port, paths } = await start({ patience: { burst: 50, perSecond: 1 } });
    const flood = times(500, (i) => Buffer.concat([request(2 * i + 1, "/"), reset(2 * i + 1)]));
    const wire = await saying(port, Buffer.concat([HELLO, flood]));
    const goaway = framesIn(await wire.closed).find(({ type }) => type === FRAME.goaway);
    expect(goaway?.payload.readUInt32BE(0)).toBeLessThanOrEqual(2 * 50 + 1);
    expect(paths).toEqual([]);
  });

  it("costs its address a wait before the next connection is heard, while those that are open are served", async () => {
    const clock = new ManualClock();
    cleanups.push(replaceAmbient({ clock }));
    const { port } = await start();
    const good = await goodClient(port);
    expect(await good()).toBe("ok");
    const flood = times(500, (i) => Buffer.concat([request(2 * i + 1, "/"), reset(2 * i + 1)]));
    await (await saying(port, Buffer.concat([HELLO, flood]))).closed;
    const next = await saying(port, GET);
    expect(await good()).toBe("ok");
    expect(await good()).toBe("ok");
    expect(next.received()).toHaveLength(0);
    await clock.advance(1_000);
    expect(await next.until((bytes) => (bytes.length > 0 ? answersIn(bytes)[0] : undefined))).toMatchObject({
      status: 200,
    });
    const later = await goodClient(port);
    expect(await later()).toBe("ok");
  });

  it("costs its address more than one wait: of several connections one is heard at a time", async () => {
    const clock = new ManualClock();
    cleanups.push(replaceAmbient({ clock }));
    const { port } = await start();
    const flood = times(500, (i) => Buffer.concat([request(2 * i + 1, "/"), reset(2 * i + 1)]));
    await (await saying(port, Buffer.concat([HELLO, flood]))).closed;
    const [first, second] = [await saying(port, GET), await saying(port, GET)];
    const answered = (wire: typeof first) =>
      wire.until((bytes) => (bytes.length > 0 ? answersIn(bytes)[0] : undefined));
    await clock.advance(1_000);
    expect(await answered(first)).toMatchObject({ status: 200 });
    expect(second.received()).toHaveLength(0);
    await clock.advance(100);
    expect(await answered(second)).toMatchObject({ status: 200 });
  });

  it("runs nothing for a stream that was reset in the read that opened it", async () => {
    const { port, paths } = await start();
    const good = await saying(port, Buffer.concat([HELLO, request(1, "/reset"), reset(1), request(3, "/kept")]));
    await good.until((bytes) => endOf(bytes, 3));
    expect(paths).toEqual(["/kept"]);
  });

  it("is left alone while its cancelled calls and pings stay within the budget", async () => {
    const { port } = await start({ patience: { burst: 100, perSecond: 1 } });
    const costly = times(40, (i) =>
      Buffer.concat([request(2 * i + 1, "/"), reset(2 * i + 1), frame(FRAME.ping, 0, 0, Buffer.alloc(8))]),
    );
    const wire = await saying(port, Buffer.concat([HELLO, costly, request(1001, "/")]));
    expect(await wire.until((bytes) => endOf(bytes, 1001))).toMatchObject({ type: FRAME.data });
    expect(goawayIn(wire.received())).toBeUndefined();
  });

  it("pays for its cancelled calls and its pings from one budget", async () => {
    const { port } = await start({ patience: { burst: 100, perSecond: 1 } });
    const costly = times(60, (i) =>
      Buffer.concat([request(2 * i + 1, "/"), reset(2 * i + 1), frame(FRAME.ping, 0, 0, Buffer.alloc(8))]),
    );
    const wire = await saying(port, Buffer.concat([HELLO, costly]));
    expect(goawayIn(await wire.closed)).toBe(CALM);
  });

  it("earns back what it may cost as time passes", async () => {
    let steady = 0;
    cleanups.push(replaceAmbient({ clock: { wall: () => 0, steady: () => steady, after: () => () => undefined } }));
    const { port } = await start({ patience: { burst: 10, perSecond: 10 } });
    const pings = times(9, () => frame(FRAME.ping, 0, 0, Buffer.alloc(8)));
    const pongs = (count: number) => (bytes: Buffer) =>
      framesIn(bytes).filter(({ type }) => type === FRAME.ping)[count - 1];
    const wire = await saying(port, Buffer.concat([HELLO, pings]));
    await wire.until(pongs(9));
    steady += 1000;
    wire.send(pings);
    await wire.until(pongs(18));
    wire.send(pings);
    expect(goawayIn(await wire.closed)).toBe(CALM);
  });

  it("has a stream with oversized headers refused and its others served", async () => {
    const { port, paths } = await start();
    const more = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`x-${i}`, "y".repeat(140)]));
    const wire = await saying(port, Buffer.concat([HELLO, request(1, "/big", { more }), request(3, "/small")]));
    await wire.until((bytes) => endOf(bytes, 3));
    const { payload } = await wire.until((bytes) => endOf(bytes, 1));
    expect(JSON.parse(payload.toString())).toMatchObject({ error: { status: 431, code: "headers_too_large" } });
    expect(paths).toEqual(["/small"]);
  });

  it("has the streams past its limit refused, for another try, and the others served", async () => {
    const ends: (() => unknown)[] = [];
    const port = await listen((_request, response) => void ends.push(() => response.end("ok")), {
      maxSessionStreams: 2,
    });
    const wire = await saying(port, Buffer.concat([HELLO, times(3, (i) => request(2 * i + 1, "/"))]));
    const refused = await wire.until((bytes) => endOf(bytes, 5));
    expect(refused).toMatchObject({ type: FRAME.reset, payload: uint32(constants.NGHTTP2_REFUSED_STREAM) });
    await expect.poll(() => ends.length).toBe(2);
    for (const end of ends) end();
    for (const stream of [1, 3])
      expect(await wire.until((bytes) => endOf(bytes, stream))).toMatchObject({ type: FRAME.data });
  });

  it("is closed when it never acknowledges our settings", async () => {
    const { port } = await start({ headersTimeoutMs: 100 });
    const wire = await saying(port, Buffer.concat([HELLO, request(1, "/")]));
    await wire.closed;
    expect(endOf(wire.received(), 1)).toMatchObject({ type: FRAME.data });
  });
});
