/** Partitions of the request history: a charge is unique across them, a missing one loses nothing, and old logs go. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { now } from "../../src/clock.ts";
import { newId } from "../../src/ids.ts";
import { tx } from "../../src/store/database/tx.ts";
import { listCalls } from "../../src/store/history/logs.ts";
import { extendHistory, forgetLogs, historyAheadDays } from "../../src/store/history/partitions.ts";
import { listUsage } from "../../src/store/history/usage.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { brokenInvariants } from "../support/invariants.ts";

let db: FreshDatabase;
let kind: number;

beforeAll(async () => {
  db = await freshDatabase();
  await db.sql`insert into org (id, name) values ('org_1', 'a'), ('org_2', 'b'), ('org_3', 'c')`;
  const fields = [
    "key_1",
    "settled",
    "act",
    "a/m",
    "p",
    "off_1",
    "action_step",
    "0",
    null,
    "false",
    "false",
    "200",
    null,
    null,
  ];
  const [row] = await db.sql<{ kinds: number[] }[]>`select request_kinds(${fields as string[]}::text[]) as kinds`;
  kind = row!.kinds[0]!;
});
afterAll(() => db.close());

/** Records a call with an id of so many days ago (negative: ahead); returns its id. */
async function record(org: string, days: number, { robot = null as string | null } = {}): Promise<string> {
  const [row] = await db.sql<{ id: string }[]>`
    select request_mark(now() - make_interval(days => ${days})) || right(${newId("req")}, 16) as id`;
  const id = row!.id;
  await db.sql`
    insert into request_outcome (org_id, request_id, kind, created)
    values (${org}, ${id}, ${kind}, now() - make_interval(days => ${days}))`;
  await db.sql`insert into request_log (org_id, request_id, robot_id, log) values (${org}, ${id}, ${robot}, '{"region":"here"}')`;
  return id;
}

const partitionOf = async (id: string): Promise<string> =>
  (
    await db.sql<
      { name: string }[]
    >`select tableoid::regclass::text as name from request_outcome where request_id = ${id}`
  )[0]!.name;
const logs = async (org: string): Promise<number> =>
  (await db.sql<{ n: number }[]>`select count(*) as n from request_log where org_id = ${org}`)[0]!.n;

describe("a request id", () => {
  it("has one partition, so a second charge for it is refused whenever it is written", async () => {
    const ids = [await record("org_1", 0), await record("org_1", 400), await record("org_1", -400)];
    for (const id of ids)
      await expect(
        db.sql`insert into request_outcome (org_id, request_id, kind, created) values ('org_1', ${id}, ${kind}, now() + interval '9 weeks')`,
      ).rejects.toThrow("duplicate key");
    // The same while a partition is made for ids that waited in the default one.
    expect(await partitionOf(ids[1]!)).toBe("request_outcome_default");
    await extendHistory(db.sql);
    expect(await partitionOf(ids[1]!)).toMatch(/^request_outcome_[0-9]{8}$/);
    await expect(
      db.sql`insert into request_outcome (org_id, request_id, kind) values ('org_1', ${ids[1]!}, ${kind})`,
    ).rejects.toThrow("duplicate key");
    // A clock that was far ahead: its rows wait for their week.
    expect(await partitionOf(ids[2]!)).toBe("request_outcome_default");
    expect(await brokenInvariants(db.sql)).toEqual([]);
  });

  it("sorts, and marks its moment, as the gateway writes it", async () => {
    for (const _ of [1, 2, 3]) {
      const before = now();
      const id = newId("req");
      const [row] = await db.sql<{ at: Date; low: boolean; high: boolean }[]>`
        select request_moment(${id}) as at, ${id} >= request_mark(${new Date(before)}) as low,
          ${id} < request_mark(${new Date(now() + 1)}) as high`;
      expect(row!.at.getTime()).toBeGreaterThanOrEqual(before);
      expect([row!.low, row!.high]).toEqual([true, true]);
    }
  });
});

