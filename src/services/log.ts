/** The log of calls, and the audit log. */
import { create, type JsonObject } from "@bufbuild/protobuf";
import { LogKind, type LogRecord, LogRecordSchema } from "../../gen/limber/v1/log_pb.ts";
import {
  ExportLogsResponseSchema,
  ListLogsResponseSchema,
  type LogService,
} from "../../gen/limber/v1/log_service_pb.ts";
import { toUsd } from "../billing/price.ts";
import { type Implementation, keyOf } from "../call.ts";
import { nowSeconds } from "../clock.ts";
import type { Sql } from "../store/database/tx.ts";
import { type ActLog, type CallLog, listActs, listCalls } from "../store/events/logs.ts";
import { readPage } from "./pages.ts";
import { confinedTo, workspaceFor } from "./workspace-reach.ts";

const DEFAULT_PAGE = 100;
/** Records of an export that are read from the database at one time. */
const EXPORT_PAGE = 500;

/** The contracts that a kind means; undefined: those of calls, all of them. */
const CONTRACTS = {
  [LogKind.UNSPECIFIED]: undefined,
  [LogKind.PREDICT]: "predict",
  [LogKind.ACT]: "act",
  [LogKind.GROUND]: "ground",
  [LogKind.EVALUATE]: "evaluate",
} as const;

const ACTS = { [LogKind.SUPPLY]: "supply", [LogKind.PAYMENT]: "payment", [LogKind.ADMIN]: "admin" } as const;

interface LogQuery {
  kind: LogKind;
  workspaceId: string | undefined;
  requestId?: string | undefined;
  since: number | undefined;
  cursor: string | undefined;
  limit: number;
}

/** The log RPCs. */
export function logService({ sql }: { sql: Sql }): Implementation<typeof LogService> {
  const read = async (orgId: string, { kind, ...filter }: LogQuery): Promise<LogRecord[]> => {
    if (kind in ACTS) {
      const acts = await listActs(sql, orgId, { ...filter, kind: ACTS[kind as keyof typeof ACTS] });
      return acts.map((act) => recordOfAct(orgId, kind, act));
    }
    const contract = CONTRACTS[kind as keyof typeof CONTRACTS];
    return (await listCalls(sql, orgId, { ...filter, contract })).map((call) => recordOfCall(orgId, call));
  };
  const sinceOf = (minutes: number | undefined): number | undefined =>
    minutes === undefined ? undefined : nowSeconds() - 60 * minutes;

  return {
    async listLogs({ kind = LogKind.UNSPECIFIED, sinceMinutes, limit = DEFAULT_PAGE, ...asked }, call) {
      const { workspaceId, requestId, cursor } = asked;
      const since = sinceOf(sinceMinutes);
      const whose = workspaceFor(call, workspaceId, "the log");
      const { orgId } = keyOf(call);
      const { records, ...page } = await readPage(
        limit,
        (most) => read(orgId, { kind, workspaceId: whose, requestId, since, cursor, limit: most }),
        ({ id }) => id,
      );
      return create(ListLogsResponseSchema, { ...page, data: records });
    },

    async *exportLogs({ kind = LogKind.UNSPECIFIED, sinceMinutes }, call) {
      const since = sinceOf(sinceMinutes);
      let cursor: string | undefined;
      for (;;) {
        call.signal.throwIfAborted();
        const records = await read(keyOf(call).orgId, {
          kind,
          workspaceId: confinedTo(call),
          since,
          cursor,
          limit: EXPORT_PAGE,
        });
        for (const record of records) yield create(ExportLogsResponseSchema, { record });
        if (records.length < EXPORT_PAGE) return;
        cursor = records.at(-1)?.id;
      }
    },
  };
}

const KINDS: Readonly<Record<string, LogKind>> = {
  predict: LogKind.PREDICT,
  act: LogKind.ACT,
  ground: LogKind.GROUND,
  evaluate: LogKind.EVALUATE,
};

function recordOfCall(orgId: string, call: CallLog): LogRecord {
  const log = call.log ?? {};
  return create(LogRecordSchema, {
    id: call.requestId,
    ts: call.ts,
    kind: KINDS[call.contract] ?? LogKind.UNSPECIFIED,
    orgId,
    keyId: call.keyId,
    requestId: call.requestId,
    model: call.model,
    provider: call.provider,
    offeringId: call.offeringId,
    status: call.status,
    attempts: (log.attempts ?? []).map(({ offering_id, status = "", reason, latency_ms }) => ({
      offeringId: offering_id,
      status,
      latencyMs: latency_ms,
      ...(reason !== undefined && { reason }),
    })),
    fallbackUsed: log.fallback_used ?? false,
    hedged: call.hedgeCostMicro !== null,
    simulated: call.simulated,
    byok: call.byok,
    unit: call.unit,
    units: call.units,
    costUsd: toUsd(call.costMicro),
    ...present({
      workspaceId: call.workspaceId,
      sessionId: log.session_id,
      modelRequested: log.model_requested,
      region: log.region,
      precision: log.precision,
      httpStatus: call.httpStatus,
      errorCode: call.errorCode,
      latencyMs: call.latencyMs,
      preset: log.preset,
      deadlineMs: log.deadline_ms,
      streamId: log.stream_id,
      metadata: log.metadata as JsonObject | undefined,
      hedgeCostUsd: call.hedgeCostMicro === null ? null : toUsd(call.hedgeCostMicro),
    }),
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

/** The fields that are there. */
function present<T extends object>(fields: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined)) as {
    [K in keyof T]?: NonNullable<T[K]>;
  };
}
