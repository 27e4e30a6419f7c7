/** Events of workspaces: whose they are said to be, and the webhooks that want those of one workspace alone. */
import { join } from "node:path";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import { notifyExpiringKeys } from "../../../src/services/keys.ts";
import { importCatalog } from "../../../src/store/supply/catalog.ts";
import type { App, Caller } from "../../support/app.ts";
import type { FreshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { person } from "../../support/members.ts";
import type { Model } from "../../support/model.ts";
import * as oauth from "../../support/oauth.ts";
import { type Receiver, startReceiver } from "../../support/receiver.ts";
import { stopRobots } from "../../support/stops.ts";
import { openModel, ownDatabase, ownGateway } from "../../support/world.ts";

const DATA = join(import.meta.dirname, "../../../data");
/** A scenario that runs elsewhere alone. */
const BENCHMARK = "1x/1x-world-model-challenge";

let database: FreshDatabase;
let app: App;
let model: Model;
let owner: Caller;
let lab: string;
let field: string;
const receivers: Receiver[] = [];

beforeAll(async () => {
  database = await ownDatabase();
  await importCatalog(database.sql, DATA);
  [app, model] = await Promise.all([ownGateway({ database, roles: new Set(["api", "worker"]) }), openModel()]);
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
}, 60_000);
beforeEach(async () => {
  owner = await app.caller(10);
  [lab, field] = await Promise.all([workspace("lab"), workspace("field")]);
});
afterEach(async () => {
  model.script.act = undefined;
  await app.sql`delete from webhook`;
  for (const receiver of receivers.splice(0)) await receiver.close();
});

const workspace = async (name: string, more: object = {}, org = owner.org): Promise<string> =>
  (await app.admin(`/v1/orgs/${org}/workspaces`, { name, ...more })).id;
const made = (facts: object): Promise<{ id: string; key: string }> =>
  app.admin(`/v1/orgs/${owner.org}/keys`, { role: "owner", ...facts });
const register = (url: string, more: object) => app.call("/v1/webhooks", { url, ...more }, { key: owner.key });
const receiver = async (): Promise<Receiver> => {
  const started = await startReceiver();
  receivers.push(started);
  return started;
};
/** A webhook that is sent to nowhere: what would be is looked up. */
const hook = async (workspace_id: string | undefined, events: string[]): Promise<string> =>
  (await register(`${app.url}/`, { workspace_id, events })).body.id;
const sentTo = async (id: string): Promise<string[]> =>
  (await app.sql`select event from webhook_delivery where hook_id = ${id} and event <> 'ping' order by position`).map(
    ({ event }) => event,
  );
/** The workspace of each event of the organisation that bears a name, in order. */
const workspacesOf = async (name: string): Promise<string[]> =>
  (await app.sql`select payload from outbox where org_id = ${owner.org} and name = ${name} order by position`).map(
    ({ payload }) => fromBinary(EventSchema, payload).workspaceId ?? "",
  );

const BODY = { model: "acme/base", action_space: "base_twist_2d", observations: [{ proprio: [0.5] }] };

describe("a webhook of a workspace", () => {
  it("shows its workspace and gets only its events; others get all, each with its workspace", async () => {
    const [all, some] = [await receiver(), await receiver()];
    const whole = await register(all.url, {});
    const { status, body } = await register(some.url, { workspace_id: lab });
    expect(status).toBe(201);
    expect(body.workspace_id).toBe(lab);
    expect(whole.body).not.toHaveProperty("workspace_id");
    expect((await app.call(`/v1/webhooks/${body.id}`, undefined, { key: owner.key })).body.workspace_id).toBe(lab);
    const list = (await app.call("/v1/webhooks", undefined, { key: owner.key })).body.data;
    expect(list.map(({ workspace_id }: { workspace_id?: string }) => workspace_id)).toEqual([undefined, lab]);

    const ours = await made({ workspace_id: lab });
    const theirs = await made({ workspace_id: field });
    const nobodys = await made({});
    const keys = ({ received }: Receiver) =>
      new Map(
        received
          .filter(({ json }) => json.type === "key.created")
          .map(({ json }) => [json.data.key_id, json.workspace_id]),
      );
    await eventually(() =>
      expect(keys(all)).toEqual(
        new Map([
          [ours.id, lab],
          [theirs.id, field],
          [nobodys.id, undefined],
        ]),
      ),
    );
    await eventually(() => expect(keys(some)).toEqual(new Map([[ours.id, lab]])));
    const pings = some.received.filter(({ json }) => json.type === "ping");
    expect(pings.map(({ json }) => json.workspace_id)).toEqual([lab]);
    // Nothing else is on its way there.
    expect(await sentTo(body.id)).toEqual(["key.created"]);
    expect(some.received.find(({ json }) => json.type === "key.created")?.json).toEqual({
      id: expect.stringMatching(/^evt_/),
      type: "key.created",
      created_at: expect.any(Number),
      api_version: "0.1.0",
      org_id: owner.org,
      workspace_id: lab,
      data: { key_id: ours.id },
    });
    const bare = all.received.find(({ json }) => json.data.key_id === nobodys.id)?.json;
    expect(bare).not.toHaveProperty("workspace_id");
  });

  it("keeps its workspace when other fields change", async () => {
    const id = await hook(lab, ["*"]);
    const change = { description: "changed", workspace_id: field };
    await app.call(`/v1/webhooks/${id}`, change, { key: owner.key, method: "PATCH" });
    expect((await app.call(`/v1/webhooks/${id}`, undefined, { key: owner.key })).body.workspace_id).toBe(lab);
  });

  it("is refused with 404 for a foreign, unknown or deleted workspace, and 422 for an empty name", async () => {
    const { org } = await app.caller(0);
    const foreign = await workspace("foreign", {}, org);
    const gone = await workspace("gone");
    await app.call(`/v1/orgs/${owner.org}/workspaces/${gone}`, undefined, { key: owner.key, method: "DELETE" });
    for (const workspace_id of [foreign, gone, "ws_nobodys"]) {
      const { status, body } = await register(`${app.url}/`, { workspace_id });
      expect([status, body.error.code, body.error.param]).toEqual([404, "not_found", "workspace_id"]);
    }
    for (const workspace_id of ["", "w".repeat(65)])
      expect((await register(`${app.url}/`, { workspace_id })).status).toBe(422);
    expect((await app.call("/v1/webhooks", undefined, { key: owner.key })).body.data).toEqual([]);
  });
});

describe("a key of a workspace", () => {
  it("registers webhooks of that workspace only", async () => {
    const { key } = await made({ workspace_id: lab });
    const asked = (more: object) => app.call("/v1/webhooks", { url: `${app.url}/`, ...more }, { key });
    expect((await asked({})).body.workspace_id).toBe(lab);
    expect((await asked({ workspace_id: lab })).body.workspace_id).toBe(lab);
    const { status, body } = await asked({ workspace_id: field });
    expect([status, body.error.code]).toEqual([403, "scope_denied"]);
    expect(body.error.message).toContain("only their own workspace's");
  });

  it("finds only webhooks of its workspace", async () => {
    const { key } = await made({ workspace_id: lab });
    const [ours, theirs, whole] = [await hook(lab, ["*"]), await hook(field, ["*"]), await hook(undefined, ["*"])];
    const list = (await app.call("/v1/webhooks", undefined, { key })).body.data;
    expect(list.map(({ id }: { id: string }) => id)).toEqual([ours]);
    const knock = async (id: string, path: string, method: string) =>
      (await app.call(`/v1/webhooks/${id}${path}`, method === "GET" ? undefined : {}, { key, method })).status;
    const doors = [
      ["", "GET"],
      ["", "PATCH"],
      ["/rotate", "POST"],
      ["/test", "POST"],
      ["/deliveries", "GET"],
      ["/deliveries/dlv_1/redeliver", "POST"],
      ["", "DELETE"],
    ] as const;
    for (const [path, method] of doors)
      for (const id of [theirs, whole]) expect([path, await knock(id, path, method)]).toEqual([path, 404]);
    for (const [path, method] of doors)
      expect([path, await knock(ours, path, method)]).toEqual([path, path.includes("dlv") ? 404 : 200]);
    const left = (await app.call("/v1/webhooks", undefined, { key: owner.key })).body.data;
    expect(left.map(({ id }: { id: string }) => id)).toEqual([theirs, whole]);
  });
});

describe("the workspace of an event", () => {
  it("is the workspace of the key whose call failed", async () => {
    const [ours, theirs] = [await hook(lab, ["request.failed"]), await hook(field, ["request.failed"])];
    const { key } = await made({ workspace_id: lab });
    model.script.act = (_call, _answer, served) => served.end(13, "broken");
    expect((await app.call("/v1/act", BODY, { key })).status).toBeGreaterThanOrEqual(500);
    expect((await app.call("/v1/act", BODY, { key: owner.key })).status).toBeGreaterThanOrEqual(500);
    await eventually(async () => expect((await workspacesOf("request.failed")).sort()).toEqual(["", lab]));
    expect([await sentTo(ours), await sentTo(theirs)]).toEqual([["request.failed"], []]);
  });

  it("is the workspace of the used budget, or of its key", async () => {
    const budget = { limit_usd: 0.01, interval: "daily" };
    const tight = await workspace("tight", { budget });
    const ours = await hook(lab, ["budget.threshold"]);
    const keys = [await made({ workspace_id: lab, budget }), await made({ workspace_id: tight })];
    for (const { key } of keys) {
      await app.call("/v1/act", BODY, { key });
      await eventually(async () => expect((await app.call("/v1/act", BODY, { key })).status).toBe(402));
    }
    await eventually(async () =>
      expect((await workspacesOf("budget.threshold")).sort()).toEqual([lab, lab, tight, tight].sort()),
    );
    expect(await sentTo(ours)).toEqual(["budget.threshold", "budget.threshold"]);
  });

  it("is the workspace of the job's key, however the job ends", async () => {
    const ours = await hook(lab, ["*"]);
    const { key } = await made({ workspace_id: lab });
    const batch = { contract: "act", requests: [BODY] };
    expect((await app.call("/v1/batch", batch, { key })).status).toBeLessThan(300);
    await eventually(async () => expect(await workspacesOf("batch.completed")).toEqual([lab]), { timeout: 20_000 });
    const asked = { scenario: BENCHMARK, policy_endpoint: "ws://robot.lan:8000", runner: "external", episodes: 1 };
    const evaluate = async (): Promise<string> => (await app.call("/v1/evaluate", asked, { key })).body.id;
    await app.call(`/v1/evaluate/${await evaluate()}`, undefined, { key: owner.key, method: "DELETE" });
    expect(await workspacesOf("evaluation.cancelled")).toEqual([lab]);
    const failed = await evaluate();
    const { epoch } = (await app.call("/v1/evaluate/claims", { harness: "test" }, { key })).body.claim;
    await app.call(
      `/v1/evaluate/${failed}/finish`,
      { epoch, error: { code: "policy_unreachable", message: "broken" } },
      { key },
    );
    expect(await workspacesOf("evaluation.failed")).toEqual([lab]);
    const jobs = ["batch.completed", "evaluation.cancelled", "evaluation.failed"];
    expect(await sentTo(ours)).toEqual(["key.created", ...jobs]);
  });

  it("is the workspace of the expiring or revoked key", async () => {
    const ours = await hook(lab, ["key.expiring", "key.revoked"]);
    const [ending, last] = [await made({ workspace_id: lab }), await made({ workspace_id: lab })];
    await app.sql`
      update key set created = now() - interval '90 days', expires_at = now() + interval '6 days' where id = ${ending.id}`;
    await notifyExpiringKeys(app.sql);
    const keys = `/v1/orgs/${owner.org}/keys`;
    await app.call(`${keys}/${ending.id}`, undefined, { key: owner.key, method: "DELETE" });
    const { key } = await made({ workspace_id: field });
    await app.call(`/v1/orgs/${owner.org}/workspaces/${lab}?force=true`, undefined, {
      key: owner.key,
      method: "DELETE",
    });
    expect((await app.call("/v1/key", undefined, { key: last.key })).status).toBe(401);
    expect((await app.call("/v1/key", undefined, { key })).status).toBe(200);
    expect(await workspacesOf("key.expiring")).toEqual([lab]);
    expect(await workspacesOf("key.revoked")).toEqual([lab, lab]);
    expect(await sentTo(ours)).toEqual(["key.expiring", "key.revoked", "key.revoked"]);
  });

  it("is the workspace of the stop, its key or the stopping key, and none for the organization", async () => {
    const { id, key } = await made({ workspace_id: lab });
    const stop = async (target: object, by = owner.key) =>
      expect((await stopRobots(app, { ...target, reason: "test" }, { key: by })).status).toBe(200);
    await stop({ workspace_id: field });
    await stop({ key_id: id });
    await stop({ robot_id: "r1" }, key);
    await stop({ robot_id: "r2" });
    const foreign = await workspace("foreign", {}, (await app.caller(0)).org);
    const refused = await stopRobots(app, { workspace_id: foreign, reason: "test" }, { key: owner.key });
    expect(refused.status).toBe(404);
    await stop({ all: true });
    // All that a key of a workspace stops is its workspace.
    await stop({ all: true }, key);
    expect(await workspacesOf("robot.stopped")).toEqual([field, lab, lab, "", "", lab]);
  });

  it("is the workspace of the key whose session moves or whose call fails over", async () => {
    const providers = new Map<string, Model>();
    for (const provider of ["left", "right"]) {
      const own = await openModel();
      providers.set(provider, own);
      await app.supply({ provider, model: "shared/base", endpoint: own.endpoint });
    }
    const { key } = await made({ workspace_id: lab });
    const call = (key: string) =>
      app.call("/v1/act", { ...BODY, model: "shared/base", provider: { session_id: "episode" } }, { key });
    const serves = async (key: string): Promise<Model> => providers.get((await call(key)).body.route.provider)!;
    for (const each of [key, owner.key]) {
      const pinned = await serves(each);
      pinned.script.act = (_call, _answer, { stream }) => stream.close(2);
      expect((await call(each)).body.route.pin).toBe("moved");
      pinned.script.act = undefined;
    }
    await eventually(async () => expect(await workspacesOf("session.pin_lost")).toEqual([lab, ""]));
    await eventually(async () => expect(await workspacesOf("route.fallback_used")).toEqual([lab, ""]));
    for (const each of providers.values()) await each.close();
  });

  it("is the workspace of the disabled webhook", async () => {
    const gone = await receiver();
    gone.answer((_, response) => response.writeHead(410).end());
    for (const workspace_id of [lab, undefined]) {
      const { id } = (await register(gone.url, { workspace_id })).body;
      await eventually(async () =>
        expect((await app.call(`/v1/webhooks/${id}`, undefined, { key: owner.key })).body.status).toBe("disabled"),
      );
    }
    expect(await workspacesOf("webhook.disabled")).toEqual([lab, ""]);
  });

  it("is the workspace of a key that a member or an application obtains or returns", async () => {
    const member = await person(app, owner.org, "developer", { workspace_ids: [lab] });
    // The first one is the owner's.
    expect(await workspacesOf("key.created")).toEqual(["", lab]);
    const { client_id } = (await oauth.register(app, owner.key)).body;
    const { verifier, challenge } = oauth.pkce();
    const { code } = (await oauth.consent(app, member.key, client_id, challenge)).body;
    const { access_token } = (await oauth.exchange(app, oauth.honest(client_id, code, verifier))).body;
    expect(await workspacesOf("key.created")).toEqual(["", lab, lab]);
    expect((await app.call("/v1/key", undefined, { key: access_token })).body.workspace_id).toBe(lab);
    // The code comes again: the key that it gave is revoked.
    await oauth.exchange(app, oauth.honest(client_id, code, verifier));
    expect(await workspacesOf("key.revoked")).toEqual([lab]);
  });

  it("is decoded by the database as the codec encodes it", async () => {
    const text = fc.string({ unit: "grapheme", maxLength: 300 });
    const events = fc.sample(
      fc.record({ id: text, apiVersion: text, createdAt: fc.nat(), orgId: text, workspaceId: fc.option(text) }),
      300,
    );
    const payloads = events.map(({ workspaceId, ...event }) => {
      const data = { case: "keyCreated", value: { keyId: event.id } } as const;
      return toBinary(
        EventSchema,
        create(EventSchema, { ...event, ...(workspaceId !== null && { workspaceId }), data }),
      );
    });
    const hex = payloads.map((payload) => Buffer.from(payload).toString("hex"));
    const read = await app.sql<{ workspace: string | null }[]>`
      select event_workspace(decode(hex, 'hex')) as workspace from unnest(${hex}::text[]) with ordinality as e (hex, nth) order by nth`;
    expect(read.map(({ workspace }) => workspace)).toEqual(events.map(({ workspaceId }) => workspaceId));
    // What was cut off names none, and is no error.
    const cut = hex.map((each) => each.slice(0, 2 * Math.floor(each.length / 4)));
    await app.sql`select event_workspace(decode(hex, 'hex')) from unnest(${cut}::text[]) as hex`;
  });
});
