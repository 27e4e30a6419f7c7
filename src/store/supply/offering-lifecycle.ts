/** The life of providers and offerings: lists, changes, probes by schedule, withdrawal. */

import type { Queryable, Sql } from "../database/tx.ts";
import {
  type OfferingRecord,
  type OfferingRow,
  type OfferingStatus,
  offeringOf,
  offerings,
  type ProviderRecord,
  type ProviderRow,
  providerOf,
} from "./supply.ts";

/** Providers of an organisation by name, after the name `after`. */
export async function listProviders(
  sql: Queryable,
  { orgId, after, limit }: { orgId: string; after: string; limit: number },
): Promise<ProviderRecord[]> {
  const rows = await sql<ProviderRow[]>`
    select * from provider where org_id = ${orgId} and name > ${after} order by name limit ${limit}`;
  return rows.map(providerOf);
}

/** What may change of a provider, by column. */
export type ProviderChanges = Partial<
  Pick<ProviderRow, "displayName" | "contactEmail" | "homepage" | "regions" | "retainsFrames">
>;

/** Changes a provider that is there. */
export async function updateProvider(sql: Queryable, id: string, changes: ProviderChanges): Promise<ProviderRecord> {
  const [row] =
    Object.keys(changes).length === 0
      ? await sql<ProviderRow[]>`select * from provider where id = ${id}`
      : await sql<ProviderRow[]>`update provider set ${sql(changes)} where id = ${id} returning *`;
  return providerOf(row!);
}

/** Which offerings to list. */
export interface OfferingQuery {
  /** Those of this organisation; of all when undefined. */
  orgId: string | undefined;
  /** And what everybody may call. */
  andPublic: boolean;
  provider: string | undefined;
  model: string | undefined;
  status: OfferingStatus | undefined;
  /** Only those declared before the one of this name. */
  before: string | undefined;
  limit: number;
}

/** Offerings, the newest first; removed ones only where that state is asked for. */
export async function listOfferings(
  sql: Queryable,
  { orgId, andPublic, provider, model, status, before, limit }: OfferingQuery,
): Promise<OfferingRecord[]> {
  const open = andPublic ? sql`or offering.status in ('live', 'degraded')` : sql``;
  const rows = await sql<OfferingRow[]>`
    ${offerings(sql)} where
      ${status === undefined ? sql`offering.status <> 'removed'` : sql`offering.status = ${status}`}
      ${orgId === undefined ? sql`` : sql`and (offering.org_id = ${orgId} ${open})`}
      ${provider === undefined ? sql`` : sql`and provider.name = ${provider}`}
      ${model === undefined ? sql`` : sql`and offering.model = ${model}`}
      ${before === undefined ? sql`` : sql`and offering.id < ${before}`}
    order by offering.id desc limit ${limit}`;
  return rows.map(offeringOf);
}

/** The cost basis of an offering, by column. */
export type CostBasis = Partial<
  Pick<OfferingRow, "hardware" | "costNanoPerSecond" | "scaledownS" | "timeoutS" | "coldTimeoutS">
>;

/** Changes the cost basis of an offering that is there. */
export async function updateCostBasis(sql: Queryable, id: string, changes: CostBasis): Promise<OfferingRecord> {
  if (Object.keys(changes).length > 0) await sql`update offering set ${sql(changes)} where id = ${id}`;
  const [row] = await sql<OfferingRow[]>`${offerings(sql)} where offering.id = ${id}`;
  return offeringOf(row!);
}

/** Deletes an offering for good where it is in one of `from`. Answers whether it was. */
export async function deleteOffering(sql: Queryable, id: string, from: readonly OfferingStatus[]): Promise<boolean> {
  const { count } = await sql`delete from offering where id = ${id} and status in ${sql([...from])}`;
  return count > 0;
}

