import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import * as https from "node:https";
import type { AddressInfo, Socket } from "node:net";
import Fastify from "fastify";
import { afterEach, describe, expect, it } from "vitest";
import { replaceAmbient } from "../../src/ambient.ts";
import { packFields } from "../../src/codecs/http2/hpack.ts";
import type { CallStream } from "../../src/edge/port/http2/call.ts";
import { onePort, type PortHandler, type PortOptions } from "../../src/edge/port.ts";
import {
  answersIn,
  endOf,
  FLAG,
  FRAME,
  framesIn,
  goawayIn,
  HELLO,
  openWire,
  PREFACE,
  request,
  selfSigned,
  uint32,
  type Wire,
} from "../support/wire-client.ts";
import { WAYS } from "./port-caller.ts";

const tls = selfSigned();
const ignore = (): void => undefined;
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const sayVersion: PortHandler = (request, response) => void response.end(`${request.method} ${request.httpVersion}`);

async function listen(handler: PortHandler, options: PortOptions = {}) {
  const server = onePort(handler, options);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const closed = (): Promise<void> => new Promise((resolve) => server.close(() => resolve()));
  cleanups.push(() => {
    const done = closed();
    server.closeAllConnections();
    return done;
  });
  return { server, port: (server.address() as AddressInfo).port, closed };
}

async function wireTo(port: number, options: Parameters<typeof openWire>[1] = {}): Promise<Wire> {
  const wire = await openWire(port, options);
  cleanups.push(() => wire.socket.destroy());
  return wire;
}

function sessionTo(url: string): http2.ClientHttp2Session {
  const session = http2.connect(url, { rejectUnauthorized: false });
  session.on("error", () => undefined);
  cleanups.push(() => session.destroy());
  return session;
}

async function bodyOf(stream: NodeJS.ReadableStream): Promise<string> {
  let body = "";
  for await (const chunk of stream) body += chunk;
  return body;
}

const getHttp2 = (session: http2.ClientHttp2Session, path = "/"): Promise<string> =>
  bodyOf(session.request({ ":path": path }));

async function getHttp1(url: string): Promise<string> {
  const options = { agent: false, rejectUnauthorized: false } as const;
  const call = url.startsWith("https:") ? https.get(url, options) : http.get(url, options);
  const [response] = (await once(call, "response")) as [http.IncomingMessage];
  return bodyOf(response);
}

const GET = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const firstAnswer = (bytes: Buffer) => (bytes.length > 0 ? answersIn(bytes)[0] : undefined);

/** A handler that holds every answer until told, and a wait for so many to be held. */
function holding() {
  const answers: (() => unknown)[] = [];
  const handler: PortHandler = (_request, response) => void answers.push(() => response.end("held"));
  const held = (count = 1) => expect.poll(() => answers.length, { interval: 5 }).toBe(count);
  const release = (): void => {
    for (const answer of answers.splice(0)) answer();
  };
  return { handler, held, release };
}

