/** The operations port against floods and garbage, and who may read its metrics. */
import { once } from "node:events";
import { connect } from "node:net";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Answer, type App, callRest } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { ownGateway } from "../support/world.ts";

const TOKEN = "a-scraper-token-of-its-own";

let app: App;
beforeAll(async () => {
  app = await ownGateway({ operationsPort: 0, metricsToken: TOKEN });
});
afterAll(() => app.close());

const port = (): number => app.gateway.operationsPort ?? 0;
const call = (path: string, body?: unknown, as?: Parameters<typeof callRest>[3]): Promise<Answer> =>
  callRest(`http://127.0.0.1:${port()}`, path, body, as);
const socket = () =>
  connect(port(), "127.0.0.1")
    .on("error", () => undefined)
    .resume();

it("serves metrics to the metrics token only", async () => {
  const bearer = (token: string) => ({ headers: { authorization: `Bearer ${token}` } });
  const metrics = await call("/metrics", undefined, bearer(TOKEN));
  expect([metrics.status, metrics.headers.get("x-request-id")]).toEqual([200, expect.stringMatching(/^req_/)]);
  expect((await call("/metrics", undefined, bearer("another-token-than-that"))).status).toBe(403);
});

it("returns a request id in header and errors", async () => {
  const health = await call("/health", undefined, { headers: { "x-request-id": "of-the-probe" } });
  expect(health.headers.get("x-request-id")).toMatch(/^req_/);
  const { status, headers, body } = await call("/v1/robots/stop", { robot_id: "r" });
  expect([status, body.error.request_id]).toEqual([401, headers.get("x-request-id")]);
});

it("refuses bodies above 16 KiB, with and without a length, and oversized headers", async () => {
  const json = { headers: { "content-type": "application/json" } };
  const large = await call("/v1/robots/stop", "x".repeat(16_385), json);
  expect([large.status, large.body.error.code]).toEqual([413, "payload_too_large"]);
  const chunked = await fetch(`http://127.0.0.1:${port()}/v1/robots/stop`, {
    method: "POST",
    body: new Blob(["x".repeat(20_000)]).stream(),
    duplex: "half",
  } as RequestInit);
  expect(chunked.status, await chunked.text()).toBe(413);
  await expect(call("/health", undefined, { headers: { "x-large": "y".repeat(20_000) } })).rejects.toThrow();
});

it("survives resets at every byte, garbage, and excessive pipelining", async () => {
  const sent = ["POST /v1/robots/stop HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}", "\0\x01\xff", "GET /heal"];
  for (const bytes of sent)
    for (let at = 1; at <= bytes.length; at++)
      await new Promise<void>((resolve) => {
        const one = socket().once("close", () => resolve());
        one.write(bytes.slice(0, at), () => one.resetAndDestroy());
      });
  const flood = socket();
  const closed = new Promise((resolve) => flood.once("close", resolve));
  flood.write("POST /v1/robots/stop HTTP/1.1\r\nhost: a\r\n\r\n".repeat(2_000));
  await closed;
  expect((await call("/health")).status).toBe(200);
});

it("closes connections above a thousand, keeps serving the others, and accepts again when they close", async () => {
  const first = socket();
  const ask = async (): Promise<string> => {
    first.write("GET /health HTTP/1.1\r\nhost: a\r\n\r\n");
    const [bytes] = await once(first, "data");
    return String(bytes);
  };
  expect(await ask()).toMatch(/^HTTP\/1\.1 200 /);
  let closed = 0;
  const sockets = Array.from({ length: 1_100 }, () => socket().once("close", () => closed++));
  await eventually(() => expect(closed).toBeGreaterThanOrEqual(101));
  expect(await ask()).toMatch(/^HTTP\/1\.1 200 /);
  for (const one of [first, ...sockets]) one.destroy();
  await eventually(async () => expect((await call("/health").catch(() => undefined))?.status).toBe(200));
});
