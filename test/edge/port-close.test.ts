/** How a port ends what it serves: when it closes, and what nobody uses. */

import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import { afterEach, describe, expect, it } from "vitest";
import type { PortOptions } from "../../src/edge/server/port.ts";
import { setAmbient } from "../support/clocks.ts";
import {
  answersIn,
  endOf,
  FLAG,
  FRAME,
  framesIn,
  goawayIn,
  HELLO,
  lastStreamsIn,
  PREFACE,
  request,
} from "../support/wire-client.ts";
import {
  acknowledged,
  answeredThenSaying,
  answerGets,
  cleanUp,
  cleanups,
  firstAnswer,
  GET,
  heard,
  holding,
  left,
  listen,
  saying,
  sayVersion,
  tls,
  wireTo,
} from "./port-wires.ts";

afterEach(cleanUp);

describe("close", () => {
  it("lets open HTTP/2 streams finish and starts none after its last GOAWAY", async () => {
    const { handler, held, release } = holding();
    const { port, closed } = await listen(handler);
    const wire = await saying(port, Buffer.concat([HELLO, request(1, "/")]));
    await held();
    const done = closed();
    await wire.until(goawayIn);
    await wire.until((bytes) => lastStreamsIn(bytes).includes(1) || undefined);
    wire.send(request(3, "/"));
    release();
    const bytes = await wire.closed;
    const frames = framesIn(bytes);
    expect([lastStreamsIn(bytes).at(-1), goawayIn(bytes)]).toEqual([1, http2.constants.NGHTTP2_NO_ERROR]);
    expect(frames.findLast(({ stream }) => stream === 1)).toMatchObject({ type: FRAME.data, flags: FLAG.endStream });
    expect(frames.filter(({ stream }) => stream === 3)).toEqual([]);
    await done;
  });

  it("lets a running HTTP/1.1 request finish with `Connection: close`, and accepts no new one", async () => {
    const { handler, held, release } = holding();
    const { port, closed } = await listen(handler);
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

  it("closes an HTTP/1.1 keep-alive connection after an answer in progress", async () => {
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

  it("serves a request whose headers were arriving, then closes", async () => {
    const { server, port, closed } = await listen(sayVersion);
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
    const { server, port, closed } = await listen(answerGets, { ...limits, lingerMs: 100 });
    await connect(server, port);
    await closed();
  });

  it.each<[string, Uint8Array]>([
    ["keeps an idle HTTP/2 session and its side of the connection", HELLO],
    ["left with a stream unfinished", Buffer.concat([HELLO, request(1, "/", { method: "POST", end: false })])],
  ])("is not delayed by a client that %s, under TLS", async (_name, bytes) => {
    const { port, closed } = await listen(() => undefined, { tls, lingerMs: 100 });
    const wire = await wireTo(port, { alpn: ["h2"], halfOpen: true });
    wire.send(bytes);
    await wire.until(acknowledged);
    if (bytes !== HELLO) wire.socket.end();
    await closed();
  });

  it("is completed by closeAllConnections at any time", async () => {
    const { handler, held } = holding();
    const { server, port, closed } = await listen(handler);
    const wires = [await saying(port, GET), await saying(port, Buffer.concat([HELLO, request(1, "/")]))];
    await held(2);
    const done = closed();
    server.closeAllConnections();
    await Promise.all([done, ...wires.map((wire) => wire.closed)]);
  });
});

describe("leave over HTTP/2", () => {
  it("ends each session after its next answer, and serves new sessions", async () => {
    const { server, port } = await listen(sayVersion);
    const silent = await saying(port, HELLO);
    await silent.until(acknowledged);
    server.leave();
    for (const id of [1, 3]) {
      const wire = await saying(port, Buffer.concat([HELLO, request(id, "/")]));
      const bytes = await wire.closed;
      expect(endOf(bytes, id)).toMatchObject({ type: FRAME.data });
      expect(lastStreamsIn(bytes).at(-1)).toBe(id);
    }
    expect(lastStreamsIn(silent.received())).toEqual([]);
  });
});

describe("leave over HTTP/1.1", () => {
  it("closes each connection after its next answer, and accepts new ones", async () => {
    const { server, port } = await listen(sayVersion);
    const kept = await wireTo(port);
    kept.send(GET);
    expect((await kept.until(firstAnswer)).headers.connection).toBe("keep-alive");
    server.leave();
    const later = await wireTo(port);
    for (const wire of [kept, later]) {
      wire.send(GET);
      expect(answersIn(await wire.closed).at(-1)).toMatchObject({ status: 200, headers: { connection: "close" } });
    }
  });

  it("announces it in an answer that has not started too", async () => {
    const { handler, held, release } = holding();
    const { server, port } = await listen(handler);
    const wire = await saying(port, GET);
    await held();
    server.leave();
    release();
    expect(answersIn(await wire.closed)).toMatchObject([{ status: 200, headers: { connection: "close" } }]);
  });
});

describe("close over HTTP/1.1", () => {
  it("answers the first request of a connection that was accepted before", async () => {
    const { server, port, closed } = await listen(sayVersion);
    const accepted = once(server, "connection");
    const wire = await wireTo(port);
    await accepted;
    const done = closed();
    wire.send(GET);
    expect(answersIn(await wire.closed)).toMatchObject([{ status: 200, headers: { connection: "close" } }]);
    await done;
  });
});

describe("rest", () => {
  it("ends an unused HTTP/2 session, and none that is or was in use", async () => {
    const timers = new Set<{ ms: number; run: () => void }>();
    const after = (ms: number, run: () => void) => {
      const timer = { ms, run };
      timers.add(timer);
      return () => void timers.delete(timer);
    };
    cleanups.push(setAmbient({ clock: { wall: () => 0, steady: () => 0, after } }));
    const pass = (idle: number): void => {
      for (const timer of [...timers]) if (timer.ms === idle && timers.delete(timer)) timer.run();
    };
    const { handler, held, release } = holding();
    const { port } = await listen(handler, { idleTimeoutMs: 5000 });
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
    // The client does not say that it heard of it.
    pass(1000);
    expect(goawayIn(await wire.closed)).toBe(http2.constants.NGHTTP2_NO_ERROR);
  });
});
