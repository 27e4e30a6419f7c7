/** Workspaces: parts of an organisation with a budget of their own. */
import { beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { brokenInvariants } from "../../support/invariants.ts";
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

const at = (org: string, id = "") => `/v1/orgs/${org}/workspaces${id && `/${id}`}`;
const make = (body: object, options: object = { key: caller.key }) => app.call(at(caller.org), body, options);
const act = (key: string, horizon = 10, gateway = app) =>
  gateway.call(
    "/v1/act",
    { model: "acme/base", action_space: "base_twist_2d", horizon, observations: [{ proprio: [0] }] },
    { key },
  );
const usual = {
  retention_days: 30,
  zdr: false,
  cache_sharing: false,
  byok_mode: "prefer",
  default_preset: null,
  allowed_regions: [],
  max_hedge_ratio: 0.05,
  trust: "named",
  require_signed: false,
  self_registered_apps: "allow",
  hardware_keys: false,
};

describe("POST /v1/orgs/{org_id}/workspaces", () => {
  it("creates a workspace with a slug from its name", async () => {
    const { status, body } = await make({ name: "Pick & Place, Süd" });
    expect([status, body]).toEqual([
      201,
      {
        id: expect.stringMatching(/^ws_/),
        org_id: caller.org,
        name: "Pick & Place, Süd",
        slug: "pick-place-sud",
        budget: null,
        settings: usual,
        created: expect.any(Number),
      },
    ]);
    expect((await app.call(at(caller.org, body.id), undefined, { key: caller.key })).body).toEqual(body);
  });

  it("stores budget and settings, which narrow the organization's", async () => {
    const { org, key } = await app.caller(0);
    await app.call(
      `/v1/orgs/${org}/settings`,
      { zdr: true, allowed_regions: ["eu", "us"], retention_days: 7 },
      { key, method: "PATCH" },
    );
    const { body } = await app.call(
      at(org),
      {
        name: "Lab",
        slug: "lab",
        budget: { limit_usd: 5, interval: "weekly" },
        settings: { zdr: false, allowed_regions: ["eu", "asia"], byok_mode: "require" },
      },
      { key },
    );
    expect(body).toMatchObject({
      slug: "lab",
      budget: { limit_usd: 5, interval: "weekly", spent_usd: 0, remaining_usd: 5, resets_at: expect.any(Number) },
      settings: { zdr: true, allowed_regions: ["eu"], byok_mode: "require", retention_days: 7 },
    });
  });

  it("assigns each slug once per organization, even for concurrent calls", async () => {
    const answers = await Promise.all(Array.from({ length: 6 }, () => make({ name: "Twin", slug: "twin" })));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409, 409, 409, 409, 409]);
    const stranger = await app.caller(0);
    expect((await app.call(at(stranger.org), { name: "Twin" }, { key: stranger.key })).status).toBe(201);
  });

  it("refuses invalid fields", async () => {
    for (const body of [
      {},
      { name: "" },
      { name: "x", slug: "No Spaces" },
      { name: "x", slug: "-x" },
      { name: "世界" },
      { name: "x", budget: { limit_usd: -1 } },
      { name: "x", budget: { limit_usd: 0.0000001 } },
      { name: "x", budget: { limit_usd: 1e300 } },
      { name: "x", budget: { limit_usd: "NaN" } },
      { name: "x", budget: { limit_usd: 1, interval: "hourly" } },
      { name: "x", settings: { byok_mode: "maybe" } },
      { name: "x", settings: { max_hedge_ratio: 2 } },
    ])
      expect((await make(body)).status, JSON.stringify(body)).toBe(422);
    expect((await make({ name: "x", settings: { default_preset: "none" } })).body.error.code).toBe("preset_not_found");
  });
});

