/** The usage list: what became of requests, newest first, and what they cost. Amounts are micro-dollars. */
import type { Sql } from "./tx.ts";

/** One line of the usage list. */
export interface UsageRow {
  requestId: string;
  /** When it was put on record, in unix seconds. */
  created: number;
  keyId: string;
  contract: string;
  model: string;
  provider: string;
  unit: string;
  units: number;
  costMicro: number;
  wakeUpMicro: number;
  hedgeCostMicro: number | null;
  simulated: boolean;
  /** Served with the organisation's own key at the provider. */
  byok: boolean;
  /** `unmetered`: dispatched by a gateway that died; not charged. */
  status: "settled" | "unmetered";
}

/** A page of the usage list. */
export interface UsagePage {
  rows: UsageRow[];
  /** Where the next page begins; undefined on the last. */
  nextCursor: string | undefined;
}

interface UsageDatabaseRow {
  request_id: string;
  created: Date;
  key_id: string;
  contract: string;
  model: string;
  provider: string;
  unit: string;
  units: number;
  cost_micro: number;
  wake_up_micro: number;
  hedge_cost_micro: number | null;
  simulated: boolean;
  byok: boolean;
  status: "settled" | "unmetered";
}

/** The requests of an organisation that were charged or can't be, by the moment of their call; `cursor` is a page's `nextCursor`. */
export async function listUsage(sql: Sql, orgId: string, limit: number, cursor?: string): Promise<UsagePage> {
  const rows = await sql<UsageDatabaseRow[]>`
    select request_id, created, key_id, contract, model, provider, unit, units, cost_micro, wake_up_micro, hedge_cost_micro,
      simulated, byok, status
    from request
    where org_id = ${orgId} and status in ('settled', 'unmetered') ${cursor === undefined ? sql`` : sql`and request_id < ${cursor}`}
    order by request_id desc limit ${limit + 1}`;
  const page = rows.slice(0, limit);
  return { rows: page.map(usageOf), nextCursor: rows.length > limit ? page.at(-1)?.request_id : undefined };
}

const usageOf = (row: UsageDatabaseRow): UsageRow => ({
  requestId: row.request_id,
  created: Math.floor(row.created.getTime() / 1000),
  keyId: row.key_id,
  contract: row.contract,
  model: row.model,
  provider: row.provider,
  unit: row.unit,
  units: row.units,
  costMicro: row.cost_micro,
  wakeUpMicro: row.wake_up_micro,
  hedgeCostMicro: row.hedge_cost_micro,
  simulated: row.simulated,
  byok: row.byok,
  status: row.status,
});

/** How many requests an organisation was charged for, and how much in all, without reading them. */
export async function usageTotals(sql: Sql, orgId: string): Promise<{ requests: number; costMicro: number }> {
  const [row] = await sql<{ requests: number; cost: number }[]>`
    select account.requests + coalesce(sum(lease.requests), 0) as requests,
      granted_micro - available_micro - fee_micro - coalesce(sum(amount_micro - spent_micro), 0) as cost
    from account left join lease using (org_id) where org_id = ${orgId} group by account.org_id`;
  return { requests: row?.requests ?? 0, costMicro: row?.cost ?? 0 };
}
