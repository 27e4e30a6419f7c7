/** The listener for operations: what it serves, and that it serves while the port for calls is full. */
import { connect, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { ADMIN_TOKEN, type Answer, type App, callRest } from "../support/app.ts";
import { setClock } from "../support/clocks.ts";
import { eventually } from "../support/eventually.ts";
import { SkippingClock } from "../support/skipping-clock.ts";
import { ownGateway } from "../support/world.ts";

let app: App;
const sockets: Socket[] = [];
beforeAll(async () => {
  app = await ownGateway({ operationsPort: 0, maxConnections: 24 });
  await app.catalog("acme/base");
});
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});
afterAll(() => app.close());

const call = (...args: Rest): Promise<Answer> => callRest(`http://127.0.0.1:${app.gateway.operationsPort}`, ...args);
type Rest = Parameters<typeof callRest> extends [string, ...infer R] ? R : never;

/** A connection to the port for calls, and whether the gateway has closed it. */
async function hold(): Promise<{ isClosed: boolean }> {
  const socket = connect(Number(new URL(app.url).port), "127.0.0.1");
  sockets.push(socket);
  const held = { isClosed: false };
  socket
    .on("error", () => undefined)
    .on("close", () => {
      held.isClosed = true;
    });
  await new Promise((resolve) => socket.once("connect", resolve).once("close", resolve));
  socket.resume();
  return held;
}

it("serves health, readiness, metrics and emergency stops, and nothing else", async () => {
  const { key, org } = await app.caller(1);
  expect((await call("/health")).body.status).toBe("ok");
  expect((await call("/health", undefined, { admin: ADMIN_TOKEN })).body.detail.live_offerings).toBe(0);
  expect((await call("/ready?")).status).toBe(200);
  expect((await call("/health", undefined, { method: "HEAD" })).status).toBe(200);

  const metrics = await call("/metrics", undefined, { admin: ADMIN_TOKEN });
  expect([metrics.status, metrics.headers.get("content-type")]).toEqual([
    200,
    "text/plain; version=0.0.4; charset=utf-8",
  ]);
  expect(metrics.text).toContain("limber_concurrency_limit");
  const refused = [await call("/metrics"), await call("/metrics", undefined, { admin: "not-the-right-one" })];
  expect(refused.map(({ status, body }) => [status, body.error.code])).toEqual([
    [401, "admin_token_required"],
    [403, "invalid_admin_token"],
  ]);

  const stop = await call("/v1/robots/stop", { robot_id: "r-1" }, { key });
  expect([stop.status, stop.body.error]).toEqual([200, undefined]);
  // Of a busy machine's answer it may be that the stop is not written yet.
  await eventually(async () => {
    const stops = await app.call("/v1/robots/stops", undefined, { key });
    expect(stops.text).toContain('"r-1"');
  });
  expect((await call("/v1/robots/stop", { robot_id: "r-1" })).status).toBe(401);
  const operators = await call("/v1/robots/stop", { org_id: org, robot_id: "r-3" }, { admin: ADMIN_TOKEN });
  expect([operators.status, operators.body.scope]).toEqual([200, "robot"]);
  const wrong = await call("/v1/robots/stop", { org_id: org, robot_id: "r-3" }, { admin: "not-the-right-one" });
  expect(wrong.status).toBe(403);

  for (const path of ["/", "/v1/act", "/v1/status", "/v1/robots/release", "/docs", "/health/", "//health"]) {
    const answer = await call(path, path === "/v1/act" ? {} : undefined, { key });
    expect([path, answer.status, answer.body.error.code]).toEqual([path, 404, "not_found"]);
  }
  const posted = await call("/health", {});
  expect([posted.status, posted.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
  const got = await call("/v1/robots/stop");
  expect([got.status, got.headers.get("allow")]).toEqual([405, "POST"]);
});

it("answers while the call port is full, and closes its own excess connections", async () => {
  const { key } = await app.caller(1);
  const held = await Promise.all(Array.from({ length: 64 }, hold));
  await eventually(async () => expect(held.filter(({ isClosed }) => !isClosed).length).toBeLessThanOrEqual(24));
  expect(held.some(({ isClosed }) => !isClosed)).toBe(true);
  expect((await call("/health")).status).toBe(200);
  expect((await call("/ready")).status).toBe(200);
  expect((await call("/v1/robots/stop", { robot_id: "r-2" }, { key })).status).toBe(200);
});

it("reports not ready during a drain, and closes with the gateway", async () => {
  const clock = new SkippingClock();
  setClock(clock);
  const closed = app.gateway.close(5_000, 600_000);
  const ready = await call("/ready", undefined, { headers: { connection: "close" } });
  expect([ready.status, ready.body.error.code]).toEqual([503, "not_ready"]);
  clock.skip(600_000);
  await closed;
  await expect(call("/health")).rejects.toThrow();
});
