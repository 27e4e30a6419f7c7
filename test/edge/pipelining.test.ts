/** Requests that come before earlier ones are answered: answered in their order, read no further ahead than they are served. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { ActResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { GetHealthResponseSchema } from "../../gen/limber/v1/operations_service_pb.ts";
import type { WholeRequestHandler } from "../../src/edge/server/whole-requests.ts";
import { fastHttp1 } from "../../src/fast/http1/http1.ts";
import type { FastPieces } from "../../src/fast/install.ts";
import { eventually } from "../support/eventually.ts";
import { ALL_FAST, PLAIN } from "../support/fast.ts";
import { answersIn } from "../support/wire-client.ts";
import { KEY, message, openForTest, type TestGateway } from "./gateway.ts";
import { listen, saying } from "./port-caller.ts";

const BODY = JSON.stringify({ model: "o/n", observations: [{ proprio: [1, 2] }] });
const act = (...lines: string[]): string =>
  [
    "POST /v1/act HTTP/1.1",
    "Host: a",
    `Authorization: Bearer ${KEY}`,
    "Content-Type: application/json",
    `Content-Length: ${BODY.length}`,
    ...lines,
    "",
    BODY,
  ].join("\r\n");
const get = (path = "/health", ...lines: string[]): string =>
  [`GET ${path} HTTP/1.1`, "Host: a", ...lines, "", ""].join("\r\n");

/** A gateway whose answers wait until the test lets them go. */
async function slow(fast: FastPieces): Promise<{ gateway: TestGateway; asked: () => number; release: () => void }> {
  const held: (() => void)[] = [];
  const wait = (): Promise<void> => new Promise((resolve) => held.push(resolve));
  const gateway = await openForTest({
    rpcs: {
      Act: async () => {
        await wait();
        return message(ActResponseSchema, { id: "act_1" });
      },
      GetHealth: async () => {
        await wait();
        return message(GetHealthResponseSchema, { status: "ok" });
      },
    },
    fast,
  });
  return {
    gateway,
    asked: () => held.length,
    release() {
      for (const each of held.splice(0)) each();
    },
  };
}

describe.each([
  ["the fast layer is on", ALL_FAST],
  ["it is off", PLAIN],
])("what is wrong on the wire is answered behind what was asked before, where %s", (_, fast) => {
  it.each<[string, string, number]>([
    ["no HTTP", "garbage\r\n\r\n", 400],
    ["bytes of no sense", "\0\x01\x02", 400],
    ["a head without a host", "GET / HTTP/1.1\r\n\r\n", 400],
    ["two hosts", get("/", "Host: b"), 400],
    ["an unknown method", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 400],
    ["a method that is not implemented", "REPORT / HTTP/1.1\r\nHost: a\r\n\r\n", 501],
    ["a tunnel", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 501],
    ["headers that are too large", get("/", `X-A: ${"a".repeat(20_000)}`), 431],
    ["an expectation that nobody meets", get("/", "Expect: a-miracle"), 417],
    ["a version that nobody speaks", "GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505],
    [
      "a chunked body of no sense",
      `POST /v1/act HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`,
      400,
    ],
    ["a transfer coding that nobody reads", get("/", "Transfer-Encoding: gzip, chunked"), 501],
  ])("%s", async (_name, wrong, status) => {
    for (const before of [[get()], [act()], [get(), get()], [act(), act()], [act(), get()]]) {
      const { gateway, asked, release } = await slow(fast);
      const wire = await saying(gateway.port, before.join("") + wrong);
      const done = wire.closed;
      let isOpen = true;
      void done.then(() => {
        isOpen = false;
      });
      await eventually(() => {
        if (asked() > 0) release();
        expect(isOpen).toBe(false);
      });
      const statuses = answersIn(await done).map((answer) => answer.status);
      expect(statuses).toEqual([...before.map(() => 200), status]);
    }
  });
});

describe("pipelined requests of the plainest form", () => {
  const padded = `POST /x HTTP/1.1\r\nHost: a\r\nX-Pad: ${"x".repeat(6_000)}\r\nContent-Length: 2\r\n\r\n{}`;
  type Serve = WholeRequestHandler["serve"];

  async function open(serve: Serve): Promise<Socket> {
    const port = await listen((_, response) => void response.end("node"), {
      http1: fastHttp1,
      whole: { takes: () => true, serve },
    });
    const socket = connect(port, "127.0.0.1");
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => undefined);
    await once(socket, "connect");
    return socket;
  }

  // 64 kB, the read that passes them, and as much again in node's own buffer of the socket.
  it("are read no further ahead than a few reads, however many there are", async () => {
    const count = 3_000;
    let served = 0;
    let furthest = 0;
    const socket = await open((request, response) => {
      served++;
      furthest = Math.max(furthest, request.socket.bytesRead - served * padded.length);
      response.writeHead(200, ["content-length", "2"]);
      response.end(Buffer.from("ok"));
    });
    let got = 0;
    socket.setEncoding("latin1").on("data", (text: string) => {
      got += text.split("HTTP/1.1 200").length - 1;
    });
    socket.write(padded.repeat(count));
    await eventually(() => expect(got).toBe(count));
    expect(furthest).toBeLessThanOrEqual(256 << 10);
  });

  it("are not served while their answers are not taken, and not read either", async () => {
    const count = 3_000;
    let served = 0;
    let read = 0;
    const answer = Buffer.alloc(20_000, "a");
    const socket = await open((request, response) => {
      served++;
      read = request.socket.bytesRead;
      response.writeHead(200, ["content-length", String(answer.length)]);
      response.end(answer);
    });
    socket.pause();
    socket.write(padded.repeat(count));
    let seen = -1;
    await eventually(() => {
      const before = seen;
      seen = served;
      expect(seen).toBeGreaterThan(10);
      expect(seen).toBe(before);
    });
    expect(served).toBeLessThan(count / 2);
    expect(read - served * padded.length).toBeLessThanOrEqual(256 << 10);
    let bytes = 0;
    socket.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
    });
    socket.resume();
    await eventually(() => expect(served).toBe(count));
    await eventually(() => expect(bytes).toBeGreaterThan(count * answer.length));
  });

  it("keep their bodies apart, however they are cut", async () => {
    const texts = Array.from({ length: 60 }, (_, i) => `${i}:${"b".repeat((i * 7_919) % 90_000)}`);
    const heard: string[] = [];
    const socket = await open((request, response) => {
      heard.push(request.body.toString());
      setImmediate(() => {
        response.writeHead(200, ["content-length", "0"]);
        response.end(Buffer.alloc(0));
      });
    });
    socket.resume();
    const requests = texts.map(
      (text) => `POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
    );
    socket.write(requests.join(""));
    await eventually(() => expect(heard).toEqual(texts));
  });
});
