/** Rollups of usage and margins: equal to the sums of calls whenever they were added up, also after a process died in between. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { tx } from "../../src/store/database/tx.ts";
import { addUpSeries } from "../../src/store/history/series.ts";
import { type MarginRow, readMargin, usageTotals } from "../../src/store/history/usage.ts";
import { seeded } from "../support/chance.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { brokenInvariants } from "../support/invariants.ts";

let database: FreshDatabase;
beforeAll(async () => {
  database = await freshDatabase({ max: 3 });
  const { sql } = database;
  await sql`insert into org (id, name) values ('org_1', 'a'), ('org_2', 'b')`;
  await sql`insert into model (slug, name) values ('a/m', 'm'), ('b/m', 'm')`;
  await sql`insert into provider (id, org_id, name, display_name) values ('prov_1', 'org_1', 'acme', 'Acme')`;
  for (const [id, model, scaledown_s] of [
    ["off_1", "a/m", 90],
    ["off_2", "b/m", null],
  ] as const)
    await sql`insert into offering ${sql({
      ...{ id, model, scaledown_s, org_id: "org_1", provider_id: "prov_1", runtime: "limber-policy" },
      ...{ endpoint: "http://a", hardware: "cpu", contracts: ["act"], cost_nano_per_second: 3_000_000 },
    })}`;
});
afterAll(() => database.close());

const HOUR = 3_600_000;
/** Three days before the current hour: some minutes are past their retention, and the ends of the span fill no unit. */
const BEGIN = Math.floor(Date.now() / HOUR) * HOUR - 72 * HOUR + 1_234_567;
const END = BEGIN + 71 * HOUR;

interface Call {
  org: string;
  key: string;
  model: string;
  status: "settled" | "unmetered" | "failed";
  byok: boolean;
  cost: number;
  ms: number;
  /** Unix milliseconds. */
  at: number;
}

let made = 0;
/** Records calls at their moments, as a settlement does. */
async function record(calls: readonly Call[]): Promise<void> {
  const { sql } = database;
  const rows = calls.map((call) => ({ ...call, id: `req_${String(made++).padStart(26, "0")}`, at: new Date(call.at) }));
  await sql`
    with call as (select * from jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) as each (
      org text, key text, model text, status text, byok boolean, cost bigint, ms real, at timestamptz, id text
    )), kinds as (
      select array_agg(id order by id) as ids, request_kinds(string_to_array(string_agg(concat_ws(
        ',', key, status, 'act', model, 'acme', case model when 'a/m' then 'off_1' else 'off_2' end, 'action_step', '0', '~', 'false', byok,
        '200', '~', ''), ',' order by id), ',', '~')) as kinds
      from call
    )
    insert into request_outcome (org_id, request_id, kind, units, cost_micro, latency_ms, lease, created)
    select org, call.id, kinds.kinds[array_position(kinds.ids, call.id)], 16, cost, ms, 'lease_1', at from call, kinds`;
}

/** Adds up all calls before a moment, in steps longer than the gateway's. */
async function addUp(until: number): Promise<void> {
  const { sql } = database;
  const to = new Date(until);
  await sql`select series_put(at, ${to}) from series_until`;
  await sql`update series_until set at = ${to}`;
  for (let isMore = true; isMore; )
    isMore = (await sql<{ more: boolean }[]>`select margin_add_up(60, ${to}) as more`)[0]!.more;
}

/** The rules about rollups that are violated. */
const brokenRollups = async (): Promise<string[]> =>
  (await brokenInvariants(database.sql)).filter((text) => /^\w+ add up the calls/.test(text));

const anyCall = (random: () => number, at: number): Call => {
  const pick = <T>(...from: T[]): T => from[Math.floor(random() * from.length)]!;
  const [org, key] = pick(["org_1", "key_1"], ["org_1", "key_2"], ["org_2", "key_3"]) as [string, string];
  const status = pick("settled", "settled", "settled", "unmetered", "failed") as Call["status"];
  const cost = status === "settled" ? Math.floor(random() * 1000) : 0;
  const ms = Math.floor(random() * 5_000);
  return { org, key, model: pick("a/m", "b/m"), status, byok: random() < 0.3, cost, ms, at };
};