/** Calls that were promised to an offering and whose end is not on record, on any replica: a page of promises stays until all of its calls ended. */
export async function inFlightOn(sql: Queryable, id: string): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    with page as (select promised::json as promised from intent),
    request as (
      select promised -> 'kinds' -> (request ->> 0)::int as kind, request ->> 1 as request_id
      from page, json_array_elements(promised -> 'requests') as request
    )
    select count(*) as count from request
    where kind ->> 'offering_id' = ${id} and not exists (
      select from request_outcome as ended
      where ended.org_id = request.kind ->> 'org_id' and ended.request_id = request.request_id)`;
  return row?.count ?? 0;
}

/** Offerings that are draining; `over` when the time of their longest call has passed. */
export async function withdrawnUntil(sql: Sql): Promise<(OfferingRecord & { over: boolean })[]> {
  const rows = await sql<(OfferingRow & { over: boolean })[]>`
    select o.*, withdrawn_at is null
      or withdrawn_at + greatest(o.timeout_s, coalesce(o.cold_timeout_s, 0)) * interval '1 second' + interval '1 minute' < now() as over
    from (${offerings(sql)} where offering.status = 'draining') as o limit 100`;
  return rows.map((row) => ({ ...offeringOf(row), over: row.over }));
}

/** What a probe found. */
export interface ProbeOutcome {
  from: readonly OfferingStatus[];
  to: OfferingStatus;
  failures: number;
  report: object;
  /** Steps of the chunk that its server always answers; null where it has no such length, undefined where that was not found out. */
  chunkSteps: number | null | undefined;
  /** When to probe it again, in seconds; undefined for never. */
  dueInS: number | undefined;
}

/** Moves an offering to where a probe puts it, provided that it is in one of `from`. Undefined when it is not any more. */
export async function settleProbe(
  sql: Queryable,
  id: string,
  { from, to, failures, report, chunkSteps, dueInS }: ProbeOutcome,
): Promise<OfferingRecord | undefined> {
  const { count } = await sql`
    update offering set status = ${to}, probe_failures = ${failures}, verified_at = now(), probe_until = null,
      probe_busy = case when ${failures}::int = 0 then 0 else probe_busy end,
      report = ${sql.json(JSON.parse(JSON.stringify(report)))},
      ${chunkSteps === undefined ? sql`` : sql`chunk_steps = ${chunkSteps},`}
      probe_due = ${dueInS === undefined ? null : sql`now() + ${dueInS} * interval '1 second'`}
    where id = ${id} and status in ${sql([...from])}`;
  if (count === 0) return undefined;
  const [row] = await sql<OfferingRow[]>`${offerings(sql)} where offering.id = ${id}`;
  return row && offeringOf(row);
}

/** Keeps what a probe that runs has found so far; nothing where the offering is gone. */
export async function tellProgress(sql: Queryable, id: string, report: object): Promise<void> {
  await sql`
    insert into probe_progress (offering_id, report) select id, ${sql.json(JSON.parse(JSON.stringify(report)))} from offering where id = ${id}
    on conflict (offering_id) do update set report = excluded.report, at = now()`;
}

/** What the probe that runs has found so far, as ProtoJSON; undefined where none runs. */
export async function progressOf(sql: Queryable, id: string): Promise<object | undefined> {
  const [row] = await sql<{ report: object }[]>`select report from probe_progress where offering_id = ${id}`;
  return row?.report;
}

/** Forgets what a probe had found so far: it has ended. */
export async function endProgress(sql: Queryable, id: string): Promise<void> {
  await sql`delete from probe_progress where offering_id = ${id}`;
}

/** Takes one offering whose probe is due, so that no other worker probes it for `leaseS` seconds. Undefined when none is. */
export async function takeProbe(sql: Sql, leaseS: number): Promise<OfferingRecord | undefined> {
  const [taken] = await sql<{ id: string }[]>`
    update offering set probe_until = now() + ${leaseS} * interval '1 second' where id = (
      select id from offering
      where status in ('live', 'degraded', 'suspended') and probe_due <= now() and (probe_until is null or probe_until < now())
      order by probe_due limit 1 for update skip locked
    ) returning id`;
  if (!taken) return undefined;
  const [row] = await sql<OfferingRow[]>`${offerings(sql)} where offering.id = ${taken.id}`;
  return row && offeringOf(row);
}

/** Notes that an offering had no time for a probe. Answers how many in a row, while no call was answered in the last `servedWithinMin` minutes. */
export async function noteBusyProbe(sql: Queryable, id: string, servedWithinMin: number): Promise<number> {
  const [row] = await sql<{ probeBusy: number }[]>`
    update offering set probe_busy = case when exists (
      select from offering_minute where offering_id = ${id} and calls > failures
        and minute > extract(epoch from now())::int / 60 - ${servedWithinMin}::int
    ) then 0 else probe_busy + 1 end
    where id = ${id} returning probe_busy`;
  return row?.probeBusy ?? 0;
}

/** Puts off a probe that could not be made. */
export async function putOffProbe(sql: Queryable, id: string, byS: number): Promise<void> {
  await sql`update offering set probe_until = null, probe_due = now() + ${byS} * interval '1 second' where id = ${id}`;
}
