/** Robots that are written down: PUT, GET, DELETE /v1/robots/{robot_id}, GET /v1/robots, and what can drive them. */
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import { FleetService } from "../../../gen/limber/v1/fleet_service_pb.ts";
import { DropReason } from "../../../gen/limber/v1/plan_pb.ts";
import type { App, Caller } from "../../support/app.ts";
import { bearer } from "../../support/clients.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";
import { openModel, openWorld } from "../../support/world.ts";

const named = uniqueNames("acme", "plain", "reader", "turner", "meaning");

let app: App;
let model: Model;
let owner: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([openWorld(), openModel()]);
  owner = await app.caller(1);
});

const BASE = { action_space: "base_twist_2d" };
const ARM = {
  description: "the arm at the window",
  embodiment: "arm",
  action_space: "ee_delta_6d_grip",
  cameras: [
    { name: "wrist", role: "wrist", width: 224, height: 224, format: "jpeg", rate_hz: 30 },
    { name: "scene", width: 640, height: 480 },
  ],
  proprio: { names: ["x", "y", "z"], units: ["m"] },
  actions: { reference: "relative", gripper: { indexes: [6], open: 1, closed: 0 } },
  bounds: { lowest: [-0.1], highest: [0.1], max_change: 0.05 },
  control_hz: 20,
};
const put = (id: string, config: unknown, { key } = owner, query = "") =>
  app.call(`/v1/robots/${encodeURIComponent(id)}${query}`, config, { key, method: "PUT" });
const get = (path: string, { key }: Pick<Caller, "key"> = owner) => app.call(`/v1/robots${path}`, undefined, { key });
const remove = (id: string, { key }: Pick<Caller, "key"> = owner, query = "") =>
  app.call(`/v1/robots/${id}${query}`, undefined, { key, method: "DELETE" });

