/** The plain form of answers: what is read as plain is read alike by Node's own parser, however it was damaged. */
import { type AddressInfo, createServer, type Server } from "node:net";
import { Client } from "undici";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readPlainAnswer } from "../../../src/codecs/plain-answer.ts";
import { mutations } from "./fuzz.ts";

const read = (...lines: string[]) => readPlainAnswer(lines.map((line) => `${line}\r\n`).join(""));

describe("a head", () => {
  it("of the plainest form says status, length, end of the connection and wait", () => {
    expect(read("HTTP/1.1 204 No Content", "Date: now")).toEqual({
      status: 204,
      bodyBytes: 0,
      closes: false,
      retryAfterS: undefined,
    });
    expect(read("HTTP/1.1 503", "CONTENT-LENGTH:  17 ", "connection: Close", "Retry-After: 5")).toEqual({
      status: 503,
      bodyBytes: 17,
      closes: true,
      retryAfterS: 5,
    });
    expect(read("HTTP/1.1 200 OK", "Retry-After: soon", "Content-Length: 0")?.retryAfterS).toBeUndefined();
  });

  it.each([
    ["another version", ["HTTP/1.0 200 OK", "Content-Length: 0"]],
    ["a status of two digits", ["HTTP/1.1 20 OK", "Content-Length: 0"]],
    ["an answer before the answer", ["HTTP/1.1 100 Continue"]],
    ["another protocol", ["HTTP/1.1 101 Switching", "Upgrade: websocket"]],
    ["304, which has a length and no body", ["HTTP/1.1 304 Not Modified", "Content-Length: 5"]],
    ["204 with a body", ["HTTP/1.1 204 No Content", "Content-Length: 5"]],
    ["no length", ["HTTP/1.1 200 OK"]],
    ["a length that is none", ["HTTP/1.1 200 OK", "Content-Length: +5"]],
    ["a list of lengths", ["HTTP/1.1 200 OK", "Content-Length: 5, 5"]],
    ["two lengths", ["HTTP/1.1 200 OK", "Content-Length: 5", "Content-Length: 5"]],
    ["chunks", ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked"]],
    ["chunks and a length", ["HTTP/1.1 200 OK", "Content-Length: 5", "transfer-encoding: chunked"]],
    ["a name with a space", ["HTTP/1.1 200 OK", "Content-Length : 5"]],
    ["a folded line", ["HTTP/1.1 200 OK", "X-A: a", " b", "Content-Length: 5"]],
    ["a bare line feed", ["HTTP/1.1 200 OK", "X-A: a\nContent-Length: 4", "Content-Length: 5"]],
    ["a bare carriage return", ["HTTP/1.1 200 OK", "X-A: a\rContent-Length: 4"]],
    ["a zero byte", ["HTTP/1.1 200 OK", "X-A: \0", "Content-Length: 5"]],
    ["an odd connection", ["HTTP/1.1 200 OK", "Connection: keep-alive, te", "Content-Length: 5"]],
  ])("with %s is not plain", (_, lines) => {
    expect(read(...lines)).toBeUndefined();
  });

  it("without end takes no longer to read than its length", () => {
    for (const part of ["X: ", "X:y\r\n", "\r", "connection:", "\t"])
      expect(readPlainAnswer(`HTTP/1.1 200 OK\r\n${part.repeat(16_000)}`)).toBeUndefined();
  });
});

describe("a damaged head", () => {
  let server: Server;
  let answer = Buffer.alloc(0);
  beforeAll(async () => {
    server = createServer((socket) => {
      socket.on("error", () => {}).once("data", () => socket.end(answer));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  });
  afterAll(() => void server.close());

  it("that is still plain is what undici reads, with a body of that length", async () => {
    const { port } = server.address() as AddressInfo; // a TCP server's address is never a string
    const samples = [
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: keep-alive\r\n",
      "HTTP/1.1 204 No Content\r\nDate: Sun, 22 Nov 2026 08:00:00 GMT\r\nConnection: close\r\n",
      "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 120\r\nContent-Length: 0\r\n",
    ].map((text) => Buffer.from(text));
    let plain = 0;
    for (const head of mutations(samples, 4_000, 8)) {
      const known = readPlainAnswer(head.toString("latin1"));
      if (known === undefined || known.bodyBytes > 99) continue;
      plain++;
      answer = Buffer.concat([head, Buffer.from("\r\n"), Buffer.alloc(known.bodyBytes, "a")]);
      const client = new Client(`http://127.0.0.1:${port}`);
      const { statusCode, body } = await client.request({ path: "/", method: "POST", body: "" });
      expect([statusCode, (await body.text()).length]).toEqual([known.status, known.bodyBytes]);
      await client.destroy();
    }
    expect(plain).toBeGreaterThan(100);
  });
});
