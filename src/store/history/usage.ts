/** The usage list: ended requests and their costs, newest first. Amounts are micro-dollars. */
import { type Sql, unixSeconds } from "../database/tx.ts";
import { type Bounded, boundedPage, newest, within } from "./bounded.ts";

/** One line of the usage list. */
export interface UsageRow {
  requestId: string;
  /** When it was recorded, in unix seconds. */
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
  /** Whether it was served with the organization's own provider key. */
  byok: boolean;
  /** `unmetered`: dispatched by a gateway process that died; not charged. */
  status: "settled" | "unmetered";
  /** The workspace of its key. */
  workspaceId: string | null;
}

/** A query; all given filters must match. */
interface UsageFilter {
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

/**
 * Lists an organization's charged and unmetered requests, newest first, before the request `cursor`. A filter that no index serves reads a
 * bounded number of requests.
 */
export async function listUsage(
  sql: Sql,
  orgId: string,
  { limit, cursor, ...filter }: UsageFilter & { limit: number; cursor?: string | undefined },
): Promise<Bounded<UsageRow>> {
  const window = sql`select * from request_outcome where ${within(sql, orgId, { ...filter, cursor })}`;
  const rows = await sql<UsageDatabaseRow[]>`
    select request_id, e.created, key_id, contract, model, provider, unit, units, cost_micro, wake_up_micro, hedge_cost_micro,
      simulated, byok, status, (select workspace_id from key where key.id = key_id) as workspace_id
    from (${newest(sql, window)}) as e join request_kind as k on k.id = e.kind
    where status in ('settled', 'unmetered') ${selected(sql, filter)} ${recorded(sql, filter)}
    order by request_id desc limit ${limit}`;
  return boundedPage(sql, { rows: rows.map(usageOf), limit, window });
}

/** What the filter says of keys and models. */
function selected(sql: Sql, { keyId, workspaceId, model, provider, contract }: UsageFilter) {
  const same = (column: string, value: string | undefined) =>
    value === undefined ? sql`` : sql`and ${sql(column)} = ${value}`;
  return sql`
    ${same("key_id", keyId)} ${same("model", model)} ${same("provider", provider)} ${same("contract", contract)}
    ${workspaceId === undefined ? sql`` : sql`and key_id in (select id from key where workspace_id = ${workspaceId})`}`;
}

/** What the filter says of the time of recording. */
function recorded(sql: Sql, { since, until }: UsageFilter) {
  const when = (seconds: number) => new Date(seconds * 1000);
  return sql`
    ${since === undefined ? sql`` : sql`and e.created >= ${when(since)}`}
    ${until === undefined ? sql`` : sql`and e.created < ${when(until)}`}`;
}

const usageOf = (row: UsageDatabaseRow): UsageRow => ({ ...row, created: unixSeconds(row.created) });

/** The number of an organization's charged requests and their total; without a filter, it reads no single request. */
export async function usageTotals(
  sql: Sql,
  orgId: string,
  filter: UsageFilter = {},
): Promise<{ requests: number; costMicro: number }> {
  const filtered = Object.values(filter).some((value) => value !== undefined);
  const [row] = filtered
    ? await sql<{ requests: number; cost: number }[]>`
        select count(*) as requests, coalesce(sum(cost_micro), 0) as cost
        from request_outcome as e join request_kind as k on k.id = e.kind
        where e.org_id = ${orgId} and status in ('settled', 'unmetered') ${selected(sql, filter)} ${recorded(sql, filter)}
          ${filter.requestId === undefined ? sql`` : sql`and e.request_id = ${filter.requestId}`}`
    : await sql<{ requests: number; cost: number }[]>`
        select account.requests + coalesce(sum(lease.requests), 0) as requests,
          granted_micro - available_micro - fee_micro - coalesce(sum(amount_micro - spent_micro), 0) as cost
        from account left join lease using (org_id) where org_id = ${orgId} group by account.org_id`;
  return { requests: row?.requests ?? 0, costMicro: row?.cost ?? 0 };
}

/** Charges for calls with an organization's own provider keys, in total or of one key. Reads nothing if there never was such a key. */
export async function ownKeySpending(sql: Sql, orgId: string, keyId?: string): Promise<number> {
  const [row] = await sql<{ micro: number }[]>`
    select coalesce(sum(cost_micro), 0) as micro from request
    where org_id = ${orgId} and byok and exists (select from credential where org_id = ${orgId})
      ${keyId === undefined ? sql`` : sql`and key_id = ${keyId}`}`;
  return row?.micro ?? 0;
}

// Gross margin: charges for calls, minus their modeled infrastructure costs. Amounts are micro-dollars.

/** One line of the report. */
export interface MarginRow {
  /** Null where calls of several are summed. */
  orgId: string | null;
  model: string | null;
  requests: number;
  revenueMicro: number;
  infraMicro: number;
  idleMicro: number;
  assumedScaledown: number;
  unmetered: number;
  /** Charges according to the ledger. */
  ledgerMicro: number;
}

/** The scope of the report. */
interface MarginQuery {
  orgId: string | undefined;
  limit: number;
  since: Date;
  until: Date | undefined;
  /** The default time for which an offering stays warm. */
  assumedScaledownS: number;
  /** Costs of hardware per second in nano-dollars, for offerings that declare none. */
  secondOf(hardware: string): number;
}

/** Lines by organization and by model, highest revenue first, and the total. */
interface MarginReport {
  organisations: MarginRow[];
  models: MarginRow[];
  totals: MarginRow;
}

const NOTHING: MarginRow = {
  orgId: null,
  model: null,
  requests: 0,
  revenueMicro: 0,
  infraMicro: 0,
  idleMicro: 0,
  assumedScaledown: 0,
  unmetered: 0,
  ledgerMicro: 0,
};

/**
 * Computes the report. A request keeps its offering busy for its duration, and warm until the next request of any caller or until it scales
 * down. Placeholders and calls with the caller's own provider key have no infrastructure costs.
 */
export async function readMargin(sql: Sql, query: MarginQuery): Promise<MarginReport> {
  const { orgId, limit, since, until, assumedScaledownS } = query;
  const hardware = await sql<
    { name: string }[]
  >`select distinct hardware as name from offering where cost_nano_per_second is null`;
  const seconds = JSON.stringify(Object.fromEntries(hardware.map(({ name }) => [name, query.secondOf(name)])));
  const rows = await sql<(MarginRow & { byOrg: number; byModel: number })[]>`
    with served as (
      select r.org_id, r.model, r.status, r.cost_micro, r.lease,
        coalesce(r.latency_ms, 0) / 1000 as busy_s,
        coalesce(o.scaledown_s, ${assumedScaledownS}) as warm_s,
        o.scaledown_s is null as assumed,
        case when r.simulated or r.byok then 0
          else coalesce(o.cost_nano_per_second, (${seconds}::text::json ->> o.hardware)::bigint, 0) / 1000.0 end as micro_per_s,
        extract(epoch from lead(r.created - coalesce(r.latency_ms, 0) * interval '1 millisecond') over w - r.created) as gap_s
      from request as r left join offering as o on o.id = r.offering_id
      where r.status in ('settled', 'unmetered') and r.created >= ${since} ${until ? sql`and r.created < ${until}` : sql``}
      window w as (partition by r.offering_id order by r.created)
    ), cost as (
      select s.*, s.busy_s * s.micro_per_s as busy_micro,
        least(greatest(coalesce(s.gap_s, s.warm_s), 0), s.warm_s) * s.micro_per_s as idle_micro,
        case when s.lease is null then 0 else s.cost_micro end as ledger_micro
      from served as s ${orgId === undefined ? sql`` : sql`where org_id = ${orgId}`}
    ), summed as (
      select org_id, model, grouping(org_id) = 0 as of_org, grouping(model) = 0 as of_model,
        count(*) filter (where status = 'settled') as requests,
        coalesce(sum(cost_micro), 0)::bigint as revenue_micro,
        coalesce(round(sum(busy_micro + idle_micro)), 0)::bigint as infra_micro,
        coalesce(round(sum(idle_micro)), 0)::bigint as idle_micro,
        count(*) filter (where assumed and micro_per_s > 0) as assumed_scaledown,
        count(*) filter (where status = 'unmetered') as unmetered,
        coalesce(sum(ledger_micro), 0)::bigint as ledger_micro
      from cost group by grouping sets ((org_id), (model), ())
    ), ranked as (
      select *, row_number() over (partition by of_org, of_model order by revenue_micro desc, org_id, model) as place from summed
    )
    select org_id, model, requests, revenue_micro, infra_micro, idle_micro, assumed_scaledown, unmetered, ledger_micro
    from ranked where place <= ${limit} order by place`;
  return {
    organisations: rows.filter(({ orgId }) => orgId !== null),
    models: rows.filter(({ model }) => model !== null),
    totals: rows.find(({ orgId, model }) => orgId === null && model === null) ?? NOTHING,
  };
}