describe("a robot", () => {
  it("is stored as registered, with its keys, over REST, gRPC and Connect", async () => {
    const mine = await app.caller(0);
    const bound = await app.admin(`/v1/orgs/${mine.org}/keys`, { robot_id: "arm 1" });
    const revoked = await app.admin(`/v1/orgs/${mine.org}/keys`, { robot_id: "arm 1" });
    await app.call(`/v1/orgs/${mine.org}/keys/${revoked.id}`, undefined, { key: mine.key, method: "DELETE" });
    const saved = await put("arm 1", ARM, mine);
    expect(saved.status).toBe(200);
    expect(saved.body).toMatchObject({
      id: "arm 1",
      object: "robot",
      org_id: mine.org,
      key_ids: [bound.id],
      config: ARM,
    });
    expect((await get("/arm%201", mine)).body).toEqual(saved.body);
    for (const transport of [
      createGrpcTransport({ baseUrl: app.url }),
      createConnectTransport({ baseUrl: app.url, httpVersion: "2" }),
    ]) {
      const { robot } = await createClient(FleetService, transport).getRobot({ robotId: "arm 1" }, bearer(mine.key));
      expect([robot?.config?.cameras.map(({ name }) => name), robot?.keyIds]).toEqual([["wrist", "scene"], [bound.id]]);
    }
    const changed = await put("arm 1", { ...ARM, control_hz: 30 }, mine);
    expect([changed.body.config.control_hz, changed.body.created]).toEqual([30, saved.body.created]);
    expect((await remove("arm%201", mine)).body).toEqual({ object: "robot", id: "arm 1", deleted: true });
    expect([(await get("/arm%201", mine)).status, (await remove("arm%201", mine)).status]).toEqual([404, 404]);
  });

  it("belongs to the registering key's workspace; two workspaces may use one name", async () => {
    const mine = await app.caller(0);
    const space = async (name: string) =>
      (await app.call(`/v1/orgs/${mine.org}/workspaces`, { name }, { key: mine.key })).body.id as string;
    const [a, b] = [await space("a"), await space("b")];
    const keyOf = async (workspace_id: string) => ({
      org: mine.org,
      key: await app.key(mine.org, { role: "owner", workspace_id }),
    });
    const [inA, inB] = [await keyOf(a), await keyOf(b)];
    expect((await put("arm", ARM, inA)).body.workspace_id).toBe(a);
    expect((await get("/arm", inB)).status).toBe(404);
    expect((await remove("arm", inB)).status).toBe(404);
    expect((await get("", inB)).body.data).toEqual([]);
    expect((await put("arm", BASE, inB)).body.workspace_id).toBe(b);
    expect((await get("/arm", inA)).body.config.action_space).toBe("ee_delta_6d_grip");
    expect((await get("/arm", mine)).status).toBe(404);
    expect((await get(`/arm?workspace_id=${b}`, mine)).body.config.action_space).toBe("base_twist_2d");
    expect((await get(`/arm?workspace_id=${a}`, inB)).body.error.code).toBe("scope_denied");
    expect((await put("arm", BASE, mine, "?workspace_id=ws_nobodys")).body.error.param).toBe("workspace_id");
    await put("arm", BASE, mine);
    const names = async (caller: Pick<Caller, "key">, query = "") =>
      (await get(query, caller)).body.data.map((each: { id: string; workspace_id?: string }) => [
        each.id,
        each.workspace_id,
      ]);
    expect(await names(mine)).toEqual([["arm", undefined], ...[a, b].sort().map((id) => ["arm", id])]);
    expect(await names(mine, `?workspace_id=${a}`)).toEqual([["arm", a]]);
    const stranger = await app.caller(0);
    expect([(await get("/arm", stranger)).status, await names(stranger)]).toEqual([404, []]);
    const viewer = { org: mine.org, key: await app.key(mine.org, { role: "viewer" }) };
    expect([(await get("/arm", viewer)).status, (await put("arm", BASE, viewer)).body.error.code]).toEqual([
      200,
      "permission_denied",
    ]);
  });

  it("is listed by name, page by page", async () => {
    const mine = await app.caller(0);
    for (const id of ["b", "a/1", "C", "ä", "a"]) expect((await put(id, BASE, mine)).status, id).toBe(200);
    const seen: string[] = [];
    for (let cursor = ""; ; ) {
      const { body } = await get(`?limit=2${cursor}`, mine);
      seen.push(...body.data.map(({ id }: { id: string }) => id));
      if (!body.has_more) break;
      cursor = `&cursor=${body.next_cursor}`;
    }
    expect(seen).toEqual(["C", "a", "a/1", "b", "ä"]);
    expect((await get("?cursor=name_AA%3D", mine)).status).toBe(422);
  });

  it.each([
    ["action_space", { ...ARM, action_space: "nothing_here" }],
    ["action_space", { embodiment: "arm" }],
    ["cameras.1.name", { ...ARM, cameras: [{ name: "a" }, { name: "a" }] }],
    ["cameras.0.width", { ...ARM, cameras: [{ name: "a", width: 0 }] }],
    ["cameras.0.name", { ...ARM, cameras: [{ name: "a\u0000" }] }],
    ["bounds.lowest", { ...ARM, bounds: { lowest: [1, 2], highest: [] } }],
    ["proprio.dimension", { ...ARM, proprio: { names: ["x"], dimension: 2 } }],
    ["embodiment", { ...ARM, embodiment: "ghost" }],
    ["control_hz", { ...ARM, control_hz: 0 }],
    ["colour", { ...ARM, colour: "red" }],
  ])("whose %s contradicts something is refused with the field", async (param, config) => {
    const { status, body } = await put("arm", config);
    expect([status, body.error.param]).toEqual([422, param]);
  });

  it("cannot take a name used by emergency stop paths", async () => {
    for (const id of ["stop", "stops", "release", "armings", "runs"])
      expect((await put(id, BASE)).status, id).toBeGreaterThanOrEqual(400);
    const client = createClient(FleetService, createGrpcTransport({ baseUrl: app.url }));
    const asked = { robotId: "stops", config: { actionSpace: "base_twist_2d" } };
    await expect(client.putRobot(asked, bearer(owner.key))).rejects.toThrow("robot_id");
  });
});

