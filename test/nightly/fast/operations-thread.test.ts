/** The thread of the listener for operations: what it answers while the event loop stands still, and what it makes of hostile callers. */
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { Worker } from "node:worker_threads";
import { create, type DescMethod, type Message } from "@bufbuild/protobuf";
import { afterEach, expect, it } from "vitest";
import { GetReadinessResponseSchema, OperationsService } from "../../../gen/limber/v1/operations_service_pb.ts";
import { LateGate } from "../../../src/app/late-gate.ts";
import { BodyMemory } from "../../../src/edge/body-memory.ts";
import type { LogLine } from "../../../src/edge/call-log.ts";
import type { Admission, CallContext, CallHead } from "../../../src/edge/gate/gate.ts";
import { Metrics } from "../../../src/edge/metrics.ts";
import { type OperationsListener, serveOperations } from "../../../src/edge/operations.ts";
import { Reason, refuse } from "../../../src/errors.ts";
import { callRest } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import type { AskerTask } from "../../support/operations-asker.ts";

const TOKEN = "a-scrapers-own-token";
const SCRAPER = { authorization: `Bearer ${TOKEN}` };

const { getHealth, getReadiness } = OperationsService.method;

/** A gateway that starts and says that it is ready while it is. */
class ReadyGate extends LateGate {
  override admit(method: DescMethod, head: CallHead): Promise<Admission> {
    return super.admit(method === getReadiness ? getHealth : method, head);
  }

  override async unary(method: DescMethod, admission: Admission, request: Message, context: CallContext) {
    if (method !== getReadiness) return super.unary(method, admission, request, context);
    if (!isReady) throw refuse(Reason.NOT_READY, "the gateway is closing");
    return create(GetReadinessResponseSchema, { status: "ready" });
  }
}

let listener: OperationsListener;
let lines: LogLine[] = [];
let broken: unknown[] = [];
let isReady = true;
let metrics: Metrics;
afterEach(async () => {
  await listener.close();
  metrics.close();
});

async function open(facts: { isHanded?: boolean } = {}): Promise<string> {
  lines = [];
  broken = [];
  isReady = true;
  metrics = new Metrics({
    standing: () => ({ isReady, isDatabaseUp: true, doEventsWait: false, certificateEnds: undefined }),
    offerings: () => [],
    loops: () => ({ open: 0, offerings: [], sessions: [] }),
    leaser: () => ({ leases: 0, idleMicro: 0, promisedMicro: 0, running: 0, waiting: 0 }),
    callsRunning: () => 0,
    unhandledErrors: () => 0,
    undecidedPayments: () => 0,
    bodyBytes: () => 0,
    load: () => ({ limit: 1, inFlight: 0, held: 0, isShedding: false, classes: [], shed: [] }),
  });
  listener = await serveOperations({
    gate: new ReadyGate(),
    log: (line) => lines.push(line),
    memory: new BodyMemory(),
    closing: new AbortController().signal,
    metrics: { metrics, adminToken: () => "an-operators-token", token: TOKEN },
    ready: () => isReady,
    host: "127.0.0.1",
    port: 0,
    broke: (error) => broken.push(error),
    ...facts,
  });
  return `http://127.0.0.1:${listener.port}`;
}

/** What is answered while this thread's event loop does not turn, until all of it is there; `look` runs again and again meanwhile. */
async function whileStill(asks: AskerTask["asks"], look = (): void => undefined): Promise<number[]> {
  const shared = new Int32Array(new SharedArrayBuffer(4 * (asks.length + 1)));
  const task: AskerTask = { shared, port: listener.port, asks };
  const asker = new Worker(new URL("../../support/operations-asker.ts", import.meta.url), { workerData: task });
  await once(asker, "message");
  Atomics.store(shared, 0, 1);
  Atomics.notify(shared, 0);
  for (let looks = 0; Atomics.wait(shared, 0, 1, 10) === "timed-out"; looks++) {
    expect(looks).toBeLessThan(10_000);
    look();
  }
  await once(asker, "exit");
  return [...shared.slice(1)];
}

it("answers health, readiness and metrics while the event loop stands still, and counts each call", async () => {
  const url = await open();
  // What is remembered was said once.
  expect((await callRest(url, "/health")).status).toBe(200);
  expect((await callRest(url, "/metrics", undefined, { headers: SCRAPER })).text).toContain(
    "limber_metrics_age_seconds 0\n",
  );
  const asks = [{ path: "/ready" }, { path: "/health" }, { path: "/metrics", headers: SCRAPER }, { path: "/health?" }];
  expect(await whileStill(asks)).toEqual([200, 200, 200, 200]);
  await eventually(() => expect(lines).toHaveLength(4));
  const said = lines.map(({ rpc, status }) => [rpc.split("/")[1], status]);
  expect(said.filter(([rpc]) => rpc === "GetHealth")).toHaveLength(3);
  expect(said.every(([, status]) => status === 200)).toBe(true);
  expect(new Set(lines.map(({ requestId }) => requestId)).size).toBe(4);
});

