/**
 * Lists and reports over a long history, beside an empty database. Arguments: millions of rows (3), weeks (52). Prints the median of nine warm
 * runs in milliseconds, and the ratio.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startPostgres } from "../../src/embedded/postgres.ts";
import { newId } from "../../src/ids.ts";
import { balanceOf } from "../../src/store/account/orgs.ts";
import { addUpServed, listEarnings } from "../../src/store/billing/earnings.ts";
import { invoiceMonth } from "../../src/store/billing/statements.ts";
import { migrate } from "../../src/store/database/migrate.ts";
import { connect, type Sql } from "../../src/store/database/tx.ts";
import { listCalls } from "../../src/store/history/logs.ts";
import { forgetLogs } from "../../src/store/history/partitions.ts";
import { readSeries } from "../../src/store/history/series.ts";
import { listUsage, ownKeySpending, readMargin, usageTotals } from "../../src/store/history/usage.ts";
import { databaseUrl } from "../support/database.ts";
import { endOf, intentOf, makePayer, openReplica } from "../support/money.ts";

const MILLIONS = Number(process.argv[2] ?? 3);
const WEEKS = Number(process.argv[3] ?? 52);
const ROUNDS = 9;
const ROBOTS = 10;

const dataDir = mkdtempSync(join(tmpdir(), "limber-history-"));
const postgres = await startPostgres({
  dataDir,
  settings: { shared_buffers: "1GB", max_wal_size: "8GB", synchronous_commit: "off" },
});
const server = connect(postgres.url, { max: 1 });

/** A database with one organization, a key and an offering. */
async function made(name: string): Promise<{ sql: Sql; url: string; orgId: string; keyId: string }> {
  await server.unsafe(`create database ${name}`);
  const url = databaseUrl(postgres.url, name);
  const sql = connect(url, { max: 4, unbounded: true });
  await migrate(sql);
  const { orgId, keyId } = await makePayer(sql, 1_000_000_000);
  return { sql, url, orgId, keyId };
}

/** Ten robots that call evenly over the weeks; logs of the last 30 days. */
async function fill({ sql, orgId, keyId }: { sql: Sql; orgId: string; keyId: string }): Promise<void> {
  await sql`select history_partition(t, history_week(now()) - 7 * n)
    from unnest(array['request_outcome', 'request_log', 'hedge_loser']) as t, generate_series(1, ${WEEKS}) as n`;
  const kind = (
    status: string,
  ) => sql`request_kinds(array[${keyId}, ${status}, 'act', 'acme/arm', 'acme', 'off_1', 'action_step', '0', null,
    'false', 'false', ${status === "failed" ? "502" : "200"}, null, null])`;
  const [kinds] = await sql<
    { ok: number[]; bad: number[] }[]
  >`select ${kind("settled")} as ok, ${kind("failed")} as bad`;
  const perWeek = Math.round((MILLIONS * 1e6) / WEEKS);
  const gapS = (7 * 86_400) / perWeek;
  for (let week = WEEKS; week > 0; week--) {
    await sql`
      insert into request_outcome (org_id, request_id, kind, units, cost_micro, latency_ms, lease, created)
      select ${orgId}, request_mark(at) || lpad(n::text, 16, '0'), case when n % 1000 = 0 then ${kinds!.bad[0]!}::int8 else ${kinds!.ok[0]!}::int8 end, 50,
        case when n % 1000 = 0 then 0 else 20 end, 900, 'lease_01JQ2V8Z5XK3M7N9P1R4T6W8YB', at
      from (
        select n, now() - make_interval(secs => ${week * 7 * 86_400}) + n * make_interval(secs => ${gapS}) as at
        from generate_series(1, ${perWeek}::int8) as n
      ) as each`;
    if (week * 7 > 30 + 7) continue;
    await sql`
      insert into request_log (org_id, request_id, attempt_ms, queue_ms, input_bytes, robot_id, session_id, log)
      select org_id, request_id, 850, 1, 40000, 'robot-' || right(request_id, 5)::int % ${ROBOTS}, 'session-' || right(request_id, 5)::int % ${ROBOTS},
        '{"model_requested":"acme/arm","stream_id":"req_x","region":"eu","plan":"p_0123456789abcdef","ranks":"0 1 2","attempts":[{"offering_id":"off_1","status":"ok","latency_ms":850,"count":12}]}'
      from request_outcome
      where created >= now() - make_interval(days => ${week * 7}) and created < now() - make_interval(days => ${week * 7 - 7})`;
  }
  await sql.unsafe("vacuum analyze");
  for (let day = WEEKS * 7; day > 0; day--)
    await sql`select series_put(now() - make_interval(days => ${day}), now() - make_interval(days => ${day - 1}))`;
  await sql`update series_until set at = now()`;
  await sql`select margin_add_up(60)`;
  await addUpServed(sql);
  await sql.unsafe("vacuum analyze");
}

const empty = await made("empty");
const full = await made("full");
const startedAt = performance.now();
await fill(full);
const [size] = await full.sql<{ rows: number; outcome: number; log: number; logs: number }[]>`
  select (select count(*) from request_outcome) as rows, (select count(*) from request_log) as logs,
    (select sum(pg_total_relation_size(inhrelid)) from pg_inherits where inhparent = 'request_outcome'::regclass) as outcome,
    (select sum(pg_total_relation_size(inhrelid)) from pg_inherits where inhparent = 'request_log'::regclass) as log`;
