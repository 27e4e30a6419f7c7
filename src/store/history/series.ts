/** Time series of calls: rollups by minute and hour, plus what is not rolled up yet. Amounts are micro-dollars. */
import { Lock } from "../database/locks.ts";
import { type Queryable, type Sql, tx } from "../database/tx.ts";

/** The retention of steps shorter than an hour, and of others, in seconds. */
export const MINUTES_KEPT_S = 2 * 86_400;
export const HOURS_KEPT_S = 400 * 86_400;

/** The grouping of series; undefined is one series for everything. */
export type SeriesBy = "model" | "provider" | "key" | "workspace" | "robot" | "contract" | undefined;

/** A query; all given filters must match. */
interface SeriesQuery {
  /** Unix seconds, both multiples of `stepS`. */
  readonly since: number;
  readonly until: number;
  /** Whole minutes. */
  readonly stepS: number;
  readonly by: SeriesBy;
  /** The most series; all others are combined into one more. */
  readonly limit: number;
  readonly model?: string | undefined;
  readonly provider?: string | undefined;
  readonly keyId?: string | undefined;
  readonly workspaceId?: string | undefined;
  readonly robotId?: string | undefined;
  readonly contract?: string | undefined;
}

/** One step of one series. */
export interface SeriesRow {
  /** Null for the combined other series. */
  name: string | null;
  /** Unix seconds. */
  at: number;
  calls: number;
  failed: number;
  costMicro: number;
  /** Counters: `f:` and a refusal reason, `h:` and a hold reason, `l:` and a latency bucket, `a:` and an age bucket. */
  parts: Readonly<Record<string, number>>;
}

/** The time for which an offering that declares none stays warm, in seconds. */
export const ASSUMED_SCALEDOWN_S = 60;

/** Rolls up new calls, for series, totals and margins. Counts each call once, however often it runs. */
export async function addUpSeries(sql: Sql): Promise<void> {
  const all = async (step: () => Promise<{ more: boolean }[]>): Promise<void> => {
    while ((await step())[0]?.more) {}
  };
  await all(() => sql`select margin_add_up(${ASSUMED_SCALEDOWN_S}) as more`);
  await all(() => sql`select series_add_up() as more`);
}

/** The non-empty steps of an organization's series, earliest first, including calls that are not rolled up yet. */
export async function readSeries(sql: Sql, orgId: string, query: SeriesQuery): Promise<SeriesRow[]> {
  const { since, until, stepS, by, limit, model, provider, keyId, workspaceId, robotId, contract } = query;
  const unit = stepS % 86_400 === 0 ? "day" : stepS % 3600 === 0 ? "hour" : "minute";
  const name = {
    model: sql`model`,
    provider: sql`provider`,
    key: sql`key_id`,
    workspace: sql`coalesce((select key.workspace_id from key where key.id = key_id), '')`,
    robot: sql`coalesce(robot, '')`,
    contract: sql`contract`,
    all: sql`''::text`,
  }[by ?? "all"];
  const same = (column: string, value: string | undefined) =>
    value === undefined ? sql`` : sql`and ${sql(column)} = ${value}`;
  const wanted = sql`
    ${same("model", model)} ${same("provider", provider)} ${same("key_id", keyId)} ${same("robot", robotId)} ${same("contract", contract)}
    ${workspaceId === undefined ? sql`` : sql`and key_id in (select id from key where org_id = ${orgId} and workspace_id = ${workspaceId})`}`;
  const [from, to] = [new Date(since * 1000), new Date(until * 1000)];
  const day = (date: Date) => sql`(${date}::timestamptz at time zone 'UTC')::date`;
  const line = sql`l.key_id, l.contract, l.model, l.provider, l.robot`;
  const figures = sql`r.calls, r.failed, r.cost_micro, r.parts`;
  const ofDays = sql`l.org_id = ${orgId} and l.day between ${day(from)} and ${day(to)}`;
  const rolled = {
    day: sql`select extract(epoch from r.day)::bigint as at, r.key_id, r.contract, r.model, r.provider, r.robot, ${figures}
        from series_line as r where r.org_id = ${orgId} and r.day >= ${day(from)} and r.day < ${day(to)}`,
    hour: sql`select hour * 3600::bigint as at, ${line}, ${figures}
        from series_line as l join series_hour as r on r.line = l.id and r.hour >= ${since / 3600} and r.hour < ${until / 3600}
        where ${ofDays}`,
    minute: sql`select minute * 60::bigint as at, ${line}, ${figures}
        from series_line as l join series_minute as r on r.line = l.id and r.minute >= ${since / 60} and r.minute < ${until / 60}
        where ${ofDays}`,
  }[unit];
  return sql<SeriesRow[]>`
    with figure as materialized (
      select ${name} as name, at / ${stepS}::bigint * ${stepS}::bigint as at, calls, failed, cost_micro, parts
      from (
        select at, key_id, contract, model, provider, robot, calls, failed, cost_micro, parts from (${rolled}) as rolled
        union all
        select minute * 60::bigint, key_id, contract, model, provider, robot, calls, failed, cost_micro, parts
        from series_between(greatest((select series_until.at from series_until), ${from}), ${to}, ${orgId})
      ) as each where true ${wanted}
    ), top as (
      select name from figure group by name order by sum(cost_micro) desc, sum(calls) desc, name limit ${limit}
    )
    select top.name, at, sum(calls)::bigint as calls, sum(failed)::bigint as failed, sum(cost_micro)::bigint as cost_micro,
      series_sum_of(parts) as parts
    from figure left join top using (name) group by top.name, at order by at`;
}

