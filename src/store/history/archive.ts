/** The request history past the archive's age: rows that are due, closing entries, and files (see `schema/13_archive.sql`). Amounts are micro-dollars. */
import { Lock } from "../database/locks.ts";
import { type Queryable, type Sql, type Tx, tx } from "../database/tx.ts";

/** A request as archived, with all columns of its kind. */
export interface ArchivedRequest {
  org_id: string;
  request_id: string;
  /** Unix microseconds. */
  created_us: number;
  key_id: string;
  lease: string | null;
  status: string;
  contract: string;
  model: string;
  provider: string;
  offering_id: string;
  unit: string;
  units: number;
  cost_micro: number;
  wake_up_micro: number;
  hedge_cost_micro: number | null;
  latency_ms: number | null;
  simulated: boolean;
  byok: boolean;
  http_status: number | null;
  error_code: string | null;
  batch_id: string;
  /** The paid losers of its hedge, as a JSON array. */
  losers: string | null;
}

/** Requests of one month in one weekly partition. */
export interface DueRange {
  /** The Monday (UTC) of the partition, such as `2025-10-27`. */
  week: string;
  /** The month, such as `2025-10`, and its requests: the least id, and the least one after them. */
  month: string;
  low: string;
  high: string;
  /** Organizations with a longer retention, in days, keep their rows. */
  days: number;
}

/**
 * The ranges of months that ended `months` months before `at`, oldest first. None while credit or a call of such a month is still open: its
 * accounts are not final.
 */
export async function dueRanges(sql: Sql, at: Date, months: number): Promise<DueRange[]> {
  return sql<DueRange[]>`
    with cut as (
      select (date_trunc('month', ${at}::timestamptz at time zone 'UTC' - make_interval(months => ${months})))::date as day
    ), part as (
      select to_date(right(relname, 8), 'YYYYMMDD') as week
      from pg_inherits join pg_class on pg_class.oid = inhrelid
      where inhparent = 'request_outcome'::regclass and relname ~ '_[0-9]{8}$'
    ), range as (
      select week, month::date, greatest(week, month::date) as first, least(week + 7, (month + interval '1 month')::date) as last
      from part, cut, generate_series(date_trunc('month', week::timestamp), (week + 6)::timestamp, interval '1 month') as month
      where month::date < cut.day
    )
    select week::text, to_char(month, 'YYYY-MM') as month,
      request_mark(first::timestamp at time zone 'UTC') as low, request_mark(last::timestamp at time zone 'UTC') as high,
      floor(extract(epoch from ${at}::timestamptz - (month + interval '1 month') at time zone 'UTC') / 86400)::integer as days
    from range, cut
    where not exists (select from lease where lease.day < cut.day)
      and not exists (select from intent where intent.created < cut.day::timestamp at time zone 'UTC')
    order by first`;
}

/** The position after a request, in the order of `readDue`. */
export type DuePosition = Pick<ArchivedRequest, "org_id" | "request_id">;

/** Reads the next requests of a range that all sums include, in the order of organizations and ids. */
export async function readDue(
  sql: Queryable,
  { week, low, high, days }: DueRange,
  after: DuePosition | undefined,
  limit: number,
): Promise<ArchivedRequest[]> {
  // `sql` renames result columns, and those of the archive keep their names.
  const rows = await sql<{ line: ArchivedRequest }[]>`
    select to_jsonb(line) as line from (
      select e.org_id, e.request_id, (extract(epoch from e.created) * 1000000)::bigint as created_us, k.key_id, e.lease, k.status, k.contract,
        k.model, k.provider, k.offering_id, k.unit, e.units, e.cost_micro, k.wake_up_micro, k.hedge_cost_micro, e.latency_ms, k.simulated,
        k.byok, k.http_status, k.error_code, k.batch_id, case when k.hedge_cost_micro is not null then (
          select json_agg(to_json(l) order by place)::text from hedge_loser as l where l.org_id = e.org_id and l.request_id = e.request_id
        ) end as losers
      from ${sql(`request_outcome_${week.replaceAll("-", "")}`)} as e join request_kind as k on k.id = e.kind
        left join org_settings as s on s.org_id = e.org_id
      where e.request_id >= ${low} and e.request_id < ${high} and coalesce(s.retention_days, 30) <= ${days}
        and e.created < least((select at from served_until), (select at from series_until), (select at from margin_until))
        ${after === undefined ? sql`` : sql`and (e.org_id, e.request_id) > (${after.org_id}, ${after.request_id})`}
      order by e.org_id, e.request_id limit ${limit}
    ) as line`;
  return rows.map(({ line }) => line);
}

/** A file of the archive. */
export interface ArchiveFile {
  name: string;
  /** Such as `2025-10`. */
  month: string;
  /** In hexadecimal. */
  sha256: string;
  bytes: number;
  records: number;
  costMicro: number;
}

