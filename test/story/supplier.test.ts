/** What partners see and earn: exact to the micro-dollar over hundreds of calls of all sorts, and nothing of who called. */
import { fromBinary } from "@bufbuild/protobuf";
import { beforeAll, describe, expect, it } from "vitest";
import { ActRequestSchema } from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { EventSchema } from "../../gen/limber/v1/event_pb.ts";
import { addUpServed } from "../../src/store/billing/earnings.ts";
import { rollUp } from "../../src/store/history/series.ts";
import { ACT_DECLARATION, ADMIN_TOKEN, type App, type Caller } from "../support/app.ts";
import { seeded } from "../support/chance.ts";
import type { FreshDatabase } from "../support/database.ts";
import { brokenInvariants } from "../support/invariants.ts";
import { robot } from "../support/loop-client.ts";
import { honestSteps, type Model } from "../support/model.ts";
import { response } from "../support/policy-server.ts";
import { openModel, ownDatabase, ownGateway } from "../support/world.ts";

const SEED = Number(process.env.SUPPLIER_SEED ?? 7);
const CALLS = 240;
const SECRET = "pick-up-the-green-vial";
const SAID = "CUDA error: out of memory on device 3";

/** Providers by name, with what is declared of them. */
const PROVIDERS = {
  good: { price_per_action_step: 0.000_123 },
  flaky: { price_per_action_step: 0.000_07 },
  slow: { price_per_action_step: 0.000_051 },
  sleepy: { price_per_action_step: 0.000_2, cost_usd_per_second: 0.001, scaledown_s: 0, cold_timeout_s: 5 },
} as const;
type Name = keyof typeof PROVIDERS;
const NAMES = Object.keys(PROVIDERS) as Name[];

let database: FreshDatabase;
let app: App;
const models = {} as Record<Name, Model>;
const owners = {} as Record<Name, Caller>;
const offerings = {} as Record<Name, string>;
let callers: Caller[];
const released: (() => void)[] = [];

beforeAll(async () => {
  database = await ownDatabase();
  app = await ownGateway({ database });
  for (const name of NAMES) {
    models[name] = await openModel();
    owners[name] = await app.caller(0, { role: "supplier", name: `owner of ${name}` });
    offerings[name] = await offer(name);
  }
  callers = await Promise.all([app.caller(5), app.caller(5), app.caller(5)]);
  const stored = await app.call(
    "/v1/credentials/good",
    { secret: "sk-mine", mode: "require" },
    {
      key: callers[2]!.key,
      method: "PUT",
    },
  );
  expect(stored.status).toBe(200);
  await share({ percent: 80 });
  await play();
  // What is counted in memory is written when a gateway closes.
  await app.close();
  await rollUp(database.sql, Math.floor(Date.now() / 60_000));
  app = await ownGateway({ database });
}, 120_000);

async function offer(name: Name): Promise<string> {
  const { key } = owners[name];
  await app.call("/v1/supply/providers", { name }, { key });
  await app.admin(`/v1/supply/providers/${name}/review`, { standing: "verified", note: "known" });
  const body = { ...ACT_DECLARATION, model: "acme/arm", endpoint: models[name].endpoint, ...PROVIDERS[name] };
  const { id } = (await app.call(`/v1/supply/providers/${name}/models`, body, { key })).body;
  const { offering } = (await app.call(`/v1/supply/offerings/${id}/verify`, {}, { key })).body;
  expect(offering.status).toBe("live");
  return id;
}

const share = async (body: object) => {
  const { status, body: set } = await app.call("/v1/supply/share", body, { admin: ADMIN_TOKEN, method: "PUT" });
  expect(status).toBe(200);
  return set;
};

/** Some hundred calls: failures, hedges, wake-ups, own keys; shares change meanwhile, and what is over is added up. */
async function play(): Promise<void> {
  const chance = seeded(SEED);
  const pick = <T>(from: readonly T[]): T => from[Math.floor(chance() * from.length)]!;
  let turn = 0;
  models.flaky.script.act = (call, answer, served) => {
    if (turn++ % 3 !== 0) answer(honestSteps(call, 2));
    else {
      const { callId } = fromBinary(ActRequestSchema, served.messages.at(-1)!);
      served.send(response(callId, { case: "error", value: { message: SAID } }));
    }
  };
  models.slow.script.act = (call, answer) => {
    released.push(() => answer(honestSteps(call, 2)));
  };
  await loops();
  for (let i = 0; i < CALLS; i++) {
    const first = pick(NAMES);
    const order = [first, ...NAMES.filter((name) => name !== first && name !== "slow")];
    const provider = { order, session_id: `session-${SECRET}`, hedge: { after_ms: first === "slow" ? 1 : 10_000 } };
    const body = {
      model: "acme/arm",
      action_space: "base_twist_2d",
      horizon: 1 + Math.floor(chance() * 9),
      instruction: SECRET,
      observations: [{ proprio: [chance()] }],
      metadata: { robot_id: SECRET },
      provider: { ...provider, session_id: undefined },
    };
    const { status, text } = await app.call("/v1/act", body, { key: pick(callers).key });
    expect([200, 502, 503, 504], text).toContain(status);
    for (const release of released.splice(0)) release();
    if (i === CALLS / 4) await share({ provider: "good", percent: 33.33 });
    if (i === CALLS / 2) await share({ percent: 71.5 });
    if (i % 50 === 49) await addUpServed(app.sql);
  }
}

