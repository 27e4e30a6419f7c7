/** How offerings did by day, for their owners: attempts, latencies, and what went wrong. Days are in UTC, such as `2026-11-23`. */
import type { Sql } from "../database/tx.ts";

/** The attempts of one day. */
export interface AttemptDay {
  day: string;
  calls: number;
  failures: number;
  restedMs: number;
  /** Warm latencies by bucket of the router's sketch. */
  latency: number[];
  /** Share of attempts that succeeded, times the share of the time in which the breaker let them through. */
  uptime: number | null;
}

/** The attempts at an offering from a day on. `hour`, in hours since 1970, is the running one. */
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

/** Something that goes wrong, so many times on one day. */
export interface TroubleRecord {
  offeringId: string;
  day: string;
  /** The word of a failure, or `hold`. */
  kind: string;
  count: number;
  /** What was last said of it. */
  said: string | null;
}

/** Adds what a replica counted. */
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

/** What went wrong at an offering from a day on. */
export async function troublesOf(sql: Sql, offeringId: string, since: string): Promise<TroubleRecord[]> {
  return sql<TroubleRecord[]>`
    select offering_id, day::text, kind, count, said from offering_trouble
    where offering_id = ${offeringId} and day >= ${since}::text::date order by day desc, count desc, kind`;
}