describe("what can drive a robot", () => {
  const ids: Record<string, string> = {};
  const input = { cameras: [{ name: "wrist", width: 224, height: 224, required: true }], proprio: [{ dimension: 1 }] };
  beforeAll(async () => {
    const supply = async (provider: string, more: object = {}) => {
      const facts = { model: `${named.acme}/base`, endpoint: model.endpoint, embodiments: ["mobile-base"] };
      ids[provider] = await app.supply({ provider, ...facts, ...more });
    };
    await supply(named.plain);
    await supply(named.reader, { input });
    await supply(named.turner, { embodiments: ["quadruped"] });
    await supply(named.meaning, { actions: [{ units: ["m/s"] }] });
  });

  // biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
  const check = async (config: object, query = ""): Promise<any> => {
    expect((await put("checked", config)).status).toBe(200);
    const { status, body } = await get(`/checked/check?model=${named.acme}/base${query}`);
    expect(status).toBe(200);
    return body;
  };
  // biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
  const able = (body: any): string[] => body.can_drive.map(({ provider }: { provider: string }) => provider).sort();
  // biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
  const against = (body: any) =>
    Object.fromEntries(
      // biome-ignore lint/suspicious/noExplicitAny: the test says what is inside
      body.cannot_drive.map(({ provider, faults = [], reason }: any) => [
        provider,
        [...faults.map(({ field }: { field: string }) => field), ...(reason === undefined ? [] : [reason])],
      ]),
    );

  it("is listed per offering, with the robot's fields that do not match", async () => {
    const robot = {
      action_space: "base_twist_2d",
      embodiment: "mobile-base",
      cameras: [{ name: "wrist", width: 640, height: 480 }, { name: "rear" }],
      proprio: { dimension: 3 },
      actions: { units: ["rad/s"] },
      bounds: { lowest: [-1], highest: [1] },
    };
    const body = await check(robot);
    expect([body.object, body.robot_id, body.considered, body.fit]).toEqual(["robot_check", "checked", 4, 1]);
    expect(body.can_drive).toMatchObject([
      { rank: 1, offering_id: ids[named.plain], provider: named.plain, declared: false },
    ]);
    expect(against(body)).toEqual({
      [named.meaning]: ["actions"],
      [named.turner]: ["embodiment"],
      [named.reader]: ["cameras.0.width", "cameras.0.height", "cameras.1.name", "proprio"],
    });
    const message = body.cannot_drive.find(({ provider }: { provider: string }) => provider === named.reader).faults[0]
      .message;
    expect(message).toMatch(/640/);
  });

  it("includes offerings that read exactly this, and those that declare nothing", async () => {
    const robot = {
      ...BASE,
      embodiment: "mobile-base",
      cameras: [{ name: "wrist", width: 224, height: 224 }],
      proprio: { dimension: 1 },
    };
    const body = await check(robot);
    expect([able(body), against(body)]).toEqual([
      [named.meaning, named.plain, named.reader],
      { [named.turner]: ["embodiment"] },
    ]);
    // Of a robot that says nothing, only what it lacks stands against it.
    const silent = await check(BASE);
    expect([able(silent), against(silent)]).toEqual([
      [named.meaning, named.plain, named.turner],
      { [named.reader]: ["cameras"] },
    ]);
  });

  it("names other drop reasons and refuses an unknown model", async () => {
    await put("checked", BASE);
    const narrow = await app.key(owner.org, { role: "owner", models: [`${named.acme}/other`] });
    const denied = await app.call("/v1/robots/checked/check", undefined, { key: narrow });
    expect(denied.status).toBe(200);
    expect(denied.body.can_drive).toEqual([]);
    expect(new Set(denied.body.cannot_drive.map(({ reason }: { reason: string }) => reason))).toEqual(
      new Set(["key_scope"]),
    );
    const other = await check({ ...BASE, action_space: "joint_pos_7" });
    expect([other.fit, against(other)[named.plain]]).toEqual([0, ["action_space"]]);
    expect((await get(`/checked/check?model=${named.acme}/nowhere`)).body.error.code).toBe("model_not_found");
    expect((await get("/nobodys/check")).body.error.param).toBe("robot_id");
    const client = createClient(FleetService, createGrpcTransport({ baseUrl: app.url }));
    const told = await client.checkRobot({ robotId: "checked", limit: 1 }, bearer(owner.key));
    expect(told.cannotDrive).toHaveLength(1);
    expect(told.cannotDrive[0]?.reason).not.toBe(DropReason.UNSPECIFIED);
  });
});
