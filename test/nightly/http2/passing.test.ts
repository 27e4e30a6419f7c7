/** Requests that nobody takes: they pass to node:http2 and back, and nobody can tell that they did. */
import { constants, type Http2ServerResponse } from "node:http2";
import { describe, expect, it, onTestFinished } from "vitest";
import type { PortHandler } from "../../../src/edge/server/port.ts";
import { saying, tls } from "../../edge/port-caller.ts";
import { run } from "../../edge/run.ts";
import { eventually } from "../../support/eventually.ts";
import {
  endOf,
  FLAG,
  FRAME,
  frame,
  framesIn,
  goawayIn,
  HELLO,
  lastStreamsIn,
  pongTo,
  request,
  uint32,
} from "../../support/wire-client.ts";
import { callHead, heardOn, openEcho, post, sessionTo } from "./echo.ts";

const bytesOf = (count: number): Buffer => Buffer.alloc(count, "0123456789abcdef");

/** Sends back what comes. */
const mirror: PortHandler = (request, response) => {
  request.on("error", () => undefined);
  response.on("error", () => undefined);
  request.pipe(response as Http2ServerResponse);
};

it("share a connection with calls that are taken, in any order, each with its own answer", async () => {
  const { port, taken } = await openEcho({}, mirror);
  const session = sessionTo(port);
  const all = Array.from({ length: 200 }, (_, i) => {
    const path = i % 3 === 0 ? "/echo" : "/mirror";
    return post(session, path, bytesOf(i * 97)).then((heard) => ({ ...heard, path, i }));
  });
  for (const { body, path, head, i } of await Promise.all(all)) {
    expect([i, body.equals(bytesOf(i * 97))]).toEqual([i, true]);
    expect(head["x-kind"]).toBe(path === "/echo" ? "echo" : undefined);
  }
  expect(taken.streams).toHaveLength(67);
  // Those that are taken stay so.
  await post(session, "/echo", bytesOf(3));
  expect(taken.streams).toHaveLength(68);
});

it("carry large bodies both ways, to readers of every window", async () => {
  const { port } = await openEcho({}, mirror);
  for (const settings of [{}, { initialWindowSize: 1_000 }, { initialWindowSize: 1 << 24, maxFrameSize: 1 << 20 }]) {
    const session = sessionTo(port, settings);
    const size = settings.initialWindowSize === 1_000 ? 200_000 : 5_000_000;
    const [first, second] = await Promise.all([
      post(session, "/mirror", bytesOf(size)),
      post(session, "/echo", bytesOf(size)),
    ]);
    expect([first.body.equals(bytesOf(size)), second.body.equals(bytesOf(size))]).toEqual([true, true]);
  }
});

it("are held off where nobody reads them, while others go on", async () => {
  const { port } = await openEcho({}, (request, response) => {
    if (request.url !== "/stuck") return mirror(request, response);
    request.on("error", () => undefined).pause();
  });
  const session = sessionTo(port);
  const stuck = session.request({ ":method": "POST", ":path": "/stuck" }, { endStream: false });
  stuck.on("error", () => undefined);
  let sent = 0;
  const more = (): void => {
    if (stuck.destroyed) return;
    stuck.write(Buffer.alloc(65_536), () => {
      sent += 65_536;
      more();
    });
  };
  more();
  for (let i = 0; i < 5; i++) expect((await post(session, "/mirror", bytesOf(3_000_000))).body).toHaveLength(3_000_000);
  expect(sent).toBeLessThan(2 << 20);
  stuck.close(8);
});

it("are not answered faster than the caller reads", async () => {
  let made = 0;
  const { port } = await openEcho({}, (_request, response) => {
    const more = (): void => {
      if (response.destroyed || response.writableEnded) return;
      made++;
      if ((response as Http2ServerResponse).write(bytesOf(65_536))) setImmediate(more);
      else response.once("drain", more);
    };
    more();
  });
  const session = sessionTo(port);
  const slow = session.request({ ":path": "/much" });
  slow.on("error", () => undefined).pause();
  let before = -1;
  await eventually(() => {
    const isSame = before === made;
    before = made;
    expect([isSame, made > 0]).toEqual([true, true]);
  });
  expect(made).toBeLessThan(64);
  slow.close(8);
});

it("may be answered before they are whole, by interim heads, and with trailers", async () => {
  const { port } = await openEcho({}, (_request, response) => {
    const answer = response as Http2ServerResponse;
    answer.writeEarlyHints({ link: "</x>; rel=preload" });
    answer.setHeader("trailer", "x-last");
    answer.write("early");
    answer.addTrailers({ "x-last": "yes" });
    answer.end();
  });
  const stream = sessionTo(port).request({ ":method": "POST", ":path": "/early" }, { endStream: false });
  const interim: unknown[] = [];
  stream.on("headers", (headers) => interim.push(headers[":status"]));
  const heard = heardOn(stream);
  await eventually(() => expect(stream.readableEnded).toBe(true));
  stream.end("too late");
  const { body, trailers } = await heard;
  expect([interim, body.toString(), trailers["x-last"]]).toEqual([[103], "early", "yes"]);
});

