/** The request log and the administrative actions of the audit log. Amounts are micro-dollars. */
import { type Queryable, type Sql, unixSeconds } from "../database/tx.ts";
import { type Bounded, boundedPage, newest, requestsIn, within } from "./bounded.ts";

/** A call of the log. */
export interface CallLog {
  requestId: string;
  /** Unix seconds. */
  ts: number;
  contract: string;
  keyId: string;
  workspaceId: string | null;
  /** The member who owns its key. */
  userId: string | null;
  /** The batch of which it is an item; empty if none. */
  batchId: string;
  model: string;
  provider: string;
  offeringId: string;
  status: "settled" | "failed" | "unmetered" | "done";
  httpStatus: number | null;
  errorCode: string | null;
  unit: string;
  units: number;
  costMicro: number;
  hedgeCostMicro: number | null;
  wakeUpMicro: number;
  simulated: boolean;
  byok: boolean;
  latencyMs: number | null;
  queueMs: number | null;
  inputBytes: number | null;
  sessionId: string | null;
  robotId: string | null;
  /** The other fields, as written at settlement. */
  log: CallDetails | null;
}

/** What a settlement stores in addition to its columns. */
interface CallDetails {
  model_requested?: string;
  trace_id?: string;
  preference?: string;
  gpu_seconds?: number;
  holds?: Record<string, number>;
  /** The refusal's message. */
  message?: string;
  /** Ages of observations when their chunks were sent: counts by bucket. */
  ages?: Record<string, number>;
  deadline_ms?: number;
  metadata?: object;
  preset?: string;
  stream_id?: string;
  region?: string;
  precision?: string;
  fallback_used?: boolean;
  /** The id of its plan's digest, and the order of the plan. */
  plan?: string;
  ranks?: string;
  attempts?: { offering_id: string; status?: string; reason?: string; latency_ms: number; count?: number }[];
}

/** An administrative action. */
export interface ActLog {
  id: string;
  ts: number;
  actor: string;
  action: string;
  subject: string;
  requestId: string | null;
}

/** A query; all given filters must match. */
export interface LogFilter {
  /** A contract, `batch` or `preview`; all but previews if absent. */
  kind?: string | undefined;
  /** Whether only calls that clients made themselves match: no episodes and no batch items. */
  isDirect?: boolean | undefined;
  requestId?: string | undefined;
  status?: string | undefined;
  httpStatus?: number | undefined;
  robotId?: string | undefined;
  sessionId?: string | undefined;
  model?: string | undefined;
  provider?: string | undefined;
  workspaceId?: string | undefined;
  /** Unix seconds. */
  since?: number | undefined;
  /** The last id of the previous page. */
  cursor?: string | undefined;
  limit: number;
}

/** Lists an organization's calls, newest first. A filter that no index serves reads a bounded number of calls. */
export async function listCalls(sql: Sql, orgId: string, filter: LogFilter): Promise<Bounded<CallLog>> {
  const { workspaceId, robotId, sessionId, since, limit } = filter;
  const isNamed = robotId !== undefined || sessionId !== undefined;
  const ids = within(sql, orgId, filter);
  // The oldest id within the organization's retention: the partition of an older one may still be there.
  const kept = sql`(select request_mark(now() - make_interval(days => coalesce(
    (select retention_days from org_settings where org_id = ${orgId}), 30))))`;
  // The indexes on robots and sessions are in the log.
  const window = requestsIn(
    sql,
    isNamed
      ? sql`select request_id from request_log where ${ids} and request_id >= ${kept}
          ${sessionId === undefined ? sql`` : sql`and session_id = ${sessionId}`}
          ${robotId === undefined ? sql`` : sql`and robot_id = ${robotId}`}`
      : sql`select * from request_outcome where ${ids}`,
  );
  const rows = await sql<CallRow[]>`
    select e.request_id, e.created, contract, key_id, key.workspace_id, key.user_id, batch_id, model, provider, offering_id, status,
      http_status, error_code, unit, units, cost_micro, hedge_cost_micro, wake_up_micro, simulated, byok, latency_ms, attempt_ms,
      queue_ms, input_bytes, session_id, l.robot_id, log
    from ${
      isNamed
        ? sql`(${newest(sql, window)}) as page join request_outcome as e on e.org_id = ${orgId} and e.request_id = page.request_id`
        : sql`(${newest(sql, window)}) as e`
    }
      join request_kind as k on k.id = e.kind left join key on key.id = key_id
      left join request_log as l on l.org_id = ${orgId} and l.request_id = e.request_id and l.request_id >= ${kept}
    where true ${ofKind(sql, filter.kind)} ${named(sql, filter)}
      ${filter.isDirect === true ? sql`and contract not in ('evaluate', 'batch') and batch_id = ''` : sql``}
      ${workspaceId === undefined ? sql`` : sql`and key.workspace_id = ${workspaceId}`}
      ${since === undefined ? sql`` : sql`and e.created >= ${new Date(since * 1000)}`}
    order by e.request_id desc limit ${limit}`;
  const calls = rows.map(({ created, attemptMs, log, ...row }) => ({
    ...row,
    ts: unixSeconds(created),
    log: detailsOf(log, attemptMs, row.offeringId),
  }));
  return boundedPage(sql, { rows: calls, limit, window });
}

