/** Requests that come before earlier ones are answered: answered in their order, read no further ahead than they are served. */

import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import type { WholeRequestHandler } from "../../src/edge/server/whole-requests.ts";
import { listen } from "../edge/port-caller.ts";
import { eventually } from "../support/eventually.ts";

describe("simple pipelined requests", () => {
  const padded = `POST /x HTTP/1.1\r\nHost: a\r\nX-Pad: ${"x".repeat(6_000)}\r\nContent-Length: 2\r\n\r\n{}`;
  type Serve = WholeRequestHandler["serve"];

  async function open(serve: Serve): Promise<Socket> {
    const port = await listen((_, response) => void response.end("node"), {
      whole: { takes: () => true, serve },
    });
    const socket = connect(port, "127.0.0.1");
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => undefined);
    await once(socket, "connect");
    return socket;
  }

  // 64 kB, the read that passes them, and as much again in node's own buffer of the socket.
  it("are read only a few reads ahead, however many there are", async () => {
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

  it("are neither served nor read while their responses are unread", async () => {
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

  it("keep their bodies apart, wherever they are split", async () => {
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
