/** What an organisation settles, and what that does to its calls. */
import { beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let two: App;
let model: Model;

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), openModel()]);
  two = await ownGateway({ database: app.database });
  const endpoint = model.endpoint;
  await app.supply({ provider: "keeps", about: { data_collection: "allow" }, model: "a/base", endpoint, region: "eu" });
  await app.supply({
    provider: "forgets",
    about: { data_collection: "deny" },
    model: "a/base",
    endpoint,
    region: "us",
  });
});

const at = ({ org }: Caller) => `/v1/orgs/${org}/settings`;
const patch = (caller: Caller, body: object, key = caller.key) => app.call(at(caller), body, { key, method: "PATCH" });
const act = ({ key }: Caller, more: object = {}, gateway = app) =>
  gateway.call(
    "/v1/act",
    { model: "a/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0] }], ...more },
    { key },
  );
type Drop = { provider: string; reason: string };
const dropped = (body: { error: { details: { dropped: Drop[] } } }) =>
  body.error.details.dropped.map(({ provider, reason }) => [provider, reason]).sort();

describe("GET and PATCH /v1/orgs/{org_id}/settings", () => {
  it("shows the effective settings and changes only the given ones", async () => {
    const caller = await app.caller(0);
    const look = async () => (await app.call(at(caller), undefined, { key: caller.key })).body;
    expect(await look()).toEqual({
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
    });
    await app.call("/v1/presets/fast", { preference: "fastest" }, { key: caller.key, method: "PUT" });
    const all = {
      retention_days: 0,
      zdr: true,
      cache_sharing: false,
      byok_mode: "require",
      default_preset: "fast",
      allowed_regions: ["eu"],
      max_hedge_ratio: 0,
      trust: "named",
      require_signed: false,
      self_registered_apps: "deny",
    };
    // The operator's alone to change.
    const shown = { ...all, hardware_keys: false };
    expect((await patch(caller, all)).body).toEqual(shown);
    expect(await look()).toEqual(shown);
    expect((await patch(caller, { zdr: false, default_preset: "", allowed_regions: [] })).body).toEqual({
      ...shown,
      zdr: false,
      default_preset: null,
      allowed_regions: [],
    });
    expect((await patch(caller, {})).status).toBe(200);
    const { body } = await app.call(`/v1/audit?action=settings.updated`, undefined, { key: caller.key });
    expect(body.data).toHaveLength(3);
  });

  it("refuses invalid settings", async () => {
    const caller = await app.caller(0);
    for (const body of [
      { retention_days: -1 },
      { retention_days: 3651 },
      { byok_mode: "sometimes" },
      { byok_mode: "unspecified" },
      { max_hedge_ratio: 1.1 },
      { max_hedge_ratio: -0.1 },
      { max_hedge_ratio: "NaN" },
      { allowed_regions: [""] },
      { allowed_regions: "eu" },
      { zdr: "yes" },
      { nonsense: 1 },
    ])
      expect((await patch(caller, body)).status, JSON.stringify(body)).toBe(422);
    expect((await patch(caller, { default_preset: "nobody" })).body.error.code).toBe("preset_not_found");
  });

  it("lets owners, admins and the operator change their organization's settings", async () => {
    const [caller, stranger] = [await app.caller(0), await app.caller(0)];
    for (const role of ["developer", "operator", "billing", "viewer", "supplier"])
      expect((await patch(caller, {}, await app.key(caller.org, { role }))).status, role).toBe(403);
    expect((await app.call(at(caller), {}, { admin: ADMIN_TOKEN, method: "PATCH" })).status).toBe(200);
    expect((await patch(caller, {}, stranger.key)).status).toBe(404);
    expect((await app.call(at(caller), undefined, { key: stranger.key })).status).toBe(404);
  });
});

describe("zero data retention", () => {
  it("drops providers that retain frames, whatever the request says, on every replica", async () => {
    const caller = await app.caller(1);
    expect((await act(caller, { provider: { only: ["keeps"] } })).status).toBe(200);
    await patch(caller, { zdr: true });
    for (const gateway of [app, two])
      await expect
        .poll(async () => (await act(caller, { provider: { only: ["keeps"] } }, gateway)).body.error?.code)
        .toBe("no_route_available");
    const { body } = await act(caller, { provider: { only: ["keeps"], data_collection: "allow" } });
    expect(dropped(body)).toEqual([
      ["forgets", "not_in_only"],
      ["keeps", "zdr"],
    ]);
    for (let i = 0; i < 5; i++) expect((await act(caller)).body.route.provider).toBe("forgets");
  });

  it("stores nothing that callers send", async () => {
    const caller = await app.caller(1);
    await patch(caller, { zdr: true });
    const metadata = { note: "canary-4711" };
    expect((await act(caller, { metadata })).status).toBe(200);
    const stored = async () =>
      (await app.sql`select log::text as log from request where org_id = ${caller.org}`)[0]?.log;
    await expect.poll(stored).toBeDefined();
    expect(await stored()).not.toContain("canary-4711");
  });
});

describe("allowed regions", () => {
  it("drops offerings of other regions; a request can only narrow them", async () => {
    const caller = await app.caller(1);
    await patch(caller, { allowed_regions: ["us"] });
    const { body } = await act(caller, { provider: { region: ["eu"] } });
    expect(dropped(body)).toEqual([
      ["forgets", "region"],
      ["keeps", "region"],
    ]);
    for (let i = 0; i < 5; i++) expect((await act(caller)).body.route.region).toBe("us");
  });
});

describe("the settings of a workspace", () => {
  it("apply only to its keys", async () => {
    const caller = await app.caller(1);
    const { body: ws } = await app.call(
      `/v1/orgs/${caller.org}/workspaces`,
      { name: "eu", settings: { allowed_regions: ["eu"] } },
      { key: caller.key },
    );
    const inside = { org: caller.org, key: await app.key(caller.org, { workspace_id: ws.id }) };
    for (let i = 0; i < 5; i++) expect((await act(inside)).body.route.region).toBe("eu");
    expect((await act(caller, { provider: { region: ["us"] } })).status).toBe(200);
    await patch(caller, { allowed_regions: ["us"] });
    expect((await act(inside)).body.error?.code).toBe("no_route_available");
  });
});
