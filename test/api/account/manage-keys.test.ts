/** Keys after they were made: list, change, rotate, revoke. */
import { beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let two: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), openModel()]);
  two = await ownGateway({ database: app.database });
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  caller = await app.caller(10);
});

const act = (key: string, more: object = {}, gateway = app) =>
  gateway.call(
    "/v1/act",
    { model: "acme/base", action_space: "base_twist_2d", horizon: 10, observations: [{ proprio: [0] }], ...more },
    { key },
  );
const made = async (facts: object = {}) =>
  (await app.call(`/v1/orgs/${caller.org}/keys`, facts, { key: caller.key })).body;
const on = (id: string, method: string, body?: object, options: object = { key: caller.key }) =>
  app.call(`/v1/orgs/${caller.org}/keys/${id}`, body, { method, ...options });

describe("GET /v1/orgs/{org_id}/keys", () => {
  it("lists an organization's keys, oldest first, without secrets, by page", async () => {
    const { org, key } = await app.caller(0);
    const ws = (await app.call(`/v1/orgs/${org}/workspaces`, { name: "w" }, { key })).body.id;
    for (const facts of [{ name: "a" }, { name: "b", workspace_id: ws, robot_id: "arm-7" }]) await app.key(org, facts);
    const list = (query = "") => app.call(`/v1/orgs/${org}/keys${query}`, undefined, { key });
    const { body, text } = await list();
    expect(body.data.map(({ name }: { name: string }) => name)).toEqual(["", "a", "b"]);
    expect(body.data[2]).toMatchObject({ workspace_id: ws, robot_id: "arm-7", rate_limit: { streams: 16 } });
    expect(text).not.toContain("lmb_sk_".concat(key.slice(7, 30)));
    const first = (await list("?limit=2")).body;
    expect([first.has_more, first.data.length]).toEqual([true, 2]);
    expect((await list(`?limit=2&cursor=${first.next_cursor}`)).body).toMatchObject({
      has_more: false,
      data: [{ name: "b" }],
    });
    expect((await list(`?workspace_id=${ws}`)).body.data).toHaveLength(1);
    for (const query of ["?limit=0", "?limit=501", "?limit=x"]) expect((await list(query)).status, query).toBe(422);
  });

  it("is readable by owners, admins, viewers and the operator of that organization", async () => {
    const path = `/v1/orgs/${caller.org}/keys`;
    for (const role of ["owner", "admin", "viewer"])
      expect((await app.call(path, undefined, { key: await app.key(caller.org, { role }) })).status, role).toBe(200);
    for (const role of ["operator", "billing", "supplier"])
      expect((await app.call(path, undefined, { key: await app.key(caller.org, { role }) })).status, role).toBe(403);
    expect((await app.call(path, undefined, { admin: ADMIN_TOKEN })).status).toBe(200);
    expect((await app.call(path, undefined, { key: (await app.caller(0)).key })).status).toBe(404);
  });

  it("shows a key with its spending", async () => {
    const key = await made({ budget: { limit_usd: 1, interval: "daily" } });
    expect((await act(key.key)).status).toBe(200);
    const { body } = await on(key.id, "GET");
    expect(body).toMatchObject({
      id: key.id,
      budget: { spent_usd: 0.001 },
      usage_usd: { total: 0.001 },
      byok_usage_usd: 0,
    });
    expect(body).not.toHaveProperty("key");
  });
});

