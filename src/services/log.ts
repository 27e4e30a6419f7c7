/** The request log and the audit log. */
import { create, type JsonObject } from "@bufbuild/protobuf";
import {
  LoggedOfferingSchema,
  type LoggedPlan,
  LoggedPlanSchema,
  LogKind,
  type LogRecord,
  LogRecordSchema,
} from "../../gen/limber/v1/log_pb.ts";
import {
  ExportLogsResponseSchema,
  GetLogResponseSchema,
  type ListLogsRequest,
  ListLogsResponseSchema,
  type LogService,
} from "../../gen/limber/v1/log_service_pb.ts";
import { toUsd } from "../billing/price.ts";
import { type Call, type Implementation, keyOf } from "../call.ts";
import { nowSeconds } from "../clock.ts";
import { Reason, refuse } from "../errors.ts";
import { traceOf } from "../events/spans.ts";
import type { PlanDigest } from "../routing/index.ts";
import type { Sql } from "../store/database/tx.ts";
import { archivedUntil, isArchived } from "../store/history/archive.ts";
import { type ActLog, type CallLog, findDigest, type LogFilter, listActs, listCalls } from "../store/history/logs.ts";
import { type Found, readPage } from "./pages.ts";
import { quantilesOf } from "./quantiles.ts";
import { confinedTo, robotFor, robotOf, workspaceFor } from "./reach.ts";

const DEFAULT_PAGE = 100;
/** Records per database read of an export. */
const EXPORT_PAGE = 500;

/** The store's kinds of calls; undefined means all. */
const CALLS = {
  [LogKind.UNSPECIFIED]: undefined,
  [LogKind.PREDICT]: "predict",
  [LogKind.ACT]: "act",
  [LogKind.GROUND]: "ground",
  [LogKind.EVALUATE]: "evaluate",
  [LogKind.BATCH]: "batch",
  [LogKind.PREVIEW]: "preview",
} as const;

const ACTS = { [LogKind.SUPPLY]: "supply", [LogKind.PAYMENT]: "payment", [LogKind.ADMIN]: "admin" } as const;

const ACT_KINDS = [LogKind.SUPPLY, LogKind.PAYMENT, LogKind.ADMIN] as const;

/** Filters of lists and exports. */
type LogRequest = Pick<
  ListLogsRequest,
  | "status"
  | "httpStatus"
  | "robotId"
  | "sessionId"
  | "model"
  | "provider"
  | "requestId"
  | "kind"
  | "sinceMinutes"
  | "direct"
>;

interface LogQuery extends Omit<LogFilter, "kind"> {
  kind: LogKind;
}

/** Dependencies of the log. */
export interface LogDeps {
  sql: Sql;
  /** Resolves once the calls that this replica finished so far are recorded. */
  caughtUp(): Promise<unknown>;
}