/** One minute of one robot's control loops. */
export interface RobotMinuteRow {
  robot: string;
  workspaceId: string | null;
  /** Unix seconds. */
  at: number;
  costMicro: number;
  /** Counters: `h:` and a hold reason, `a:` and an age bucket, and others. */
  parts: Readonly<Record<string, number>>;
  /** Number of robots with such minutes. */
  robots: number;
}

/**
 * The minutes of robots in which their control loops sent anything, by robot and time, including calls that are not rolled up yet. Those with
 * the most minutes if there are more than `limit`. `since` and `until` are Unix seconds and whole minutes.
 */
export async function readRobotMinutes(
  sql: Sql,
  orgId: string,
  {
    since,
    until,
    workspaceId,
    robotId,
    limit,
  }: Pick<SeriesQuery, "since" | "until" | "workspaceId" | "robotId" | "limit">,
): Promise<RobotMinuteRow[]> {
  const [from, to] = [new Date(since * 1000), new Date(until * 1000)];
  const day = (date: Date) => sql`(${date}::timestamptz at time zone 'UTC')::date`;
  return sql<RobotMinuteRow[]>`
    with figure as (
      select l.key_id, l.robot, r.minute, r.cost_micro, r.parts
      from series_line as l join series_minute as r on r.line = l.id and r.minute >= ${since / 60} and r.minute < ${until / 60}
      where l.org_id = ${orgId} and l.day between ${day(from)} and ${day(to)} and l.contract = 'act'
      union all
      select key_id, robot, minute, cost_micro, parts
      from series_between(greatest((select series_until.at from series_until), ${from}), ${to}, ${orgId}) where contract = 'act'
    ), minutes as materialized (
      select key.workspace_id, robot, minute, sum(cost_micro)::bigint as cost_micro, series_sum_of(parts) as parts
      from figure join key on key.id = key_id
      where robot <> '' ${robotId === undefined ? sql`` : sql`and robot = ${robotId}`}
        ${workspaceId === undefined ? sql`` : sql`and key.workspace_id = ${workspaceId}`}
      group by 1, 2, 3
    ), moved as (
      select * from minutes where exists (select from jsonb_object_keys(parts) as part where part like 'a:%' or part like 'h:%')
    ), robot as (
      select workspace_id, robot, count(*) over () as robots from moved group by 1, 2 order by count(*) desc, robot limit ${limit}
    )
    select robot.robot, robot.workspace_id, minute * 60::bigint as at, cost_micro, parts, robot.robots
    from moved join robot on robot.robot = moved.robot and robot.workspace_id is not distinct from moved.workspace_id
    order by 1, 2, 3`;
}

