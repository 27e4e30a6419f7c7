/** Movements of an organization's balance other than calls: payments, operator credits, availability fees. Amounts are micro-dollars. */

import { Reason, refuse } from "../../errors.ts";
import { allRecords, type Queryable, type Sql, type Tx } from "../database/tx.ts";
import { columns, type PaymentRecord } from "./payments.ts";

/** Credit added by the operator, or an availability fee for an unused commitment. */
export interface EntryRecord {
  kind: "credit" | "availability_fee";
  id: string;
  /** Negative for a fee. */
  amountMicro: number;
  /** The reason. */
  note: string | undefined;
  /** Unix seconds. */
  created: number;
}

/** One movement. */
export type MovementRecord = EntryRecord | ({ kind: "payment" } & PaymentRecord);

/** The creation time in microseconds, by which rows of several tables are sorted. */
interface Dated {
  at: number;
}

interface EntryRow extends Dated {
  cause: string;
  kind: "grant" | "availability_fee";
  amountMicro: number;
  note: string | null;
}

/** Lists an organization's movements, newest first, before the id `before`; empty if that does not exist. */
export async function listMovements(
  sql: Queryable,
  orgId: string,
  { limit, before }: { limit: number; before: string | undefined },
): Promise<MovementRecord[]> {
  const cause = before === undefined ? undefined : causeOf(orgId, before);
  const [last] =
    before === undefined
      ? []
      : await sql<Dated[]>`
          select ${at(sql)} from payment where org_id = ${orgId} and id = ${before}
          union all select ${at(sql)} from transfer where org_id = ${orgId} and cause = ${cause!} and ${shown(sql)}`;
  if (before !== undefined && !last) return [];
  const older = (name: string, id: string) =>
    last ? sql`and (${micros(sql)}, ${sql(name)}) < (${last.at}::bigint, ${id})` : sql``;
  const [payments, entries] = await Promise.all([
    allRecords<PaymentRecord & Dated>(sql`
      select ${columns(sql)}, ${at(sql)} from payment where org_id = ${orgId} ${older("id", before ?? "")}
      order by ${micros(sql)} desc, id desc limit ${limit}`),
    // Credits of payments and returns of reversals are part of the payment.
    sql<EntryRow[]>`
      select cause, kind, amount_micro, note, ${at(sql)} from transfer
      where org_id = ${orgId} and ${shown(sql)} ${older("cause", cause ?? "")}
        and not exists (select from payment where payment.id = cause)
        and not exists (select from payment_reversal where payment_reversal.id = cause)
      order by ${micros(sql)} desc, cause desc limit ${limit}`,
  ]);
  return [
    ...payments.map(({ at, ...payment }) => ({ at, movement: { kind: "payment" as const, ...payment } })),
    ...entries.map((row) => ({ at: row.at, movement: entryOf(orgId, row) })),
  ]
    .sort((a, b) => b.at - a.at || (a.movement.id < b.movement.id ? 1 : -1))
    .slice(0, limit)
    .map(({ movement }) => movement);
}

const micros = (sql: Queryable) => sql`(extract(epoch from created) * 1000000)::bigint`;
const at = (sql: Queryable) => sql`${micros(sql)} as at`;
const shown = (sql: Queryable) => sql`kind in ('grant', 'availability_fee')`;

const entryOf = (orgId: string, { cause, kind, amountMicro, note, at }: EntryRow): EntryRecord => ({
  kind: kind === "grant" ? "credit" : kind,
  id: cause.startsWith(feesOf(orgId)) ? `fee_${cause.slice(feesOf(orgId).length).replace("/", "_")}` : cause,
  amountMicro: kind === "grant" ? amountMicro : -amountMicro,
  note: note ?? undefined,
  created: Math.floor(at / 1_000_000),
});

/** The prefix of an organization's fees in the ledger; month and number follow. */
const feesOf = (orgId: string): string => `commitment/${orgId}/`;

/** The ledger's id of an entry. Public fee ids omit the organization. */
function causeOf(orgId: string, id: string): string {
  const fee = /^fee_(\d{4}-\d{2})_(\d+)$/.exec(id);
  return fee ? `${feesOf(orgId)}${fee[1]}/${fee[2]}` : id;
}

// Monthly totals for invoices. Amounts are micro-dollars.

/** The charges of one key in a month. */
interface InvoiceLine {
  keyId: string;
  name: string;
  micro: number;
}

/** An organization's totals of a month. */
interface InvoiceMonth {
  /** The keys with the highest charges, up to the requested number. */
  lines: InvoiceLine[];
  /** The charges of all other keys. */
  othersMicro: number;
  /** The fee for an unused commitment; 0 if none. */
  feeMicro: number;
  /** The amounts that the payment processor received and refunded. */
  paidMicro: number;
  refundedMicro: number;
}