/** The log RPCs. */
export function logService({ sql, caughtUp }: LogDeps): Implementation<typeof LogService> {
  const read = async (orgId: string, { kind, ...filter }: LogQuery): Promise<Found<LogRecord>> => {
    if (kind in ACTS) {
      if (isOfCalls(filter)) return { rows: [], until: undefined };
      const { rows, until } = await listActs(sql, orgId, { ...filter, kind: ACTS[kind as keyof typeof ACTS] });
      return { rows: rows.map((act) => recordOfAct(orgId, kind, act)), until };
    }
    const { rows, until } = await listCalls(sql, orgId, { ...filter, kind: CALLS[kind as keyof typeof CALLS] });
    return { rows: rows.map((call) => recordOfCall(orgId, call)), until };
  };

  return {
    async getLog({ logId }, call) {
      const { orgId } = keyOf(call);
      const workspaceId = confinedTo(call);
      await caughtUp();
      const one = { id: logId, workspaceId, limit: 1 };
      const found = ACT_ID.test(logId)
        ? ACT_KINDS.map(async (kind) => {
            const [act] = (await listActs(sql, orgId, { ...one, kind: ACTS[kind] })).rows;
            return act && recordOfAct(orgId, kind, act);
          })
        : ([undefined, "preview"] as const).map(async (kind) => {
            const { rows } = await listCalls(sql, orgId, { ...one, kind, requestId: requestOf(logId) });
            const [made] = rows;
            if (made === undefined) return undefined;
            const plan = await planOf(sql, made);
            return { ...recordOfCall(orgId, made), ...(plan && { plan }) };
          });
      const record = (await Promise.all(found)).find((each) => each !== undefined);
      const ownRobot = robotOf(call);
      if (!record || (ownRobot !== undefined && record.robotId !== ownRobot)) {
        const gone = (await isArchived(sql, orgId, requestOf(logId)))
          ? "the records of this month are in the operator's archive"
          : "record not found";
        throw refuse(Reason.NOT_FOUND, gone, {}, { param: "log_id" });
      }
      return create(GetLogResponseSchema, { record });
    },

    async listLogs({ workspaceId, limit = DEFAULT_PAGE, cursor, ...asked }, call) {
      const filter = { ...filterOf(asked), ...reachOf(call, { workspaceId, robotId: asked.robotId }) };
      const { orgId } = keyOf(call);
      await caughtUp();
      const { records, ...page } = await readPage(
        limit,
        (most) => read(orgId, { ...filter, cursor, limit: most }),
        ({ id }) => id,
      );
      const archived = page.hasMore || filter.kind in ACTS ? undefined : await archivedUntil(sql, orgId, filter.since);
      return create(ListLogsResponseSchema, {
        ...page,
        data: records,
        ...(archived !== undefined && { archivedUntil: archived }),
      });
    },

    async *exportLogs({ workspaceId, cursor: after, ...asked }, call) {
      const filter = { ...filterOf(asked), ...reachOf(call, { workspaceId, robotId: asked.robotId }) };
      let cursor = after;
      await caughtUp();
      for (;;) {
        call.signal.throwIfAborted();
        const { rows, until } = await read(keyOf(call).orgId, { ...filter, cursor, limit: EXPORT_PAGE });
        for (const record of rows) yield create(ExportLogsResponseSchema, { record });
        cursor = rows.length < EXPORT_PAGE ? until : rows.at(-1)?.id;
        if (cursor === undefined) return;
      }
    },
  };
}

/** The workspace and the robot whose records a caller reads. */
const reachOf = (
  call: Call,
  { workspaceId, robotId }: { workspaceId?: string | undefined; robotId?: string | undefined },
) => ({
  workspaceId: workspaceFor(call, workspaceId, "the log"),
  robotId: robotFor(call, robotId, "log"),
});

const ACT_ID = /^aud_/;

/** The request that an id derives from: the ids of a call share its letters; those of a loop's chunks append a number. */
const requestOf = (id: string): string => `req${id.replace(/-\d+$/, "").slice(Math.max(0, id.indexOf("_")))}`;

const filterOf = ({
  kind = LogKind.UNSPECIFIED,
  sinceMinutes,
  status,
  httpStatus,
  robotId,
  sessionId,
  model,
  provider,
  requestId,
  direct,
}: LogRequest) => ({
  kind,
  since: sinceMinutes === undefined ? undefined : nowSeconds() - 60 * sinceMinutes,
  status,
  httpStatus,
  robotId,
  sessionId,
  model,
  provider,
  requestId,
  isDirect: direct,
});

/** Whether a filter can match calls only, never administrative acts. */
const isOfCalls = ({ status = "done", httpStatus, robotId, sessionId, model, provider }: Omit<LogFilter, "kind">) =>
  status !== "done" || [httpStatus, robotId, sessionId, model, provider].some((each) => each !== undefined);

const KINDS: Readonly<Record<string, LogKind>> = {
  predict: LogKind.PREDICT,
  act: LogKind.ACT,
  ground: LogKind.GROUND,
  evaluate: LogKind.EVALUATE,
  batch: LogKind.BATCH,
  preview: LogKind.PREVIEW,
};

/** The chunks of a segment and the ages of their observations; nothing for other calls. */
function agesOf(ages: Readonly<Record<string, number>> | undefined) {
  if (ages === undefined) return {};
  const { count, p50, p99 } = quantilesOf(Object.entries(ages));
  return { chunks: count, ...present({ ageP50Ms: p50, ageP99Ms: p99 }) };
}

