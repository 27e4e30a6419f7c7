/** POST /v1/orgs/{org_id}/commitment. */
import { beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App } from "../../support/app.ts";
import { openWorld } from "../../support/world.ts";

let app: App;

beforeAll(async () => {
  app = await openWorld();
});

const set = (org: string, body: unknown, options: object = { admin: ADMIN_TOKEN }) =>
  app.call(`/v1/orgs/${org}/commitment`, body, options);

describe("200", () => {
  it("sets a monthly minimum, shown in the balance and the audit log", async () => {
    const { org, key } = await app.caller(10);
    const { status, body } = await set(org, { min_monthly_usd: 31 });
    const [start, end] = [body.period_start, body.period_end].map((at) => new Date(at * 1000));
    expect([status, body.org_id, body.min_monthly_usd, body.used_usd]).toEqual([200, org, 31, 0]);
    expect(end?.getUTCDate()).toBe(1);
    expect(start! <= new Date()).toBe(true);
    const balance = (await app.call("/v1/billing/balance", undefined, { key })).body;
    expect(balance.commitment).toMatchObject({
      min_monthly_usd: 31,
      used_usd: 0,
      unpaid_fee_usd: 0,
      period_end: body.period_end,
    });
    expect(balance.commitment.remaining_usd).toBeGreaterThan(0);
    const { body: log } = await app.call("/v1/audit?action=commitment.set", undefined, { key });
    expect(log.data).toMatchObject([{ actor: "admin", details: { min_monthly_usd: 31 } }]);
    expect((await set(org, { min_monthly_usd: 0 })).status).toBe(200);
    expect((await app.call("/v1/billing/balance", undefined, { key })).body).not.toHaveProperty("commitment");
  });
});

describe("refusals", () => {
  it("refuses callers other than the operator, unknown organizations and invalid values", async () => {
    const { org, key } = await app.caller(0);
    expect((await set(org, { min_monthly_usd: 1 }, { key })).body.error.code).toBe("admin_token_required");
    expect((await set("org_nobody", { min_monthly_usd: 1 })).status).toBe(404);
    for (const body of [
      { min_monthly_usd: -1 },
      { min_monthly_usd: "NaN" },
      { min_monthly_usd: "Infinity" },
      { min_monthly_usd: 1e300 },
      { min_monthly_usd: 0.0000001 },
      { min_monthly_usd: 1, starts_on: "2020-01-01" },
      { min_monthly_usd: 1, starts_on: "2999-01-01" },
      { min_monthly_usd: 1, starts_on: "2026-02-31" },
      { min_monthly_usd: 1, starts_on: "tomorrow" },
    ])
      expect((await set(org, body)).status, JSON.stringify(body)).toBe(422);
  });
});