describe("rollups of random calls, added up at random moments", () => {
  const random = seeded(20_261_127);
  const somewhere = (): number => BEGIN + Math.floor(random() * (END - BEGIN));
  const calls: Call[] = [];

  beforeAll(async () => {
    const moments = Array.from({ length: 400 }, somewhere);
    // Bursts keep offerings warm; the borders of minutes, hours and days belong to what begins there.
    for (const at of moments.slice(0, 40)) moments.push(at + 1_000, at + 20_000, at + 59_000);
    for (const at of moments.slice(40, 60)) moments.push(Math.floor(at / HOUR) * HOUR);
    const all = moments.filter((at) => at < END).map((at) => anyCall(random, at));
    calls.push(...all.sort((a, b) => a.at - b.at));
    let until = BEGIN;
    for (let from = 0; until < END; ) {
      until = Math.min(END, until + Math.floor(random() * 8 * HOUR));
      const to = calls.findIndex(({ at }) => at >= until);
      await record(calls.slice(from, to === -1 ? calls.length : to));
      if (until < END) await addUp(until);
      from = to === -1 ? calls.length : to;
    }
  });

  it("equal the sums of the calls in any span, with any filter", async () => {
    expect(await brokenRollups()).toEqual([]);
    for (let i = 0; i < 40; i++) {
      const [a, b] = [somewhere(), somewhere()].sort((x, y) => x - y) as [number, number];
      const roundS = [1, 60, 3_600, 86_400][i % 4]!;
      const since = Math.floor(a / 1000 / roundS) * roundS;
      const until = Math.floor(b / 1000 / roundS) * roundS;
      const filter = [{}, { keyId: "key_1" }, { model: "b/m" }, { provider: "acme", contract: "act" }][i % 3]!;
      const wanted = calls.filter(
        ({ org, key, model, at }) =>
          org === "org_1" &&
          at >= since * 1000 &&
          at < until * 1000 &&
          (filter.keyId ?? key) === key &&
          (filter.model ?? model) === model,
      );
      const totals = await usageTotals(database.sql, "org_1", { since, until, ...filter });
      expect(totals, `${since} to ${until}, ${JSON.stringify(filter)}`).toEqual({
        requests: wanted.filter(({ status }) => status !== "failed").length,
        costMicro: wanted.reduce((sum, { cost }) => sum + cost, 0),
      });
    }
  });

  it("report the margins that the calls alone report", async () => {
    const { sql } = database;
    const spans = Array.from({ length: 8 }, () => [somewhere(), somewhere()].sort((a, b) => a - b) as [number, number]);
    const margins = async (): Promise<{ totals: MarginRow }[]> =>
      Promise.all(
        [...spans, [BEGIN, undefined] as const].map(([since, until]) =>
          readMargin(sql, {
            ...{ orgId: undefined, limit: 10, secondOf: () => 1 },
            since: new Date(since),
            until: until === undefined ? undefined : new Date(until),
          }),
        ),
      );
    const rolled = await margins();
    const [at] = await sql<{ at: Date }[]>`select at from margin_until`;
    await sql`update margin_until set at = '-infinity'`;
    const counted = await margins();
    await sql`update margin_until set ${sql(at!)}`;
    expect(rolled).toEqual(counted);
    expect(rolled.at(-1)!.totals.idleMicro).toBeGreaterThan(0);
  });
});

describe("adding up", () => {
  const late = (at: number): Call => ({
    ...{ org: "org_2", key: "key_late", model: "a/m", status: "settled", byok: false, cost: 7, ms: 10 },
    at,
  });
  const totals = () => usageTotals(database.sql, "org_2", { keyId: "key_late" });

  it("adds nothing if it is killed between sums and watermark, and everything once after that", async () => {
    const { sql } = database;
    await record([late(END + 1_000), late(END + 2_000)]);
    const steps = [
      "perform series_put(at, now()) from series_until",
      "insert into margin_hour select m.* from margin_until, margin_between(at, date_trunc('hour', now()), 60) as m",
      "perform add_up_served()",
    ];
    for (const step of steps) {
      const killed = sql.unsafe(`do $$ begin ${step}; perform pg_terminate_backend(pg_backend_pid()); end $$`);
      await expect(killed, step).rejects.toThrow(/terminat|CONNECTION/);
      expect(await brokenRollups(), step).toEqual([]);
    }
    await addUp(END + 3_000);
    await addUpSeries(sql);
    expect(await brokenRollups()).toEqual([]);
    expect(await totals()).toEqual({ requests: 2, costMicro: 14 });
  });

  it("never passes a settlement that has begun and is not committed", async () => {
    const { sql } = database;
    const isAfter = async (at: string): Promise<boolean> =>
      (await sql<{ isAfter: boolean }[]>`select committed_before('0') > ${at}::text::timestamptz as is_after`)[0]!
        .isAfter;
    let began = "";
    await tx(sql, async (tx) => {
      const [row] = await tx<{ created: string }[]>`
        insert into request_outcome (org_id, request_id, kind, cost_micro, lease)
        select org_id, request_id || '_', kind, 5, lease from request_outcome join request_kind on id = kind
        where key_id = 'key_late' limit 1 returning created::text`;
      began = row!.created;
      await addUpSeries(sql);
      expect(await isAfter(began)).toBe(false);
      expect(await isAfter(began)).toBe(false);
    });
    expect(await isAfter(began)).toBe(true);
    expect(await totals()).toEqual({ requests: 3, costMicro: 19 });
    await sql`select series_put(at, now()) from series_until`;
    await sql`update series_until set at = now()`;
    expect(await totals()).toEqual({ requests: 3, costMicro: 19 });
    expect(await brokenRollups()).toEqual([]);
  });

  it("counts each call once while replicas add up at the same time", async () => {
    const { sql } = database;
    await sql`update series_until set at = ${new Date(END)}`;
    await sql`delete from series_line where key_id = 'key_late'`;
    await Promise.all([1, 2, 3].map(() => addUpSeries(sql)));
    expect(await brokenRollups()).toEqual([]);
  });
});
