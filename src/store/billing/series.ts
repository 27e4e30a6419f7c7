/** What calls came to over time: rollups by minute and by hour, and what is not in them yet. Amounts are micro-dollars. */
import type { Queryable, Sql } from "../database/tx.ts";

/** How long steps shorter than an hour are kept, and the others, in seconds. */
export const MINUTES_KEPT_S = 2 * 86_400;
export const HOURS_KEPT_S = 400 * 86_400;

/** What makes a series of its own; undefined: everything is one. */
export type SeriesBy = "model" | "provider" | "key" | "workspace" | "robot" | "contract" | undefined;

/** What to read; all filters that are given must hold. */
export interface SeriesQuery {
  /** Unix seconds, both at a multiple of `stepS`. */
  readonly since: number;
  readonly until: number;
  /** Whole minutes. */
  readonly stepS: number;
  readonly by: SeriesBy;
  /** Series at most; the rest is one more. */
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
  /** Null: all that has no series of its own. */
  name: string | null;
  /** Unix seconds. */
  at: number;
  calls: number;
  failed: number;
  costMicro: number;
  /** Counts by `f:` and the word of a refusal, `h:` and the word of a hold, `l:` and a bucket of latencies. */
  parts: Readonly<Record<string, number>>;
}

/** Adds up what calls came to since it was last done. As often as called, each call is counted once. */
export async function addUpSeries(sql: Sql): Promise<void> {
  for (let isMore = true; isMore; ) {
    const [row] = await sql<{ more: boolean }[]>`select series_add_up() as more`;
    isMore = row?.more ?? false;
  }
}

/** The steps of an organisation's series in which there was a call, the earliest first. All that is on record is in them. */
export async function readSeries(sql: Sql, orgId: string, query: SeriesQuery): Promise<SeriesRow[]> {
  const { since, until, stepS, by, limit, model, provider, keyId, workspaceId, robotId, contract } = query;
  const isByHour = stepS % 3600 === 0;
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
  const rolled = isByHour
    ? sql`select hour * 3600::bigint as at, l.*, r.calls, r.failed, r.cost_micro, r.parts
        from series_line as l join series_hour as r on r.line = l.id and r.hour >= ${since / 3600} and r.hour < ${until / 3600}
        where l.org_id = ${orgId} and l.day between ${day(from)} and ${day(to)}`
    : sql`select minute * 60::bigint as at, l.*, r.calls, r.failed, r.cost_micro, r.parts
        from series_line as l join series_minute as r on r.line = l.id and r.minute >= ${since / 60} and r.minute < ${until / 60}
        where l.org_id = ${orgId} and l.day between ${day(from)} and ${day(to)}`;
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

/** Forgets what is kept no longer at `now`, in unix milliseconds, and names of robots with the logs that they came from; answers how many rows. */
export async function pruneSeries(sql: Queryable, now: number): Promise<number> {
  const minute = Math.floor(now / 60_000 - MINUTES_KEPT_S / 60);
  const minutes = await sql`delete from series_minute where minute < ${minute}`;
  const day = new Date(now - HOURS_KEPT_S * 1000);
  const lines = await sql`delete from series_line where day < (${day}::timestamptz at time zone 'UTC')::date`;
  const robots = await sql`
    update series_line set robot = null where id in (
      select id from series_line left join org_settings using (org_id)
      where robot <> '' and day < ((${new Date(now)}::timestamptz at time zone 'UTC')::date - coalesce(retention_days, 30))
    )`;
  return minutes.count + lines.count + robots.count;
}