it("have their trailers heard", async () => {
  let seen: unknown;
  const { port } = await openEcho({}, (request, response) => {
    request.resume().once("end", () => {
      seen = request.trailers["x-sum"];
      response.end();
    });
  });
  const stream = sessionTo(port).request(
    { ":method": "POST", ":path": "/" },
    { endStream: false, waitForTrailers: true },
  );
  stream.on("wantTrailers", () => stream.sendTrailers({ "x-sum": "42" }));
  const heard = heardOn(stream);
  stream.end("body");
  await heard;
  expect(seen).toBe("42");
});

it("are called off by either side, and the other hears of it", async () => {
  const closed: (string | undefined)[] = [];
  const { port } = await openEcho({}, (request, response) => {
    request.on("error", () => undefined).on("aborted", () => closed.push(request.url));
    if (request.url === "/mine") (response as Http2ServerResponse).stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  });
  const session = sessionTo(port);
  const [theirs, mine] = ["/theirs", "/mine"].map((path) =>
    session.request({ ":method": "POST", ":path": path }, { endStream: false }),
  );
  const heard = Promise.all([heardOn(theirs!), heardOn(mine!)]);
  await eventually(() => expect(mine!.rstCode).toBe(constants.NGHTTP2_INTERNAL_ERROR));
  theirs!.destroy();
  await heard;
  await eventually(() => expect(closed).toContain("/theirs"));
});

it("are told whence they came, and whether under TLS", async () => {
  const seen: unknown[] = [];
  const handler: PortHandler = (request, response) => {
    seen.push([
      request.socket.remoteAddress,
      "encrypted" in request.socket,
      request.httpVersion,
      request.headers.cookie,
    ]);
    response.end();
  };
  const plain = await openEcho({}, handler);
  await post(sessionTo(plain.port), "/", Buffer.alloc(0), { cookie: ["a=1", "b=2"] });
  const secure = await openEcho({ tls }, handler);
  const { port } = secure;
  await run("curl", ["-sk", "--http2", `https://127.0.0.1:${port}/`]);
  expect(seen).toEqual([
    ["127.0.0.1", false, "2.0", "a=1; b=2"],
    ["127.0.0.1", true, "2.0", undefined],
  ]);
});

it("serve curl with prior knowledge, whatever it sends", async () => {
  const { port } = await openEcho({}, mirror);
  const body = "x".repeat(200_000);
  const { code, out } = await run(
    "curl",
    [
      "-s",
      "--http2-prior-knowledge",
      "-H",
      "expect: 100-continue",
      "--data-binary",
      "@-",
      `http://127.0.0.1:${port}/m`,
    ],
    body,
  );
  expect([code, out === body]).toEqual([0, true]);
});

describe("the end of a connection", () => {
  it("waits for those that pass, and begins no more of them", async () => {
    const answers: (() => unknown)[] = [];
    const { port, close } = await openEcho({}, (_request, response) => void answers.push(() => response.end("held")));
    const wire = await saying(port, Buffer.concat([HELLO, request(1, "/a")]));
    await eventually(() => expect(answers).toHaveLength(1));
    const closed = close();
    wire.send(await wire.until(pongTo));
    await wire.until((bytes) => lastStreamsIn(bytes).includes(1) || undefined);
    wire.send(request(3, "/b"));
    for (const answer of answers) answer();
    const frames = framesIn(await wire.closed);
    expect(frames.findLast(({ stream }) => stream === 1)?.flags).toBe(FLAG.endStream);
    expect(frames.filter(({ stream }) => stream === 3)).toEqual([]);
    await closed;
    expect(answers).toHaveLength(1);
  });

  it("calls off what passes when the socket is gone", async () => {
    let open = 0;
    const { port, close } = await openEcho({}, (_request, response) => {
      open++;
      response.on("close", () => open--);
    });
    const wire = await saying(port, Buffer.concat([HELLO, request(1, "/a"), callHead(3), request(5, "/b")]));
    await eventually(() => expect(open).toBe(2));
    wire.socket.resetAndDestroy();
    await eventually(() => expect(open).toBe(0));
    await close();
  });

  it("comes when node gives its session up", async () => {
    const { port } = await openEcho({}, (request) => {
      (request as { stream?: { session?: { destroy(): void } } }).stream?.session?.destroy();
    });
    const wire = await saying(port, Buffer.concat([HELLO, request(1, "/a")]));
    expect(goawayIn(await wire.closed)).toBe(constants.NGHTTP2_INTERNAL_ERROR);
  });
});

it("leave the windows right that both kinds share, on a connection whose own window is small", async () => {
  const { port } = await openEcho({}, mirror);
  const wire = await saying(port, HELLO);
  onTestFinished(() => void wire.socket.destroy());
  const data = (id: number): Buffer => frame(FRAME.data, FLAG.endStream, id, Buffer.alloc(16_000));
  const ids = Array.from({ length: 10 }, (_, i) => 2 * i + 1);
  for (const id of ids) {
    const head = id % 4 === 1 ? request(id, "/m", { method: "POST", end: false }) : callHead(id);
    wire.send(Buffer.concat([head, data(id)]));
  }
  const sent = (bytes: Buffer): number =>
    framesIn(bytes).reduce((sum, { type, payload }) => sum + (type === FRAME.data ? payload.length : 0), 0);
  await wire.until((bytes) => sent(bytes) >= 65_535 || undefined);
  expect(sent(wire.received())).toBe(65_535);
  wire.send(frame(FRAME.windowUpdate, 0, 0, uint32(1_000_000)));
  for (const id of ids) await wire.until((bytes) => endOf(bytes, id));
  expect(sent(wire.received())).toBe(160_000);
});