/** An organization's charges and payments in the month that starts on `from` (`yyyy-mm-01`), in UTC. */
export async function invoiceMonth(sql: Sql, orgId: string, from: string, most: number): Promise<InvoiceMonth> {
  const used = await sql<InvoiceLine[]>`
    with spent as (
      select key_id, sum(taken_micro) as micro from key_day
      where org_id = ${orgId} and day >= ${from}::date and day < ${from}::date + interval '1 month' group by key_id
      union all
      select key_id, -sum(amount_micro - spent_micro) from lease
      where org_id = ${orgId} and day >= ${from}::date and day < ${from}::date + interval '1 month' group by key_id
    )
    select spent.key_id, coalesce(max(key.name), '') as name, sum(spent.micro)::bigint as micro
    from spent left join key on key.id = spent.key_id group by spent.key_id having sum(spent.micro) > 0
    order by micro desc, spent.key_id`;
  const [sums] = await sql<Omit<InvoiceMonth, "lines" | "othersMicro">[]>`
    select
      (select coalesce(sum(fee_micro), 0) from commitment_month where org_id = ${orgId} and month = ${from}::date)::bigint as fee_micro,
      (select coalesce(sum(amount_micro), 0) from payment where org_id = ${orgId} and status in ('succeeded', 'refunded')
        and completed_at >= ${from}::timestamptz and completed_at < ${from}::timestamptz + interval '1 month')::bigint as paid_micro,
      (select coalesce(sum(amount_micro), 0) from payment_reversal where org_id = ${orgId} and state = 'taken'
        and created >= ${from}::timestamptz and created < ${from}::timestamptz + interval '1 month')::bigint as refunded_micro`;
  const others = used.slice(most).reduce((sum, { micro }) => sum + micro, 0);
  return { lines: used.slice(0, most), othersMicro: others, ...sums! };
}

// Monthly spending commitments of organizations. Amounts are micro-dollars, days are `YYYY-MM-DD` in UTC.

/** A commitment and its progress in the current month. */
export interface CommitmentRecord {
  minMicro: number;
  /** Charges for calls in the current month. */
  usedMicro: number;
  /** The commitment for the current month; prorated by days in the first one. */
  dueMicro: number;
  /** The current month in unix seconds: its start, or that of the commitment, and its end. */
  periodStart: number;
  periodEnd: number;
  /** Fees of past months that the balance has not covered yet. */
  unpaidMicro: number;
}

const dayOf = (atMs: number): string => new Date(atMs).toISOString().slice(0, 10);

/** An organization's commitment at `atMs`; undefined if there is none. */
export async function commitmentOf(sql: Queryable, orgId: string, atMs: number): Promise<CommitmentRecord | undefined> {
  const today = dayOf(atMs);
  const [row] = await sql<CommitmentRecord[]>`
    with c as (
      select min_micro, starts_on, greatest(date_trunc('month', ${today}::date)::date, date_trunc('month', starts_on)::date) as month
      from commitment where org_id = ${orgId} and min_micro > 0
    )
    select min_micro,
      used_between(${orgId}, greatest(month, starts_on), (month + interval '1 month')::date) as used_micro,
      commitment_of(min_micro, starts_on, month) as due_micro,
      extract(epoch from greatest(month, starts_on))::bigint as period_start,
      extract(epoch from (month + interval '1 month')::date)::bigint as period_end,
      (select coalesce(sum(fee_micro - paid_micro), 0) from commitment_month where org_id = ${orgId}) as unpaid_micro
    from c`;
  return row;
}

/**
 * Sets an organization's commitment from the current month on; zero ends it. Past months are closed with their earlier commitment. Refuses
 * with `not_found` if the organization does not exist.
 */
export async function commit(
  tx: Tx,
  orgId: string,
  { minMicro, startsOn, atMs }: { minMicro: number; startsOn: string | undefined; atMs: number },
): Promise<CommitmentRecord | undefined> {
  const { count } = await tx`select from account where org_id = ${orgId} for update`;
  if (count === 0) throw refuse(Reason.NOT_FOUND, "organization not found");
  await closeMonths(tx, orgId, atMs);
  await tx`
    insert into commitment (org_id, min_micro, starts_on) values (${orgId}, ${minMicro}, ${startsOn ?? dayOf(atMs)})
    on conflict (org_id) do update set min_micro = ${minMicro}, updated = now(),
      starts_on = ${startsOn === undefined ? tx`commitment.starts_on` : tx`${startsOn}::date`}`;
  return commitmentOf(tx, orgId, atMs);
}

/** Closes the past months of an organization, and charges due fees as far as the balance allows. */
export async function closeMonths(sql: Queryable, orgId: string, atMs: number): Promise<number> {
  const [row] = await sql<{ closed: number }[]>`select commitment_close(${orgId}, ${dayOf(atMs)}::date) as closed`;
  return row?.closed ?? 0;
}

/** Closes the months of all organizations, each in its own transaction. Safe to run on several replicas at once. */
export async function closeAllMonths(sql: Sql, atMs: number): Promise<void> {
  const orgs = await sql<{ orgId: string }[]>`select org_id from commitment order by org_id`;
  for (const { orgId } of orgs) await closeMonths(sql, orgId, atMs);
}
