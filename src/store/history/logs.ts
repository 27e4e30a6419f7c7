/** The request log and the administrative actions of the audit log. Amounts are micro-dollars. */
import { type Queryable, type Sql, unixSeconds } from "../database/tx.ts";

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

/** Lists an organization's calls, newest first. Request ids sort by creation time. */
export async function listCalls(sql: Sql, orgId: string, filter: LogFilter): Promise<CallLog[]> {
  const { workspaceId, since, cursor, limit } = filter;
  const rows = await sql<CallRow[]>`
    select request_id, request.created, contract, key_id, key.workspace_id, key.user_id, batch_id, model, provider, offering_id, status,
      http_status, error_code, unit, units, cost_micro, hedge_cost_micro, wake_up_micro, simulated, byok, latency_ms, attempt_ms,
      queue_ms, input_bytes, session_id, request.robot_id, log
    from request left join key on key.id = key_id where request.org_id = ${orgId}
      ${ofKind(sql, filter.kind)} ${named(sql, filter)}
      ${workspaceId === undefined ? sql`` : sql`and key.workspace_id = ${workspaceId}`}
      ${since === undefined ? sql`` : sql`and request.created >= ${new Date(since * 1000)}`}
      ${cursor === undefined ? sql`` : sql`and request_id < ${cursor}`}
    order by request_id desc limit ${limit}`;
  return rows.map(({ created, attemptMs, log, ...row }) => ({
    ...row,
    ts: unixSeconds(created),
    log: detailsOf(log, attemptMs, row.offeringId),
  }));
}

/** Batch items have only the kind `batch`; previews are listed only on request. */
function ofKind(sql: Sql, kind: string | undefined) {
  if (kind === undefined) return sql`and contract <> 'preview'`;
  if (kind === "batch") return sql`and (contract = 'batch' or batch_id <> '')`;
  return sql`and contract = ${kind} and batch_id = ''`;
}

function named(sql: Sql, { requestId, status, httpStatus, robotId, sessionId, model, provider }: LogFilter) {
  const same = (column: string, value: string | number | undefined) =>
    value === undefined ? sql`` : sql`and ${sql(column)} = ${value}`;
  return sql`
    ${same("request_id", requestId)} ${same("status", status)} ${same("http_status", httpStatus)} ${same("provider", provider)}
    ${model === undefined ? sql`` : sql`and (model = ${model} or (model = '' and log::json ->> 'model_requested' = ${model}))`}
    ${same("session_id", sessionId)} ${same("request.robot_id", robotId)}`;
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

/** Lists administrative actions in an organization, or by the keys of one of its workspaces, newest first. */
export async function listActs(
  sql: Sql,
  orgId: string,
  { kind, id, requestId, workspaceId, since, cursor, limit }: ActFilter,
): Promise<ActLog[]> {
  const known = [...PREFIXES.supply, ...PREFIXES.payment].map((prefix) => `${prefix}%`);
  const wanted = kind === "admin" ? [] : PREFIXES[kind].map((prefix) => `${prefix}%`);
  const rows = await sql<(Omit<ActLog, "ts"> & { created: Date })[]>`
    select id, actor, action, subject, request_id, created from audit where org_id = ${orgId}
      ${requestId === undefined ? sql`` : sql`and request_id = ${requestId}`}
      ${id === undefined ? sql`` : sql`and id = ${id}`}
      and ${kind === "admin" ? sql`action not like all (${known}::text[])` : sql`action like any (${wanted}::text[])`}
      ${workspaceId === undefined ? sql`` : sql`and actor in (select id from key where org_id = ${orgId} and workspace_id = ${workspaceId})`}
      ${since === undefined ? sql`` : sql`and created >= ${new Date(since * 1000)}`}
      ${cursor === undefined ? sql`` : sql`and seq < coalesce((select seq from audit where org_id = ${orgId} and id = ${cursor}), 0)`}
    order by seq desc limit ${limit}`;
  return rows.map(({ created, ...row }) => ({ ...row, ts: unixSeconds(created) }));
}

/** The most rows that are stripped at once. */
const STRIPPED = 5_000;

/**
 * Strips call records that are older than their organization's log retention down to their costs, without sessions, attempts and caller
 * texts. A deleted organization retains none. Charges stay. Returns the number of stripped records.
 */
export async function forgetLogs(sql: Queryable): Promise<number> {
  for (let all = 0; ; ) {
    const { count } = await sql`
      update request_outcome set log = null, attempt_ms = null, session_id = null, robot_id = null
      where (org_id, request_id) in (
        select request_outcome.org_id, request_id
        from request_outcome left join org_settings using (org_id) left join org on org.id = request_outcome.org_id
        where coalesce(log, session_id, robot_id, attempt_ms::text) is not null
          and (request_outcome.created < now() - make_interval(days => coalesce(retention_days, 30)) or org.status = 'deleted')
        limit ${STRIPPED})`;
    all += count;
    if (count < STRIPPED) return all;
  }
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