/** A robot that is served, and one that holds. */
async function loops(): Promise<void> {
  const open = (name: Name, deadlineMs: number) => {
    const provider = { only: [name], deadlineMs };
    return robot(app, callers[0]!.key, { model: "acme/arm", actionSpace: "base_twist_2d", horizon: 7, provider });
  };
  for (const [name, deadlineMs, expected] of [
    ["sleepy", 10_000, "chunk"],
    ["slow", 1_000, "hold"],
  ] as const) {
    const loop = open(name, deadlineMs);
    await loop.expect("opened");
    loop.observe(1);
    await loop.expect(expected);
    loop.say({ case: "close", value: {} });
    await loop.expect("ended");
  }
}

const read = async (path: string, options: object) => (await app.call(path, undefined, options)).body;
const all = async (path: string, options: object) => {
  const data: Record<string, number & string>[] = [];
  for (let cursor = ""; ; ) {
    const page = await read(`${path}?limit=3${cursor && `&cursor=${encodeURIComponent(cursor)}`}`, options);
    data.push(...page.data);
    if (!page.has_more) return data;
    cursor = page.next_cursor;
  }
};
const micro = (usd: number): number => Math.round(usd * 1e6);
const sum = (rows: readonly Record<string, number>[], field: string): number =>
  rows.reduce((total, row) => total + micro(row[field]!), 0);
const reads = (name: Name): string[] => [
  `/v1/supply/offerings/${offerings[name]}/stats`,
  `/v1/supply/providers/${name}/balance`,
  `/v1/supply/providers/${name}/payouts`,
];

