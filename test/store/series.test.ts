/** Figures of calls over time: added up or not, they are the same, and nothing is counted twice. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { bucketOf } from "../../src/routing/health/cell.ts";
import { addUpSeries, pruneSeries, readSeries, type SeriesRow } from "../../src/store/history/series.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

let database: FreshDatabase;
const ORG = "org_1";
/** The hour before the one that runs, so that all of it is over. */
const BEGIN = Math.floor(Date.now() / 3_600_000) * 3600 - 7_200;

beforeAll(async () => {
  database = await freshDatabase();
  const { sql } = database;
  await sql`insert into org (id, name) values (${ORG}, 'a'), ('org_2', 'b')`;
  await sql`insert into org_settings (org_id, retention_days) values (${ORG}, 30)`;
  const rate = { rate_requests: 1, rate_window_s: 1, rate_burst: 1, rate_concurrency: 1, rate_streams: 1 };
  const key = { org_id: ORG, name: "", prefix: "", role: "owner", ...rate };
  await sql`insert into workspace (id, org_id, name, slug) values ('ws_1', ${ORG}, 'lab', 'lab')`;
  for (const [id, workspace_id] of [
    ["key_1", null],
    ["key_2", "ws_1"],
  ] as const)
    await sql`insert into key ${sql({ ...key, id, workspace_id, hash: Buffer.from(id) })}`;
});
afterAll(() => database.close());

let made = 0;
/** Puts a call on record, so many seconds after the beginning. */
async function record(seconds: number, facts: Partial<Record<string, unknown>> = {}, log?: object): Promise<void> {
  const { sql } = database;
  const { org_id = ORG, latency_ms = 10, cost_micro = 100, robot_id = null, ...own } = facts;
  const kind = {
    ...{
      key_id: "key_1",
      status: "settled",
      contract: "act",
      model: "a/m",
      provider: "p",
      offering_id: "off_1",
      unit: "action_step",
    },
    ...{ wake_up_micro: 0, simulated: false, byok: false, digest: Buffer.from(`${++made}`) },
    ...own,
  };
  const [row] = await sql<{ id: number }[]>`insert into request_kind ${sql(kind as never)} returning id`;
  const id = { org_id: org_id as string, request_id: `req_${made}` };
  await sql`insert into request_outcome ${sql({
    ...id,
    kind: row!.id,
    cost_micro: cost_micro as number,
    latency_ms: latency_ms as number,
    created: new Date((BEGIN + seconds) * 1000),
  })}`;
  await sql`insert into request_log ${sql({
    ...id,
    robot_id: robot_id as string | null,
    log: log === undefined ? null : JSON.stringify(log),
  })}`;
}

const read = (more: object = {}): Promise<SeriesRow[]> =>
  readSeries(database.sql, ORG, { since: BEGIN, until: BEGIN + 3600, stepS: 60, by: undefined, limit: 10, ...more });
const short = (rows: SeriesRow[]): string[] =>
  rows.map(
    ({ name, at, calls, failed, costMicro }) => `${name ?? "other"} ${at - BEGIN} ${calls} ${failed} ${costMicro}`,
  );

