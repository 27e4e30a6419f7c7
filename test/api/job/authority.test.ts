/** Jobs carry the authority of their key, when they are asked for and when they run, and keep to its rate. */
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownDatabase, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
let caller: Caller;
let before = 0;
/** Calls that came in this test: probes ask for other horizons. */
const acted = (): number => model.acts.slice(before).filter(({ horizon }) => horizon === 3).length;

beforeAll(async () => {
  model = await openModel();
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  await app.supply({ provider: "acme", model: "acme/arm", endpoint: model.endpoint, action_spaces: ["joint_pos_7"] });
  caller = await app.caller(100);
});
beforeEach(() => {
  before = model.acts.length;
});

const TWIST = { model: "acme/base", action_space: "base_twist_2d", horizon: 3, observations: [{ proprio: [0.5, 2] }] };
const batch = (key: string, requests: readonly object[], contract = "act", gateway = app) =>
  gateway.call("/v1/batch", { contract, requests }, { key });
const shown = async (id: string, key: string, gateway = app) =>
  (await gateway.call(`/v1/batch/${id}?items=true`, undefined, { key })).body;
const callOff = (path: string) => app.call(path, undefined, { key: caller.key, method: "DELETE" });
const times = (n: number) => Array.from({ length: n }, () => TWIST);

describe("a key that may not call", () => {
  it("cannot act by batch, evaluation or preview", async () => {
    const key = await app.key(caller.org, { scopes: ["ground", "evaluate"] });
    const act = await app.call("/v1/act", TWIST, { key });
    const taken = await batch(key, [TWIST]);
    const policy = { policy_endpoint: "acme/arm", scenario: "arm-reach", action_space: "joint_pos_7", episodes: 1 };
    const evaluated = await app.call("/v1/evaluate", policy, { key });
    const previewed = await app.call("/v1/routes/preview?contract=act", TWIST, { key });
    for (const { status, body } of [act, taken, evaluated, previewed])
      expect([status, body.error?.code, body.error?.details.needed]).toEqual([403, "scope_denied", ["act"]]);
  });

  it("stops its batch when it loses the permission", async () => {
    const database = await ownDatabase();
    const front = await ownGateway({ database, roles: new Set(["api"]) });
    await front.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
    const { org, key } = await front.caller();
    const child = (await front.call(`/v1/orgs/${org}/keys`, {}, { key })).body;
    const { id } = (await batch(child.key, times(3), "act", front)).body;
    const [parent] = await database.sql`select parent_id as id from key where id = ${child.id}`;
    // What narrows the key above narrows the batch.
    const path = `/v1/orgs/${org}/keys/${parent!.id}`;
    expect((await front.call(path, { scopes: ["predict"] }, { key, method: "PATCH" })).status).toBe(200);
    const back = await ownGateway({ database, roles: new Set(["api", "worker"]) });
    await eventually(async () => expect((await shown(id, key, front)).status).toBe("failed"));
    const { errors, cost_usd } = await shown(id, key, front);
    expect(errors.map(({ code }: { code: string }) => code)).toEqual(Array(3).fill("scope_denied"));
    expect([cost_usd, acted()]).toEqual([0, 0]);
    await back.close();
    await front.close();
    await database.close();
  });
});

describe("a key of 5 a minute", () => {
  const slow = { rate_limit: { requests: 5, window_s: 60 } };

  it("runs at most 5 of a batch of 100 at once while other batches run, and can cancel it while it waits", async () => {
    // More of them than a process works on at one time.
    const waiting = await Promise.all(
      Array.from({ length: 5 }, async () => {
        const key = await app.key(caller.org, slow);
        return { key, id: (await batch(key, times(100))).body.id as string };
      }),
    );
    await eventually(async () => {
      for (const { id } of waiting) expect((await shown(id, caller.key)).request_counts.completed).toBeGreaterThan(0);
    });
    const { id } = (await batch(caller.key, times(64))).body;
    await eventually(async () => expect((await shown(id, caller.key)).status).toBe("completed"));
    for (const { id } of waiting) {
      // A look takes from the caller's rate like any call.
      const counts = await eventually(async () => {
        const { request_counts } = await shown(id, caller.key);
        expect(request_counts).toBeDefined();
        return request_counts;
      });
      // One is left to calls that somebody waits for.
      expect(counts.completed + counts.running).toBeLessThanOrEqual(5);
      expect(counts.queued).toBeGreaterThanOrEqual(95);
      expect((await callOff(`/v1/batch/${id}`)).status).toBe(200);
    }
    await eventually(async () => {
      for (const { id } of waiting) expect((await shown(id, caller.key)).status).toBe("cancelled");
    });
    expect(acted()).toBeLessThanOrEqual(64 + 5 * 5);
  }, 60_000);

  it("gains nothing by batches of derived keys", async () => {
    const top = await app.key(caller.org, { role: "owner", ...slow });
    const ids: string[] = [];
    for (let i = 0; i < 2; i++) {
      const { key } = (await app.call(`/v1/orgs/${caller.org}/keys`, {}, { key: top })).body;
      ids.push((await batch(key, times(20))).body.id);
    }
    const other = (await batch(caller.key, times(64))).body.id;
    await eventually(async () => expect((await shown(other, caller.key)).status).toBe("completed"));
    let begun = 0;
    for (const id of ids) {
      const { request_counts: counts } = await shown(id, caller.key);
      begun += counts.completed + counts.running;
      await callOff(`/v1/batch/${id}`);
    }
    expect(begun).toBeLessThanOrEqual(3);
  }, 60_000);

  it("waits in an evaluation while others finish", async () => {
    const policy = { policy_endpoint: "acme/arm", scenario: "arm-reach", action_space: "joint_pos_7" };
    const evaluate = async (key: string, episodes: number) =>
      (await app.call("/v1/evaluate", { ...policy, episodes }, { key })).body.id as string;
    const look = async (id: string) => (await app.call(`/v1/evaluate/${id}`, undefined, { key: caller.key })).body;
    const slowly = await evaluate(await app.key(caller.org, slow), 10);
    await eventually(async () => expect((await look(slowly)).status).toBe("running"));
    const arms = () => model.acts.filter(({ sessionId }) => sessionId !== undefined && sessionId !== "").length;
    await eventually(() => expect(arms()).toBeGreaterThanOrEqual(3));
    expect(arms()).toBeLessThanOrEqual(5);
    const other = await evaluate(caller.key, 1);
    const done = await eventually(async () => {
      const body = await look(other);
      expect(["completed", "failed"]).toContain(body.status);
      return body;
    });
    expect(done.error).toBeUndefined();
    expect((await look(slowly)).status).toBe("running");
    await callOff(`/v1/evaluate/${slowly}`);
    await eventually(async () => expect((await look(slowly)).status).toBe("cancelled"));
  }, 120_000);
});
