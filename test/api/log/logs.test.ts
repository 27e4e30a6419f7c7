/** The log: its list, its export, and how long it remembers. */
import { beforeAll, describe, expect, it } from "vitest";
import { forgetLogs } from "../../../src/store/history/partitions.ts";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { type Market, openMarket } from "../../support/market.ts";
import type { Model } from "../../support/model.ts";
import { uniqueNames } from "../../support/names.ts";

const named = uniqueNames("acme");

let market: Market;
let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  market = await openMarket([{ provider: named.acme, model: `${named.acme}/base` }]);
  ({ app, model, caller } = market);
});

const TWIST = {
  model: `${named.acme}/base`,
  action_space: "base_twist_2d",
  horizon: 2,
  observations: [{ proprio: [0.5, 2] }],
};
const act = (more: object = {}, key = caller.key) => app.call("/v1/act", { ...TWIST, ...more }, { key });
const logs = (query = "", key = caller.key) => app.call(`/v1/logs${query}`, undefined, { key });

/** Waits until this many calls are on record. */
const recorded = (count: number, key = caller.key) =>
  eventually(async () => {
    const { body } = await logs("?limit=1000", key);
    expect(body.data.length).toBeGreaterThanOrEqual(count);
    return body.data;
  });

describe("GET /v1/logs", () => {
  it("records each call's request, offering, attempts and cost", async () => {
    const answer = await act({ metadata: { robot: "r2" }, provider: { session_id: "walk", deadline_ms: 5000 } });
    const [record] = await recorded(1);
    expect(record).toMatchObject({
      id: answer.headers.get("x-request-id"),
      request_id: answer.headers.get("x-request-id"),
      ts: expect.closeTo(Date.now() / 1000, -2),
      kind: "act",
      org_id: caller.org,
      session_id: "walk",
      model_requested: `${named.acme}/base`,
      model: `${named.acme}/base`,
      provider: named.acme,
      status: "settled",
      http_status: 200,
      attempts: [{ status: "ok", latency_ms: expect.any(Number) }],
      fallback_used: false,
      hedged: false,
      simulated: false,
      byok: false,
      unit: "action_step",
      units: 2,
      cost_usd: 0.0002,
      deadline_ms: 5000,
      metadata: { robot: "r2" },
      latency_ms: expect.any(Number),
    });
    expect(JSON.stringify(record)).not.toContain("proprio");
  });

  it("finds a request's records in log, usage and audit log by its id, and no other organization's", async () => {
    const answer = await act();
    const name = answer.headers.get("x-request-id");
    await act();
    await recorded(2);
    expect((await logs(`?request_id=${name}`)).body.data.map(({ id }: { id: string }) => id)).toEqual([name]);
    const usage = (await app.call(`/v1/usage?request_id=${name}`, undefined, caller)).body;
    expect([usage.data.length, usage.data[0].request_id, usage.totals.requests]).toEqual([1, name, 1]);
    const made = await app.call(`/v1/orgs/${caller.org}/keys`, { name: "traced" }, caller);
    const traced = made.headers.get("x-request-id");
    const audit = (await app.call(`/v1/audit?request_id=${traced}`, undefined, caller)).body;
    expect(audit.data.map(({ subject }: { subject: string }) => subject)).toEqual([made.body.id]);
    const acts = (await logs(`?kind=admin&request_id=${traced}`)).body;
    expect(acts.data.length).toBe(1);
    const stranger = await app.caller(0);
    for (const path of ["/v1/logs", "/v1/usage"])
      expect((await app.call(`${path}?request_id=${name}`, undefined, stranger)).body.data).toEqual([]);
    expect((await logs("?request_id=req_nowhere")).body.data).toEqual([]);
  });

  it("records why a call was refused", async () => {
    model.script.act = (_call, _answer, served) => served.stream.close();
    await act({ provider: { allow_fallbacks: false } });
    model.script.act = undefined;
    const failed = await eventually(async () => {
      const { body } = await logs();
      const found = body.data.find(({ status }: { status: string }) => status === "failed");
      expect(found).toBeDefined();
      return found;
    });
    expect(failed).toMatchObject({
      cost_usd: 0,
      http_status: expect.any(Number),
      error_code: expect.any(String),
      error_message: expect.any(String),
    });
  });

  it("pages from newest to oldest without a gap, by kind and time", async () => {
    const mine = await app.caller();
    for (let i = 0; i < 5; i++) await act({}, mine.key);
    const all = await recorded(5, mine.key);
    const first = (await logs("?limit=3", mine.key)).body;
    const second = (await logs(`?limit=3&cursor=${first.next_cursor}`, mine.key)).body;
    expect([...first.data, ...second.data].map(({ id }: { id: string }) => id)).toEqual(
      all.map(({ id }: { id: string }) => id),
    );
    expect([first.has_more, second.has_more]).toEqual([true, false]);
    expect((await logs("?kind=predict", mine.key)).body.data).toEqual([]);
    expect((await logs("?kind=act&since_minutes=5", mine.key)).body.data).toHaveLength(5);
    await app.sql`update request_outcome set created = created - interval '2 hours' where org_id = ${mine.org}`;
    expect((await logs("?since_minutes=5", mine.key)).body.data).toEqual([]);
  });

  it("lists actions by area: administration, supply, payments", async () => {
    await app.key(caller.org, { role: "viewer" });
    const { data } = (await logs("?kind=admin")).body;
    expect(data[0]).toMatchObject({ kind: "admin", action: "key.created", key_id: "admin", status: "done" });
    const paid = (await logs("?kind=payment")).body.data;
    expect(paid.every(({ action }: { action: string }) => /^(payment|credits|commitment)\./.test(action))).toBe(true);
    expect((await logs("?kind=admin&limit=1")).body).toMatchObject({ has_more: true });
  });

  it.each(["limit=0", "limit=1001", "kind=dance", "since_minutes=0", "since=3"])(
    "refuses %s with 422",
    async (query) => {
      expect((await logs(`?${query}`)).status).toBe(422);
    },
  );

  it("excludes other organizations", async () => {
    const stranger = await app.caller();
    expect((await logs("", stranger.key)).body.data).toEqual([]);
  });

  it("shows a robot's key only its own robot's records", async () => {
    const mine = await app.caller();
    const bound = await app.key(mine.org, { role: "owner", robot_id: "arm-7" });
    const own = await act({}, bound);
    const other = await act({ robot_id: "arm-8" }, mine.key);
    await recorded(2, mine.key);
    const ids = (await logs("", bound)).body.data.map(({ id }: { id: string }) => id);
    expect(ids).toEqual([own.headers.get("x-request-id")]);
    expect((await logs(`/${other.headers.get("x-request-id")}`, bound)).status).toBe(404);
    const asked = await logs("?robot_id=arm-8", bound);
    expect([asked.status, asked.body.error.code, asked.body.error.param], asked.text).toEqual([
      403,
      "scope_denied",
      "robot_id",
    ]);
  });
});

