/** The usage list: what became of requests, newest first, and what they cost. Amounts are micro-dollars. */
import type { Sql } from "../database/tx.ts";
import { unixSeconds } from "../database/types.ts";

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
  /** The workspace of its key. */
  workspaceId: string | null;
}

/** Which requests to list; all filters that are given must hold. */
export interface UsageFilter {
  keyId?: string | undefined;
  workspaceId?: string | undefined;
  model?: string | undefined;
  provider?: string | undefined;
  contract?: string | undefined;
  requestId?: string | undefined;
  /** Unix seconds. */
  since?: number | undefined;
  until?: number | undefined;
}

interface UsageDatabaseRow extends Omit<UsageRow, "created"> {
  created: Date;
}

/** The requests of an organisation that were charged or can't be, the newest first, from before the request `cursor`. */
export async function listUsage(
  sql: Sql,
  orgId: string,
  { limit, cursor, ...filter }: UsageFilter & { limit: number; cursor?: string | undefined },
): Promise<UsageRow[]> {
  const rows = await sql<UsageDatabaseRow[]>`
    select request_id, created, key_id, contract, model, provider, unit, units, cost_micro, wake_up_micro, hedge_cost_micro,
      simulated, byok, status, (select workspace_id from key where key.id = key_id) as workspace_id
    from request
    where ${selected(sql, orgId, filter)} ${cursor === undefined ? sql`` : sql`and request_id < ${cursor}`}
    order by request_id desc limit ${limit}`;
  return rows.map(usageOf);
}

function selected(sql: Sql, orgId: string, filter: UsageFilter) {
  const { keyId, workspaceId, model, provider, contract, requestId, since, until } = filter;
  const when = (seconds: number) => new Date(seconds * 1000);
  const same = (column: string, value: string | undefined) =>
    value === undefined ? sql`` : sql`and ${sql(column)} = ${value}`;
  return sql`org_id = ${orgId} and status in ('settled', 'unmetered')
    ${same("key_id", keyId)} ${same("model", model)} ${same("provider", provider)} ${same("contract", contract)}
    ${same("request_id", requestId)}
    ${workspaceId === undefined ? sql`` : sql`and key_id in (select id from key where workspace_id = ${workspaceId})`}
    ${since === undefined ? sql`` : sql`and created >= ${when(since)}`}
    ${until === undefined ? sql`` : sql`and created < ${when(until)}`}`;
}

const usageOf = (row: UsageDatabaseRow): UsageRow => ({ ...row, created: unixSeconds(row.created) });

/** How many requests an organisation was charged for, and how much in all; without a filter none of them is read. */
export async function usageTotals(
  sql: Sql,
  orgId: string,
  filter: UsageFilter = {},
): Promise<{ requests: number; costMicro: number }> {
  const filtered = Object.values(filter).some((value) => value !== undefined);
  const [row] = filtered
    ? await sql<{ requests: number; cost: number }[]>`
        select count(*) as requests, coalesce(sum(cost_micro), 0) as cost
        from request where ${selected(sql, orgId, filter)}`
    : await sql<{ requests: number; cost: number }[]>`
        select account.requests + coalesce(sum(lease.requests), 0) as requests,
          granted_micro - available_micro - fee_micro - coalesce(sum(amount_micro - spent_micro), 0) as cost
        from account left join lease using (org_id) where org_id = ${orgId} group by account.org_id`;
  return { requests: row?.requests ?? 0, costMicro: row?.cost ?? 0 };
}

/** What calls with an organisation's own provider keys were charged, in all or by one key. Where there never was such a key, nothing is read. */
export async function ownKeySpending(sql: Sql, orgId: string, keyId?: string): Promise<number> {
  const [row] = await sql<{ micro: number }[]>`
    select coalesce(sum(cost_micro), 0) as micro from request
    where org_id = ${orgId} and byok and exists (select from credential where org_id = ${orgId})
      ${keyId === undefined ? sql`` : sql`and key_id = ${keyId}`}`;
  return row?.micro ?? 0;
}
