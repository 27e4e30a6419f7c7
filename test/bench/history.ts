/**
 * Lists, reports, acts and settlements over a long history, against a database with a thousand calls: a gateway on each, requests in turns. Prints the
 * median of nine warm rounds in milliseconds, and the ratio.
 *
 * `node test/bench/history.ts [millions of calls] [weeks] [part of a name] [months that are not archived]`
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type EmbeddedPostgres, startPostgres } from "../../src/embedded/postgres.ts";
import { newId } from "../../src/ids.ts";
import { openFolder } from "../../src/jobs/archive/folder.ts";
import { archiveHistory } from "../../src/jobs/archive.ts";
import { connect, type Sql, type Tx, tx } from "../../src/store/database/tx.ts";
import { extendHistory, forgetLogs } from "../../src/store/history/partitions.ts";
import { ASSUMED_SCALEDOWN_S } from "../../src/store/history/series.ts";
import { databaseUrl } from "../support/database.ts";
import { endOf, intentOf, openReplica } from "../support/money.ts";
import { actFrame, GRPC_PATH } from "./support/act-call.ts";
import { ADMIN_TOKEN, type Bench, openGateway } from "./support/gateway.ts";
import { grpcLoad } from "./support/load.ts";
import { median, startModelServer } from "./support/processes.ts";

const MILLIONS = Number(process.argv[2] ?? 3);
const WEEKS = Number(process.argv[3] ?? 52);
const WANTED = process.argv[4] ?? "";
const ROUNDS = 9;
/** Connections of a gateway for statements, and how often each runs a statement before it is measured: PostgreSQL plans each of the first five. */
const CONNECTIONS = 10;
const WARM = 7;
const ROBOTS = 10;
const DAY = 86_400;
/** Days of logs. */
const LOG_DAYS = 30;
/** The last calls of the small database, as close together as in the large one: pages and the minutes of the last hour are as full. */
const PAGES = 1_000;
/** The archive's age at the end, in months: the months before it are folded. */
const ARCHIVE_MONTHS = Number(process.argv[5] ?? 10);

const folder = mkdtempSync(join(tmpdir(), "limber-history-"));
const settings = { shared_buffers: "1GB", max_wal_size: "8GB", maintenance_work_mem: "512MB" };
const postgres: EmbeddedPostgres = await startPostgres({ dataDir: join(folder, "postgres"), settings });
const server = connect(postgres.url, { max: 1 });
const upstream = await startModelServer(["0"]);
const { grpc: modelPort }: { grpc: number } = JSON.parse(upstream.line);

/** A gateway with a database of its own, and the organization of its key. */
interface Place {
  gateway: Bench;
  url: string;
  sql: Sql;
  orgId: string;
  keyId: string;
  offeringId: string;
}

async function open(name: string): Promise<Place> {
  await server.unsafe(`create database "${name}"`);
  const url = databaseUrl(postgres.url, name);
  const gateway = await openGateway(join(folder, name), `grpc://127.0.0.1:${modelPort}`, {
    DATABASE_URL: url,
    LIMBER_MASTER_KEY: Buffer.alloc(32).toString("base64"),
    LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
  });
  const sql = connect(url, { max: 4, unbounded: true });
  const [ids] = await sql<{ orgId: string; keyId: string; offeringId: string }[]>`
    select offering.org_id, key.id as key_id, offering.id as offering_id from offering join key on key.org_id = offering.org_id`;
  return { gateway, url, sql, ...ids! };
}

/** Calls at one pace, the last one now or some time ago. */
interface Run {
  calls: number;
  gapS: number;
  agoS?: number;
}

/** Robots that call evenly; logs of the last days; and what else grows with use. */
async function fill(place: Place, weeks: number, runs: readonly Run[]): Promise<void> {
  // The gateway of this database adds up nothing meanwhile.
  const untils = ["series_until", "margin_until", "served_until"];
  for (const table of untils) await place.sql`update ${place.sql(table)} set at = 'infinity'`;
  await record(place, weeks, runs);
  await tx(place.sql, (tx) => addUp(tx, weeks));
  await place.sql.unsafe("vacuum analyze");
  await extendHistory(place.sql);
}