describe("a missing partition", () => {
  it("loses no row at midnight: rows of a week without one wait in the default partition and move when it is made", async () => {
    const [week] = await db.sql<{ name: string }[]>`
      select 'request_outcome_' || to_char(history_week(now()), 'YYYYMMDD') as name`;
    const id = await record("org_1", 0);
    expect(await partitionOf(id)).toBe(week!.name);
    await db.sql.unsafe(`
      create table taken as select * from ${week!.name};
      drop table ${week!.name};
      insert into request_outcome select * from taken;
      drop table taken`);
    expect(await partitionOf(id)).toBe("request_outcome_default");
    expect(await historyAheadDays(db.sql)).toBeGreaterThan(27);
    const found = await listUsage(db.sql, "org_1", { limit: 100 });
    expect(found.rows.map(({ requestId }) => requestId)).toContain(id);
    await Promise.all([extendHistory(db.sql), extendHistory(db.sql)]);
    expect(await partitionOf(id)).toBe(week!.name);
    expect(await extendHistory(db.sql)).toBe(0);
    expect(await brokenInvariants(db.sql)).toEqual([]);
  });
});

describe("a past week", () => {
  it("is not read for what was recorded since a moment, and shows a charge that is late", async () => {
    await db.sql`select history_partition('request_outcome', history_week(now() - interval '90 days'))`;
    const id = await record("org_1", 90);
    const part = await partitionOf(id);
    // More than a block range of the index by time.
    await db.sql`
      insert into request_outcome (org_id, request_id, kind, created)
      select 'org_4', ${id.slice(0, 14)} || lpad(n::text, 16, '0'), ${kind}, now() - interval '90 days' from generate_series(1, 4000) as n`;
    const recorded = db.sql`select request_id as id from ${db.sql(part)} where created >= now() - interval '1 day'`;
    const wasRead = () =>
      tx(db.sql, async (tx) => {
        await tx`set local enable_seqscan = off`;
        return (await tx`explain analyze ${recorded}`).some((line) => /Rows Removed/.test(Object.values(line).join()));
      });
    expect(await wasRead()).toBe(true);
    await extendHistory(db.sql);
    expect(await wasRead()).toBe(false);
    const late = `${id.slice(0, 14)}LATE000000000000`;
    await db.sql`insert into request_outcome (org_id, request_id, kind) values ('org_1', ${late}, ${kind})`;
    expect(await db.sql`${recorded}`).toEqual([{ id: late }]);
  });
});

describe("retention", () => {
  it("hides logs that are past it, drops partitions past the longest one, and deletes in batches for shorter ones", async () => {
    const { sql } = db;
    await sql`insert into org_settings (org_id, retention_days) values ('org_2', 3650), ('org_3', 2)`;
    for (const org of ["org_2", "org_3"]) for (const days of [0, 3, 60]) await record(org, days, { robot: "arm" });
    const week = await sql<{ name: string; at: string }[]>`
      select distinct history_week(request_moment(request_id))::text as at from request_log_default`;
    for (const { at } of week) await sql`select history_partition('request_log', ${at}::date)`;
    const shown = async (org: string, more: object = {}) => {
      const { rows } = await listCalls(sql, org, { limit: 10, ...more });
      return rows.map(({ log }) => log !== null);
    };
    expect([await shown("org_2"), await shown("org_3")]).toEqual([
      [true, true, true],
      [true, false, false],
    ]);
    expect(await shown("org_3", { robotId: "arm" })).toEqual([true]);
    await forgetLogs(sql);
    expect([await logs("org_2"), await logs("org_3")]).toEqual([3, 1]);
    // From ten years to one day.
    await sql`update org_settings set retention_days = 1`;
    await sql`update org set status = 'deleted' where id = 'org_1'`;
    await sql`insert into org_settings (org_id, retention_days) values ('org_1', 1)`;
    await forgetLogs(sql);
    expect([await logs("org_1"), await logs("org_2"), await logs("org_3")]).toEqual([0, 1, 1]);
    const [old] = await sql`
      select 1 from pg_class where relname = 'request_log_' || to_char(history_week(now() - interval '60 days'), 'YYYYMMDD')`;
    expect(old).toBeUndefined();
    expect((await listUsage(sql, "org_2", { limit: 10 })).rows).toHaveLength(3);
    expect(await brokenInvariants(sql)).toEqual([]);
  });
});