describe(`after ${CALLS} calls of three organisations at four providers (seed ${SEED})`, () => {
  it("the statements of all providers add up to the ledger, minus own-key charges", async () => {
    const [ledger] = await app.sql`
      select (select sum(amount_micro) from entry where kind = 'charge') as charged,
        (select sum(cost_micro - coalesce(hedge_cost_micro, 0)) from request where byok) as own,
        (select count(*) from request where byok) as own_keys, (select count(*) from hedge_loser) as hedges,
        (select count(*) from request where wake_up_micro > 0) as woken, (select count(*) from request where log like '%error%') as failed`;
    for (const kind of ["ownKeys", "hedges", "woken", "failed"]) expect(ledger?.[kind], kind).toBeGreaterThan(0);
    const statements = await all("/v1/supply/statements", { admin: ADMIN_TOKEN });
    expect(sum(statements, "charged_usd")).toBe(ledger?.charged - ledger?.own);
    expect(await brokenInvariants(app.sql)).toEqual([]);
    const earnings = await all("/v1/supply/earnings", { admin: ADMIN_TOKEN });
    expect(earnings.length).toBeGreaterThan(NAMES.length);
    for (const { charged_usd, share_percent, earned_usd } of earnings)
      expect(micro(earned_usd!)).toBe(Math.floor((micro(charged_usd!) * Math.round(share_percent! * 100)) / 10_000));
    for (const name of NAMES) {
      const { key } = owners[name];
      const [own, lines] = [await all("/v1/supply/statements", { key }), await all("/v1/supply/earnings", { key })];
      expect(new Set([...own, ...lines].map(({ provider }) => provider))).toEqual(new Set([name]));
      for (const field of ["charged_usd", "earned_usd"]) expect(sum(own, field)).toBe(sum(lines, field));
      const byModel = own.flatMap(({ models }) => models as unknown as Record<string, number>[]);
      expect(sum(byModel, "earned_usd")).toBe(sum(own, "earned_usd"));
      const balance = await read(`/v1/supply/providers/${name}/balance`, { key });
      expect(micro(balance.owed_usd)).toBe(sum(own, "earned_usd"));
      expect([balance.share_percent, balance.own_share]).toEqual(name === "good" ? [33.33, true] : [71.5, false]);
    }
  });

  it("the statements still add up after repeated aggregation", async () => {
    const before = await all("/v1/supply/earnings", { admin: ADMIN_TOKEN });
    await Promise.all([addUpServed(app.sql), addUpServed(app.sql), addUpServed(app.sql)]);
    expect(await all("/v1/supply/earnings", { admin: ADMIN_TOKEN })).toEqual(before);
  });

  it("an owner sees its offering's statistics and its server's messages", async () => {
    const stats = await read(`/v1/supply/offerings/${offerings.flaky}/stats`, { key: owners.flaky.key });
    expect([stats.offering_id, stats.provider, stats.model]).toEqual([offerings.flaky, "flaky", "acme/arm"]);
    const days: Record<string, number>[] = stats.days;
    const count = (field: string) => days.reduce((total, day) => total + day[field]!, 0);
    const [asked] = await app.sql`
      select count(*) as calls from request where offering_id = ${offerings.flaky} and status = 'settled' and not byok`;
    expect(count("calls")).toBe(asked?.calls);
    expect(count("failed_attempts")).toBeGreaterThan(0);
    expect(stats.days[0]).toMatchObject({
      p50_ms: expect.any(Number),
      p95_ms: expect.any(Number),
      p99_ms: expect.any(Number),
      uptime: expect.any(Number),
      failures: [{ reason: "upstream_error", count: expect.any(Number), said: expect.stringContaining(SAID) }],
      units: [{ unit: "action_step", count: expect.any(Number) }],
    });
    // One may wait for another organisation's.
    expect(stats.days[0].failures[0].count).toBeGreaterThanOrEqual(count("failed_attempts"));
    for (const state of ["forced_open", "closed"])
      await app.admin(`/v1/status/offerings/${offerings.flaky}/circuit`, { state, reason: "looked at" });
    const { breaker } = await read(`/v1/supply/offerings/${offerings.flaky}/stats`, { key: owners.flaky.key });
    expect(breaker.slice(0, 2).map(({ move }: { move: string }) => move)).toEqual(["freed", "forced_open"]);
  });

  it("an owner sees the holds of robots", async () => {
    const stats = await read(`/v1/supply/offerings/${offerings.slow}/stats`, { key: owners.slow.key });
    expect(stats.days[0].holds).toBe(1);
    const other = await read(`/v1/supply/offerings/${offerings.sleepy}/stats`, { key: owners.sleepy.key });
    expect(other.days[0].holds).toBe(0);
  });

  it("no response shows the caller, the key or the input", async () => {
    const keys = await app.sql`select id, name from key where org_id = any (${callers.map(({ org }) => org)}::text[])`;
    const hidden = [SECRET, "sk-mine", ...callers.map(({ org }) => org), ...keys.map(({ id }) => id)];
    const requests = await app.sql`select request_id from request limit 20`;
    hidden.push(...requests.map(({ requestId }) => requestId));
    for (const name of NAMES)
      for (const path of ["/v1/supply/earnings", "/v1/supply/statements", ...reads(name)]) {
        const { status, text } = await app.call(path, undefined, { key: owners[name].key });
        expect(status).toBe(200);
        for (const word of hidden) expect(text.includes(word), `${path} shows ${word}`).toBe(false);
      }
  });

  it("another supplier's key gets 404, and empty lists", async () => {
    const { key } = owners.good;
    for (const path of reads("flaky")) expect((await app.call(path, undefined, { key })).status, path).toBe(404);
    for (const path of ["earnings", "statements"])
      expect((await read(`/v1/supply/${path}?provider=flaky`, { key })).data).toEqual([]);
    expect((await read(`/v1/supply/earnings?offering_id=${offerings.flaky}`, { key })).data).toEqual([]);
  });
});

