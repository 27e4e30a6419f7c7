/** What moved the balance of an organisation beside calls: payments, the operator's credits, availability fees. Amounts are micro-dollars. */
import type { Queryable } from "../database/tx.ts";
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

/** The movements of an organisation, newest first, from before the one named `before`; none where there is no such one. */
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

/** How the ledger names the parts of an organisation's fees: by month and number. */
const feesOf = (orgId: string): string => `commitment/${orgId}/`;

/** The ledger's name of an entry: fees are shown without their organisation. */
function causeOf(orgId: string, id: string): string {
  const fee = /^fee_(\d{4}-\d{2})_(\d+)$/.exec(id);
  return fee ? `${feesOf(orgId)}${fee[1]}/${fee[2]}` : id;
}