function recordOfCall(orgId: string, call: CallLog): LogRecord {
  const log = call.log ?? {};
  const attempts = log.attempts ?? [];
  const answered = attempts.find(({ status, offering_id }) => status === "ok" && offering_id === call.offeringId);
  // From its arrival; an interval of a control loop has many chunks.
  const tookMs =
    log.stream_id === undefined && call.latencyMs !== null ? (call.queueMs ?? 0) + call.latencyMs : undefined;
  const isOver = log.deadline_ms !== undefined && tookMs !== undefined && tookMs > log.deadline_ms;
  return create(LogRecordSchema, {
    id: call.requestId,
    ts: call.ts,
    kind: call.batchId === "" ? (KINDS[call.contract] ?? LogKind.UNSPECIFIED) : LogKind.BATCH,
    orgId,
    keyId: call.keyId,
    requestId: call.requestId,
    status: call.status,
    attempts: attempts.map(({ offering_id, status = "", reason, latency_ms, count }) => ({
      offeringId: offering_id,
      status,
      latencyMs: latency_ms,
      ...(reason !== undefined && { reason }),
      ...(count !== undefined && { count }),
    })),
    fallbackUsed: log.fallback_used ?? false,
    hedged: call.hedgeCostMicro !== null,
    simulated: call.simulated,
    byok: call.byok,
    costUsd: toUsd(call.costMicro),
    coldStart: call.wakeUpMicro > 0,
    deadlineMissed: call.errorCode === "deadline_exceeded" || isOver,
    preview: call.contract === "preview",
    holds: log.holds ?? {},
    ...agesOf(log.ages),
    traceId: log.trace_id ?? traceOf(undefined, call.requestId).traceId,
    ...present({
      model: call.model || undefined,
      provider: call.provider || undefined,
      offeringId: call.offeringId || undefined,
      unit: call.unit || undefined,
      units: call.unit === "" ? undefined : call.units,
      workspaceId: call.workspaceId,
      userId: call.userId,
      robotId: call.robotId,
      sessionId: call.sessionId,
      modelRequested: log.model_requested,
      region: log.region,
      precision: log.precision,
      httpStatus: call.httpStatus,
      errorCode: call.errorCode,
      errorMessage: log.message,
      latencyMs: call.latencyMs,
      queueMs: call.queueMs,
      upstreamMs: answered?.latency_ms,
      gpuSeconds: log.gpu_seconds,
      inputBytes: call.inputBytes,
      observationAgeMs: call.contract === "act" && call.status === "settled" ? tookMs : undefined,
      preset: log.preset,
      preference: log.preference,
      contract: call.contract === "batch" || call.contract === "preview" ? undefined : call.contract,
      batchId: call.batchId || undefined,
      deadlineMs: log.deadline_ms,
      streamId: log.stream_id,
      metadata: log.metadata as JsonObject | undefined,
      hedgeCostUsd: call.hedgeCostMicro === null ? null : toUsd(call.hedgeCostMicro),
    }),
  });
}

/** An offering of a plan with too many offerings to store all. */
interface NamedOnly {
  readonly offering_id: string;
}

/** The stored part of a call's plan. */
async function planOf(sql: Sql, { log }: CallLog): Promise<LoggedPlan | undefined> {
  if (log?.plan === undefined) return undefined;
  // Written only by `keepDigests`.
  const digest = (await findDigest(sql, log.plan)) as PlanDigest | undefined;
  if (digest === undefined) return undefined;
  const ranked = (log.ranks ?? "").split(" ").filter((rank) => rank !== "");
  const offeringOf = ({ offering_id: offeringId, ...more }: PlanDigest["dropped"][number] | NamedOnly) =>
    create(LoggedOfferingSchema, { offeringId, ...more });
  return create(LoggedPlanSchema, {
    considered: digest.considered,
    ranks: ranked.map((rank) => offeringOf(digest.able[Number(rank)] ?? { offering_id: rank })),
    drops: { ...digest.drops },
    dropped: digest.dropped.map(offeringOf),
  });
}

const recordOfAct = (orgId: string, kind: LogKind, act: ActLog): LogRecord =>
  create(LogRecordSchema, {
    id: act.id,
    ts: act.ts,
    kind,
    orgId,
    keyId: act.actor,
    requestId: act.requestId ?? "",
    status: "done",
    action: act.action,
    subject: act.subject,
  });

/** The fields that are present. */
function present<T extends object>(fields: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined)) as {
    [K in keyof T]?: NonNullable<T[K]>;
  };
}