describe("a payout", () => {
  const pay = (provider: string, body: object, options: object = { admin: ADMIN_TOKEN }) =>
    app.call(`/v1/supply/providers/${provider}/payouts`, body, options);

  it("is recorded once per reference, reported, deducted, and never exceeds the amount due", async () => {
    const { key, org } = owners.good;
    const owed = async () => micro((await read("/v1/supply/providers/good/balance", { key })).owed_usd);
    const before = await owed();
    const body = { amount_usd: 0.000_5, reference: "transfer 1" };
    const answers = await Promise.all([pay("good", body), pay("good", body), pay("good", body)]);
    expect(answers.map(({ status }) => status)).toEqual([201, 201, 201]);
    expect(new Set(answers.map(({ body }) => body.id)).size).toBe(1);
    expect(await owed()).toBe(before - 500);
    expect((await pay("good", { ...body, amount_usd: 0.000_6 })).body.error.code).toBe("already_exists");
    const tooMuch = await pay("good", { amount_usd: before / 1e6, reference: "transfer 2" });
    expect([tooMuch.status, tooMuch.body.error.param]).toEqual([422, "amount_usd"]);
    const halves = await Promise.all(
      ["a", "b", "c"].map((reference) => pay("good", { amount_usd: Math.floor(before / 2 - 500) / 1e6, reference })),
    );
    expect(halves.map(({ status }) => status).sort()).toEqual([201, 201, 422]);
    expect(await owed()).toBeGreaterThanOrEqual(0);
    const { data } = await read("/v1/supply/providers/good/payouts", { key });
    expect(data).toHaveLength(3);
    const [statement] = await all("/v1/supply/statements", { key });
    expect(micro(statement!.paid_usd!)).toBe(sum(data, "amount_usd"));
    const told = await app.sql`select from outbox where name = 'provider.paid' and org_id = ${org}`;
    const acts = await app.sql`select from audit where action = 'provider.paid' and org_id = ${org}`;
    expect([told.length, acts.length]).toEqual([3, 3]);
  });

  it("is restricted to the operator, like a share", async () => {
    const { key } = owners.good;
    expect((await pay("good", { amount_usd: 1, reference: "me" }, { key })).status).toBe(401);
    expect((await app.call("/v1/supply/share", { percent: 100 }, { key, method: "PUT" })).status).toBe(401);
    expect((await pay("nobody", { amount_usd: 1, reference: "x" })).status).toBe(404);
  });
});

describe("a share", () => {
  it("is reported to its provider, and refused if invalid", async () => {
    const told = async ({ org }: Caller) =>
      (await app.sql`select from outbox where name = 'provider.share_changed' and org_id = ${org}`).length;
    // The first default, its own or the second default.
    expect([await told(owners.good), await told(owners.flaky), await told(callers[0]!)]).toEqual([2, 2, 0]);
    expect(await share({ provider: "good" })).toEqual({ provider: "good", percent: 71.5 });
    const put = async (body: object) =>
      (await app.call("/v1/supply/share", body, { admin: ADMIN_TOKEN, method: "PUT" })).status;
    expect(await put({})).toBe(422);
    expect(await put({ percent: 101 })).toBe(422);
    expect(await put({ percent: 0.001 })).toBe(422);
    expect(await put({ provider: "nobody", percent: 1 })).toBe(404);
  });
});

describe("what happens to an offering", () => {
  it("is reported only to its own organization", async () => {
    const { key, org } = owners.good;
    const patch = (body: object) => app.call(`/v1/supply/offerings/${offerings.good}`, body, { key, method: "PATCH" });
    expect((await patch({ timeout_s: 4, cost_usd_per_second: 0.002 })).status).toBe(200);
    expect((await patch({})).status).toBe(200);
    const changed = await app.sql`select org_id, payload from outbox where name = 'offering.changed'`;
    expect(changed.map(({ orgId }) => orgId)).toEqual([org]);
    const { data } = fromBinary(EventSchema, changed[0]?.payload);
    expect(data.value).toMatchObject({ offeringId: offerings.good, changed: ["cost_usd_per_second", "timeout_s"] });
    const told = await app.sql`
      select distinct name, org_id from outbox where name like 'offering.%' or name like 'provider.%'`;
    expect(told.map(({ name }) => name)).toEqual(expect.arrayContaining(["offering.verified"]));
    const orgs = new Set(Object.values(owners).map(({ org }) => org));
    expect(told.filter(({ orgId }) => !orgs.has(orgId))).toEqual([]);
    const acts = await app.sql`select from audit where action = 'provider.share_set' and org_id = ${owners.flaky.org}`;
    expect(acts).toHaveLength(2);
  });
});

describe("an organisation that goes", () => {
  it("leaves its provider name unavailable while an amount is due", async () => {
    const { org } = owners.flaky;
    const before = await read("/v1/supply/providers/flaky/balance", { admin: ADMIN_TOKEN });
    const gone = await app.call(`/v1/orgs/${org}?confirm=${org}&force=true`, undefined, {
      admin: ADMIN_TOKEN,
      method: "DELETE",
    });
    expect(gone.status, gone.text).toBe(200);
    const { key } = await app.caller(0, { role: "supplier" });
    expect((await app.call("/v1/supply/providers", { name: "flaky" }, { key })).status).toBe(409);
    expect(await read("/v1/supply/providers/flaky/balance", { admin: ADMIN_TOKEN })).toEqual(before);
    expect((await app.call("/v1/supply/providers/flaky/balance", undefined, { key })).status).toBe(404);
  });
});