/** Batch items have only the kind `batch`; previews are listed only on request. */
function ofKind(sql: Sql, kind: string | undefined) {
  if (kind === undefined) return sql`and contract <> 'preview'`;
  if (kind === "batch") return sql`and (contract = 'batch' or batch_id <> '')`;
  return sql`and contract = ${kind} and batch_id = ''`;
}

function named(sql: Sql, { status, httpStatus, model, provider }: LogFilter) {
  const same = (column: string, value: string | number | undefined) =>
    value === undefined ? sql`` : sql`and ${sql(column)} = ${value}`;
  return sql`${same("status", status)} ${same("http_status", httpStatus)} ${same("provider", provider)}
    ${model === undefined ? sql`` : sql`and (model = ${model} or (model = '' and log::json ->> 'model_requested' = ${model}))`}`;
}

interface CallRow extends Omit<CallLog, "ts" | "log"> {
  created: Date;
  attemptMs: number | null;
  log: string | null;
}

/** The details written at settlement, including a single attempt of which only the duration is stored. */
function detailsOf(log: string | null, attemptMs: number | null, offeringId: string): CallDetails | null {
  const details: CallDetails | null = log === null ? null : JSON.parse(log);
  if (attemptMs === null) return details;
  const attempts = [{ offering_id: offeringId, status: "ok", latency_ms: attemptMs }];
  return { ...details, attempts };
}

/** The prefixes of audit actions on supply and on money; all others are administration. */
const PREFIXES = {
  supply: ["offering.", "provider.", "circuit."],
  payment: ["payment.", "credits.", "commitment."],
} as const;

/** A query; all given filters must match. */
interface ActFilter extends Pick<LogFilter, "requestId" | "workspaceId" | "since" | "cursor" | "limit"> {
  kind: "supply" | "payment" | "admin";
  id?: string | undefined;
}

/** Lists administrative actions in an organization, or by the keys of one of its workspaces, newest first. Reads a bounded number of records. */
export async function listActs(
  sql: Sql,
  orgId: string,
  { kind, id, requestId, workspaceId, since, cursor, limit }: ActFilter,
): Promise<Bounded<ActLog>> {
  const known = [...PREFIXES.supply, ...PREFIXES.payment].map((prefix) => `${prefix}%`);
  const wanted = kind === "admin" ? [] : PREFIXES[kind].map((prefix) => `${prefix}%`);
  const window = {
    rows: sql`select id, seq, actor, action, subject, request_id, created from audit where org_id = ${orgId}
      ${id === undefined ? sql`` : sql`and id = ${id}`}
      ${cursor === undefined ? sql`` : sql`and seq < coalesce((select seq from audit where org_id = ${orgId} and id = ${cursor}), 0)`}`,
    order: sql`seq desc`,
    cursor: sql`id`,
  };
  const rows = await sql<(Omit<ActLog, "ts"> & { created: Date })[]>`
    select id, actor, action, subject, request_id, created from (${newest(sql, window)}) as e
    where ${kind === "admin" ? sql`action not like all (${known}::text[])` : sql`action like any (${wanted}::text[])`}
      ${requestId === undefined ? sql`` : sql`and request_id = ${requestId}`}
      ${workspaceId === undefined ? sql`` : sql`and actor in (select id from key where org_id = ${orgId} and workspace_id = ${workspaceId})`}
      ${since === undefined ? sql`` : sql`and created >= ${new Date(since * 1000)}`}
    order by seq desc limit ${limit}`;
  const acts = rows.map(({ created, ...row }) => ({ ...row, ts: unixSeconds(created) }));
  return boundedPage(sql, { rows: acts, limit, window });
}

// Plan digests, to which log records refer.

/** A digest, as JSON, with its id. */
interface DigestRecord {
  id: string;
  digest: object;
}

/** Stores digests, and marks known ones as still in use. */
export async function keepDigests(sql: Sql, digests: readonly DigestRecord[]): Promise<void> {
  const rows = digests.map(({ id, digest }) => ({ id, digest: JSON.stringify(digest) }));
  // The same order everywhere prevents deadlocks.
  rows.sort((a, b) => (a.id < b.id ? -1 : 1));
  await sql`
    insert into plan_digest (id, digest)
    select id, digest::jsonb from jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) as line (id text, digest text)
    on conflict (id) do update set used = excluded.used where plan_digest.used < excluded.used`;
}

/** A digest; undefined if it expired or is not written yet. */
export async function findDigest(sql: Queryable, id: string): Promise<object | undefined> {
  const [row] = await sql<{ digest: object }[]>`select digest from plan_digest where id = ${id}`;
  return row?.digest;
}

/** Deletes digests that no log record can refer to; returns their number. */
export async function pruneDigests(sql: Queryable): Promise<number> {
  const { count } = await sql`
    delete from plan_digest
    where used < current_date - 1 - (select greatest(coalesce(max(retention_days), 30), 30) from org_settings)`;
  return count;
}