async function record({ sql, orgId, keyId, offeringId }: Place, weeks: number, runs: readonly Run[]): Promise<void> {
  await sql`select history_partition(t, history_week(now()) - 7 * n)
    from unnest(array['request_outcome', 'request_log', 'hedge_loser']) as t, generate_series(1, ${weeks}) as n`;
  const kind = (
    status: string,
  ) => sql`request_kinds(array[${keyId}, ${status}, 'act', 'bench/instant', 'bench', ${offeringId},
    'action_step', '0', null, 'false', 'false', ${status === "failed" ? "502" : "200"}, null, null])`;
  const [kinds] = await sql<{ ok: number[]; bad: number[] }[]>`
    select ${kind("settled")} as ok, ${kind("failed")} as bad`;
  let calls = 0;
  for (const run of runs) {
    calls += run.calls;
    await sql`
      insert into request_outcome (org_id, request_id, kind, units, cost_micro, latency_ms, lease, created)
      select ${orgId}, request_mark(at) || lpad(n::text, 16, '0'),
        case when n % 1000 = 0 then ${kinds!.bad[0]!}::int8 else ${kinds!.ok[0]!}::int8 end, 50,
        case when n % 1000 = 0 then 0 else 20 end, 900, 'lease_01JQ2V8Z5XK3M7N9P1R4T6W8YB', at
      from (
        select n, now() - make_interval(secs => ${run.agoS ?? 0} + (${run.calls} - n) * ${run.gapS}::float8) as at
        from generate_series(1, ${run.calls}::int8) as n
      ) as each`;
  }
  await sql`
    insert into request_log (org_id, request_id, attempt_ms, queue_ms, input_bytes, robot_id, session_id, log)
    select org_id, request_id, 850, 1, 40000, 'robot-' || n, 'session-' || n,
      '{"model_requested":"bench/instant","stream_id":"req_x","region":"eu","plan":"p_0123456789abcdef","ranks":"0 1 2","attempts":[{"offering_id":"off_1","status":"ok","latency_ms":850,"count":12}]}'
    from (select *, right(request_id, 5)::int % ${ROBOTS} as n from request_outcome) as o
    where request_id >= request_mark(now() - make_interval(days => ${LOG_DAYS}))`;
  await sql`
    insert into job (id, kind, org_id, key_id, status, rank, request, total, created, expires)
    select 'batch_' || lpad(n::text, 26, '0'), 'batch', ${orgId}, ${keyId}, 'completed', 9, '{}', 1, now() - make_interval(secs => n * 60), now()
    from generate_series(1, ${Math.max(120, Math.round(calls / 200))}::int) as n`;
  await sql`
    insert into outbox (event_id, name, org_id, payload, sent_at, created)
    select 'evt_' || n, 'job.completed', ${orgId}, 'x', now(), now() - make_interval(secs => n) from generate_series(1, ${Math.max(120, Math.round(calls / 100))}::int) as n`;
  await sql`
    select audit_append(${orgId}, 'aud_' || lpad(n::text, 26, '0'), ${keyId}, 'key.update', ${keyId}, '{}', null, now())
    from generate_series(1, ${Math.max(120, Math.round(calls / 1_000))}::int) as n`;
  await sql`
    insert into transfer (cause, kind, org_id, debit, credit, amount_micro, created)
    select 'lease_' || n || '/' || kind, kind::transfer_kind, ${orgId}, 'available', 'lease_' || n, 100, now() - make_interval(secs => n)
    from generate_series(1, ${Math.max(120, Math.round(calls / 50))}::int) as n, unnest(array['lease', 'return']) as kind`;
  await sql.unsafe("vacuum analyze");
}