describe("PATCH /v1/orgs/{org_id}/keys/{key_id}", () => {
  it("changes only the given fields", async () => {
    // A key that drives simulations makes none that drives hardware.
    const owner = { key: await app.key(caller.org, { role: "owner", environment: "hardware" }) };
    const facts = { name: "old", robot_id: "r1", scopes: ["act"], budget: { limit_usd: 1 } };
    const key = (await app.call(`/v1/orgs/${caller.org}/keys`, facts, owner)).body;
    const changes = {
      name: "new",
      scopes: ["act", "predict"],
      models: ["acme/*"],
      environment: "hardware",
      budget: { limit_usd: 2, interval: "weekly" },
      rate_limit: { requests: 10, window_s: 1, burst: 5, concurrency: 2, streams: 1 },
      expires_at: Math.floor(Date.now() / 1000) + 1000,
    };
    const { status, body } = await on(key.id, "PATCH", changes, owner);
    expect([status, body]).toEqual([200, expect.objectContaining({ robot_id: "r1", role: "developer" })]);
    expect(body).toMatchObject({ ...changes, budget: { limit_usd: 2, interval: "weekly" } });
    const clear = ["budget", "expires_at", "robot_id", "rate_limit"];
    const cleared = await on(key.id, "PATCH", { clear, models: null }, owner);
    expect(cleared.body).toMatchObject({
      name: "new",
      models: null,
      scopes: ["act", "predict"],
      budget: null,
      expires_at: null,
      robot_id: null,
      rate_limit: { requests: 6000 },
    });
  });

  it("disables, enables and narrows a key on every replica within a second", async () => {
    const key = await made();
    for (const gateway of [app, two]) expect((await act(key.key, {}, gateway)).status).toBe(200);
    const everywhere = async (code: string | undefined) => {
      for (const gateway of [app, two])
        await expect.poll(async () => (await act(key.key, {}, gateway)).body.error?.code).toBe(code);
    };
    await on(key.id, "PATCH", { disabled: true });
    await everywhere("key_disabled");
    await on(key.id, "PATCH", { disabled: false, scopes: ["predict"] });
    await everywhere("scope_denied");
    await on(key.id, "PATCH", { scopes: null, models: ["other/*"] });
    await everywhere("model_not_in_scope");
  });

  it("applies at once a budget below the amount spent", async () => {
    const key = await made({ budget: { limit_usd: 1, interval: "monthly" } });
    for (let i = 0; i < 3; i++) expect((await act(key.key)).status).toBe(200);
    const { body } = await on(key.id, "PATCH", { budget: { limit_usd: 0.001, interval: "monthly" } });
    // Whatever shows the key shows the same of its budget.
    const budget = { limit_usd: 0.001, interval: "monthly", spent_usd: 0.003, remaining_usd: 0 };
    expect(body.budget).toEqual({ ...budget, resets_at: expect.any(Number) });
    const { data } = (await app.call(`/v1/orgs/${caller.org}/keys?limit=500`, undefined, { key: caller.key })).body;
    expect(data.find(({ id }: { id: string }) => id === key.id).budget).toEqual(body.budget);
    expect((await act(key.key)).body.error?.code).toBe("key_budget_exhausted");
    const { body: shown } = await on(key.id, "GET");
    expect(shown.budget).toMatchObject({ spent_usd: 0.003, remaining_usd: 0 });
  });

  it("refuses invalid fields, and a field that is set and cleared at once", async () => {
    const { id } = await made();
    for (const body of [
      { expires_at: 1 },
      { budget: { limit_usd: -1 } },
      { budget: { limit_usd: 0.0000001 } },
      { rate_limit: { requests: 0, window_s: 1 } },
      { rate_limit: { requests: 1, window_s: 100_000 } },
      { scopes: ["fly"] },
      { clear: ["name"] },
      { clear: ["budget"], budget: { limit_usd: 1 } },
      { workspace_id: "ws_1" },
    ])
      expect((await on(id, "PATCH", body)).status, JSON.stringify(body)).toBe(422);
  });
});

describe("DELETE /v1/orgs/{org_id}/keys/{key_id}", () => {
  it("revokes a key for good: every replica refuses it within a second, and no list shows it", async () => {
    const key = await made();
    for (const gateway of [app, two]) expect((await act(key.key, {}, gateway)).status).toBe(200);
    const { status, body } = await on(key.id, "DELETE");
    expect([status, body.id, body.disabled]).toEqual([200, key.id, true]);
    for (const gateway of [app, two]) await expect.poll(async () => (await act(key.key, {}, gateway)).status).toBe(401);
    expect((await on(key.id, "DELETE")).status).toBe(404);
    expect((await on(key.id, "PATCH", { disabled: false })).status).toBe(404);
    const { body: list } = await app.call(`/v1/orgs/${caller.org}/keys?limit=500`, undefined, { key: caller.key });
    expect(list.data.map(({ id }: { id: string }) => id)).not.toContain(key.id);
    const rows = await app.sql`select name from outbox where org_id = ${caller.org} and name = 'key.revoked'`;
    expect(rows.length).toBe(1);
    const { body: log } = await app.call(`/v1/audit?subject=${key.id}`, undefined, { key: caller.key });
    expect(log.data.map(({ action }: { action: string }) => action)).toEqual(["key.revoked", "key.created"]);
  });
});

describe("POST /v1/orgs/{org_id}/keys/{key_id}/rotate", () => {
  it("returns a new secret once and refuses the old one everywhere", async () => {
    const key = await made({ name: "spin" });
    for (const gateway of [app, two]) expect((await act(key.key, {}, gateway)).status).toBe(200);
    const { status, body } = await app.call(`/v1/orgs/${caller.org}/keys/${key.id}/rotate`, {}, { key: caller.key });
    expect([status, body.id, body.name]).toEqual([200, key.id, "spin"]);
    expect(body.key).not.toBe(key.key);
    for (const gateway of [app, two]) {
      expect((await act(body.key, {}, gateway)).status).toBe(200);
      await expect.poll(async () => (await act(key.key, {}, gateway)).body.error?.code).toBe("invalid_api_key");
    }
  });
});

