/** What keys have spent, of their budgets and in all. Amounts are micro-dollars. */
import type { Queryable, Sql } from "../database/tx.ts";
import type { BudgetInterval } from "./keys.ts";

/** What a key has spent, by intervals in UTC that began at or before `atMs` (unix milliseconds). */
export interface KeySpending {
  dayMicro: number;
  weekMicro: number;
  monthMicro: number;
  totalMicro: number;
  /** What the key's leases hold: it counts against the budget, and is not spent. */
  heldMicro: number;
  budget:
    | { limitMicro: number; interval: BudgetInterval; spentMicro: number; resetsAt: number | undefined }
    | undefined;
}

interface SpendingRow {
  day: number;
  week: number;
  month: number;
  total: number;
  held: number;
  limit: number | null;
  interval: BudgetInterval | null;
}

/** The spending of a key. A call counts on the day on which its credit was leased. */
export async function spendingOf(sql: Sql, keyId: string, atMs: number): Promise<KeySpending> {
  const day = new Date(atMs).toISOString().slice(0, 10);
  const [row] = await sql<SpendingRow[]>`
    with spent as (
      select key_day.day, taken_micro - coalesce(sum(amount_micro - spent_micro), 0) as micro
      from key_day left join lease on lease.key_id = key_day.key_id and lease.day = key_day.day and lease.org_id = key_day.org_id
      where key_day.key_id = ${keyId} group by key_day.key_id, key_day.day
    )
    select
      coalesce(sum(micro) filter (where day >= ${day}::date), 0) as day,
      coalesce(sum(micro) filter (where day >= budget_start('weekly', ${day}::date)), 0) as week,
      coalesce(sum(micro) filter (where day >= budget_start('monthly', ${day}::date)), 0) as month,
      coalesce(sum(micro), 0) as total,
      (select coalesce(sum(amount_micro - spent_micro), 0) from lease join key on lease.key_id = key.id
        where lease.org_id = key.org_id and key.id = ${keyId}) as held,
      (select budget_micro from key where id = ${keyId}) as "limit",
      (select budget_interval from key where id = ${keyId}) as "interval"
    from spent`;
  const {
    day: dayMicro,
    week: weekMicro,
    month: monthMicro,
    total: totalMicro,
    held: heldMicro,
    limit,
    interval,
  } = row!;
  const spent = limit === null ? undefined : (await budgetsSpent(sql, [keyId], atMs)).get(keyId);
  const budget =
    limit === null || interval === null || spent === undefined ? undefined : { limitMicro: limit, interval, ...spent };
  return { dayMicro, weekMicro, monthMicro, totalMicro, heldMicro, budget };
}

/** What was spent of a budget in its running interval, and when that is over in unix seconds; undefined for one that is never renewed. */
export interface BudgetSpent {
  spentMicro: number;
  resetsAt: number | undefined;
}

/**
 * What was spent of the budgets of these keys at `atMs` (unix milliseconds), by them and by their descendants, by key; those without a
 * budget are left out.
 */
export async function budgetsSpent(
  sql: Queryable,
  keyIds: readonly string[],
  atMs: number,
): Promise<Map<string, BudgetSpent>> {
  const day = new Date(atMs).toISOString().slice(0, 10);
  const rows = await sql<{ id: string; spent: number; resetsAt: number | null }[]>`
    select key.id, (key_tree_taken(key.id, since) - key_tree_held(key.id, key.org_id, since))::bigint as spent,
      extract(epoch from budget_reset(budget_interval, ${day}::date)) as resets_at
    from key, lateral budget_start(budget_interval, ${day}::date) as since
    where key.id = any(${[...keyIds]}) and budget_micro is not null`;
  return new Map(rows.map(({ id, spent, resetsAt }) => [id, { spentMicro: spent, resetsAt: resetsAt ?? undefined }]));
}
