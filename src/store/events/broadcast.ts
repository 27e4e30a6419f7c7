/** Span targets: endpoints to which organizations export traces of their calls. */
import { Reason, refuse } from "../../errors.ts";
import { allRecords, firstRecord, type Queryable, type Tx } from "../database/tx.ts";

/** The export protocol. */
export type SpanProtocol = "http/protobuf" | "http/json" | "grpc";

/** The calls that a target receives; an empty filter matches all. */
export interface SpanFilter {
  contracts: string[];
  models: string[];
  keyIds: string[];
  workspaceId: string | undefined;
}

/** The settings of a target. */
export interface TargetFacts {
  name: string;
  endpoint: string;
  protocol: SpanProtocol;
  /** Sealed JSON of header names and values; undefined if there are none. */
  headers: Buffer | undefined;
  headerNames: string[];
  samplingRate: number;
  privacyMode: boolean;
  filter: SpanFilter;
  resourceAttributes: Record<string, string>;
  enabled: boolean;
  /** Whether events are also sent. */
  events: boolean;
}

/** A span target. */
export interface TargetRecord extends TargetFacts {
  id: string;
  orgId: string;
  /** Incremented with each change of its settings. */
  revision: number;
  lastError: string | undefined;
  droppedSpans: number;
  /** Unix seconds. */
  created: number;
}

/** The most targets of an organization. */
const MOST = 10;
/** The largest count of dropped spans. */
const MOST_DROPPED = 2 ** 32 - 1;

/** The sealing context of headers. */
export const broadcastContext = (targetId: string): string => JSON.stringify(["broadcast", targetId]);

type TargetRow = Omit<TargetRecord, "filter"> & SpanFilter;

const targetOf = ({ contracts, models, keyIds, workspaceId, ...row }: TargetRow): TargetRecord => ({
  ...row,
  filter: { contracts, models, keyIds, workspaceId },
});

/** Creates a target. Refuses with `too_many` above 10 per organization. */
export async function createTarget(
  tx: Tx,
  { id, orgId, ...facts }: TargetFacts & { id: string; orgId: string },
): Promise<TargetRecord> {
  await tx`select pg_advisory_xact_lock(hashtextextended(${`broadcast ${orgId}`}, 0))`;
  const [{ count } = { count: 0 }] = await tx<{ count: number }[]>`
    select count(*)::int as count from broadcast_target where org_id = ${orgId}`;
  if (count >= MOST)
    throw refuse(Reason.TOO_MANY, `an organization can have at most ${MOST} span targets; delete one first`);
  const { filter } = facts;
  const row = await firstRecord<TargetRow>(tx`
    insert into broadcast_target (
      id, org_id, name, endpoint, protocol, headers, header_names, sampling_rate, privacy_mode, contracts, models, key_ids,
      workspace_id, resource_attributes, enabled, events
    ) values (
      ${id}, ${orgId}, ${facts.name}, ${facts.endpoint}, ${facts.protocol}, ${facts.headers ?? null}, ${facts.headerNames},
      ${facts.samplingRate}, ${facts.privacyMode}, ${filter.contracts}, ${filter.models}, ${filter.keyIds},
      ${filter.workspaceId ?? null}, ${JSON.stringify(facts.resourceAttributes)}::text::json, ${facts.enabled}, ${facts.events}
    ) returning *`);
  return targetOf(row!);
}

/** Replaces the settings of a target; undefined if it was deleted. */
export async function replaceTarget(
  tx: Tx,
  { id, orgId, ...facts }: TargetFacts & { id: string; orgId: string },
): Promise<TargetRecord | undefined> {
  const { filter } = facts;
  const row = await firstRecord<TargetRow>(tx`
    update broadcast_target set
      name = ${facts.name}, endpoint = ${facts.endpoint}, protocol = ${facts.protocol}, headers = ${facts.headers ?? null},
      header_names = ${facts.headerNames}, sampling_rate = ${facts.samplingRate}, privacy_mode = ${facts.privacyMode},
      contracts = ${filter.contracts}, models = ${filter.models}, key_ids = ${filter.keyIds},
      workspace_id = ${filter.workspaceId ?? null},
      resource_attributes = ${JSON.stringify(facts.resourceAttributes)}::text::json, enabled = ${facts.enabled}, events = ${facts.events},
      revision = revision + 1, last_error = null
    where id = ${id} and org_id = ${orgId} returning *`);
  return row && targetOf(row);
}

