/** Keys: making them, and what one says of itself. */
import { beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { type Market, openMarket } from "../../support/market.ts";
import { uniqueNames } from "../../support/names.ts";

const named = uniqueNames("acme");

let market: Market;
let app: App;
let caller: Caller;

beforeAll(async () => {
  market = await openMarket([{ provider: named.acme, model: `${named.acme}/base` }]);
  ({ app, caller } = market);
});

const make = (org: string, body: unknown, options: object = { admin: ADMIN_TOKEN }) =>
  app.call(`/v1/orgs/${org}/keys`, body, options);

describe("POST /v1/orgs/{org_id}/keys", () => {
  it("makes a key with the defaults and returns its secret only once", async () => {
    const { status, body } = await make(caller.org, {});
    expect(status).toBe(201);
    expect(body).toEqual({
      id: expect.stringMatching(/^key_/),
      key: expect.stringMatching(/^lmb_sk_/),
      name: "",
      prefix: body.key.slice(0, body.prefix.length),
      org_id: caller.org,
      created_at: expect.any(Number),
      expires_at: null,
      disabled: false,
      scopes: ["act", "predict", "ground", "evaluate"],
      models: null,
      budget: null,
      rate_limit: { requests: 6000, window_s: 60, burst: 600, concurrency: 64, streams: 16 },
      workspace_id: null,
      robot_id: null,
      role: "developer",
      environment: "simulation",
      user_id: null,
      permissions: [],
      require_signed: false,
    });
    const [row] = await app.sql`select row_to_json(key)::text as text from key where id = ${body.id}`;
    expect(row?.text).not.toContain(body.key);
  });

  it("accepts a call without a body", async () => {
    const { status } = await app.call(`/v1/orgs/${caller.org}/keys`, undefined, { admin: ADMIN_TOKEN, method: "POST" });
    expect(status).toBe(201);
  });

  it("stores every field of the request", async () => {
    const facts = {
      name: "arm 7",
      scopes: ["act", "ground"],
      models: [`${named.acme}/*`],
      environment: "hardware",
      expires_at: Math.floor(Date.now() / 1000) + 3600,
      budget: { limit_usd: 2.5, interval: "weekly" },
      rate_limit: { requests: 100, window_s: 10, burst: 20, concurrency: 3 },
      role: "operator",
    };
    const { body } = await make(caller.org, facts);
    expect(body).toMatchObject({ ...facts, budget: { limit_usd: 2.5, interval: "weekly" } });
    const { body: shown } = await app.call("/v1/key", undefined, { key: body.key });
    expect(shown).toMatchObject({ ...facts, rate_limit: facts.rate_limit });
  });

  it("lets only owners and admins make keys, in their own organization", async () => {
    for (const role of ["owner", "admin"]) {
      const key = await app.key(caller.org, { role });
      expect((await make(caller.org, {}, { key })).status, role).toBe(201);
    }
    // A developer makes keys of his own user, and this key belongs to none.
    for (const role of ["developer", "operator", "billing", "viewer", "supplier"]) {
      const key = await app.key(caller.org, { role });
      expect((await make(caller.org, {}, { key })).body.error.code, role).toBe("permission_denied");
    }
    expect((await make(caller.org, {}, {})).body.error.code).toBe("missing_api_key");
    expect((await make(caller.org, {}, { admin: "wrong" })).body.error.code).toBe("invalid_admin_token");
  });

  it("refuses a key with more authority than its creator", async () => {
    const narrow = { role: "admin", scopes: ["act", "ground"], models: [`${named.acme}/base`, "other/*"] };
    const key = await app.key(caller.org, narrow);
    const made = async (more: object) => (await make(caller.org, { ...narrow, ...more }, { key })).status;
    expect(await made({})).toBe(201);
    expect(await made({ scopes: ["act"], models: ["other/thing"], role: "developer" })).toBe(201);
    expect(await made({ role: "owner" })).toBe(403);
    expect(await made({ scopes: ["act", "predict"] })).toBe(403);
    expect(await made({ models: ["*"] })).toBe(403);
    expect(await made({ models: [`${named.acme}/*`] })).toBe(403);
  });

  it("inherits absent fields from the creating key", async () => {
    const lab = (await app.admin(`/v1/orgs/${caller.org}/workspaces`, { name: "left out" })).id;
    const facts = {
      role: "admin",
      scopes: ["act"],
      models: [`${named.acme}/base`],
      environment: "hardware",
      workspace_id: lab,
      robot_id: "arm-7",
      bounds: { lowest: [-1], highest: [1] },
      budget: { limit_usd: 2, interval: "weekly" },
      rate_limit: { requests: 7, window_s: 10, burst: 3, concurrency: 2, streams: 1 },
      expires_at: Math.floor(Date.now() / 1000) + 3600,
    };
    const maker = await app.admin(`/v1/orgs/${caller.org}/keys`, facts);
    const { status, body } = await make(caller.org, {}, { key: maker.key });
    const { role: _, ...inherited } = facts;
    expect([status, body]).toEqual([201, expect.objectContaining({ parent_id: maker.id, role: "developer" })]);
    expect(body).toMatchObject(inherited);
  });

  it("returns 404 for another organization's keys", async () => {
    const stranger = await app.caller(0);
    for (const org of [stranger.org, "org_nobody"]) {
      const { status, body } = await make(org, {}, { key: caller.key });
      expect([status, body.error.code]).toEqual([404, "not_found"]);
    }
    expect((await make("org_nobody", {})).status).toBe(404);
  });

  it("requires both to be valid if token and key are sent", async () => {
    expect((await make(caller.org, {}, { admin: ADMIN_TOKEN, key: "lmb_sk_nobody" })).status).toBe(401);
    expect((await make(caller.org, {}, { admin: "wrong", key: caller.key })).status).toBe(403);
    expect((await make(caller.org, {}, { admin: ADMIN_TOKEN, key: caller.key })).status).toBe(201);
  });

  it("refuses invalid fields", async () => {
    for (const body of [
      { scopes: ["fly"] },
      { role: "king" },
      { environment: "space" },
      { expires_at: 1 },
      { budget: { limit_usd: -1 } },
      { budget: { limit_usd: 1, interval: "hourly" } },
      { rate_limit: { requests: 0, window_s: 1 } },
      { org_id: caller.org },
    ]) {
      expect((await make(caller.org, body)).status, JSON.stringify(body)).toBe(422);
    }
  });
});

describe("GET /v1/key", () => {
  it("shows the calling key without its secret: limits, budget and spending", async () => {
    const key = await app.key(caller.org, { budget: { limit_usd: 1, interval: "monthly" } });
    const body = {
      model: `${named.acme}/base`,
      action_space: "base_twist_2d",
      horizon: 10,
      observations: [{ proprio: [0] }],
    };
    expect((await app.call("/v1/act", body, { key })).status).toBe(200);
    const look = () => app.call("/v1/key", undefined, { key });
    await expect.poll(async () => (await look()).body.usage_usd.total).toBe(0.001);
    const { status, body: shown, text } = await look();
    expect(status).toBe(200);
    expect(shown).toMatchObject({
      org_id: caller.org,
      budget: {
        limit_usd: 1,
        interval: "monthly",
        spent_usd: 0.001,
        remaining_usd: 0.999,
        resets_at: expect.any(Number),
      },
      usage_usd: { day: 0.001, week: 0.001, month: 0.001, total: 0.001 },
      rate_limit: { requests: 6000, window_s: 60, remaining: expect.any(Number), reset_at: expect.any(Number) },
    });
    expect(shown).not.toHaveProperty("key");
    expect(text).not.toContain(key);
  });

  it("refuses a body, a query and other methods", async () => {
    const { key } = caller;
    expect((await app.call("/v1/key?verbose=1", undefined, { key })).status).toBe(422);
    const { status, headers } = await app.call("/v1/key", {}, { key });
    expect([status, headers.get("allow")]).toEqual([405, "GET, HEAD, OPTIONS"]);
    expect((await app.call("/v1/key")).status).toBe(401);
  });
});