it("asks the event loop between two calls of a turn that does not end", async () => {
  await open();
  // Whom memory does not answer.
  const asks = [{ path: "/metrics", headers: { authorization: "Bearer another" } }];
  expect(await whileStill(asks, () => listener.lookAround())).toEqual([403]);
});

it("fails readiness, then health, where the event loop stands still for too long, and no longer than that", async () => {
  const url = await open();
  expect((await callRest(url, "/health")).status).toBe(200);
  const asks = [
    { path: "/ready", until: 503 },
    { path: "/health", until: 503 },
    // Whom memory does not answer is refused in the end, too.
    { path: "/metrics", headers: { authorization: "Bearer another" } },
  ];
  expect(await whileStill(asks)).toEqual([503, 503, 503]);
  await eventually(async () => expect((await callRest(url, "/health")).status).toBe(200));
  await eventually(() =>
    expect(lines.map(({ rpc, code }) => `${rpc.split("/")[1]} ${code}`)).toContain("GetHealth not_ready"),
  );
});

it("says that the gateway is not ready from the moment on at which it says so itself", async () => {
  const url = await open();
  expect((await callRest(url, "/ready")).status).toBe(200);
  isReady = false;
  listener.changed();
  const { status, body } = await callRest(url, "/ready");
  expect([status, body.error.code, body.error.message]).toEqual([503, "not_ready", "the gateway is closing"]);
});

it("gives metrics to who has a token, and to nobody else", async () => {
  const url = await open();
  expect((await callRest(url, "/metrics", undefined, { headers: SCRAPER })).status).toBe(200);
  expect((await callRest(url, "/metrics", undefined, { admin: "an-operators-token" })).status).toBe(200);
  expect((await callRest(url, "/metrics")).status).toBe(401);
  const wrong = { authorization: "Bearer another" };
  expect((await callRest(url, "/metrics", undefined, { headers: wrong })).status).toBe(403);
});

it("outlives resets, slow heads, garbage, and bodies beyond its limit", async () => {
  const url = await open();
  const sent = ["POST /v1/robots/stop HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}", "\0\x01\xff", "GET /heal"];
  for (const bytes of sent)
    for (let at = 1; at <= bytes.length; at++)
      await new Promise<void>((resolve) => {
        const socket = connect(listener.port, "127.0.0.1", () => {
          socket.write(bytes.slice(0, at), () => socket.resetAndDestroy());
        });
        socket.on("error", () => undefined).once("close", () => resolve());
      });
  const large = await callRest(url, "/v1/robots/stop", "x".repeat(16_385), {
    headers: { "content-type": "application/json" },
  });
  expect([large.status, large.body.error.code]).toEqual([413, "payload_too_large"]);
  const head = { headers: { "x-large": "y".repeat(20_000) } };
  await expect(callRest(url, "/health", undefined, head)).rejects.toThrow();
  // One connection does not ask without end.
  const flood = connect(listener.port, "127.0.0.1");
  flood.on("error", () => undefined).resume();
  const closed = new Promise((resolve) => flood.once("close", resolve));
  flood.write("POST /v1/robots/stop HTTP/1.1\r\nhost: a\r\n\r\n".repeat(2_000));
  await closed;
  expect((await callRest(url, "/health")).status).toBe(200);
  expect(broken).toEqual([]);
});

it("serves a thousand connections, closes those beyond, and answers again when they are gone", async () => {
  const url = await open();
  let closed = 0;
  const sockets = Array.from({ length: 1_100 }, () =>
    connect(listener.port, "127.0.0.1")
      .on("error", () => undefined)
      .once("close", () => closed++)
      .resume(),
  );
  await eventually(() => expect(closed).toBeGreaterThanOrEqual(100));
  expect(closed).toBeLessThan(200);
  for (const socket of sockets) socket.destroy();
  await eventually(async () => expect((await callRest(url, "/health").catch(() => undefined))?.status).toBe(200));
});

it("begins anew at the same port when its thread ends", async () => {
  const begun: Worker[] = [];
  const note = (worker: Worker): void => void begun.push(worker);
  process.on("worker", note);
  try {
    const url = await open();
    const stops = begun.splice(0).map((thread) => thread.terminate());
    expect(await Promise.all(stops)).toEqual([1]);
    await eventually(async () => expect((await callRest(url, "/health").catch(() => undefined))?.status).toBe(200));
    expect([broken.length, begun.length]).toEqual([1, 1]);
  } finally {
    process.off("worker", note);
  }
});

it("answers connections that it is handed, in the event loop", async () => {
  await open({ isHanded: true });
  const server = createServer((socket) => listener.take(socket));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const close = { headers: { connection: "close" } };
  expect((await callRest(url, "/health", undefined, close)).status).toBe(200);
  expect((await callRest(url, "/metrics", undefined, close)).status).toBe(401);
  expect((await callRest(url, "/v1/act", {}, close)).status).toBe(404);
  await new Promise((resolve) => server.close(resolve));
});
