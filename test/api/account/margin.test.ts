/** GET /v1/usage/margin. */
import { beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { addEnding } from "../../support/money.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
let declared: string;
let silent: string;

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), openModel()]);
  const endpoint = model.endpoint;
  const basis = { cost_usd_per_second: 1, scaledown_s: 2 };
  declared = await app.supply({ provider: "acme", model: "acme/base", endpoint, ...basis });
  silent = await app.supply({ provider: "acme", model: "acme/silent", endpoint, hardware: "H100" });
});

const NOW = Date.now();
const margin = (query = "", options: object = { admin: ADMIN_TOKEN }) =>
  app.call(`/v1/usage/margin${query}`, undefined, options);

/** A request that took a second, ended so long ago, and was charged so much. */
const request = (caller: Caller, offeringId: string, model: string, agoS: number, usd: number, more: object = {}) =>
  addEnding(app.sql, {
    orgId: caller.org,
    keyId: "key_1",
    model,
    offeringId,
    costMicro: usd * 1e6,
    latencyMs: 1000,
    created: new Date(NOW - agoS * 1000),
    ...more,
  });

describe("200", () => {
  it("compares charges with busy and warm time, per organization and model", async () => {
    const [one, two] = [await app.caller(0), await app.caller(0)];
    // Five seconds apart: a second of work and two of warmth each. The third comes half a second after the second one's end.
    await request(one, declared, "acme/base", 100, 10);
    await request(one, declared, "acme/base", 95, 10);
    await request(two, declared, "acme/base", 93.5, 1);
    await request(two, declared, "acme/base", 50, 0, { status: "unmetered", latencyMs: null });
    await request(two, silent, "acme/silent", 40, 2);
    await request(two, declared, "acme/base", 30, 5, { simulated: true });
    const { status, body } = await margin();
    expect([status, body.object]).toEqual([200, "margin_report"]);
    expect(body.organisations[0]).toEqual({
      org_id: one.org,
      requests: 2,
      revenue_usd: 20,
      modelled_infra_usd: 4.5,
      margin_usd: 15.5,
      margin_ratio: 0.775,
      assumed_scaledown_requests: 0,
      uncharged_idle_usd: 2.5,
      unmetered_requests: 0,
    });
    expect(body.organisations[1]).toMatchObject({
      org_id: two.org,
      requests: 3,
      revenue_usd: 8,
      unmetered_requests: 1,
    });
    // An H100 at 3.95 dollars an hour: a second of work and an assumed minute of warmth.
    const h100 = Math.round((61 * 3.95 * 1e6) / 3600) / 1e6;
    expect(body.models.map(({ model }: { model: string }) => model)).toEqual(["acme/base", "acme/silent"]);
    expect(body.models[1]).toMatchObject({ revenue_usd: 2, assumed_scaledown_requests: 1 });
    expect(body.models[1].modelled_infra_usd).toBeCloseTo(h100, 5);
    expect(body).toMatchObject({
      totals: { requests: 5, revenue_usd: 28 },
      assumed_scaledown_requests: 1,
      unmetered_requests: 1,
      reconciliation: {
        modelled_infra_usd: body.totals.modelled_infra_usd,
        uncharged_idle_usd: body.uncharged_idle_usd,
        assumed_scaledown_requests: 1,
        unmetered_requests: 1,
        requests_usd: 28,
        ledger_usd: 0,
        difference_usd: 28,
      },
    });
    const own = (await margin(`?org_id=${one.org}`)).body;
    expect([own.organisations.length, own.models.length, own.totals.revenue_usd]).toEqual([1, 1, 20]);
    const top = (await margin("?limit=1")).body;
    expect([top.organisations.length, top.models.length, top.totals.revenue_usd]).toEqual([1, 1, 28]);
    const now = Math.floor(NOW / 1000);
    expect((await margin(`?since=${now - 45}`)).body.totals.requests).toBe(2);
    expect((await margin(`?until=${now - 60}`)).body.totals.requests).toBe(3);
  });

  it("matches the ledger for real calls", async () => {
    const caller = await app.caller(1000);
    const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 10, observations: [{ proprio: [0] }] };
    for (let i = 0; i < 3; i++) expect((await app.call("/v1/act", body, { key: caller.key })).status).toBe(200);
    await app.call("/v1/usage", undefined, { key: caller.key });
    const report = (await margin(`?org_id=${caller.org}`)).body;
    expect(report.totals).toMatchObject({ requests: 3 });
    expect(report.reconciliation.difference_usd).toBe(0);
    expect(report.reconciliation.ledger_usd).toBe(report.totals.revenue_usd);
  });

  it("returns complete, empty figures for an organization without calls", async () => {
    const { org } = await app.caller(0);
    expect((await margin(`?org_id=${org}`)).body).toMatchObject({
      organisations: [],
      models: [],
      totals: { requests: 0, margin_usd: 0 },
    });
  });
});

describe("refusals", () => {
  it("refuses callers other than the operator, unknown organizations and limits out of range", async () => {
    const { key } = await app.caller(0);
    expect((await margin("", { key })).body.error.code).toBe("admin_token_required");
    expect((await margin("", { admin: "wrong" })).status).toBe(403);
    expect((await margin("?org_id=org_nobody")).status).toBe(404);
    for (const query of ["?limit=0", "?limit=2001", "?limit=x", "?since=-1"])
      expect((await margin(query)).status, query).toBe(422);
    expect((await margin("?limit=2000")).status).toBe(200);
  });
});
