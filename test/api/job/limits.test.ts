/** Batches that have to end, to wait, or are too large. */
import { request } from "node:http";
import { afterEach, beforeAll, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { openModel, ownDatabase, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  model = await openModel();
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  caller = await app.caller();
});
afterEach(() => {
  model.script.act = undefined;
});

const TWIST = { model: "acme/base", action_space: "base_twist_2d", horizon: 3, observations: [{ proprio: [0.5, 2] }] };
const batch = (requests: readonly object[]) =>
  app.call("/v1/batch", { contract: "act", requests }, { key: caller.key });
const shown = async (id: string) => (await app.call(`/v1/batch/${id}?items=true`, undefined, { key: caller.key })).body;

/** Holds what comes to the model until it is let go; tells of the order in which it came. */
function hold(): { readonly came: string[]; release(): void } {
  const waiting: (() => void)[] = [];
  const came: string[] = [];
  model.script.act = (call, answer) => {
    came.push(call.sessionId === undefined ? "item" : "call");
    waiting.push(() => answer(honestSteps(call, 2)));
  };
  return {
    came,
    release() {
      model.script.act = undefined;
      for (const go of waiting) go();
    },
  };
}

it("a batch older than 24 hours starts nothing more, keeps and charges completed items, and reports it", async () => {
  const held = hold();
  const { body } = await batch(Array.from({ length: 100 }, () => TWIST));
  expect(body.expires_at - body.created_at).toBe(24 * 3600);
  await eventually(async () => expect((await shown(body.id)).request_counts.running).toBeGreaterThan(0));
  const [before] = await app.sql`
    update job set expires = now() - interval '1 second' where id = ${body.id} returning lease_until`;
  await app.sql`select pg_notify('job', ${body.id})`;
  // Its worker looks, which makes its lease longer.
  await eventually(async () =>
    expect(await app.sql`select from job where id = ${body.id} and lease_until > ${before!.leaseUntil}`).toHaveLength(
      1,
    ),
  );
  held.release();
  const end = await eventually(async () => {
    const now = await shown(body.id);
    expect(now.status).toBe("expired");
    return now;
  });
  const { completed, cancelled, failed, total } = end.request_counts;
  expect([completed > 0, cancelled > 0, failed, completed + cancelled]).toEqual([true, true, 0, total]);
  expect(end.cost_usd).toBeCloseTo(completed * 0.0003, 6);
  const told = await app.sql`select name from outbox where org_id = ${caller.org} and name like 'batch.%'`;
  expect(told.map(({ name }) => name)).toEqual(["batch.expired"]);
});

it("a batch that no worker claimed within 24 hours runs nothing", async () => {
  const database = await ownDatabase();
  const front = await ownGateway({ database, roles: new Set(["api"]) });
  await front.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  const { key } = await front.caller();
  const { id } = (await front.call("/v1/batch", { contract: "act", requests: [TWIST] }, { key })).body;
  await database.sql`update job set expires = now() - interval '2 seconds' where id = ${id}`;
  const { came, release } = hold();
  const back = await ownGateway({ database, roles: new Set(["api", "worker"]) });
  await eventually(async () =>
    expect((await front.call(`/v1/batch/${id}`, undefined, { key })).body).toMatchObject({
      status: "expired",
      request_counts: { cancelled: 1, total: 1 },
      cost_usd: 0,
    }),
  );
  expect(came).toEqual([]);
  release();
  await back.close();
  await front.close();
  await database.close();
});

it("a batch waits while many callers wait, then continues", async () => {
  const held = hold();
  const calls = Array.from({ length: 40 }, (_, i) =>
    app.call("/v1/act", { ...TWIST, provider: { session_id: `robot-${i}` } }, { key: caller.key }),
  );
  await eventually(() => expect(held.came).toHaveLength(40));
  const { body } = await batch([TWIST, TWIST]);
  await eventually(async () => expect((await shown(body.id)).status).toBe("in_progress"));
  const [waiting, came] = [await shown(body.id), [...held.came]];
  expect(waiting.request_counts).toMatchObject({ queued: 2, running: 0 });
  expect(came).not.toContain("item");
  held.release();
  for (const { status } of await Promise.all(calls)) expect(status).toBe(200);
  await eventually(async () => expect((await shown(body.id)).status).toBe("completed"));
});

it("a batch of more than 64 MiB is refused by its declared size", async () => {
  const headers = { authorization: `Bearer ${caller.key}`, "content-type": "application/json" };
  const status = await new Promise((resolve, reject) => {
    const asked = request(`${app.url}/v1/batch`, {
      method: "POST",
      headers: { ...headers, "content-length": (64 << 20) + 1 },
    });
    asked.on("response", (answer) => {
      resolve(answer.statusCode);
      asked.destroy();
    });
    asked.on("error", reject);
    asked.flushHeaders();
  });
  expect(status).toBe(413);
});

it("reads of a job have their own limits and use none of its calls'", async () => {
  const { org } = caller;
  const rate_limit = { requests: 8, window_s: 3600, burst: 8, concurrency: 8 };
  const made = (await app.admin(`/v1/orgs/${org}/keys`, { role: "owner", rate_limit })) as { key: string };
  const { key } = made;
  const child = (
    (await app.call(`/v1/orgs/${org}/keys`, { role: "owner", rate_limit }, { key })).body as { key: string }
  ).key;
  const held = hold();
  const asked = await app.call("/v1/batch", { contract: "act", requests: [TWIST] }, { key: child });
  const { id } = asked.body as { id: string };
  const statuses: number[] = [];
  for (let i = 0; i < 9; i++) statuses.push((await app.call(`/v1/batch/${id}`, undefined, { key: child })).status);
  expect(statuses).toEqual([...Array(8).fill(200), 429]);
  // The key that made it has spent its own reads by that: polling through many children is no way around.
  expect((await app.call("/v1/jobs", undefined, { key })).status).toBe(429);
  held.release();
  await eventually(async () => {
    const [row] = await app.sql`select status from job where id = ${id}`;
    expect(row?.status).toBe("completed");
  });
});
