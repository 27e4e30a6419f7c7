/** The usage list: ended requests and their costs, newest first. Amounts are micro-dollars. */
import { type Sql, unixSeconds } from "../database/tx.ts";
import { type Bounded, boundedPage, newest, requestsIn, within } from "./bounded.ts";
import { ASSUMED_SCALEDOWN_S, HOURS_KEPT_S, MINUTES_KEPT_S } from "./series.ts";

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
  const window = requestsIn(sql, sql`select * from request_outcome where ${within(sql, orgId, { ...filter, cursor })}`);
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

/**
 * The number of an organization's charged requests and their total. Reads balances without a filter, the request with its id, and otherwise
 * rollups.
 */
export async function usageTotals(
  sql: Sql,
  orgId: string,
  filter: UsageFilter = {},
): Promise<{ requests: number; costMicro: number }> {
  const filtered = Object.values(filter).some((value) => value !== undefined);
  if (!filtered) {
    const [row] = await sql<{ requests: number; costMicro: number }[]>`
      select account.requests + coalesce(sum(lease.requests), 0) as requests,
        granted_micro - available_micro - fee_micro - coalesce(sum(amount_micro - spent_micro), 0) as cost_micro
      from account left join lease using (org_id) where org_id = ${orgId} group by account.org_id`;
    return row ?? { requests: 0, costMicro: 0 };
  }
  if (filter.requestId !== undefined) {
    const { rows } = await listUsage(sql, orgId, { ...filter, limit: 1 });
    return { requests: rows.length, costMicro: rows[0]?.costMicro ?? 0 };
  }
  const { requests, costMicro } = await rolledTotals(sql, orgId, filter);
  return { requests, costMicro };
}

/** Charges for calls with an organization's own provider keys, in total or of one key. Reads nothing if there never was such a key. */
export async function ownKeySpending(sql: Sql, orgId: string, keyId?: string): Promise<number> {
  const { count } = await sql`select from credential where org_id = ${orgId} limit 1`;
  return count === 0 ? 0 : (await rolledTotals(sql, orgId, { keyId })).ownMicro;
}

/** Sums of an organization's charged and unmetered requests. */
interface Totals {
  requests: number;
  costMicro: number;
  /** The part with the organization's own provider keys. */
  ownMicro: number;
}

/** The units of the rollups, longest first: their length and for how long all of them are there, in seconds. */
const UNITS = {
  day: { length: 86_400, kept: Number.POSITIVE_INFINITY },
  hour: { length: 3_600, kept: HOURS_KEPT_S - 86_400 },
  minute: { length: 60, kept: MINUTES_KEPT_S - 3_600 },
} as const;

/** A span of time in unix seconds, and what its sums are read from. */
interface Stretch {
  unit: keyof typeof UNITS | "row";
  from: number;
  to: number;
}

/** When the database was read, and the moment before which all calls are rolled up, in unix seconds. */
interface Rolled {
  now: number;
  at: number;
}

/**
 * Divides a span of time into stretches of the longest units. Ends that fill no unit, and calls that are not rolled up, are read from rows:
 * within two days about a minute at most, within a year up to an hour, before that up to a day.
 */
function stretchesOf(
  from: number,
  to: number,
  rolled: Rolled,
  units = Object.keys(UNITS) as (keyof typeof UNITS)[],
): Stretch[] {
  if (from >= to) return [];
  const [unit, ...shorter] = units;
  if (unit === undefined) return [{ unit: "row", from, to }];
  const { length, kept } = UNITS[unit];
  const low = Math.ceil(from / length) * length;
  const high = Math.floor(Math.min(to, rolled.at) / length) * length;
  const rest = (a: number, b: number) => stretchesOf(a, b, rolled, shorter);
  if (low >= high || low < rolled.now - kept) return rest(from, to);
  return [...rest(from, low), { unit, from: low, to: high }, ...rest(high, to)];
}

/** Reads totals from rollups, and from rows where those end. */
async function rolledTotals(sql: Sql, orgId: string, filter: UsageFilter): Promise<Totals> {
  const [rolled] = await sql<Rolled[]>`
    select extract(epoch from now())::float8 as now, extract(epoch from at)::float8 as at from series_until`;
  const { since = 0, until = Number.POSITIVE_INFINITY } = filter;
  const stretches = stretchesOf(since, until, rolled!);
  const rows = stretches.filter(({ unit }) => unit === "row");
  const parts = stretches.flatMap(({ unit, from, to }) => (unit === "row" ? [] : [sumsOf(sql, orgId, unit, from, to)]));
  if (rows.length > 0) parts.push(rowsOf(sql, orgId, rows));
  if (parts.length === 0) return { requests: 0, costMicro: 0, ownMicro: 0 };
  const [row] = await sql<Totals[]>`
    select coalesce(sum(requests), 0) as requests, coalesce(sum(cost_micro), 0) as cost_micro, coalesce(sum(own_micro), 0) as own_micro
    from (${parts.reduce((all, part) => sql`${all} union all ${part}`)}) as part where true ${selected(sql, filter)}`;
  return row!; // without groups, a sum has one row
}