describe("GET /v1/logs/export", () => {
  it("streams every record as one line", async () => {
    const mine = await app.caller();
    await act({}, mine.key);
    await recorded(1, mine.key);
    await app.sql`
      insert into request_outcome (org_id, request_id, kind, units, latency_ms)
      select org_id, request_id || '-' || lpad(n::text, 5, '0'), kind, units, latency_ms
      from request_outcome, generate_series(1, 1200) as n where org_id = ${mine.org}`;
    const { status, headers, text } = await app.call("/v1/logs/export", undefined, { key: mine.key });
    expect([status, headers.get("content-type")]).toEqual([200, "text/plain; charset=utf-8"]);
    const ids = text
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line).id);
    expect(new Set(ids).size).toBe(1201);
    expect([...ids].sort().reverse()).toEqual(ids);

    // An export that broke off continues, on any replica, after the last line received.
    const { text: rest } = await app.call(`/v1/logs/export?cursor=${ids[499]}`, undefined, { key: mine.key });
    expect(rest).toBe(`${text.trimEnd().split("\n").slice(500).join("\n")}\n`);
  });

  it("requires the export permission", async () => {
    const viewer = await app.key(caller.org, { role: "viewer" });
    expect((await app.call("/v1/logs/export", undefined, { key: viewer })).status).toBe(403);
    expect((await logs("", viewer)).status).toBe(200);
  });
});

describe("retention", () => {
  it("deletes records past the organization's retention, but not their charges", async () => {
    const mine = await app.caller();
    const settings = { retention_days: 1 };
    await app.call(`/v1/orgs/${mine.org}/settings`, settings, { key: mine.key, method: "PATCH" });
    await act({ metadata: { canary: "canary-in-the-mine" } }, mine.key);
    await recorded(1, mine.key);
    const yesterday = app.sql`request_mark(now() - interval '25 hours') || right(request_id, 16)`;
    await app.sql`update request_log set request_id = ${yesterday} where org_id = ${mine.org}`;
    expect(await forgetLogs(app.sql)).toBe(1);
    const [record] = (await logs("", mine.key)).body.data;
    expect(record).toMatchObject({ cost_usd: 0.0002, attempts: [] });
    expect(record.metadata).toBeUndefined();
    expect(await found(app, "canary-in-the-mine")).toEqual([]);
    expect((await app.call("/v1/usage", undefined, { key: mine.key })).body.data).toHaveLength(1);
  });

  it("under zero data retention writes nothing that the caller sent", async () => {
    const mine = await app.caller();
    await app.call(`/v1/orgs/${mine.org}/settings`, { zdr: true }, { key: mine.key, method: "PATCH" });
    const canaries = { metadata: { canary: "zdr-canary-1" }, instruction: "zdr-canary-2", model: `${named.acme}/base` };
    await eventually(async () => {
      const { status } = await act({ ...canaries, provider: { session_id: "s" } }, mine.key);
      expect(status).toBe(409); // the provider of these tests retains frames until it says otherwise
    });
    await app.sql`update provider set retains_frames = false`;
    await eventually(async () => expect((await act(canaries, mine.key)).status).toBe(200));
    await recorded(1, mine.key);
    expect(await found(app, "zdr-canary")).toEqual([]);
  });
});

/** The tables of which a row holds this text. */
async function found({ sql }: App, text: string): Promise<string[]> {
  const tables = await sql<{ name: string }[]>`
    select table_name as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'`;
  const holding: string[] = [];
  for (const { name } of tables) {
    const [row] = await sql`select 1 from ${sql(name)} as t where t::text like ${`%${text}%`} limit 1`;
    if (row) holding.push(name);
  }
  return holding;
}