describe("GET, PATCH and DELETE", () => {
  it("list with a cursor, update and delete", async () => {
    const { org, key } = await app.caller(0);
    const ids: string[] = [];
    for (const name of ["a", "b", "c"]) ids.push((await app.call(at(org), { name }, { key })).body.id);
    const first = (await app.call(`${at(org)}?limit=2`, undefined, { key })).body;
    expect([first.object, first.has_more, first.data.map(({ id }: { id: string }) => id)]).toEqual([
      "list",
      true,
      ids.slice(0, 2),
    ]);
    const rest = (await app.call(`${at(org)}?limit=2&cursor=${first.next_cursor}`, undefined, { key })).body;
    expect([rest.has_more, rest.data.map(({ id }: { id: string }) => id)]).toEqual([false, ids.slice(2)]);

    const change = (body: object) => app.call(at(org, ids[0]), body, { key, method: "PATCH" });
    const changes = { name: "A", slug: "aa", budget: { limit_usd: 1 }, settings: { zdr: true } };
    expect((await change(changes)).body).toMatchObject({
      name: "A",
      slug: "aa",
      budget: { limit_usd: 1, interval: "lifetime" },
      settings: { zdr: true },
    });
    expect((await change({ clear: ["budget", "settings"] })).body).toMatchObject({
      name: "A",
      budget: null,
      settings: usual,
    });
    expect((await change({ clear: ["budget"], budget: { limit_usd: 1 } })).status).toBe(422);
    expect((await change({ slug: "b" })).body.error.code).toBe("already_exists");

    const remove = (query = "") => app.call(at(org, ids[0]) + query, undefined, { key, method: "DELETE" });
    expect((await remove()).body).toEqual({ id: ids[0], deleted: true, revoked_keys: [] });
    expect((await remove()).status).toBe(404);
    expect((await app.call(at(org, ids[0]), undefined, { key })).status).toBe(404);
    expect((await app.call(at(org), { name: "again", slug: "aa" }, { key })).status).toBe(201);
  });

  it("deletes a workspace with keys only by force, and revokes them", async () => {
    const { body: ws } = await make({ name: "to go" });
    const key = await app.key(caller.org, { workspace_id: ws.id });
    expect((await act(key)).status).toBe(200);
    const remove = (query = "") =>
      app.call(at(caller.org, ws.id) + query, undefined, { key: caller.key, method: "DELETE" });
    expect((await remove()).body.error.code).toBe("workspace_in_use");
    const { body } = await remove("?force=true");
    expect(body.revoked_keys).toHaveLength(1);
    expect((await act(key)).body.error?.code).toBe("key_disabled");
    expect((await app.call(`/v1/orgs/${caller.org}/keys`, { workspace_id: ws.id }, { key: caller.key })).status).toBe(
      404,
    );
  });

  it("return 404 for another organization's workspaces", async () => {
    const stranger = await app.caller(0);
    const { body: ws } = await make({ name: "mine" });
    for (const [org, id] of [
      [stranger.org, ws.id],
      [caller.org, ws.id],
      ["org_nobody", ws.id],
    ]) {
      const key = stranger.key;
      const calls = [
        app.call(at(org!, id), undefined, { key }),
        app.call(at(org!, id), { name: "x" }, { key, method: "PATCH" }),
        app.call(at(org!, id), undefined, { key, method: "DELETE" }),
      ];
      for (const { status, body } of await Promise.all(calls))
        expect([status, body.error.code]).toEqual([404, "not_found"]);
    }
    expect((await app.call(at(caller.org), undefined, { key: stranger.key })).status).toBe(404);
    expect((await app.call(at(caller.org), undefined, {})).status).toBe(401);
  });

  it("require an owner, an admin or the operator", async () => {
    for (const role of ["developer", "operator", "billing", "viewer", "supplier"])
      expect((await make({ name: role }, { key: await app.key(caller.org, { role }) })).status, role).toBe(403);
    expect((await make({ name: "admins" }, { key: await app.key(caller.org, { role: "admin" }) })).status).toBe(201);
    expect((await make({ name: "operators" }, { admin: ADMIN_TOKEN })).status).toBe(201);
  });
});

describe("the budget of a workspace", () => {
  const budgeted = async (limit_usd: number, interval = "daily") => {
    const { body: ws } = await make({ name: `budget ${Math.random()}`, budget: { limit_usd, interval } });
    const keys = [];
    for (let i = 0; i < 2; i++) keys.push(await app.key(caller.org, { workspace_id: ws.id }));
    return { ws: ws.id as string, one: keys[0]!, other: keys[1]! };
  };

  it("is shared by its keys; 402 names what ran out and its renewal", async () => {
    const { ws, one, other } = await budgeted(0.003);
    expect([(await act(one)).status, (await act(other)).status]).toEqual([200, 200]);
    const { status, body } = await act(one, 20);
    expect([status, body.error.code]).toEqual([402, "workspace_budget_exhausted"]);
    const midnight = Math.floor(Date.now() / 86_400_000 + 1) * 86_400;
    expect(body.error.details).toMatchObject({
      limit_source: "workspace_budget",
      required_usd: 0.002,
      available_usd: 0.001,
      shortfall_usd: 0.001,
      resets_at: midnight,
      max_affordable: { horizon: 10 },
    });
    expect((await act(one)).status).toBe(200);
    expect((await act(other)).body.error.code).toBe("workspace_budget_exhausted");
    expect((await act(caller.key)).status).toBe(200);
    const { body: shown } = await app.call(at(caller.org, ws), undefined, { key: caller.key });
    expect(shown.budget).toMatchObject({ spent_usd: 0.003, remaining_usd: 0 });
    expect(await brokenInvariants(app.sql)).toEqual([]);
  });

  it("of forty calls serves exactly forty from two replicas and two keys", async () => {
    const { one, other } = await budgeted(0.04);
    const calls = Array.from({ length: 100 }, (_, i) => act(i % 2 ? one : other, 10, i % 4 < 2 ? app : two));
    const answers = await Promise.all(calls);
    expect(answers.filter(({ status }) => status === 200).length).toBe(40);
    for (const { status, body } of answers)
      if (status !== 200) expect([status, body.error.code]).toEqual([402, "workspace_budget_exhausted"]);
    expect(await brokenInvariants(app.sql)).toEqual([]);
  });

  it("set below the amount spent admits nothing more, on every replica", async () => {
    const { ws, one } = await budgeted(1);
    for (const gateway of [app, two]) expect((await act(one, 10, gateway)).status).toBe(200);
    const { status, body } = await app.call(
      at(caller.org, ws),
      { budget: { limit_usd: 0.001, interval: "daily" } },
      { key: caller.key, method: "PATCH" },
    );
    expect([status, body.budget.limit_usd, body.budget.remaining_usd]).toEqual([200, 0.001, 0]);
    for (const gateway of [app, two])
      await expect.poll(async () => (await act(one, 10, gateway)).body.error?.code).toBe("workspace_budget_exhausted");
    await app.call(at(caller.org, ws), { clear: ["budget"] }, { key: caller.key, method: "PATCH" });
    expect((await act(one)).status).toBe(200);
    expect(await brokenInvariants(app.sql)).toEqual([]);
  });

  it("applies together with the key's; the smaller one is reported", async () => {
    const { ws } = await budgeted(1);
    const key = await app.key(caller.org, { workspace_id: ws, budget: { limit_usd: 0.001 } });
    expect((await act(key)).status).toBe(200);
    expect((await act(key)).body.error.code).toBe("key_budget_exhausted");
  });
});