async function addUp(tx: Tx, weeks: number): Promise<void> {
  await tx`delete from series_line`;
  await tx`delete from margin_hour`;
  await tx`delete from served_day`;
  // The time of this transaction is when it began: later calls are not added up.
  for (let day = weeks * 7 + 1; day > 0; day--) {
    const [from, to] = [day, day - 1].map((days) => tx`now() - make_interval(days => ${days})`);
    await tx`select series_put(${from!}, ${to!})`;
    await tx`
      insert into margin_hour select * from margin_between(date_trunc('hour', ${from!}), date_trunc('hour', ${to!}), ${ASSUMED_SCALEDOWN_S})`;
    await tx`
      insert into served_day as d select * from served_between(${from!}, ${to!})
      on conflict (provider, day, offering_id, model, unit, share_bp) do update set calls = d.calls + excluded.calls,
        units = d.units + excluded.units, gross_micro = d.gross_micro + excluded.gross_micro`;
  }
  await tx`update series_until set at = now()`;
  await tx`update margin_until set at = date_trunc('hour', now())`;
  await tx`update served_until set at = now()`;
}

const [empty, full] = [await open("empty"), await open("full")];
const startedAt = performance.now();
const gapS = (WEEKS * 7 * DAY) / (MILLIONS * 1e6);
const robotDays = Array.from({ length: LOG_DAYS }, (_, day) => ({ calls: ROBOTS, gapS: 1, agoS: (day + 0.5) * DAY }));
await fill(empty, 5, [...robotDays, { calls: PAGES, gapS }]);
await fill(
  full,
  WEEKS,
  Array.from({ length: WEEKS }, (_, week) => ({
    ...{ calls: Math.round((MILLIONS * 1e6) / WEEKS), gapS, agoS: (WEEKS - 1 - week) * 7 * DAY },
  })),
);
await printSizes(`
${MILLIONS} million calls over ${WEEKS} weeks, generated in ${Math.round((performance.now() - startedAt) / 1000)} s`);

/** Prints rows and bytes of the tables that grow with calls, without rows that are gone. */
async function printSizes(title: string): Promise<void> {
  interface Size {
    name: string;
    rows: number;
    bytes: number;
    indexes: number;
  }
  const sizes = await full.sql<Size[]>`
    select name, (xpath('/row/n/text()', query_to_xml('select count(*) as n from ' || name, false, true, '')))[1]::text::int8 as rows,
      sum(pg_total_relation_size(part))::int8 as bytes, sum(pg_indexes_size(part))::int8 as indexes
    from unnest(array['request_outcome', 'request_log', 'series_line', 'series_hour', 'series_minute', 'margin_hour', 'served_day', 'closing_entry']) as name,
      lateral (select name::regclass as part union all select inhrelid from pg_inherits where inhparent = name::regclass) as parts
    group by name order by bytes desc`;
  console.log(`${title}\n\n| table | rows | bytes per row | of which indexes | MB |\n|---|---|---|---|---|`);
  for (const { name, rows, bytes, indexes } of sizes) {
    const [each, inIndexes] = [bytes, indexes].map((all) => Math.round(all / Math.max(1, rows)));
    console.log(`| \`${name}\` | ${rows} | ${each} | ${inIndexes} | ${(bytes / 1e6).toFixed(1)} |`);
  }
}

const nowS = Math.floor(Date.now() / 1000);
const hour = Math.floor(nowS / 3600) * 3600;
const day = Math.floor(nowS / DAY) * DAY;
const [some] = await full.sql<{ id: string }[]>`
  select request_id as id from request_outcome where org_id = ${full.orgId} and request_id > (select request_mark(now() - interval '6 days')) order by request_id limit 1`;