/** The most lines of robots that are forgotten in one transaction. */
const FORGOTTEN = 5_000;

/**
 * Deletes expired minutes and hours at `now` (unix milliseconds), robot names along with their logs, and sums that were added up while their
 * organization was deleted. The sums of days stay. Returns the number of rows.
 */
export async function pruneSeries(sql: Queryable, now: number): Promise<number> {
  const minutes = await sql`delete from series_minute where minute < ${Math.floor((now / 1000 - MINUTES_KEPT_S) / 60)}`;
  const hours = await sql`delete from series_hour where hour < ${Math.floor((now / 1000 - HOURS_KEPT_S) / 3600)}`;
  const lines = await sql`delete from series_line where org_id in (select id from org where status = 'deleted')`;
  for (let all = minutes.count + hours.count + lines.count; ; ) {
    const [row] = await sql<{ count: number }[]>`select series_forget_robots(${new Date(now)}, ${FORGOTTEN}) as count`;
    all += row!.count; // a function call has one row
    if (row!.count < FORGOTTEN) return all;
  }
}

// Offering statistics over time: minutes of each replica, hours and uptimes of all together.

/** One replica's counts of one offering in the current minute. */
export interface MinuteRecord {
  /** Minutes since 1970. */
  minute: number;
  offeringId: string;
  calls: number;
  failures: number;
  /** Milliseconds with an open breaker. */
  restedMs: number;
  /** Warm latencies by bucket. */
  latency: number[];
}

/** The reliability of an offering, as shares of 1. */
interface UptimeRecord {
  offeringId: string;
  last5m: number | undefined;
  last1d: number | undefined;
  last30d: number;
  /** Calls in 30 days. */
  calls: number;
  /** Hours since the first call. */
  hours: number;
}

/** Recent latencies of an offering on all replicas. */
interface LatencyRecord {
  offeringId: string;
  /** The minute of its last call. */
  minute: number;
  latency: number[];
}

/** Stores a replica's counts. Idempotent: a later write of the same minute replaces the earlier one. */
export async function putMinutes(sql: Sql, replica: string, records: readonly MinuteRecord[]): Promise<void> {
  if (records.length === 0) return;
  const rows = records.map(({ minute, offeringId, calls, failures, restedMs, latency }) => ({
    minute,
    offering_id: offeringId,
    calls,
    failures,
    rested_ms: restedMs,
    latency,
  }));
  await sql`
    insert into offering_minute (minute, offering_id, replica, calls, failures, rested_ms, latency)
    select minute, offering_id, ${replica}, calls, failures, rested_ms, latency
    from jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) as line (
      minute integer, offering_id text, calls integer, failures integer, rested_ms integer, latency integer[]
    )
    on conflict (minute, offering_id, replica) do update set
      calls = excluded.calls, failures = excluded.failures, rested_ms = excluded.rested_ms, latency = excluded.latency`;
}

/** Minutes that arrive later than this many hours are not rolled up. */
const HOURS_OPEN = 2;
const DAYS = 30;

/**
 * Recomputes hours and uptimes from the minutes up to `minute`. One caller at a time among all replicas; returns false while another one is
 * running.
 */
