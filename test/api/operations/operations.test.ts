/** GET /health and GET /ready. */
import { beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), openModel()]);
});

describe("on an empty registry", () => {
  it("is healthy, has only placeholders, and is not ready", async () => {
    expect((await app.call("/health")).body).toEqual({ status: "ok", inference: "none", version: "0.1.0" });
    const { status, body, headers } = await app.call("/ready");
    expect([status, body.error.code, body.error.message]).toEqual([503, "not_ready", "the registry is empty"]);
    expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
  });
});

describe("with supply", () => {
  beforeAll(async () => {
    await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  });

  it("is ready, and inference is real", async () => {
    expect(await app.call("/ready")).toMatchObject({ status: 200, body: { status: "ready" } });
    expect((await app.call("/health")).body).toEqual({ status: "ok", inference: "real", version: "0.1.0" });
  });

  it("shows details only to the operator", async () => {
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

  it("needs no key and ignores a wrong one", async () => {
    expect((await app.call("/health", undefined, { key: "lmb_sk_nobody" })).status).toBe(200);
    expect((await app.call("/ready", undefined, { key: "lmb_sk_nobody" })).status).toBe(200);
  });

  it("answers HEAD without a body", async () => {
    const { status, text } = await app.call("/ready", undefined, { method: "HEAD" });
    expect([status, text]).toEqual([200, ""]);
  });
});

describe("status", () => {
  it("shows a failing offering with its open breaker, retry time and reason, without its address", async () => {
    const sick = await openModel();
    await app.supply({ provider: "sick", model: "sick/base", endpoint: sick.endpoint });
    const payer = await app.caller(10);
    const act = () =>
      app.call(
        "/v1/act",
        { model: "sick/base", observations: [{ proprio: [1] }], action_space: "base_twist_2d" },
        payer,
      );
    expect((await act()).status).toBe(200);
    const offering = async () => {
      const { status, body, text } = await app.call("/v1/status");
      expect([status, text.includes(sick.endpoint)]).toEqual([200, false]);
      return { whole: body, sick: body.providers.find((each: { provider: string }) => each.provider === "sick") };
    };
    expect((await offering()).sick).toMatchObject({
      status: "healthy",
      offerings: [
        { model: "sick/base", state: "closed", tier: "healthy", failure_rate_5m: 0, consecutive_failures: 0 },
      ],
    });

    sick.script.act = (_call, answer) => answer([[Number.NaN]]);
    for (let i = 0; i < 5; i++) expect((await act()).status).toBe(502);
    const { whole, sick: after } = await offering();
    expect([whole.status, after.status]).toEqual(["down", "down"]);
    const [record] = after.offerings;
    expect(record).toMatchObject({
      state: "open",
      tier: "down",
      consecutive_failures: 5,
      last_error_code: "action_dim_mismatch",
    });
    expect(record.retry_at).toBeGreaterThan(record.opened_at);
    const resting = await act();
    expect([resting.status, resting.body.error.code]).toEqual([503, "capacity_exhausted"]);
    await sick.close();
  });
});