const PATHS: ((place: Place) => string)[] = [
  "/v1/logs?limit=100",
  "/v1/logs?since_minutes=60&limit=100",
  "/v1/logs?robot_id=robot-3&limit=100",
  "/v1/logs?session_id=session-3&limit=100",
  "/v1/logs?robot_id=nobody&limit=100",
  "/v1/logs?status=failed&limit=100",
  "/v1/logs?http_status=502&limit=100",
  "/v1/logs?model=bench/instant&limit=100",
  "/v1/logs?model=acme/none&limit=100",
  "/v1/logs?provider=nobody&limit=100",
  `/v1/logs?request_id=${some!.id}`,
  `/v1/logs?limit=100&cursor=${some!.id}`,
  "/v1/usage?limit=50",
  ({ keyId }: Place) => `/v1/usage?limit=50&key_id=${keyId}`,
  ({ keyId }: Place) => `/v1/usage?limit=50&key_id=${keyId}&since=${nowS - 30 * DAY}`,
  `/v1/usage?limit=50&since=${nowS - 200 * DAY - 1234}&until=${nowS - 90 * DAY - 1234}`,
  "/v1/usage?limit=50&model=acme/none",
  "/v1/usage?limit=50&provider=bench&contract=act",
  `/v1/usage?limit=50&since=${nowS - 3600}`,
  `/v1/usage?request_id=${some!.id}`,
  `admin /v1/usage/margin?since=${nowS - 30 * DAY}`,
  `admin /v1/usage/margin?since=${nowS - 365 * DAY}`,
  ({ orgId }: Place) => `admin /v1/usage/margin?since=${nowS - DAY}&org_id=${orgId}`,
  `/v1/series?since=${hour - 3600}&until=${hour + 3600}&step_s=60&by=robot`,
  `/v1/series?since=${day - 30 * DAY}&until=${day + DAY}&step_s=${DAY}&by=robot`,
  `/v1/series?since=${day - 350 * DAY}&until=${day + DAY}&step_s=${DAY}&by=model`,
  "/v1/loops/history",
  "/v1/key",
  ({ orgId }: Place) => `/v1/orgs/${orgId}/keys`,
  ({ orgId }: Place) => `/v1/orgs/${orgId}/workspaces`,
  ({ orgId }: Place) => `/v1/orgs/${orgId}/members`,
  "/v1/billing",
  "/v1/billing/balance",
  "/v1/billing/payments",
  `/v1/billing/invoice?month=${new Date().toISOString().slice(0, 7)}`,
  "/v1/supply/earnings",
  `/v1/supply/earnings?since=${nowS - 30 * DAY}`,
  "/v1/supply/statements",
  "/v1/supply/providers/bench/balance",
  "/v1/supply/offerings?mine=true",
  ({ offeringId }: Place) => `/v1/supply/offerings/${offeringId}/stats?days=30`,
  "/v1/jobs?limit=100",
  "/v1/jobs?kind=evaluation&limit=100",
  "/v1/audit?limit=100",
  "/v1/audit?action=key.create&limit=100",
  "/v1/audit?actor=nobody&limit=100",
  "/v1/robots?limit=100",
  "/v1/robots/stops",
  "/v1/loops",
  "/v1/webhooks",
  "/v1/models?limit=100",
  "/v1/status",
].map((path) => (typeof path === "string" ? () => path : path));

