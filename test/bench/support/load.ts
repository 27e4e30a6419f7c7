/** Closed-loop load: a fixed number of callers, each of which sends its next call when the last was answered, or at its time. */
import { connect } from "node:http2";
import { setTimeout as rest } from "node:timers/promises";
import { Pool } from "undici";

/** What a run of load saw. */
export interface Load {
  answered: number;
  failed: number;
  /** Milliseconds that each answered call took, sorted. */
  latencies: number[];
}

/** One caller: resolves to whether the call was answered well. */
type Caller = () => Promise<boolean>;

async function run(callers: readonly Caller[], calls: number, perSecond = Number.POSITIVE_INFINITY): Promise<Load> {
  const load: Load = { answered: 0, failed: 0, latencies: [] };
  const start = performance.now();
  let begun = 0;
  await Promise.all(
    callers.map(async (call) => {
      while (begun < calls) {
        const waitMs = start + (1_000 * begun++) / perSecond - performance.now();
        if (waitMs > 0) await rest(waitMs);
        const began = performance.now();
        if (await call()) {
          load.answered++;
          load.latencies.push(performance.now() - began);
        } else load.failed++;
      }
    }),
  );
  load.latencies.sort((a, b) => a - b);
  return load;
}

/** `calls` POSTs of one JSON body over `concurrency` kept connections; no more than `perSecond` are begun in a second. */
export async function restLoad(
  url: string,
  body: Buffer,
  key: string,
  concurrency: number,
  calls: number,
  perSecond?: number,
): Promise<Load> {
  const { origin, pathname } = new URL(url);
  const pool = new Pool(origin, { connections: concurrency, pipelining: 1 });
  const headers = ["content-type", "application/json", "authorization", `Bearer ${key}`];
  const call = (): Promise<boolean> =>
    new Promise((resolve) => {
      let status = 0;
      pool.dispatch(
        { method: "POST", path: pathname, headers, body },
        {
          onRequestStart() {},
          onResponseStart(_controller, code) {
            status = code;
          },
          onResponseData() {},
          onResponseEnd: () => resolve(status === 200),
          onResponseError: () => resolve(false),
        },
      );
    });
  const load = await run(
    Array.from({ length: concurrency }, () => call),
    calls,
    perSecond,
  );
  await pool.close();
  return load;
}

/** `calls` unary gRPC calls of one framed message over `connections` HTTP/2 connections of `streams` callers each. */
export async function grpcLoad(
  origin: string,
  path: string,
  frame: Buffer,
  key: string,
  connections: number,
  streams: number,
  calls: number,
): Promise<Load> {
  const sessions = Array.from({ length: connections }, () => connect(origin));
  const headers = {
    ":method": "POST",
    ":path": path,
    "content-type": "application/grpc",
    te: "trailers",
    authorization: `Bearer ${key}`,
  };
  const callers = sessions.flatMap((session) =>
    Array.from({ length: streams }, () => (): Promise<boolean> => {
      const stream = session.request(headers);
      return new Promise((resolve) => {
        let ok = false;
        let bytes = 0;
        stream.on("response", (head) => (ok = head["grpc-status"] === undefined || head["grpc-status"] === "0"));
        stream.on("trailers", (trailers) => (ok = trailers["grpc-status"] === "0"));
        stream.on("data", (chunk: Buffer) => (bytes += chunk.length));
        stream.on("error", () => resolve(false));
        stream.on("close", () => resolve(ok && bytes > 0));
        stream.end(frame);
      });
    }),
  );
  const load = await run(callers, calls);
  for (const session of sessions) session.close();
  return load;
}