/** Runs work in a transaction in which no other replica archives; undefined if another one does. */
export async function whileArchiving<T>(sql: Sql, work: (tx: Tx) => Promise<T>): Promise<T | undefined> {
  return tx(sql, async (tx) => {
    const [row] = await tx<{ mine: boolean }[]>`select pg_try_advisory_xact_lock(${Lock.ARCHIVE}) as mine`;
    return row?.mine ? work(tx) : undefined;
  });
}

/** Deletes the requests of a file, adds them to closing entries, and records the file. Throws if the rows are not what the file has. */
export async function foldFile(
  tx: Tx,
  { week }: DueRange,
  { name, month, sha256, bytes, records, costMicro }: ArchiveFile,
  requests: readonly DuePosition[],
): Promise<void> {
  const orgs = requests.map((each) => each.org_id);
  const ids = requests.map((each) => each.request_id);
  const [row] = await tx<{ folded: number; chargedMicro: number }[]>`
    select folded, charged_micro from history_fold(${`${month}-01`}::date, ${week}::date, ${orgs}::text[], ${ids}::text[])`;
  if (row?.folded !== records || row.chargedMicro !== costMicro)
    throw new Error(
      `${name} has ${records} requests of ${costMicro}, the database ${row?.folded} of ${row?.chargedMicro}`,
    );
  await tx`
    insert into archive_file (name, month, sha256, bytes, records, cost_micro)
    values (${name}, ${`${month}-01`}::date, decode(${sha256}, 'hex'), ${bytes}, ${records}, ${costMicro})`;
}

/** The files of a month or of all months, in order. */
export async function listFiles(sql: Queryable, month?: string): Promise<ArchiveFile[]> {
  return sql<ArchiveFile[]>`
    select name, to_char(month, 'YYYY-MM') as month, encode(sha256, 'hex') as sha256, bytes, records, cost_micro from archive_file
    ${month === undefined ? sql`` : sql`where month = ${`${month}-01`}::date`} order by name`;
}

/** The newest file. */
export async function newestFile(sql: Queryable): Promise<ArchiveFile | undefined> {
  const [row] = await sql<ArchiveFile[]>`
    select name, to_char(month, 'YYYY-MM') as month, encode(sha256, 'hex') as sha256, bytes, records, cost_micro from archive_file
    order by created desc, name desc limit 1`;
  return row;
}

/** A closing entry. */
export interface ClosingEntry {
  orgId: string;
  /** Such as `2025-10-27`. */
  day: string;
  /** Empty where nothing was held. */
  lease: string;
  keyId: string;
  records: number;
  requests: number;
  costMicro: number;
}

/** The closing entries of a month. */
export async function closingsOf(sql: Queryable, month: string): Promise<ClosingEntry[]> {
  return sql<ClosingEntry[]>`
    select org_id, day::text, lease, key_id, records, requests, cost_micro from closing_entry
    where month = ${`${month}-01`}::date order by org_id, day, lease, key_id`;
}

/** Accounts whose balance is not the sum of their entries: all closing entries, and all rows that are not archived yet. */
export async function wrongBalances(
  sql: Queryable,
): Promise<{ orgId: string; ledgerMicro: number; shownMicro: number }[]> {
  return sql<{ orgId: string; ledgerMicro: number; shownMicro: number }[]>`
    with ledger as (
      select org_id, sum(amount) as micro from (
        select org_id, case 'granted' when debit then amount_micro when credit then -amount_micro else 0 end
          - case when credit = 'spent' then amount_micro else 0 end as amount
        from entry
      ) as each group by org_id
    )
    select org_id, coalesce(micro, 0)::bigint as ledger_micro, (available_micro + held_of(org_id))::bigint as shown_micro
    from account left join ledger using (org_id) where coalesce(micro, 0) <> available_micro + held_of(org_id) order by org_id`;
}

/** Whether requests of the month of a request id are in the archive. */
export async function isArchived(sql: Queryable, orgId: string, requestId: string): Promise<boolean> {
  const [row] = await sql`
    select from closing_entry where org_id = ${orgId} and month = date_trunc('month', request_moment(${requestId}) at time zone 'UTC')::date limit 1`;
  return row !== undefined;
}

/** The end of the last archived month of an organization, in unix seconds; undefined if nothing after `since` is archived. */
export async function archivedUntil(sql: Queryable, orgId: string, since = 0): Promise<number | undefined> {
  const [row] = await sql<{ until: number | null }[]>`
    select extract(epoch from (max(month) + interval '1 month') at time zone 'UTC')::int8 as until from closing_entry where org_id = ${orgId}`;
  const until = row?.until ?? 0;
  return until > since ? until : undefined;
}
