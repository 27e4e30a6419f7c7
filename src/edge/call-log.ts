/** The access log: one line per call when its response is sent. */
import type { JsonObject, Message } from "@bufbuild/protobuf";
import type { Preference } from "../../gen/limber/v1/preferences_pb.ts";
import type { CallTrail, KeyPrincipal } from "../call.ts";
import { every, now, steadyNow } from "../clock.ts";
import { loggedMessage } from "../errors.ts";
import { givenTraceOf } from "../events/spans.ts";
import { preferenceWord, refuseLargeMetadata, robotIn, robotOf } from "../inference/call.ts";
import type { RequestRecord } from "../store/billing/ledger.ts";

/** The transport of a call. */
export type Transport = "rest" | "connect" | "grpc" | "grpc-web" | "openpi" | "gr00t" | "mcp";

/** One completed call. No field contains a secret, a body, or a caller's header except its own request id. */
export interface LogLine {
  requestId: string;
  transport: Transport;
  /** The RPC, such as `limber.v1.InferenceService/Act`. */
  rpc: string;
  /** The HTTP status of the response over REST. */
  status: number;
  /** The reason code; absent on success. */
  code?: string | undefined;
  /** The refusal's message, as the caller received it; stored in the request log, not written here. */
  message?: string | undefined;
  /** The caller; absent if it was not admitted, or needs no key. */
  keyId?: string | undefined;
  latencyMs: number;
  /** The caller's own id of the request. */
  callerRequestId?: string | undefined;
  /** Facts of the call; not logged here. */
  trail?: CallTrail | undefined;
  /** The thrown error, for refusals with a cause and for bugs. */
  cause?: unknown;
  /** The cause for the operator, if one must act; any text. */
  why?: string | undefined;
}

/** Receives completed calls. */
export type CallLog = (line: LogLine) => void;

const SANE_ID = /^[\w.:-]{1,128}$/;

/** The caller's own request id, if it is safe to log. */
export function callerIdOf(header: string | readonly string[] | null | undefined): string | undefined {
  return typeof header === "string" && SANE_ID.test(header) ? header : undefined;
}

/** Milliseconds with three decimals, as text: integers are formatted at a fraction of the cost of 17 digits. */
function toMicros(ms: number): string {
  const micros = Math.round(ms * 1000);
  const whole = Math.floor(micros / 1000);
  const rest = micros - whole * 1000;
  return rest === 0 ? `${whole}` : `${whole}.${rest < 10 ? "00" : rest < 100 ? "0" : ""}${rest}`;
}

/** Pino's number for the level of these lines. */
const INFO = 30;
const GATHERED_CHARACTERS = 16_000;
const FLUSH_MS = 200;

/**
 * Writes completed calls as JSON lines in the format of the other log lines, many per write. A handwritten line costs a tenth of a generic
 * logger's.
 */
export class CallLines {
  readonly #write: (text: string) => void;
  readonly #tail: string;
  readonly #rest: () => void;
  #gathered = "";

  /** `process` identifies this process on every line, such as by its pid and host name. */
  constructor(write: (text: string) => void, process: object) {
    this.#write = write;
    this.#tail = `,${JSON.stringify(process).slice(1, -1)},"msg":"call"}\n`;
    this.#rest = every(FLUSH_MS, () => this.flush());
  }

  /** Logs a call without a cause. */
  add({ requestId, transport, rpc, status, code, keyId, latencyMs, callerRequestId, why }: LogLine): void {
    // No other string needs JSON escapes: they are our own, or were validated by `callerIdOf`.
    this.#gathered +=
      `{"level":${INFO},"time":${now()},"requestId":"${requestId}","transport":"${transport}","rpc":"${rpc}","status":${status},` +
      (code === undefined ? "" : `"code":"${code}",`) +
      (why === undefined ? "" : `"why":${JSON.stringify(why)},`) +
      (keyId === undefined ? "" : `"keyId":"${keyId}",`) +
      (callerRequestId === undefined ? "" : `"callerRequestId":"${callerRequestId}",`) +
      `"latencyMs":${toMicros(latencyMs)}${this.#tail}`;
    if (this.#gathered.length >= GATHERED_CHARACTERS) this.flush();
  }

  /** Writes the buffered lines. */
  flush(): void {
    const text = this.#gathered;
    this.#gathered = "";
    if (text !== "") this.#write(text);
  }

  /** Writes the last lines, and accepts no more. */
  close(): void {
    this.#rest();
    this.flush();
  }
}

/** The RPCs in the request log, and their names there. */
const CONTRACTS: Readonly<Record<string, string>> = {
  "limber.v1.InferenceService/Act": "act",
  "limber.v1.InferenceService/ActStream": "act",
  "limber.v1.InferenceService/Predict": "predict",
  "limber.v1.InferenceService/PredictStream": "predict",
  "limber.v1.InferenceService/Ground": "ground",
  "limber.v1.InferenceService/PreviewRoutes": "preview",
  "limber.v1.EvaluationService/Evaluate": "evaluate",
  "limber.v1.JobService/CreateBatch": "batch",
};

/**
 * Refusals that are not recorded: the caller disconnected, repeated a running call, or the gateway accepts no calls. Recording them would cost
 * what refusing saves.
 */
const UNTOLD = new Set([
  "client_closed_request",
  "idempotency_in_progress",
  "overloaded",
  "not_ready",
  "store_unavailable",
  "internal_error",
]);

/** The recorded refusals of one organization: per second, and burst. */
const PER_SECOND = 10;
const AT_ONCE = 100;
/** The number of organizations whose rate is tracked. */
const MOST_ORGS = 10_000;
/** Longer names cannot be models or presets. */
const LONGEST_WORD = 256;

interface RecordShare {
  left: number;
  at: number;
}

/** Records refused calls in the request log, at a bounded rate per organization. */
export class RefusedCalls {
  readonly #note: (record: RequestRecord) => void;
  readonly #shares = new Map<string, RecordShare>();

