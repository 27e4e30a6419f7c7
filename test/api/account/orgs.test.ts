/** Organisations and their credit. */
import { beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App } from "../../support/app.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let open: App;

beforeAll(async () => {
  [app, open] = await Promise.all([ownGateway(), ownGateway({ publicSignup: true })]);
});

const byOperator = { admin: ADMIN_TOKEN };

describe("POST /v1/orgs", () => {
  it("creates an organization for the operator", async () => {
    const { status, body } = await app.call("/v1/orgs", { name: "Acme", email: "a@acme.example" }, byOperator);
    expect([status, body]).toEqual([
      201,
      {
        id: expect.stringMatching(/^org_[0-9A-Z]{26}$/),
        name: "Acme",
        created: expect.closeTo(Date.now() / 1000, -2),
        status: "active",
      },
    ]);
  });

  it("refuses other callers without public signup", async () => {
    const none = await app.call("/v1/orgs", { name: "Acme" });
    expect([none.status, none.body.error.code]).toEqual([401, "admin_token_required"]);
    const wrong = await app.call("/v1/orgs", { name: "Acme" }, { admin: `${ADMIN_TOKEN}x` });
    expect([wrong.status, wrong.body.error.code]).toEqual([403, "invalid_admin_token"]);
    const { key } = await app.caller(0);
    expect((await app.call("/v1/orgs", { name: "Acme" }, { key })).status).toBe(401);
  });

  it("with public signup lets anyone create an organization with one working key and no credit", async () => {
    const { status, body } = await open.call("/v1/orgs", { name: "Newcomer" });
    expect([status, body.key.key]).toEqual([201, expect.stringMatching(/^lmb_sk_/)]);
    const balance = await open.call("/v1/billing/balance", undefined, { key: body.key.key });
    expect(balance.body).toMatchObject({ org_id: body.id, granted_usd: 0, balance_usd: 0 });
    const credits = await open.call(`/v1/orgs/${body.id}/credits`, { amount_usd: 5 }, { key: body.key.key });
    expect([credits.status, credits.body.error.code]).toEqual([401, "admin_token_required"]);
  });

  it("limits signups per address", async () => {
    const statuses: number[] = [];
    const second = await ownGateway({ publicSignup: true, database: open.database });
    for (let i = 0; i < 12; i++)
      statuses.push((await (i % 2 ? second : open).call("/v1/orgs", { name: `Newcomer ${i}` })).status);
    await second.close();
    expect(statuses.filter((status) => status === 201).length).toBeLessThanOrEqual(5);
    expect(statuses.at(-1)).toBe(429);
    expect((await open.call("/v1/orgs", { name: "Acme" }, byOperator)).status).toBe(201);
  });

  it("requires a name and a valid e-mail address", async () => {
    const { status, body } = await app.call("/v1/orgs", { email: "nobody" }, byOperator);
    expect(status).toBe(422);
    expect(body.detail).toMatchObject([{ loc: ["body", "name"], type: "missing" }, { loc: ["body", "email"] }]);
  });
});

describe("POST /v1/orgs/{org_id}/credits", () => {
  it("adds credit to the micro-dollar", async () => {
    const { org, key } = await app.caller(0);
    const { status, body } = await app.call(
      `/v1/orgs/${org}/credits`,
      { amount_usd: 0.000001, reason: "gift" },
      byOperator,
    );
    expect([status, body]).toEqual([
      200,
      { org_id: org, balance_usd: 0.000001, entry_id: expect.stringMatching(/^entry_/) },
    ]);
    expect((await app.admin(`/v1/orgs/${org}/credits`, { amount_usd: 12.34 })).balance_usd).toBe(12.340001);
    expect((await app.call("/v1/billing/balance", undefined, { key })).body.granted_usd).toBe(12.340001);
  });

  it("adds credit once per idempotency key, and refuses the key for another amount", async () => {
    const { org } = await app.caller(0);
    const grant = { amount_usd: 5, idempotency_key: "march" };
    const [first, again] = [
      await app.admin(`/v1/orgs/${org}/credits`, grant),
      await app.admin(`/v1/orgs/${org}/credits`, grant),
    ];
    expect(again).toEqual(first);
    const other = await app.call(`/v1/orgs/${org}/credits`, { ...grant, amount_usd: 6 }, byOperator);
    expect([other.status, other.body.error.code]).toEqual([409, "idempotency_conflict"]);
    const many = await Promise.all(
      Array.from({ length: 8 }, () =>
        app.admin(`/v1/orgs/${org}/credits`, { amount_usd: 1, idempotency_key: "april" }),
      ),
    );
    expect(new Set(many.map(({ entry_id }) => entry_id)).size).toBe(1);
    expect(many[0].balance_usd).toBe(6);
  });

  it("refuses invalid amounts", async () => {
    const { org } = await app.caller(0);
    for (const amount_usd of [0, -1, 1e9, "5", null, 0.0000001]) {
      const { status } = await app.call(`/v1/orgs/${org}/credits`, { amount_usd }, byOperator);
      expect(status, String(amount_usd)).toBe(422);
    }
  });

  it("returns 404 for an unknown organization", async () => {
    const { status, body } = await app.call("/v1/orgs/org_nobody/credits", { amount_usd: 1 }, byOperator);
    expect([status, body.error.code]).toEqual([404, "not_found"]);
  });
});