console.log(`generated ${size!.rows} rows in ${Math.round((performance.now() - startedAt) / 1000)} s`);
console.log(
  `bytes per row: accounting ${Math.round(size!.outcome / size!.rows)}, log ${Math.round(size!.log / size!.logs)}`,
);

const nowS = Math.floor(Date.now() / 1000);
const month = new Date().toISOString().slice(0, 7);
const hour = Math.floor(nowS / 3600) * 3600;
type Place = Awaited<ReturnType<typeof made>>;
const QUERIES: Record<string, (place: Place) => Promise<unknown>> = {
  logs: ({ sql, orgId }) => listCalls(sql, orgId, { limit: 101 }),
  "logs of the last hour": ({ sql, orgId }) => listCalls(sql, orgId, { limit: 101, since: nowS - 3600 }),
  "logs of a robot": ({ sql, orgId }) => listCalls(sql, orgId, { limit: 101, robotId: "robot-3" }),
  "logs that failed": ({ sql, orgId }) => listCalls(sql, orgId, { limit: 101, status: "failed" }),
  "logs of a model without calls": ({ sql, orgId }) => listCalls(sql, orgId, { limit: 101, model: "acme/none" }),
  usage: ({ sql, orgId }) => listUsage(sql, orgId, { limit: 51 }),
  "usage of a key in 30 days": ({ sql, orgId, keyId }) =>
    listUsage(sql, orgId, { limit: 51, keyId, since: nowS - 30 * 86_400 }),
  "usage totals": ({ sql, orgId }) => usageTotals(sql, orgId),
  "usage totals of a key": ({ sql, orgId, keyId }) => usageTotals(sql, orgId, { keyId }),
  "usage totals of a key in 30 days": ({ sql, orgId, keyId }) =>
    usageTotals(sql, orgId, { keyId, since: nowS - 30 * 86_400 }),
  "spending with own keys": ({ sql, orgId }) => ownKeySpending(sql, orgId),
  "margin of 30 days": ({ sql }) =>
    readMargin(sql, {
      orgId: undefined,
      limit: 100,
      since: new Date((nowS - 30 * 86_400) * 1000),
      until: undefined,

      secondOf: () => 1,
    }),
  "series of 30 days by robot": ({ sql, orgId }) =>
    readSeries(sql, orgId, { since: hour - 30 * 86_400, until: hour, stepS: 86_400, by: "robot", limit: 10 }),
  earnings: ({ sql }) => listEarnings(sql, { providers: ["acme"], limit: 50, cursor: undefined }),
  balance: ({ sql, orgId }) => balanceOf(sql, orgId),
  invoice: ({ sql, orgId }) => invoiceMonth(sql, orgId, `${month}-01`, 20),
};
const wanted = process.argv[4];
console.log("\n| list or report | empty, ms | full, ms | ratio |\n|---|---|---|---|");
for (const [name, run] of Object.entries(QUERIES)) {
  if (wanted !== undefined && !name.includes(wanted)) continue;
  const [a, b] = await compared(
    () => run(empty),
    () => run(full),
  );
  console.log(`| ${name} | ${a.toFixed(1)} | ${b.toFixed(1)} | ${(b / a).toFixed(1)} |`);
}

// The settlement transaction: batches of 64 calls.
const settle = async ({ url, orgId, keyId }: Place) => {
  const replica = await openReplica(url, newId("replica"));
  const lease = { leaser: await replica.ledger.open(), number: 1 };
  const records = () =>
    Array.from({ length: 64 }, () => ({ lease: null, record: endOf(intentOf({ orgId, keyId }), 0) }));
  const run = () =>
    replica.ledger.commit(lease.leaser, {
      number: lease.number++,
      intents: [],
      settlements: records(),
      over: [],
      moves: [],
    });
  for (let i = 0; i < 10; i++) await run();
  return {
    run: async () => {
      for (let i = 0; i < 20; i++) await run();
    },
    close: () => replica.kill(),
  };
};
const [small, large] = [await settle(empty), await settle(full)];
const [a, b] = await compared(small.run, large.run);
console.log(`| 20 settlements of 64 calls | ${a.toFixed(1)} | ${b.toFixed(1)} | ${(b / a).toFixed(2)} |`);
await Promise.all([small.close(), large.close()]);

const began = performance.now();
await full.sql`update org_settings set retention_days = 30`;
await forgetLogs(full.sql);
console.log(`\ndropping logs past 30 days: ${Math.round(performance.now() - began)} ms`);

await Promise.all([empty.sql.end(), full.sql.end(), server.end()]);
await postgres.stop();
rmSync(dataDir, { recursive: true, force: true });

/** The medians of two functions in turns, after one warm-up each. */
async function compared(one: () => Promise<unknown>, other: () => Promise<unknown>): Promise<[number, number]> {
  await one();
  await other();
  const times: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++)
    for (const [i, run] of [one, other].entries()) {
      const at = performance.now();
      await run();
      times[i]!.push(performance.now() - at);
    }
  const median = (values: number[]): number => values.sort((x, y) => x - y)[ROUNDS >> 1]!;
  return [median(times[0]), median(times[1])];
}
