/** What a refused call costs the gateway, by the way that it comes: processor time of the whole process, on connections that stay. */

import { connect } from "node:net";
import { START_FLAGS } from "../../../src/app/collector.ts";
import { actFrame, actJson, GRPC_PATH } from "./act-call.ts";
import { grpcLoad } from "./load.ts";
import { cpuNanos, pin, start } from "./processes.ts";

const CONNECTIONS = 64;
const CALLS = 40_000;
const KEY = "lmb_sk_flood";

const BRACE = 0x7b;
const LETTER_H = 0x48;

/** Microseconds of one refused call over REST or gRPC; `echo` is the cost of the sockets alone. */
export async function refusedUs(way: "rest" | "grpc" | "echo"): Promise<number> {
  const server = await start("test/bench/support/refusing.ts", [way], (line) => line.startsWith("{"), {
    flags: [...START_FLAGS],
  });
  const { port }: { port: number } = JSON.parse(server.line);
  pin([server.pid], []);
  const load = (calls: number): Promise<unknown> =>
    way === "grpc" ? grpcLoad(`http://127.0.0.1:${port}`, GRPC_PATH, actFrame, KEY, 8, 8, calls) : asked(port, calls);
  await load(CALLS / 4);
  const before = cpuNanos(server.pid);
  await load(CALLS);
  const us = (cpuNanos(server.pid) - before) / 1000 / CALLS;
  await server.stop();
  return us;
}

/** So many requests, one after the other on each connection; the answers are told apart by their reads alone. */
function asked(port: number, calls: number): Promise<void> {
  const head = `POST /v1/act HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer ${KEY}\r\ncontent-length: ${actJson.length}\r\n\r\n`;
  const request = Buffer.concat([Buffer.from(head), actJson]);
  let left = calls;
  const one = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const socket = connect({ port, host: "127.0.0.1", noDelay: true });
      const ask = (): void => {
        if (left-- > 0) socket.write(request);
        else socket.end(() => resolve());
      };
      socket.once("connect", ask).once("error", reject);
      socket.on("data", (chunk: Buffer) => {
        if (chunk[0] === BRACE) return; // the body of an answer whose head came before
        if (chunk[0] === LETTER_H && !chunk.toString("latin1", 0, 12).endsWith("503"))
          reject(new Error(chunk.toString()));
        else ask();
      });
    });
  return Promise.all(Array.from({ length: CONNECTIONS }, one)).then(() => undefined);
}