/** The targets of an organization, oldest first. */
export async function listTargets(sql: Queryable, orgId: string): Promise<TargetRecord[]> {
  const rows = await allRecords<TargetRow>(sql`
    select * from broadcast_target where org_id = ${orgId} order by created, id limit ${MOST}`);
  return rows.map(targetOf);
}

/** A target of an organization. */
export async function findTarget(sql: Queryable, orgId: string, id: string): Promise<TargetRecord | undefined> {
  const row = await firstRecord<TargetRow>(sql`select * from broadcast_target where id = ${id} and org_id = ${orgId}`);
  return row && targetOf(row);
}

/** A target of any organization. */
export async function findTargetById(sql: Queryable, id: string): Promise<TargetRecord | undefined> {
  const row = await firstRecord<TargetRow>(sql`select * from broadcast_target where id = ${id}`);
  return row && targetOf(row);
}

/** Deletes a target; false if it does not exist. */
export async function deleteTarget(tx: Tx, orgId: string, id: string): Promise<boolean> {
  const { count } = await tx`delete from broadcast_target where id = ${id} and org_id = ${orgId}`;
  return count > 0;
}

/** Every enabled target. */
export async function loadTargets(sql: Queryable): Promise<TargetRecord[]> {
  const rows = await allRecords<TargetRow>(sql`select * from broadcast_target where enabled order by org_id, created`);
  return rows.map(targetOf);
}

/** Records the result of sending: newly dropped spans, and the last failure if any. */
export async function noteSent(
  sql: Queryable,
  id: string,
  { dropped, lastError }: { dropped: number; lastError: string | undefined },
): Promise<void> {
  await sql`
    update broadcast_target set
      dropped_spans = least(dropped_spans + ${dropped}, ${MOST_DROPPED}), last_error = ${lastError ?? null}
    where id = ${id}`;
}

// Events for span targets, stored from the transaction of their cause until they are delivered or dropped.

/** A claimed event for a target. */
export interface ClaimedEvent {
  position: string;
  targetId: string;
  /** The event message, binary. */
  payload: Buffer;
  /** The number of attempts, including this one. */
  tries: number;
}

/** How long a claim lasts before another sender takes over. */
const CLAIM_S = 60;
const AT_ONCE = 512;

/**
 * Claims the oldest due events of one target that is not in `busy`. Expired claims are claimed again.
 */
export async function claimTargetEvents(sql: Queryable, busy: readonly string[]): Promise<ClaimedEvent[]> {
  const rows = await sql<{ position: string; targetId: string; payload: Buffer; tries: number }[]>`
    with target as (
      select target_id as id from broadcast_event join broadcast_target on broadcast_target.id = target_id
      where due <= now() and enabled and target_id <> all (${[...busy]}::text[]) order by due limit 1),
    next as (
      select position from broadcast_event where target_id = (select id from target) and due <= now()
      order by position limit ${AT_ONCE} for update skip locked)
    update broadcast_event set due = now() + make_interval(secs => ${CLAIM_S}), tries = tries + 1
    where position in (select position from next) returning position, target_id, payload, tries`;
  return rows.sort((a, b) => Number(a.position) - Number(b.position));
}

/** Deletes delivered or dropped events. */
export async function dropTargetEvents(sql: Queryable, positions: readonly string[]): Promise<void> {
  await sql`delete from broadcast_event where position = any (${[...positions]}::bigint[])`;
}

/** Delays events by `ms` milliseconds. */
export async function delayTargetEvents(sql: Queryable, positions: readonly string[], ms: number): Promise<void> {
  await sql`
    update broadcast_event set due = now() + make_interval(secs => ${ms / 1000}::float8)
    where position = any (${[...positions]}::bigint[])`;
}

/** Milliseconds until the next event of an enabled target is due; undefined if none waits. */
export async function nextTargetEvent(sql: Queryable): Promise<number | undefined> {
  const [row] = await sql<{ ms: number | null }[]>`
    select (extract(epoch from min(due) - now()) * 1000)::float8 as ms
    from broadcast_event join broadcast_target on broadcast_target.id = target_id where enabled`;
  return row?.ms ?? undefined;
}

/** Deletes events that waited longer than so many days for disabled targets; returns their number. */
export async function pruneTargetEvents(sql: Queryable, days: number): Promise<number> {
  const { count } = await sql`delete from broadcast_event where due < now() - make_interval(days => ${days})`;
  return count;
}
