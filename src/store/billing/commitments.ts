/** What organisations promised to spend each month. Amounts are micro-dollars, days are `YYYY-MM-DD` in UTC. */
import { Reason, refuse } from "../../errors.ts";
import type { Queryable, Sql, Tx } from "../database/tx.ts";

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

/** The promise of an organisation at `atMs`; undefined when there is none. */
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
 * Sets what an organisation promises from the running month on; zero ends it. Months that are over are closed as they were
 * promised. Refuses with `not_found` when there is no such organisation.
 */
export async function commit(
  tx: Tx,
  orgId: string,
  { minMicro, startsOn, atMs }: { minMicro: number; startsOn: string | undefined; atMs: number },
): Promise<CommitmentRecord | undefined> {
  const { count } = await tx`select from account where org_id = ${orgId} for update`;
  if (count === 0) throw refuse(Reason.NOT_FOUND, "there is no organisation of this name");
  await closeMonths(tx, orgId, atMs);
  await tx`
    insert into commitment (org_id, min_micro, starts_on) values (${orgId}, ${minMicro}, ${startsOn ?? dayOf(atMs)})
    on conflict (org_id) do update set min_micro = ${minMicro}, updated = now(),
      starts_on = ${startsOn === undefined ? tx`commitment.starts_on` : tx`${startsOn}::date`}`;
  return commitmentOf(tx, orgId, atMs);
}

/** Closes the months of one organisation that are over, and charges what is due as far as the balance goes. */
export async function closeMonths(sql: Queryable, orgId: string, atMs: number): Promise<number> {
  const [row] = await sql<{ closed: number }[]>`select commitment_close(${orgId}, ${dayOf(atMs)}::date) as closed`;
  return row?.closed ?? 0;
}

/** The same for all organisations, each in a transaction of its own; any number of replicas may do so at once. */
export async function closeAllMonths(sql: Sql, atMs: number): Promise<void> {
  const orgs = await sql<{ orgId: string }[]>`select org_id from commitment order by org_id`;
  for (const { orgId } of orgs) await closeMonths(sql, orgId, atMs);
}