describe("metric sums", () => {
  it("are the same for any partial aggregation, and repeated aggregation adds nothing", async () => {
    const { sql } = database;
    await record(5);
    await record(59.9, { cost_micro: 50 });
    await record(60, { key_id: "key_2", model: "b/m", robot_id: "arm" }, { model_requested: "b/m" });
    await record(61, { status: "failed", error_code: "no_route_available", cost_micro: 0, model: "", provider: "" });
    const attempts = [
      { offering_id: "off_1", status: "ok", latency_ms: 20, count: 30 },
      { offering_id: "off_1", status: "error", reason: "timeout", latency_ms: 500, count: 2 },
    ];
    const ages = { [bucketOf(25)]: 29, [bucketOf(90)]: 1 };
    await record(
      130,
      { latency_ms: 1_000, robot_id: "arm" },
      { stream_id: "req_x", holds: { late: 2 }, attempts, ages },
    );
    await record(
      131,
      { latency_ms: 1_000, robot_id: "arm" },
      { stream_id: "req_x", holds: { late: 1, no_provider: 1 } },
    );
    await record(132, { status: "unmetered", cost_micro: 0, latency_ms: null });
    await record(133, { contract: "preview", status: "done", cost_micro: 0 });
    await record(134, { org_id: "org_2" });
    await record(4_000);
    const expected = [` 0 2 0 150`, ` 60 2 1 100`, ` 120 3 0 200`];
    const views: SeriesRow[][] = [];
    for (const at of [0, 30, 60, 100, 131.5, 3_600, 7_000]) {
      await sql`delete from series_line`;
      // What is before this moment is added up; what comes after stays on record alone.
      await upTo(at);
      expect(short(await read()), String(at)).toEqual(expected);
      views.push(await read());
    }
    for (const view of views) expect(view).toEqual(views[0]);
    expect(views[0]?.[2]?.parts).toEqual({
      "h:late": 3,
      "h:no_provider": 1,
      [`l:${bucketOf(20)}`]: 30,
      [`a:${bucketOf(25)}`]: 29,
      [`a:${bucketOf(90)}`]: 1,
    });
    expect(views[0]?.[1]?.parts).toEqual({ "f:no_route_available": 1, [`l:${bucketOf(10)}`]: 1 });
    await addUpSeries(sql);
    await addUpSeries(sql);
    expect(await read()).toEqual(views[0]);
    const midnight = Math.floor(BEGIN / 86_400) * 86_400;
    const byDay = await read({ stepS: 86_400, since: midnight, until: midnight + 2 * 86_400 });
    expect(byDay.reduce((sum, { calls, costMicro }) => sum + calls + costMicro, 0)).toBe(8 + 550);
    expect(byDay[0]?.parts).toMatchObject({ "h:late": 3, "f:no_route_available": 1 });
    const byHour = await read({ stepS: 3600, until: BEGIN + 7200 });
    expect(short(byHour)).toEqual([" 0 7 1 450", " 3600 1 0 100"]);
    expect(byHour[0]?.parts).toMatchObject({ "h:late": 3, "f:no_route_available": 1 });
  });

  it("are grouped by their series, the most expensive first and the others together", async () => {
    const by = async (dimension: string, more: object = {}) =>
      short(await read({ by: dimension, stepS: 3600, ...more })).sort();
    expect(await by("model")).toEqual([" 0 1 1 0", "a/m 0 5 0 350", "b/m 0 1 0 100"]);
    expect(await by("provider")).toEqual([" 0 1 1 0", "p 0 6 0 450"]);
    expect(await by("key")).toEqual(["key_1 0 6 1 350", "key_2 0 1 0 100"]);
    expect(await by("workspace")).toEqual([" 0 6 1 350", "ws_1 0 1 0 100"]);
    expect(await by("robot")).toEqual([" 0 4 1 150", "arm 0 3 0 300"]);
    expect(await by("model", { limit: 1 })).toEqual(["a/m 0 5 0 350", "other 0 2 1 100"]);
    expect(await by("model", { robotId: "arm" })).toEqual(["a/m 0 2 0 200", "b/m 0 1 0 100"]);
    expect(await by("model", { workspaceId: "ws_1" })).toEqual(["b/m 0 1 0 100"]);
    expect(await by("model", { keyId: "key_2", provider: "p", contract: "act", model: "b/m" })).toEqual([
      "b/m 0 1 0 100",
    ]);
    expect(
      await readSeries(database.sql, "org_2", {
        since: BEGIN,
        until: BEGIN + 3600,
        stepS: 60,
        by: undefined,
        limit: 1,
      }),
    ).toHaveLength(1);
  });

  it("use the same buckets in the database as in routing", async () => {
    for (const ms of [0, 0.05, 0.1, 0.2, 1, 9.7, 10, 33.3, 250, 1_000, 60_000, 1e9]) {
      const [row] = await database.sql`select series_bucket(${ms}::float8) as bucket`;
      expect(row?.bucket, String(ms)).toBe(bucketOf(ms));
    }
  });

  it("lose robots with the log, minutes after two days, and hours after 400, but never the sums of days", async () => {
    const { sql } = database;
    const days = (count: number): number => BEGIN * 1000 + count * 86_400_000;
    const hours = () => read({ by: "robot", stepS: 3600 });
    await pruneSeries(sql, days(1));
    expect((await read()).length).toBe(3);
    await pruneSeries(sql, days(3));
    expect([(await read()).length, short(await hours()).sort()]).toEqual([0, [" 0 4 1 150", "arm 0 3 0 300"]]);
    await pruneSeries(sql, days(32));
    expect(short(await hours())).toEqual([" 0 7 1 450"]);
    await pruneSeries(sql, days(402));
    expect(await hours()).toEqual([]);
    const kept =
      await sql`select robot, requests, cost_micro from series_line where org_id = ${ORG} order by key_id, model`;
    expect(kept.map(({ robot }) => robot)).toEqual(kept.map(() => ""));
    expect(kept.reduce((sum, { costMicro }) => sum + costMicro, 0)).toBe(550);
  });
});

/** Adds up what is before a moment, as if nothing were known of what comes after. */
async function upTo(seconds: number): Promise<void> {
  const { sql } = database;
  const [from, to] = [new Date((BEGIN - 1) * 1000), new Date((BEGIN + seconds) * 1000)];
  await sql`select series_put(${from}, ${to})`;
  await sql`update series_until set at = ${to}`;
}
