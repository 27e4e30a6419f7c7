/** GET /health and GET /ready. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App, openApp } from "../../support/app.ts";
import { type Model, startModel } from "../../support/model.ts";

let app: App;
let model: Model;

beforeAll(async () => {
  [app, model] = await Promise.all([openApp(), startModel()]);
});
afterAll(async () => {
  await app.close();
  await model.close();
});

describe("on an empty registry", () => {
  it("lives, with nothing but placeholders, and is not ready", async () => {
    expect((await app.call("/health")).body).toEqual({ status: "ok", inference: "simulated", version: "0.1.0" });
    const { status, body, headers } = await app.call("/ready");
    expect([status, body.error.code, body.error.message]).toEqual([503, "not_ready", "the registry is empty"]);
    expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
  });
});

describe("with supply", () => {
  beforeAll(async () => {
    await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  });

  it("is ready, and its inference is real", async () => {
    expect(await app.call("/ready")).toMatchObject({ status: 200, body: { status: "ready" } });
    expect((await app.call("/health")).body).toEqual({ status: "ok", inference: "real", version: "0.1.0" });
  });

  it("tells the operator more, and nobody else", async () => {
    const { body } = await app.call("/health", undefined, { admin: ADMIN_TOKEN });
    expect(body.detail).toEqual({
      live_offerings: 1,
      uptime_s: expect.any(Number),
      warnings: [],
      upstreams: [model.endpoint],
    });
    for (const admin of ["wrong", ""]) {
      const { status, text } = await app.call("/health", undefined, { admin });
      expect([status, text.includes("upstreams"), text.includes(model.endpoint)]).toEqual([200, false, false]);
    }
  });

  it("needs no key, and is not stopped by a wrong one", async () => {
    expect((await app.call("/health", undefined, { key: "lmb_sk_nobody" })).status).toBe(200);
    expect((await app.call("/ready", undefined, { key: "lmb_sk_nobody" })).status).toBe(200);
  });

  it("answers HEAD without a body", async () => {
    const { status, text } = await app.call("/ready", undefined, { method: "HEAD" });
    expect([status, text]).toEqual([200, ""]);
  });
});
