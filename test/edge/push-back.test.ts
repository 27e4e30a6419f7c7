/** Connections of callers whose calls are refused for overload while refusing has cost its share. */

import { type ClientHttp2Session, connect as connectHttp2, constants } from "node:http2";
import { connect } from "node:net";
import { beforeEach, expect, it, onTestFinished } from "vitest";
import type { Overload } from "../../src/edge/gate/gate.ts";
import { eventually } from "../support/eventually.ts";
import { KEY, openForTest } from "./gateway.ts";

interface Held {
  answer(): void;
  drop(): void;
}

/** Refusals that wait, and all that there were. */
let held: Held[] = [];
let refused = 0;
beforeEach(() => {
  held = [];
  refused = 0;
});

/** Refuses every call, and holds each refusal until the test answers it. */
const overload: Overload = {
  refuses: () => {
    refused++;
    return "flood";
  },
  pace: (_, answer, drop) => held.push({ answer, drop }) > 0,
  advice: () => ADVICE,
};
const ADVICE = { retryAfter: 1, headers: ["ratelimit", '"gateway";r=0;t=1'] };

function sessionTo(port: number): ClientHttp2Session {
  const session = connectHttp2(`http://127.0.0.1:${port}`);
  session.on("error", () => undefined);
  onTestFinished(() => session.destroy());
  return session;
}

/** What became of calls: the status of each that was answered, and the code of each that was reset. */
function call(session: ClientHttp2Session, count: number) {
  const seen = { statuses: [] as unknown[], codes: [] as number[] };
  for (let i = 0; i < count; i++) {
    const stream = session.request({
      ":method": "POST",
      ":path": "/limber.v1.InferenceService/Act",
      "content-type": "application/grpc",
      authorization: `Bearer ${KEY}`,
    });
    stream.on("error", () => undefined).on("trailers", (trailers) => seen.statuses.push(trailers["grpc-status"]));
    stream.on("close", () => stream.rstCode !== 0 && seen.codes.push(stream.rstCode)).resume();
    stream.end();
  }
  return seen;
}

const answer = (count: number): void => {
  for (const { answer } of held.splice(0, count)) answer();
};

it("a dropped refusal resets its stream or closes its HTTP/1 connection", async () => {
  const { port } = await openForTest({ overload });
  const seen = call(sessionTo(port), 1);
  await eventually(() => expect(held).toHaveLength(1));
  held[0]?.drop();
  await eventually(() => expect(seen.codes).toEqual([constants.NGHTTP2_ENHANCE_YOUR_CALM]));

  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.on("error", () => undefined).resume();
  socket.write("POST /v1/act HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
  await eventually(() => expect(held).toHaveLength(2));
  held[1]?.drop();
  await closed;
});

it("an HTTP/1 connection is not read behind a delayed refusal, and all of it is answered in order", async () => {
  const { port } = await openForTest({ overload });
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  let heard = "";
  socket
    .on("error", () => undefined)
    .on("data", (bytes) => {
      heard += bytes.toString("latin1");
    });
  const request = "POST /v1/act HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
  for (let nth = 1; nth <= 3; nth++) {
    socket.write(request + request);
    await eventually(() => expect(refused).toBe(2 * nth - 1));
    answer(1);
    await eventually(() => expect(refused).toBe(2 * nth));
    answer(1);
    await eventually(() => expect(heard.split("HTTP/1.1 503").length - 1).toBe(2 * nth));
  }
});

it("nothing received over HTTP/1 during a delayed refusal is lost", async () => {
  const { port } = await openForTest({ overload });
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  let heard = "";
  socket
    .on("error", () => undefined)
    .on("data", (bytes) => {
      heard += bytes.toString("latin1");
    });
  const request = "POST /v1/act HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
  socket.write(request);
  await eventually(() => expect(held).toHaveLength(1));
  socket.write(request);
  // Another connection is heard, and so the second request has come by then.
  for (let i = 0; i < 5; i++) expect((await fetch(`http://127.0.0.1:${port}/nowhere`)).status).toBe(404);
  answer(1);
  await eventually(() => expect(refused).toBe(2));
  answer(1);
  await eventually(() => expect(heard.split("HTTP/1.1 503").length - 1).toBe(2));
});

it("at most 256 requests start per event loop turn, and all in the end", async () => {
  let begun = 0;
  let most = 0;
  const inTurn = (): void => {
    if (begun++ === 0)
      setImmediate(() => {
        most = Math.max(most, begun);
        begun = 0;
      });
  };
  const counting: Overload = {
    ...overload,
    refuses: () => {
      inTurn();
      return "flood";
    },
    pace(_, answer) {
      answer();
      return false;
    },
  };
  const { port } = await openForTest({ overload: counting });
  const sessions = Array.from({ length: 24 }, () => sessionTo(port));
  await Promise.all(sessions.map((session) => new Promise((resolve) => session.once("remoteSettings", resolve))));
  const request = "POST /v1/act HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
  let answered = 0;
  const sockets = Array.from({ length: 300 }, () => {
    const socket = connect(port, "127.0.0.1");
    onTestFinished(() => void socket.destroy());
    socket
      .on("error", () => undefined)
      .on("data", (bytes) => {
        answered += bytes.toString("latin1").split("HTTP/1.1 503").length - 1;
      });
    return socket;
  });
  await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once("connect", resolve))));
  for (const socket of sockets) socket.write(request);
  await eventually(() => expect(answered).toBe(300));
  for (const socket of sockets) socket.write(request);
  const seen = sessions.map((session) => call(session, 64));
  await eventually(() => expect(answered).toBe(600));
  await eventually(() => expect(seen.flatMap(({ statuses }) => statuses)).toHaveLength(24 * 64));
  // A connection that had begun to read goes on to the end of its frame.
  expect(most).toBeLessThanOrEqual(256 + 24);
});