/** Returns the bytes of the answer. */
async function get(place: Place, named: string): Promise<number> {
  const [path, isAdmin] = named.startsWith("admin ") ? [named.slice("admin ".length), true] : [named, false];
  const response = await fetch(`http://127.0.0.1:${place.gateway.port}${path}`, {
    headers: isAdmin ? { "x-service-admin-token": ADMIN_TOKEN } : { authorization: `Bearer ${place.gateway.key}` },
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${text}`);
  return text.length;
}

console.log("\n| request | 1,300 calls, ms | all calls, ms | ratio | answers, kB |\n|---|---|---|---|---|");
for (const path of PATHS) {
  const name = path(full)
    .replaceAll(/(org|key|off)_\w+/g, "$1")
    .replaceAll(/\d{10}/g, "t");
  if (!name.includes(WANTED)) continue;
  await compared(name, (place) => get(place, path(place)), true).catch((error) =>
    console.log(`| ${name} | ${error} |`),
  );
}
// An act through the gateway, and the settlement transaction alone: batches of 64 calls.
await compared("400 acts by 8 callers", async ({ gateway }) => {
  const { failed } = await grpcLoad(`http://127.0.0.1:${gateway.port}`, GRPC_PATH, actFrame, gateway.key, 4, 2, 400);
  if (failed > 0) throw new Error(`${failed} acts failed`);
  return 0;
});
const settling = new Map(
  await Promise.all([empty, full].map(async (place) => [place, await settlements(place)] as const)),
);
await compared("20 settlements of 64 calls", (place) => settling.get(place)!.run());
for (const { close } of settling.values()) await close();

const forgotten = await timed(async () => {
  await full.sql`insert into org_settings (org_id, retention_days) values (${full.orgId}, 14) on conflict (org_id) do update set retention_days = 14`;
  await forgetLogs(full.sql);
});
await printSizes(`logs of 16 days forgotten in ${forgotten} ms`);
const archive = openFolder(join(folder, "archive"));
const [held] = await full.sql<{ calls: number; since: string }[]>`
  select count(*)::int8 as calls, min(created)::text as since from request_outcome`;
let archived = 0;
const archiving = await timed(async () => {
  archived = await archiveHistory({ sql: full.sql, folder: archive, afterMonths: ARCHIVE_MONTHS }, new Date());
});
await full.sql.unsafe("vacuum analyze");
const [files] = await full.sql<{ bytes: number; files: number }[]>`
  select coalesce(sum(bytes), 0)::int8 as bytes, count(*)::int8 as files from archive_file`;
await printSizes(
  `${archived} of ${held!.calls} calls since ${held!.since} archived in ${archiving} ms, ${files!.files} files of ${files!.bytes} bytes`,
);

for (const { gateway, sql } of [empty, full]) {
  await gateway.stop();
  await sql.end();
}
await Promise.all([server.end(), upstream.stop()]);
await postgres.stop();
rmSync(folder, { recursive: true, force: true });
// Replicas keep timers.
process.exit(0);

/** The settlement transaction of a replica of its own. */
async function settlements({
  url,
  orgId,
  keyId,
}: Place): Promise<{ run: () => Promise<number>; close: () => Promise<void> }> {
  const replica = await openReplica(url, newId("replica"));
  const leaser = await replica.ledger.open();
  let number = 1;
  const settlementsOf = () =>
    Array.from({ length: 64 }, () => ({ lease: null, record: endOf(intentOf({ orgId, keyId }), 0) }));
  const run = async (): Promise<number> => {
    for (let i = 0; i < 20; i++)
      await replica.ledger.commit(leaser, {
        number: number++,
        intents: [],
        settlements: settlementsOf(),
        over: [],
        moves: [],
      });
    return 0;
  };
  return { run, close: () => replica.kill() };
}

async function timed(run: () => Promise<unknown>): Promise<number> {
  const at = performance.now();
  await run();
  return Math.round(performance.now() - at);
}

/** Prints the medians of both places, which take turns once all connections of their pools are warm: each of them plans a statement itself. */
async function compared(name: string, run: (place: Place) => Promise<number>, isRequest = false): Promise<void> {
  const times = { empty: [] as number[], full: [] as number[] };
  const bytes = { empty: 0, full: 0 };
  if (isRequest)
    for (const place of [empty, full])
      for (let i = 0; i < WARM; i++) await Promise.all(Array.from({ length: CONNECTIONS }, () => run(place)));
  for (let round = -2; round < ROUNDS; round++)
    for (const [which, place] of [
      ["empty", empty],
      ["full", full],
    ] as const) {
      const at = performance.now();
      bytes[which] = await run(place);
      if (round >= 0) times[which].push(performance.now() - at);
    }
  const [a, b] = [median(times.empty), median(times.full)];
  const sizes = [bytes.empty, bytes.full].map((each) => (each / 1_000).toFixed(1)).join(" / ");
  console.log(`| \`${name}\` | ${a.toFixed(1)} | ${b.toFixed(1)} | ${(b / a).toFixed(2)} | ${sizes} |`);
}
