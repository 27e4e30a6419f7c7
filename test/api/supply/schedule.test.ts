/** Offerings are probed again when their time has come: failures degrade, then suspend; a pass makes them live again. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { probeDue } from "../../../src/supply/probe/probe.ts";
import type { SupplyDeps } from "../../../src/supply/withdraw.ts";
import { createUpstream, type Upstream } from "../../../src/upstream/index.ts";
import { guardedAgent } from "../../../src/upstream/transport/guard.ts";
import { createVault } from "../../../src/vault.ts";
import type { App } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
let upstream: Upstream;
let parts: SupplyDeps;
let next = 0;
const warnings: string[] = [];

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), openModel()]);
  upstream = createUpstream({ allowPrivate: true });
  parts = {
    sql: app.sql,
    vault: createVault(Buffer.alloc(32, 7)),
    upstream,
    agent: guardedAgent({ allowPrivate: true }),
    allowPrivate: true,
    probeEveryS: 3600,
    refresh: async () => {},
  };
});
afterAll(async () => {
  await upstream.close();
});

const supply = () => app.supply({ provider: "acme", model: `acme/m${next++}`, endpoint: model.endpoint });
const due = (id: string) => app.sql`update offering set probe_due = now() - interval '1 second' where id = ${id}`;
const look = () => probeDue(parts, (text) => warnings.push(text));
const stateOf = async (id: string) => {
  const [row] = await app.sql`
    select status, probe_failures, report->>'passed' as passed, extract(epoch from probe_due - now())::int as due_in, probe_until
    from offering where id = ${id}`;
  return row!;
};
const eventsOf = async (id: string) =>
  (
    await app.sql`select name from outbox where "position"(payload, convert_to(${id}, 'UTF8')) > 0 order by outbox.position`
  ).map(({ name }) => name);

describe("the schedule", () => {
  it("probes only due offerings, once for any number of workers", async () => {
    const id = await supply();
    expect(await look()).toBe(0);
    expect((await stateOf(id)).dueIn).toBeGreaterThan(3500);
    await due(id);
    const before = model.acts.length;
    const counts = await Promise.all([look(), look(), look()]);
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(1);
    expect(model.acts.length).toBeGreaterThan(before);
    expect(await stateOf(id)).toMatchObject({ status: "live", probeFailures: 0, probeUntil: null });
    expect(await eventsOf(id)).toEqual(["offering.verified"]);
  });

  it("degrades at the first failure, suspends at the third with an event, and routes no calls until it passes", async () => {
    const id = await supply();
    const name = `acme/m${next - 1}`;
    const robot = await app.caller(1);
    const body = { model: name, action_space: "base_twist_2d", horizon: 1, observations: [{ proprio: [0] }] };
    const act = () => app.call("/v1/act", body, { key: robot.key });
    model.script.act = (_, answer) => answer([[1, 2, 3]]);
    const states: string[] = [];
    for (let i = 0; i < 4; i++) {
      await due(id);
      await look();
      states.push((await stateOf(id)).status);
    }
    model.script.act = undefined;
    expect(states).toEqual(["degraded", "degraded", "suspended", "suspended"]);
    expect(await eventsOf(id)).toEqual(["offering.verified", "offering.degraded", "offering.suspended"]);
    await expect.poll(async () => (await act()).status).toBe(409);
    const audit = await app.sql`select actor, action from audit where subject = ${id} order by seq`;
    expect(audit.at(-1)).toEqual({ actor: "system", action: "offering.suspended" });
    expect((await stateOf(id)).dueIn).toBeLessThanOrEqual(60);

    await due(id);
    await look();
    expect(await stateOf(id)).toMatchObject({ status: "live", probeFailures: 0 });
    expect((await eventsOf(id)).slice(-2)).toEqual(["offering.suspended", "offering.verified"]);
    await expect.poll(async () => (await act()).status).toBe(200);
  });

  it("tolerates a busy server three times, and longer only while it serves calls", async () => {
    const id = await supply();
    const name = `acme/m${next - 1}`;
    const states = async (count: number): Promise<string[]> => {
      const seen: string[] = [];
      for (let i = 0; i < count; i++) {
        await due(id);
        await look();
        seen.push((await stateOf(id)).status);
      }
      return seen;
    };
    const serving = (minutesAgo: number) => app.sql`
      insert into offering_minute (minute, offering_id, replica, calls, failures, rested_ms, latency)
      values (extract(epoch from now())::int / 60 - ${minutesAgo}::int, ${id}, 'elsewhere', 3, 2, 0, '{}')`;
    model.script.act = (_call, _answer, served) => served.end(8, "full");
    model.script.describe = (served) => served.end(8, "full");
    await serving(10);
    expect(await states(4)).toEqual(["live", "live", "live", "live"]);
    expect((await stateOf(id)).dueIn).toBeGreaterThan(200);

    await app.sql`delete from offering_minute where offering_id = ${id}`;
    await serving(40);
    expect(await states(5)).toEqual(["live", "live", "degraded", "degraded", "suspended"]);
    const robot = await app.caller(1);
    const body = { model: name, action_space: "base_twist_2d", horizon: 1, observations: [{ proprio: [0] }] };
    await expect.poll(async () => (await app.call("/v1/act", body, { key: robot.key })).status).toBe(409);

    model.script.act = undefined;
    model.script.describe = undefined;
    expect(await states(1)).toEqual(["live"]);
    expect(await app.sql`select from offering where id = ${id} and probe_busy = 0`).toHaveLength(1);
  });

  it("takes over probes of a dead worker", async () => {
    const id = await supply();
    await app.sql`update offering set probe_due = now() - interval '1 hour', probe_until = now() + interval '1 minute' where id = ${id}`;
    expect(await look()).toBe(0);
    await app.sql`update offering set probe_until = now() - interval '1 second' where id = ${id}`;
    expect(await look()).toBe(1);
  });

  it("never probes rejected or withdrawn offerings", async () => {
    const id = await supply();
    await due(id);
    await app.sql`update offering set status = 'removed' where id = ${id}`;
    expect(await look()).toBe(0);
  });

  it("postpones what this process cannot probe", async () => {
    const id = await supply();
    await app.sql`update offering set runtime = 'a-wire-of-tomorrow', probe_due = now() where id = ${id}`;
    const before = warnings.length;
    await look();
    expect(await stateOf(id)).toMatchObject({ status: "live", probeUntil: null });
    expect((await stateOf(id)).dueIn).toBeGreaterThan(200);
    expect(warnings).toHaveLength(before + 1);
  });
});