describe("a key that manages keys", () => {
  it("cannot change keys above its role, in other workspaces or other organizations", async () => {
    const owners = await made({ role: "owner" });
    const admin = await app.key(caller.org, { role: "admin" });
    for (const [method, body] of [["PATCH", { name: "x" }], ["DELETE"]] as const)
      expect((await on(owners.id, method, body, { key: admin })).status, method).toBe(403);
    expect((await app.call(`/v1/orgs/${caller.org}/keys/${owners.id}/rotate`, {}, { key: admin })).status).toBe(403);
    const narrow = await app.key(caller.org, { role: "admin", models: ["acme/base"] });
    const plain = await made({ models: ["acme/base"] });
    expect((await on(plain.id, "PATCH", { models: null }, { key: narrow })).status).toBe(403);
    expect((await on(plain.id, "PATCH", { name: "ok" }, { key: narrow })).status).toBe(200);

    const ws = (await app.call(`/v1/orgs/${caller.org}/workspaces`, { name: "ours" }, { key: caller.key })).body.id;
    const inside = await app.key(caller.org, { role: "admin", workspace_id: ws });
    expect((await on(plain.id, "PATCH", { name: "x" }, { key: inside })).status).toBe(404);
    const { body: seen } = await app.call(`/v1/orgs/${caller.org}/keys`, undefined, { key: inside });
    expect(seen.data).toHaveLength(1);
    expect((await app.call(`/v1/orgs/${caller.org}/keys?workspace_id=ws_1`, undefined, { key: inside })).status).toBe(
      403,
    );
    const { body: own } = await app.call(`/v1/orgs/${caller.org}/keys`, {}, { key: inside });
    expect(own.workspace_id).toBe(ws);

    const stranger = await app.caller(0);
    for (const [method, body] of [["GET"], ["PATCH", { name: "x" }], ["DELETE"]] as const) {
      const path = `/v1/orgs/${stranger.org}/keys/${plain.id}`;
      expect((await app.call(path, body, { method, key: stranger.key })).status, method).toBe(404);
    }
  });
});

describe("a key that makes keys", () => {
  const makes = async (facts: object, wanted: object) =>
    app.call(`/v1/orgs/${caller.org}/keys`, wanted, { key: await app.key(caller.org, { role: "admin", ...facts }) });

  it("makes keys that spend from its budget, with no larger budget", async () => {
    const budget = { limit_usd: 1, interval: "daily" };
    expect((await makes({ budget }, {})).body).toMatchObject({ budget });
    expect((await makes({ budget }, { budget: { limit_usd: 0.5, interval: "daily" } })).status).toBe(201);
    for (const wider of [
      { limit_usd: 2, interval: "daily" },
      { limit_usd: 0.5, interval: "hourly" },
    ])
      expect((await makes({ budget }, { budget: wider })).status).toBeGreaterThanOrEqual(403);
  });

  it("cannot lift its own limits or rotate a wider key", async () => {
    const soon = Math.floor(Date.now() / 1000) + 1000;
    const rotate = (id: string, key: string) => app.call(`/v1/orgs/${caller.org}/keys/${id}/rotate`, {}, { key });
    const wide = await made({ role: "admin" });
    for (const facts of [
      { budget: { limit_usd: 1 } },
      { models: ["acme/base"] },
      { scopes: ["act"] },
      { expires_at: soon },
    ]) {
      const narrow = await made({ role: "admin", ...facts });
      const what = JSON.stringify(facts);
      expect((await rotate(wide.id, narrow.key)).body.error?.code, what).toBe("scope_denied");
      const off = {
        budget: { clear: ["budget"] },
        models: { models: null },
        scopes: { scopes: null },
        expires_at: { clear: ["expires_at"] },
      };
      const change = off[Object.keys(facts)[0] as keyof typeof off];
      expect((await on(narrow.id, "PATCH", change, { key: narrow.key })).body.error?.code, what).toBe("scope_denied");
    }
  });

  it("cannot make a key that outlives it", async () => {
    const soon = Math.floor(Date.now() / 1000) + 1000;
    expect((await makes({ expires_at: soon }, { expires_at: soon + 1 })).status).toBe(403);
    expect((await makes({ expires_at: soon }, {})).body.expires_at).toBe(soon);
    expect((await makes({ expires_at: soon }, { expires_at: soon - 1 })).body.expires_at).toBe(soon - 1);
  });
});

describe("GET /v1/key", () => {
  it("returns every field of a key", async () => {
    const ws = (await app.call(`/v1/orgs/${caller.org}/workspaces`, { name: "all" }, { key: caller.key })).body.id;
    const facts = {
      name: "arm",
      workspace_id: ws,
      robot_id: "arm-7",
      scopes: ["act"],
      models: ["acme/base"],
      environment: "hardware",
      budget: { limit_usd: 1, interval: "daily" },
      expires_at: Math.floor(Date.now() / 1000) + 1000,
    };
    const { body } = await app.call("/v1/key", undefined, { key: await app.key(caller.org, facts) });
    expect(body).toMatchObject({
      ...facts,
      id: expect.stringMatching(/^key_/),
      prefix: expect.stringMatching(/^lmb_sk_/),
      org_id: caller.org,
      created_at: expect.any(Number),
      disabled: false,
      budget: { limit_usd: 1, interval: "daily", spent_usd: 0, remaining_usd: 1, resets_at: expect.any(Number) },
      rate_limit: {
        requests: 6000,
        window_s: 60,
        concurrency: 64,
        streams: 16,
        remaining: expect.any(Number),
        reset_at: expect.any(Number),
      },
      usage_usd: { day: 0, week: 0, month: 0, total: 0 },
      byok_usage_usd: 0,
    });
  });
});
