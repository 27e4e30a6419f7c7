/** What a month came to, for its invoice. Amounts are micro-dollars. */
import type { Sql } from "../database/tx.ts";

/** What one key was charged for in a month. */
export interface InvoiceLine {
  keyId: string;
  name: string;
  micro: number;
}

/** A month of an organisation. */
export interface InvoiceMonth {
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

/** What an organisation was charged and paid in the month that begins on `from`, as `yyyy-mm-01`, in UTC. */
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