describe.each(WAYS)("one cleartext port, HTTP/2 %s,", (_way, way) => {
  it("answers HTTP/1.1 and HTTP/2 with prior knowledge", async () => {
    const { port } = await listen(sayVersion, way);
    expect(await getHttp1(`http://127.0.0.1:${port}`)).toBe("GET 1.1");
    expect(await getHttp2(sessionTo(`http://127.0.0.1:${port}`))).toBe("GET 2.0");
  });

  it("answers an upgrade to h2c as plain HTTP/1.1", async () => {
    const { port } = await listen(sayVersion, way);
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
  ])("understands %s that arrives byte by byte", async (_name, bytes, answered) => {
    const { port } = await listen(sayVersion, way);
    const wire = await wireTo(port);
    wire.socket.setNoDelay(true);
    for (const byte of bytes) {
      wire.send(Buffer.of(byte));
      await new Promise(setImmediate);
    }
    expect(await wire.until(answered)).toBeDefined();
  });

  it("keeps an HTTP/1.1 connection for the next request", async () => {
    const { port } = await listen(sayVersion, way);
    const wire = await wireTo(port);
    wire.send(GET);
    await wire.until(firstAnswer);
    wire.send(GET);
    expect(await wire.until((bytes) => answersIn(bytes)[1])).toMatchObject({ status: 200, body: "GET 1.1" });
  });

  it("opens HTTP/2 sessions with wide windows and a bound on streams and headers", async () => {
    const { port } = await listen(sayVersion, { ...way, maxSessionStreams: 7 });
    const session = sessionTo(`http://127.0.0.1:${port}`);
    const [settings] = (await once(session, "remoteSettings")) as [http2.Settings];
    expect(settings).toMatchObject({ initialWindowSize: 1 << 20, maxConcurrentStreams: 7, maxHeaderListSize: 16384 });
    const wire = await wireTo(port);
    wire.send(HELLO);
    const update = await wire.until((bytes) => framesIn(bytes).find(({ type }) => type === FRAME.windowUpdate));
    expect(65_535 + update.payload.readUInt32BE(0)).toBe(8 << 20);
  });

  it("asks for the body of a sound request that waits for 100-continue", async () => {
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

describe.each(WAYS)("the same port under TLS, HTTP/2 %s,", (_way, way) => {
  it("answers HTTP/2 and HTTP/1.1 as ALPN chooses, and HTTP/1.1 where the client offers nothing", async () => {
    const { port } = await listen(sayVersion, { ...way, tls });
    expect(await getHttp1(`https://127.0.0.1:${port}`)).toBe("GET 1.1");
    expect(await getHttp2(sessionTo(`https://127.0.0.1:${port}`))).toBe("GET 2.0");
    const wire = await wireTo(port, { alpn: [] });
    wire.send(GET);
    expect(await wire.until(firstAnswer)).toMatchObject({ status: 200, body: "GET 1.1" });
  });

  it("answers nothing to a client that speaks cleartext, and goes on serving", async () => {
    const { port } = await listen(sayVersion, { ...way, tls });
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
  it("gives taken streams to the taker alone and the others to the handler", async () => {
    const handled: (string | undefined)[] = [];
    const { port } = await listen(
      (request, response) => {
        handled.push(request.url);
        response.end("handler");
      },
      {
        ...(certificate && { tls: certificate }),
        findTaker: (head) =>
          head[":path"] !== "/fast"
            ? undefined
            : {
                endless: false,
                open(stream) {
                  stream.respond(packFields([[":status", "200"]]));
                  stream.write(Buffer.from("taken"));
                  stream.end(packFields([["x-end", "1"]]));
                  return { data: ignore, end: ignore, room: ignore, closed: ignore };
                },
              },
      },
    );
    const session = sessionTo(`${certificate ? "https" : "http"}://127.0.0.1:${port}`);
    expect(await getHttp2(session, "/fast")).toBe("taken");
    expect(await getHttp2(session, "/slow")).toBe("handler");
    expect(handled).toEqual(["/slow"]);
  });
});

it("survives a taken stream that its client resets with an error", async () => {
  let taken: CallStream | undefined;
  let closed = 0;
  const { port } = await listen(sayVersion, {
    findTaker: (head) =>
      head[":path"] !== "/fast"
        ? undefined
        : {
            endless: false,
            open(stream) {
              taken = stream;
              return { data: ignore, end: ignore, room: ignore, closed: () => closed++ };
            },
          },
  });
  const session = sessionTo(`http://127.0.0.1:${port}`);
  const stream = session.request({ ":path": "/fast" }, { endStream: false });
  stream.on("error", () => undefined);
  await expect.poll(() => taken).toBeDefined();
  stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
  await expect.poll(() => [taken?.isOpen, closed]).toEqual([false, 1]);
  expect(await getHttp2(session)).toBe("GET 2.0");
});

describe.each(WAYS)("close, HTTP/2 %s,", (_way, way) => {
  it("lets open HTTP/2 streams finish, and begins none that its GOAWAY has not named", async () => {
    const { handler, held, release } = holding();
    const { port, closed } = await listen(handler, way);
    const wire = await saying(port, Buffer.concat([HELLO, request(1, "/")]));
    await held();
    const done = closed();
    await wire.until(goawayIn);
    wire.send(request(3, "/"));
    release();
    const frames = framesIn(await wire.closed);
    const goaway = frames.find(({ type }) => type === FRAME.goaway)?.payload;
    expect(goaway).toEqual(Buffer.concat([uint32(1), uint32(http2.constants.NGHTTP2_NO_ERROR)]));
    expect(frames.findLast(({ stream }) => stream === 1)).toMatchObject({ type: FRAME.data, flags: FLAG.endStream });
    expect(frames.filter(({ stream }) => stream === 3)).toEqual([]);
    await done;
  });

  it("lets a running HTTP/1.1 request finish, tells its client that the connection ends, and takes no new one", async () => {
    const { handler, held, release } = holding();
    const { port, closed } = await listen(handler, way);
    const wire = await wireTo(port);
    wire.send(GET);
    await held();
    const done = closed();
    const late = await wireTo(port);
    release();
    const [answer] = answersIn(await wire.closed);
    expect(answer).toMatchObject({ status: 200, body: "held", headers: { connection: "close" } });
    expect(await late.closed).toHaveLength(0);
    await done;
  });

  it("ends a kept HTTP/1.1 connection after an answer that was already under way", async () => {
    const finish: (() => unknown)[] = [];
    const { port, closed } = await listen((_request, response) => {
      if (!(response instanceof http.ServerResponse)) return;
      response.writeHead(200, { "content-length": 4 });
      response.write("ha");
      finish.push(() => response.end("lf"));
    });
    const wire = await wireTo(port);
    wire.send(GET);
    await wire.until((bytes) => (bytes.toString().endsWith("ha") ? "begun" : undefined));
    const done = closed();
    for (const end of finish) end();
    expect(answersIn(await wire.closed)).toMatchObject([{ status: 200, body: "half" }]);
    await done;
  });

  it("serves a request whose head was arriving, and ends its connection", async () => {
    const { server, port, closed } = await listen(sayVersion, way);
    const wire = await answeredThenSaying(server, port, GET.slice(0, 20));
    const done = closed();
    wire.send(GET.slice(20));
    expect(answersIn(await wire.closed)).toMatchObject([
      { status: 200 },
      { status: 200, headers: { connection: "close" } },
    ]);
    await done;
  });

  const never = { headersTimeoutMs: 600_000, idleTimeoutMs: 600_000 };
  const soon = { headersTimeoutMs: 300 };
  it.each<[string, PortOptions, (server: http.Server, port: number) => Promise<unknown>]>([
    ["said nothing", never, (server, port) => heard(server, port, "")],
    ["began a preface", never, (server, port) => heard(server, port, PREFACE.subarray(0, 9))],
    ["began a head", soon, (server, port) => heard(server, port, GET.slice(0, 20))],
    ["began its second head", soon, (server, port) => answeredThenSaying(server, port, GET.slice(0, 20))],
    ["keeps an idle HTTP/1.1 connection", never, (server, port) => answeredThenSaying(server, port, "")],
    [
      "keeps an idle HTTP/2 session and its side of the connection",
      never,
      (server, port) => heard(server, port, HELLO),
    ],
    ["left with a stream unfinished", never, left],
  ])("is not held up by a client that %s", async (_name, limits, connect) => {
    const { server, port, closed } = await listen(answerGets, { ...way, ...limits, lingerMs: 100 });
    await connect(server, port);
    await closed();
  });

  it.each<[string, Uint8Array]>([
    ["keeps an idle HTTP/2 session and its side of the connection", HELLO],
    ["left with a stream unfinished", Buffer.concat([HELLO, request(1, "/", { method: "POST", end: false })])],
  ])("is not held up by a client that %s, under TLS", async (_name, bytes) => {
    const { port, closed } = await listen(() => undefined, { ...way, tls, lingerMs: 100 });
    const wire = await wireTo(port, { alpn: ["h2"], halfOpen: true });
    wire.send(bytes);
    await wire.until((got) => framesIn(got).find(({ type, flags }) => type === FRAME.settings && flags === FLAG.ack));
    if (bytes !== HELLO) wire.socket.end();
    await closed();
  });

  it("is ended by closeAllConnections whatever runs", async () => {
    const { handler, held } = holding();
    const { server, port, closed } = await listen(handler, way);
    const wires = [await saying(port, GET), await saying(port, Buffer.concat([HELLO, request(1, "/")]))];
    await held(2);
    const done = closed();
    server.closeAllConnections();
    await Promise.all([done, ...wires.map((wire) => wire.closed)]);
  });
});

const answerGets: PortHandler = (request, response) => void (request.method === "GET" && response.end());

async function saying(port: number, bytes: string | Uint8Array, halfOpen = false): Promise<Wire> {
  const wire = await wireTo(port, { halfOpen });
  wire.send(bytes);
  return wire;
}

/** Says `bytes`, never to end the connection by itself, and waits until the server has read them. */
async function heard(server: http.Server, port: number, bytes: string | Uint8Array): Promise<Wire> {
  const accepted = once(server, "connection");
  const wire = await saying(port, bytes, true);
  const [socket] = (await accepted) as [Socket];
  await expect.poll(() => socket.bytesRead).toBe(bytes.length);
  return wire;
}

async function answeredThenSaying(server: http.Server, port: number, bytes: string): Promise<Wire> {
  const accepted = once(server, "connection");
  const wire = await saying(port, GET, true);
  const [socket] = (await accepted) as [Socket];
  await wire.until(firstAnswer);
  wire.send(bytes);
  await expect.poll(() => socket.bytesRead).toBe(GET.length + bytes.length);
  wire.socket.once("end", () => wire.socket.end());
  return wire;
}

async function left(server: http.Server, port: number): Promise<void> {
  const opening = Buffer.concat([HELLO, request(1, "/", { method: "POST", end: false })]);
  const wire = await heard(server, port, opening);
  await wire.until((bytes) => framesIn(bytes).find(({ type, flags }) => type === FRAME.settings && flags === FLAG.ack));
  wire.socket.end();
}

describe.each(WAYS)("rest, HTTP/2 %s,", (_way, way) => {
  it("ends an HTTP/2 session that went unused, and none that is or was in use", async () => {
    const timers = new Set<{ ms: number; run: () => void }>();
    const after = (ms: number, run: () => void) => {
      const timer = { ms, run };
      timers.add(timer);
      return () => void timers.delete(timer);
    };
    cleanups.push(replaceAmbient({ clock: { wall: () => 0, steady: () => 0, after } }));
    const pass = (idle: number): void => {
      for (const timer of [...timers]) if (timer.ms === idle && timers.delete(timer)) timer.run();
    };
    const { handler, held, release } = holding();
    const { port } = await listen(handler, { ...way, idleTimeoutMs: 5000 });
    const wire = await saying(port, Buffer.concat([HELLO, request(1, "/")]));
    await held();
    for (const state of ["opened a stream", "has it open", "has it open"]) {
      pass(5000);
      expect([state, goawayIn(wire.received())]).toEqual([state, undefined]);
    }
    wire.send(request(3, "/"));
    await held(2);
    release();
    await wire.until((bytes) => endOf(bytes, 1) && endOf(bytes, 3));
    pass(5000);
    wire.send(request(5, "/"));
    await held();
    release();
    expect(await wire.until((bytes) => endOf(bytes, 5))).toMatchObject({ type: FRAME.data });
    pass(5000);
    pass(5000);
    expect(goawayIn(await wire.closed)).toBe(http2.constants.NGHTTP2_NO_ERROR);
  });

  it("closes connections beyond the allowed number, and only those", async () => {
    const { handler, held, release } = holding();
    const { port } = await listen(handler, { ...way, maxConnections: 1 });
    const first = await saying(port, GET);
    await held();
    const second = await saying(port, GET);
    expect(await second.closed).toHaveLength(0);
    release();
    expect(await first.until(firstAnswer)).toMatchObject({ status: 200 });
  });
});

describe.each(WAYS)("under Fastify, HTTP/2 %s,", (_way, way) => {
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
    const { port } = await start(way);
    expect(JSON.parse(await getHttp1(`http://127.0.0.1:${port}/version`))).toEqual({ version: "1.1" });
    const session = sessionTo(`http://127.0.0.1:${port}`);
    expect(JSON.parse(await getHttp2(session, "/version"))).toEqual({ version: "2.0" });
    const post = session.request({ ":method": "POST", ":path": "/echo", "content-type": "application/json" });
    post.end('{"a":[1]}');
    expect(JSON.parse(await bodyOf(post))).toEqual({ a: [1] });
  });

  it("answers a malformed head with the port's refusal alone", async () => {
    const { port } = await start({ ...way, refusal: (_status, code) => JSON.stringify({ code }) });
    const wire = await saying(port, "NONSENSE\r\n\r\n");
    expect(answersIn(await wire.closed)).toMatchObject([{ status: 400, body: '{"code":"malformed_request"}' }]);
  });

  it("closes with a session open", async () => {
    const { app, port } = await start(way);
    const session = sessionTo(`http://127.0.0.1:${port}`);
    await getHttp2(session, "/version");
    await app.close();
    await expect.poll(() => session.closed).toBe(true);
  });
});
