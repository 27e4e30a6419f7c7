/** How offerings did over time: minutes of every replica, hours and uptimes of all of them together. */
import { type Sql, tx } from "../database/tx.ts";

/** What one replica counted of one offering in one minute so far. */
export interface MinuteRecord {
  /** Minutes since 1970. */
  minute: number;
  offeringId: string;
  calls: number;
  failures: number;
  /** Milliseconds in which its breaker kept calls away. */
  restedMs: number;
  /** Warm latencies by bucket. */
  latency: number[];
}

/** How reliable an offering was, as shares of 1. */
export interface UptimeRecord {
  offeringId: string;
  last5m: number | undefined;
  last1d: number | undefined;
  last30d: number;
  /** Calls of the 30 days. */
  calls: number;
  /** Hours since the first call. */
  hours: number;
}

/** Latencies of an offering in the last minutes, of all replicas together. */
export interface LatencyRecord {
  offeringId: string;
  /** The last minute that it was called in. */
  minute: number;
  latency: number[];
}

/** Writes what a replica counted; writing it again, or later and more of it, leaves what was written last. */
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

/** Held by the replica that rolls up. */
const LOCK = 5_417_116_325;
/** Minutes that arrive later than this many hours are not rolled up any more. */
const HOURS_OPEN = 2;
const DAYS = 30;

/**
 * Makes the hours and the uptimes anew from the minutes up to `minute`. One caller at a time among all replicas; answers
 * false while another is at it.
 */
export function rollUp(sql: Sql, minute: number): Promise<boolean> {
  return tx(sql, async (tx) => {
    const [lock] = await tx<{ held: boolean }[]>`select pg_try_advisory_xact_lock(${LOCK}) as held`;
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

/** The uptimes as they were last rolled up; `hour` is the present one, counted as the roll-up counts. */
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

/** The latencies since `minute`, for a replica that begins and has seen nothing itself. */
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

/** Forgets what no window reaches any more at `minute`; answers how many rows. */
export async function pruneRollups(sql: Sql, minute: number): Promise<number> {
  const minutes = await sql`delete from offering_minute where minute < ${minute - MINUTES_KEPT}`;
  const hours = await sql`delete from offering_hour where hour < ${Math.floor(minute / 60) - HOURS_KEPT}`;
  const oldest = new Date((Math.floor(minute / 60) - HOURS_KEPT) * 3_600_000);
  const troubles =
    await sql`delete from offering_trouble where day < (${oldest}::timestamptz at time zone 'UTC')::date`;
  const moves = await sql`delete from circuit_change where at < ${oldest}`;
  return minutes.count + hours.count + troubles.count + moves.count;
}
