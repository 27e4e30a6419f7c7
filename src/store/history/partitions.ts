/** Weekly partitions of the request history: made ahead, and dropped with the retention of logs (see `schema/11_partitions.sql`). */
import { Lock } from "../database/locks.ts";
import { inBatches, type Sql, type Tx, tx } from "../database/tx.ts";

/** Weeks that are made ahead. */
const AHEAD = 4;
/** How long making or dropping a partition waits for readers. Writers of the table wait as long; the next run tries again. */
const LOCK_WAIT = "500ms";

/**
 * Makes missing partitions, each in its own transaction, and completes the indexes of past ones; returns the number of new ones. Does nothing
 * while another replica does it.
 */
export async function extendHistory(sql: Sql): Promise<number> {
  const missing = await sql<{ partOf: string; week: string }[]>`
    select part_of, week::text from history_missing(${AHEAD})`;
  let made = 0;
  for (const { partOf, week } of missing) {
    made += await tx(sql, async (tx) => {
      if (!(await locked(tx))) return 0;
      const [row] = await tx<{ isNew: boolean }[]>`select history_partition(${partOf}, ${week}::date) as is_new`;
      return row?.isNew ? 1 : 0;
    });
  }
  await tx(sql, async (tx) => {
    if (await locked(tx)) await tx`select history_summarize()`;
  });
  return made;
}

/** Takes the lock of the transaction; false if another replica has it. */
async function locked(tx: Tx): Promise<boolean> {
  await tx.unsafe(`set local lock_timeout = '${LOCK_WAIT}'`);
  const [row] = await tx<{ mine: boolean }[]>`select pg_try_advisory_xact_lock(${Lock.PARTITIONS}) as mine`;
  return row?.mine ?? false;
}

/** How far ahead partitions exist in every table, in days from now; negative if the current week lacks one. */
export async function historyAheadDays(sql: Sql): Promise<number> {
  const [row] = await sql<{ days: number | null }[]>`
    select min(last) - (now() at time zone 'UTC')::date as days from (
      select max(to_date(right(part.relname, 8), 'YYYYMMDD')) + 7 as last
      from pg_inherits join pg_class as part on part.oid = inhrelid
      where inhparent in ('request_outcome'::regclass, 'request_log'::regclass, 'hedge_loser'::regclass)
        and part.relname ~ '_[0-9]{8}$'
      group by inhparent
    ) as each`;
  return row?.days ?? -1;
}

/** The days of a partition: a shorter retention does not wait for its end. */
const WEEK = 7;

/**
 * Deletes logs past their organization's retention; accounting rows stay. Partitions past the longest retention, and empty ones of the past, are
 * dropped whole. Organizations with a shorter retention, and deleted ones, lose their rows in batches. Others can keep rows for up to a week more,
 * which no list shows. Returns the number of deleted rows.
 */
export async function forgetLogs(sql: Sql): Promise<number> {
  await dropLogs(sql);
  return inBatches(
    (most) => sql`
      with longest as (${longestRetention(sql)}),
      due as (
        select org.id, case when status = 'deleted' then 'req~'
          else request_mark(now() - make_interval(days => coalesce(retention_days, 30))) end as mark
        from org left join org_settings on org_id = org.id, longest
        where status = 'deleted' or coalesce(retention_days, 30) < greatest(longest.days, ${WEEK})
      ), gone as (
        select each.* from due cross join lateral (
          select org_id, request_id from request_log where org_id = due.id and request_id < due.mark limit ${most}
        ) as each limit ${most}
      )
      delete from request_log using gone where request_log.org_id = gone.org_id and request_log.request_id = gone.request_id`,
  );
}

const longestRetention = (sql: Sql) => sql`
  select coalesce(max(coalesce(retention_days, 30)), 30) as days
  from org left join org_settings on org_id = org.id where status <> 'deleted'`;

/** Detaches old log partitions, then drops them: only the first, short step locks the table. */
async function dropLogs(sql: Sql): Promise<void> {
  const old = await sql<{ name: string; isExpired: boolean }[]>`
    select part.relname as name, week + 7 + (${longestRetention(sql)}) < (now() at time zone 'UTC')::date as is_expired
    from pg_inherits join pg_class as part on part.oid = inhrelid,
      lateral (select to_date(right(part.relname, 8), 'YYYYMMDD') as week) as begun
    where inhparent = 'request_log'::regclass and part.relname ~ '_[0-9]{8}$' and week + 8 < (now() at time zone 'UTC')::date`;
  for (const { name, isExpired } of old) {
    await tx(sql, async (tx) => {
      if (!(await locked(tx))) return;
      const [kept] = isExpired ? [] : await tx`select from ${tx(name)} limit 1`;
      if (kept === undefined) await tx.unsafe(`alter table request_log detach partition ${name}`);
    });
  }
  // Also those that a process detached and did not live to drop.
  const detached = await sql<{ name: string }[]>`
    select relname as name from pg_class
    where relname ~ '^request_log_[0-9]{8}$' and relkind = 'r' and relnamespace = current_schema()::regnamespace and not relispartition`;
  for (const { name } of detached) await sql.unsafe(`drop table if exists ${name}`);
}

/** Drops empty partitions of a table whose week ended more than a day ago: their requests are in the archive. Returns their number. */
export async function dropArchived(sql: Sql, table: "request_outcome" | "hedge_loser", before: Date): Promise<number> {
  const old = await sql<{ name: string }[]>`
    select relname as name from pg_inherits join pg_class on pg_class.oid = inhrelid
    where inhparent = ${table}::text::regclass and relname ~ '_[0-9]{8}$'
      and to_date(right(relname, 8), 'YYYYMMDD') + 7 <= (${before}::timestamptz at time zone 'UTC')::date`;
  let dropped = 0;
  for (const { name } of old) {
    const [kept] = await sql`select from ${sql(name)} limit 1`;
    if (kept !== undefined) continue;
    dropped += await tx(sql, async (tx) => {
      if (!(await locked(tx))) return 0;
      // In the order of those who write, who lock the table first: a late charge is either seen here or goes to the default partition.
      await tx.unsafe(`lock table ${table}, ${name} in access exclusive mode`);
      const [late] = await tx`select from ${tx(name)} limit 1`;
      if (late !== undefined) return 0;
      await tx.unsafe(`drop table ${name}`);
      return 1;
    });
  }
  return dropped;
}
