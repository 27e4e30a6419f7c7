/** What moved the balance of an organization beside calls: payments, the operator's credits, availability fees. Amounts are micro-dollars. */

import { Reason, refuse } from "../../errors.ts";
import type { Queryable, Sql, Tx } from "../database/tx.ts";
import { columns, type PaymentRecord, type PaymentRow, paymentOf } from "./payments.ts";

/** Credit that the operator added, or a fee that was taken for an unused commitment. */
export interface EntryRecord {
  kind: "credit" | "availability_fee";
  id: string;
  /** Below zero for a fee. */
  amountMicro: number;
  /** Why. */
  note: string | undefined;
  /** Unix seconds. */
  created: number;
}

/** One movement. */
export type MovementRecord = EntryRecord | ({ kind: "payment" } & PaymentRecord);

/** When a row was written, in microseconds: what rows of several tables are put in order by. */
interface Dated {
  at: number;
}

interface EntryRow extends Dated {
  cause: string;
  kind: "grant" | "availability_fee";
  amountMicro: number;
  note: string | null;
}

/** The movements of an organization, newest first, from before the one named `before`; none where there is no such one. */
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
    sql<(PaymentRow & Dated)[]>`
      select ${columns(sql)}, ${at(sql)} from payment where org_id = ${orgId} ${older("id", before ?? "")}
      order by ${micros(sql)} desc, id desc limit ${limit}`,
    // What a payment was credited, and what came back of its reversal, is told with the payment.
    sql<EntryRow[]>`
      select cause, kind, amount_micro, note, ${at(sql)} from transfer
      where org_id = ${orgId} and ${shown(sql)} ${older("cause", cause ?? "")}
        and not exists (select from payment where payment.id = cause)
        and not exists (select from payment_reversal where payment_reversal.id = cause)
      order by ${micros(sql)} desc, cause desc limit ${limit}`,
  ]);
  return [
    ...payments.map((row) => ({ at: row.at, movement: { kind: "payment" as const, ...paymentOf(row) } })),
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

/** How the ledger names the parts of an organization's fees: by month and number. */
const feesOf = (orgId: string): string => `commitment/${orgId}/`;

/** The ledger's name of an entry: fees are shown without their organization. */
function causeOf(orgId: string, id: string): string {
  const fee = /^fee_(\d{4}-\d{2})_(\d+)$/.exec(id);
  return fee ? `${feesOf(orgId)}${fee[1]}/${fee[2]}` : id;
}

// What a month came to, for its invoice. Amounts are micro-dollars.

/** What one key was charged for in a month. */
interface InvoiceLine {
  keyId: string;
  name: string;
  micro: number;
}

/** A month of an organization. */
interface InvoiceMonth {
  /** The keys that were charged for most, at most so many as were asked for. */
  lines: InvoiceLine[];
  /** What all other keys were charged for. */
  othersMicro: number;
  /** The fee for what was promised and not used; 0 where nothing was. */
  feeMicro: number;
  /** What was paid by the payment processor, and what went back. */
  paidMicro: number;
  refundedMicro: number;
}

/** What an organization was charged and paid in the month that begins on `from`, as `yyyy-mm-01`, in UTC. */
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

// What organizations promised to spend each month. Amounts are micro-dollars, days are `YYYY-MM-DD` in UTC.

/** A promise, and how it stands in the running month. */
export interface CommitmentRecord {
  minMicro: number;
  /** What the running month has been charged for calls. */
  usedMicro: number;
  /** What the running month was promised: less in the first one, by its days. */
  dueMicro: number;
  /** The running month in unix seconds: its first moment, or that of the promise, and the first one after it. */
  periodStart: number;
  periodEnd: number;
  /** Fees of months that are over, which the balance has not covered yet. */
  unpaidMicro: number;
}

const dayOf = (atMs: number): string => new Date(atMs).toISOString().slice(0, 10);

/** The promise of an organization at `atMs`; undefined if there is none. */
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
 * Sets what an organization promises from the running month on; zero ends it. Months that are over are closed as they were
 * promised. Refuses with `not_found` when there is no such organization.
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

/** Closes the months of one organization that are over, and charges what is due as far as the balance goes. */
export async function closeMonths(sql: Queryable, orgId: string, atMs: number): Promise<number> {
  const [row] = await sql<{ closed: number }[]>`select commitment_close(${orgId}, ${dayOf(atMs)}::date) as closed`;
  return row?.closed ?? 0;
}

/** The same for all organizations, each in a transaction of its own; any number of replicas may do so at once. */
export async function closeAllMonths(sql: Sql, atMs: number): Promise<void> {
  const orgs = await sql<{ orgId: string }[]>`select org_id from commitment order by org_id`;
  for (const { orgId } of orgs) await closeMonths(sql, orgId, atMs);
}