export function rollUp(sql: Sql, minute: number): Promise<boolean> {
  return tx(sql, async (tx) => {
    const [lock] = await tx<{ held: boolean }[]>`select pg_try_advisory_xact_lock(${Lock.ROLLUP}) as held`;
    if (!lock?.held) return false;
    const hour = Math.floor(minute / 60);
    await tx`
      insert into offering_hour (hour, offering_id, calls, failures, rested_ms, latency)
      with counted as (
        select minute / 60 as hour, offering_id, minute, sum(calls) as calls, sum(failures) as failures,
          -- Replicas rest at the same time, not one after the other.
          max(rested_ms) as rested_ms
        from offering_minute where minute >= ${(hour - HOURS_OPEN) * 60} group by offering_id, minute
      ), bucketed as (
        select hour, offering_id, bucket, sum(count) as count
        from (
          select minute / 60 as hour, offering_id, each.bucket, each.count
          from offering_minute, unnest(latency) with ordinality as each (count, bucket)
          where minute >= ${(hour - HOURS_OPEN) * 60}
        ) as samples group by hour, offering_id, bucket
      )
      select hour, offering_id, sum(calls), sum(failures), sum(rested_ms),
        coalesce((
          select array_agg(bucketed.count::bigint order by bucket) from bucketed
          where bucketed.hour = counted.hour and bucketed.offering_id = counted.offering_id
        ), '{}')
      from counted group by hour, offering_id
      on conflict (hour, offering_id) do update set
        calls = excluded.calls, failures = excluded.failures, rested_ms = excluded.rested_ms, latency = excluded.latency`;
    await tx`delete from offering_uptime`;
    await tx`
      insert into offering_uptime (offering_id, uptime_5m, uptime_1d, uptime_30d, calls_30d)
      with recent as (
        select offering_id, sum(calls) as calls, sum(failures) as failures, sum(rested_ms) as rested_ms from (
          select offering_id, sum(calls) as calls, sum(failures) as failures, max(rested_ms) as rested_ms
          from offering_minute where minute > ${minute - 5} and minute <= ${minute} group by offering_id, minute
        ) as minutes group by offering_id
      ), day as (
        select offering_id, sum(calls) as calls, sum(failures) as failures, sum(rested_ms) as rested_ms, min(hour) as since
        from offering_hour where hour > ${hour - 24} and hour <= ${hour} group by offering_id
      ), month as (
        select offering_id, sum(calls) as calls, sum(failures) as failures, sum(rested_ms) as rested_ms, min(hour) as since
        from offering_hour where hour > ${hour - 24 * DAYS} and hour <= ${hour} group by offering_id
      )
      select month.offering_id,
        uptime_of(recent.calls, recent.failures, recent.rested_ms, 300000),
        uptime_of(day.calls, day.failures, day.rested_ms, (${hour + 1}::int - day.since) * 3600000::bigint),
        uptime_of(month.calls, month.failures, month.rested_ms, (${hour + 1}::int - month.since) * 3600000::bigint),
        month.calls
      from month left join day using (offering_id) left join recent using (offering_id)`;
    return true;
  });
}

interface UptimeRow {
  offeringId: string;
  uptime5m: number | null;
  uptime1d: number | null;
  uptime30d: number;
  calls30d: number;
  since: number | null;
}

/** The uptimes of the last rollup; `hour` is the current one, in the rollup's unit. */
export async function loadUptimes(sql: Sql, hour: number): Promise<UptimeRecord[]> {
  const rows = await sql<UptimeRow[]>`
    select *, (select min(hour) from offering_hour as h where h.offering_id = u.offering_id) as since
    from offering_uptime as u`;
  return rows.map(({ offeringId, uptime5m, uptime1d, uptime30d, calls30d, since }) => ({
    offeringId,
    last5m: uptime5m ?? undefined,
    last1d: uptime1d ?? undefined,
    last30d: uptime30d,
    calls: calls30d,
    hours: since === null ? 0 : Math.max(0, hour + 1 - since),
  }));
}

/** The latencies since `minute`, for a replica that has just started. */
export async function loadLatencies(sql: Sql, minute: number): Promise<LatencyRecord[]> {
  const rows = await sql<{ offeringId: string; minute: number; buckets: number[]; counts: number[] }[]>`
    with samples as (
      select offering_id, max(minute) as minute, (bucket - 1)::integer as bucket, sum(count)::integer as count
      from offering_minute, unnest(latency) with ordinality as each (count, bucket)
      where minute >= ${minute} and count > 0 group by offering_id, bucket
    )
    select offering_id, max(minute) as minute, array_agg(bucket) as buckets, array_agg(count) as counts
    from samples group by offering_id`;
  return rows.map((row) => {
    const latency: number[] = [];
    row.buckets.forEach((bucket, i) => {
      latency[bucket] = row.counts[i]!;
    });
    return { offeringId: row.offeringId, minute: row.minute, latency };
  });
}