  /** `note` receives a record, and never throws. */
  constructor(note: (record: RequestRecord) => void) {
    this.#note = note;
  }

  /** Receives the end of any call. */
  take({ requestId, rpc, status, code, message, latencyMs, trail }: LogLine): void {
    const contract = CONTRACTS[rpc];
    if (contract === undefined || trail?.principal === undefined || trail.recordedBy !== undefined) return;
    const { principal, inputBytes, batchId } = trail;
    const isPreviewed = contract === "preview" && code === undefined;
    if (!isPreviewed && (code === undefined || status === 401 || UNTOLD.has(code))) return;
    if (!this.#hasRoom(principal.orgId)) return;
    trail.recordedBy = "log";
    this.#note({
      orgId: principal.orgId,
      keyId: principal.keyId,
      requestId,
      contract,
      model: "",
      provider: "",
      offeringId: "",
      unit: "",
      status: isPreviewed ? "done" : "failed",
      units: 0,
      costMicro: 0,
      wakeUpMicro: 0,
      hedgeCostMicro: null,
      simulated: false,
      byok: false,
      httpStatus: status,
      errorCode: code ?? null,
      latencyMs: Math.round(latencyMs * 1000) / 1000,
      inputBytes,
      batchId,
      ...askedIn(trail, principal, message),
    });
  }

  #hasRoom(orgId: string): boolean {
    const at = steadyNow();
    const share = this.#shares.get(orgId) ?? { left: AT_ONCE, at };
    share.left = Math.min(AT_ONCE, share.left + ((at - share.at) / 1000) * PER_SECOND);
    share.at = at;
    // The most recent ones are last.
    this.#shares.delete(orgId);
    this.#shares.set(orgId, share);
    if (this.#shares.size > MOST_ORGS) this.#shares.delete(this.#shares.keys().next().value!);
    if (share.left < 1) return false;
    share.left -= 1;
    return true;
  }
}

/** The common fields of model requests, as far as present. */
interface AskedFields {
  readonly model?: string;
  readonly preset?: string;
  readonly preference?: Preference;
  readonly robotId?: string;
  readonly metadata?: JsonObject;
  readonly provider?: { readonly sessionId?: string; readonly deadlineMs?: number };
}

/** The request's fields in the log, which may be invalid. With zero data retention, none of the caller's texts. */
function askedIn(
  { request, traceparent, plan }: CallTrail,
  principal: KeyPrincipal,
  message: string | undefined,
): Pick<RequestRecord, "sessionId" | "robotId" | "log"> {
  const { model, preset, preference, robotId, metadata, provider } = fieldsOf(request);
  const { zdr } = principal.settings;
  const known = {
    model_requested: wordOf(model),
    preset: wordOf(preset),
    preference: preferenceWord(preference),
    deadline_ms: provider?.deadlineMs,
    trace_id: traceparent === undefined ? undefined : givenTraceOf(traceparent),
    plan: plan?.id,
    ranks: plan?.ranks || undefined,
  };
  if (zdr) return { robotId: principal.robotId, log: known };
  return {
    robotId: robotOf(principal, robotId ?? robotIn(metadata)),
    sessionId: wordOf(provider?.sessionId),
    log: { ...known, metadata: isSmall(metadata) ? metadata : undefined, message: loggedMessage(message) },
  };
}

/** The inner request of a preview or a control loop. */
function fieldsOf(request: Message | undefined): AskedFields {
  // Which of them a message has depends on its RPC; each is checked before use.
  const outer = (request ?? {}) as { request?: AskedFields; message?: { case?: string; value?: AskedFields } };
  if (outer.message?.case === "open") return outer.message.value ?? {};
  return outer.request ?? (outer as AskedFields);
}

const wordOf = (word: string | undefined): string | undefined =>
  word === undefined || word === "" || word.length > LONGEST_WORD ? undefined : word;

function isSmall(metadata: JsonObject | undefined): boolean {
  try {
    refuseLargeMetadata(metadata);
    return true;
  } catch {
    return false;
  }
}