function sumsOf(sql: Sql, orgId: string, unit: keyof typeof UNITS, from: number, to: number) {
  const day = (seconds: number) => sql`(to_timestamp(${seconds}::float8) at time zone 'UTC')::date`;
  const days = sql`l.org_id = ${orgId} and l.day >= ${day(from)} and l.day <= ${day(to)}`;
  if (unit === "day")
    return sql`
      select l.key_id, l.contract, l.model, l.provider, l.requests, l.cost_micro, l.own_micro from series_line as l
      where ${days} and l.day < ${day(to)}`;
  const at = sql(unit);
  return sql`
    select l.key_id, l.contract, l.model, l.provider, r.requests, r.cost_micro, r.own_micro
    from series_line as l join ${sql(`series_${unit}`)} as r on r.line = l.id
      and r.${at} >= ${from / UNITS[unit].length} and r.${at} < ${to / UNITS[unit].length}
    where ${days}`;
}

/** The requests of all stretches that no rollup serves, read at once: each read asks every partition. */
function rowsOf(sql: Sql, orgId: string, stretches: readonly Stretch[]) {
  const recorded = stretches.map(
    ({ from, to }) => sql`e.created >= to_timestamp(${from}::float8)
      ${to === Number.POSITIVE_INFINITY ? sql`` : sql`and e.created < to_timestamp(${to}::float8)`}`,
  );
  return sql`
    select key_id, contract, model, provider, (status in ('settled', 'unmetered'))::int::bigint as requests, cost_micro,
      case when byok then cost_micro else 0 end as own_micro
    from request_outcome as e join request_kind as k on k.id = e.kind
    where e.org_id = ${orgId} and (${recorded.reduce((all, each) => sql`${all} or ${each}`)})`;
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
 * Computes the report from complete hours, and from rows where those end. A request keeps its offering busy for its duration, and warm until the
 * next request of any caller or until it scales down. Placeholders and calls with the caller's own provider key have no infrastructure costs.
 */
export async function readMargin(sql: Sql, query: MarginQuery): Promise<MarginReport> {
  const { orgId, limit, since, until } = query;
  const hardware = await sql<
    { name: string }[]
  >`select distinct hardware as name from offering where cost_nano_per_second is null`;
  const seconds = JSON.stringify(Object.fromEntries(hardware.map(({ name }) => [name, query.secondOf(name)])));
  const end = until ?? sql`'infinity'::timestamptz`;
  const rows = await sql<(MarginRow & { byOrg: number; byModel: number })[]>`
    with span as materialized (
      -- The complete hours, as far as they are added up.
      select low, greatest(low, high) as high from (
        select date_bin('1 hour', ${since}::timestamptz + interval '3599.999999 seconds', 'epoch') as low,
          date_bin('1 hour', least(${end}, greatest(at, 'epoch')), 'epoch') as high from margin_until
      ) as each
    ), part as (
      select h.* from margin_hour as h, span
      where hour >= extract(epoch from low) / 3600 and hour < extract(epoch from high) / 3600
      union all
      select m.* from span, margin_between(${since}, least(low, ${end}), ${ASSUMED_SCALEDOWN_S}) as m
      union all
      select m.* from span, margin_between(high, ${end}, ${ASSUMED_SCALEDOWN_S}) as m where high < ${end}
    ), priced as (
      select p.*, p.settled + p.unmetered as calls, o.scaledown_s is null as assumed,
        case when p.free then 0
          else coalesce(o.cost_nano_per_second, (${seconds}::text::json ->> o.hardware)::bigint, 0) / 1000.0 end as micro_per_s
      from part as p left join offering as o on o.id = p.offering_id
      ${orgId === undefined ? sql`` : sql`where p.org_id = ${orgId}`}
    ), cost as (
      select *, busy_us * micro_per_s / 1000000 as busy_micro, idle_us * micro_per_s / 1000000 as idle_micro from priced
    ), summed as (
      select org_id, model, grouping(org_id) = 0 as of_org, grouping(model) = 0 as of_model,
        coalesce(sum(settled), 0)::bigint as requests,
        coalesce(sum(cost_micro), 0)::bigint as revenue_micro,
        coalesce(round(sum(busy_micro + idle_micro)), 0)::bigint as infra_micro,
        coalesce(round(sum(idle_micro)), 0)::bigint as idle_micro,
        coalesce(sum(calls) filter (where assumed and micro_per_s > 0), 0)::bigint as assumed_scaledown,
        coalesce(sum(unmetered), 0)::bigint as unmetered,
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
