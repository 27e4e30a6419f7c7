import { ServerResponse } from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import type { PortOptions } from "../../src/edge/server/port.ts";
import { setAmbient } from "../support/clocks.ts";
import { eventually } from "../support/eventually.ts";
import { ManualClock } from "../support/manual-clock.ts";
import {
  answersIn,
  endOf,
  FLAG,
  FRAME,
  frame,
  HELLO,
  PREFACE,
  request,
  type WireOptions,
} from "../support/wire-client.ts";
import { CHUNKED, GET, get, goodClient, listen, open, post, saying, start, tls } from "./port-caller.ts";

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
  ])("runs no request after %s, and answers those before it first", async (_name, bad) => {
    const { port, paths } = await start();
    const wire = await saying(port, `${GET}${bad}${GET}${GET}`);
    expect(answersIn(await wire.closed).map(({ status }) => status)).toEqual([
      200,
      bad.startsWith("CONNECT") ? 501 : 400,
    ]);
    expect(paths).toEqual(["/good"]);
  });

  it("a refusal never overtakes a pending answer", async () => {
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

  it("a body that breaks after its answer started closes the connection without a second answer", async () => {
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
  it("is the gateway's JSON with a request id in body and header", async () => {
    const { port } = await start({
      refusal: (status, code, message, requestId) => JSON.stringify({ status, code, message, requestId }),
    });
    const [answer] = answersIn(await (await saying(port, "NONSENSE\r\n\r\n")).closed);
    const requestId = answer?.headers["x-request-id"];
    expect(requestId).toMatch(/^req_/i);
    expect(JSON.parse(answer?.body ?? "")).toEqual({
      status: 400,
      code: "malformed_request",
      message: "the request is not valid HTTP/1.1",
      requestId: expect.stringMatching(new RegExp(`^${requestId}$`, "i")),
    });
    expect(answer?.headers["content-type"]).toBe("application/json; charset=utf-8");
  });

  it.each([
    ["what the parser refuses", "POST / HTTP/1.1\r\nHost : a\r\nContent-Length: 4000000\r\n\r\n"],
    ["what the port refuses", "POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 4000000\r\n\r\n"],
  ])("reaches a client that is still sending %s, without a reset", async (_name, head) => {
    const { port } = await start();
    const wire = await saying(port, head);
    await wire.until((bytes) => (bytes.length > 0 ? answersIn(bytes)[0] : undefined));
    wire.send("x".repeat(4_000_000));
    expect(answersIn(await wire.closed)).toMatchObject([{ status: 400 }]);
    expect(wire.broken()).toBeUndefined();
  });

  it("of a tunnel survives a connection reset", async () => {
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

  it("is the same under TLS", async () => {
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
  ])("a client that sends %s is disconnected", async (_name, bytes, { alpn, ...options }) => {
    const { port } = await start({ ...soon, ...options });
    const wire = await saying(port, bytes, alpn ? { alpn } : {});
    expect((await wire.closed).includes("200 OK")).toBe(false);
  });

  it.each([
    ["part of a head", "GET / HTTP/1.1\r\nHost: loc", 408],
    ["one letter that could begin a preface", "P", undefined],
    ["part of its second head", `${GET}GET / HT`, 408],
    ["part of a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", 408],
  ])("a client that sends %s gets an error and is disconnected", async (_name, bytes, status) => {
    const { port } = await start(soon);
    const wire = await saying(port, bytes);
    const got = await wire.closed;
    expect(got.length > 0 ? answersIn(got).at(-1)?.status : undefined).toBe(status);
  });

  it("a client that sent its preface is not subject to the preface timeout", async () => {
    const { port } = await start({ headersTimeoutMs: 500 });
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

  it("three hundred slow clients are closed while a good client is served", async () => {
    const { port, paths } = await start({ ...soon, headersTimeoutMs: 500 });
    const slow = await Promise.all(Array.from({ length: 300 }, () => saying(port, "GET /slow HTTP/1.1\r\n")));
    let open = slow.length;
    for (const wire of slow) void wire.closed.then(() => open--);
    const good = await goodClient(port);
    await eventually(async () => {
      for (const wire of slow) if (!wire.socket.destroyed) wire.send("x");
      expect(await good()).toBe("ok");
      expect(open).toBe(0);
    });
    const statuses = await Promise.all(slow.map(async (wire) => (await wire.closed).toString().slice(9, 12)));
    expect(new Set(statuses)).toEqual(new Set(["408"]));
    expect(new Set(paths)).toEqual(new Set(["/good"]));
  });
});

it("starts few of a thousand pipelined requests in one turn, and answers all in order", async () => {
  let begun = 0;
  let most = 0;
  const port = await listen((request, response) => {
    if (begun++ === 0) setImmediate(() => (begun = 0));
    most = Math.max(most, begun);
    response.end(request.url ?? "");
  }, {});
  const paths = Array.from({ length: 1_000 }, (_, i) => `/${i}`);
  const wire = await saying(port, paths.map((path) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`).join(""));
  const answers = await wire.until((bytes) => {
    const all = answersIn(bytes);
    return all.length === paths.length ? all : undefined;
  });
  expect(answers.map(({ body }) => body)).toEqual(paths);
  expect(most).toBeLessThanOrEqual(32);
});

describe("a connection whose requests arrive faster than they are answered", () => {
  const COUNT = 2_000;
  /** A kilobyte each, so that one read has few of them. */
  const padded = (...lines: string[]): string => get(`X-Pad: ${"a".repeat(1_000)}`, ...lines);

  it.each<[string, readonly string[]]>([
    ["requests", []],
    ["requests that wait for `100 Continue`", ["Expect: 100-continue"]],
  ])("with %s is read only as far as it is served, and gets every response", async (_name, lines) => {
    const held: ServerResponse[] = [];
    const { server, port } = await open((_, response) => void held.push(response as ServerResponse), {});
    let read = 0;
    server.on("request", () => read++).on("checkContinue", () => read++);
    const last = padded("Connection: close");
    const wire = await saying(port, padded() + padded(...lines).repeat(COUNT - 2) + last);
    await eventually(() => expect(read).toBeGreaterThan(64));
    for (let i = 0; i < 10; i++) await new Promise(setImmediate);
    expect(read).toBeLessThan(300);
    let isOpen = true;
    void wire.closed.then(() => {
      isOpen = false;
    });
    await eventually(() => {
      for (const response of held.splice(0)) response.end("ok");
      expect(isOpen).toBe(false);
    });
    const text = (await wire.closed).toString("latin1");
    expect(text.match(/HTTP\/1\.1 200 /g)).toHaveLength(COUNT);
  });

  it("is closed after too many tiny chunks", async () => {
    onTestFinished(setAmbient({ clock: new ManualClock() }));
    const { port } = await start();
    const wire = await saying(port, CHUNKED + "1\r\na\r\n".repeat(20_000));
    await wire.closed;
  });
});