const MINUTES_KEPT = 2 * 24 * 60;
/** Two days more than the longest window. */
const HOURS_KEPT = 32 * 24;

/** Deletes rows before every window at `minute`; returns their number. */
export async function pruneRollups(sql: Sql, minute: number): Promise<number> {
  const minutes = await sql`delete from offering_minute where minute < ${minute - MINUTES_KEPT}`;
  const hours = await sql`delete from offering_hour where hour < ${Math.floor(minute / 60) - HOURS_KEPT}`;
  const oldest = new Date((Math.floor(minute / 60) - HOURS_KEPT) * 3_600_000);
  const troubles =
    await sql`delete from offering_trouble where day < (${oldest}::timestamptz at time zone 'UTC')::date`;
  const moves = await sql`delete from circuit_change where at < ${oldest}`;
  return minutes.count + hours.count + troubles.count + moves.count;
}

// Daily offering statistics for their owners: attempts, latencies, failures. Days are in UTC, such as `2026-11-23`.

/** The attempts of one day. */
export interface AttemptDay {
  day: string;
  calls: number;
  failures: number;
  restedMs: number;
  /** Warm latencies by bucket of the router's sketch. */
  latency: number[];
  /** The success rate of attempts, multiplied by the share of time without an open breaker. */
  uptime: number | null;
}

/** The attempts on an offering from a day on. `hour`, in hours since 1970, is the current one. */
export async function attemptDays(sql: Sql, offeringId: string, since: string, hour: number): Promise<AttemptDay[]> {
  return sql<AttemptDay[]>`
    with known as (
      select (timestamp '1970-01-01' + hour * interval '1 hour')::date as day, hour, calls, failures, rested_ms, latency
      from offering_hour where offering_id = ${offeringId} and hour >= (${since}::text::date - date '1970-01-01') * 24
    ), bucketed as (
      select day, bucket, sum(count) as count
      from known, unnest(latency) with ordinality as each (count, bucket) group by day, bucket
    )
    select day::text, sum(calls) as calls, sum(failures) as failures, sum(rested_ms) as rested_ms,
      uptime_of(nullif(sum(calls), 0), sum(failures), sum(rested_ms),
        (least((day - date '1970-01-01') * 24 + 24, ${hour}::int + 1) - min(hour)) * 3600000::bigint) as uptime,
      coalesce((
        select array_agg(bucketed.count::bigint order by bucket) from bucketed where bucketed.day = known.day
      ), '{}') as latency
    from known group by day`;
}

/** A failure kind with its count on one day. */
export interface TroubleRecord {
  offeringId: string;
  day: string;
  /** The failure's code, or `hold`. */
  kind: string;
  count: number;
  /** The latest detail. */
  said: string | null;
}

/** Adds a replica's counts. */
export async function addTroubles(sql: Sql, records: readonly TroubleRecord[]): Promise<void> {
  if (records.length === 0) return;
  const rows = records.map(({ offeringId, day, kind, count, said }) => ({
    offering_id: offeringId,
    day,
    kind,
    count,
    said,
  }));
  await sql`
    insert into offering_trouble (offering_id, day, kind, count, said)
    select offering_id, day, kind, count, said from jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) as line (
      offering_id text, day date, kind text, count bigint, said text
    ) order by offering_id, day, kind
    on conflict (offering_id, day, kind) do update set
      count = offering_trouble.count + excluded.count, said = coalesce(excluded.said, offering_trouble.said)`;
}

/** The failures of an offering from a day on. */
export async function troublesOf(sql: Sql, offeringId: string, since: string): Promise<TroubleRecord[]> {
  return sql<TroubleRecord[]>`
    select offering_id, day::text, kind, count, said from offering_trouble
    where offering_id = ${offeringId} and day >= ${since}::text::date order by day desc, count desc, kind`;
}
