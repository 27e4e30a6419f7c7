/** Alerts on budgets, keys and models, each once: the first transaction that claims one has to emit its event. */
import type { Queryable, Tx } from "../database/tx.ts";

/** A threshold of a budget that was reached. Amounts are micro-dollars. */
export interface ReachedShare {
  orgId: string;
  scope: "key" | "workspace";
  /** The workspace of the budget or of the key; null if the key has none. */
  workspaceId: string | null;
  percent: number;
  budgetMicro: number;
  usedMicro: number;
  /** When the budget resets, in unix seconds; null if never. */
  resetsAt: number | null;
}

/** Claims the reached thresholds of a key's or workspace's budget that were not reported yet; all if the budget refused a call. */
export async function reachedShares(tx: Tx, holder: string, atMs: number, isShort: boolean): Promise<ReachedShare[]> {
  return tx<ReachedShare[]>`
    select org_id, scope, percent, budget_micro, used_micro, resets_at,
      case scope when 'workspace' then ${holder}::text else (select workspace_id from key where id = ${holder}) end as workspace_id
    from budget_reach(${holder}, ${dayOf(atMs)}::date, ${isShort})`;
}

/** Deletes thresholds of earlier budget intervals. */
export async function pruneTold(sql: Queryable, atMs: number): Promise<void> {
  await sql`delete from budget_alert where since between '2000-01-01' and ${dayOf(atMs)}::date - 40`;
}

const dayOf = (atMs: number): string => new Date(atMs).toISOString().slice(0, 10);

/** A key that expires soon. */
export interface EndingKey {
  id: string;
  orgId: string;
  workspaceId: string | null;
  /** Unix seconds. */
  expiresAt: number;
}

/** Claims some keys that expire within `days` days, had a longer lifetime, and were not reported yet. */
export async function endingKeys(tx: Tx, atMs: number, days: number, limit: number): Promise<EndingKey[]> {
  const at = new Date(atMs);
  return tx<EndingKey[]>`
    update key set expiry_notified = expires_at where id in (
      select id from key
      where expires_at > ${at} and expires_at <= ${at}::timestamptz + make_interval(days => ${days})
        and expires_at - created > make_interval(days => ${days})
        and not disabled and expiry_notified is distinct from expires_at
      order by expires_at limit ${limit} for update skip locked
    ) returning id, org_id, workspace_id, floor(extract(epoch from expires_at))::bigint as expires_at`;
}

/** The announced sunset of a model. */
export interface Sunset {
  /** Both in unix seconds. */
  deprecatedAt: number;
  sunsetAt: number;
  /** Organizations that called it recently; empty if this sunset was announced before. */
  users: string[];
  /** Organizations with offerings of it; empty if this sunset was announced before. */
  suppliers: string[];
}

/** Announces a model's sunset. Returns a later one unchanged; undefined if the model does not exist. */
export async function announceSunset(
  tx: Tx,
  model: string,
  { sunsetAt, atMs, usedForDays }: { sunsetAt: number; atMs: number; usedForDays: number },
): Promise<Sunset | undefined> {
  const at = new Date(atMs);
  const [before] = await tx<{ sunsetAt: Date | null }[]>`select sunset_at from model where slug = ${model} for update`;
  if (!before) return undefined;
  const [row] = await tx<{ deprecatedAt: number; sunsetAt: number }[]>`
    update model set deprecated_at = coalesce(deprecated_at, ${at}), sunset_at = greatest(sunset_at, ${new Date(sunsetAt * 1000)})
    where slug = ${model}
    returning floor(extract(epoch from deprecated_at))::bigint as deprecated_at, floor(extract(epoch from sunset_at))::bigint as sunset_at`;
  if (!row) return undefined;
  if (before.sunsetAt !== null && before.sunsetAt.getTime() / 1000 >= sunsetAt)
    return { ...row, users: [], suppliers: [] };
  const users = await tx<{ orgId: string }[]>`
    select distinct org_id from request
    where model = ${model} and created > ${at}::timestamptz - make_interval(days => ${usedForDays}) order by org_id`;
  const suppliers = await tx<{ orgId: string }[]>`
    select distinct org_id from offering where model = ${model} and status <> 'removed' order by org_id`;
  return { ...row, users: users.map(({ orgId }) => orgId), suppliers: suppliers.map(({ orgId }) => orgId) };
}
