/** What the edge writes down of every call: one line when its answer is out. */
import type { JsonObject, Message } from "@bufbuild/protobuf";
import type { Preference } from "../../gen/limber/v1/preferences_pb.ts";
import type { CallTrail, KeyPrincipal } from "../call.ts";
import { every, now, steadyNow } from "../clock.ts";
import { givenTraceOf } from "../events/spans.ts";
import { preferenceWord, refuseLargeMetadata, robotIn, robotOf } from "../inference/call.ts";
import type { RequestRecord } from "../store/billing/ledger.ts";

/** The transport that a call came in by. */
export type Transport = "rest" | "connect" | "grpc" | "grpc-web" | "openpi" | "gr00t" | "mcp";

/** One answered call. No field carries a secret, a body or a header of the caller but its own request id. */
export interface LogLine {
  requestId: string;
  transport: Transport;
  /** The RPC, such as `limber.v1.InferenceService/Act`. */
  rpc: string;
  /** The HTTP status that the answer has over REST. */
  status: number;
  /** The word of the refusal; absent on success. */
  code?: string | undefined;
  /** Whose call it was; absent when it was not admitted, or needs no key. */
  keyId?: string | undefined;
  latencyMs: number;
  /** The id that the caller gave the request. */
  callerRequestId?: string | undefined;
  /** What is known of the call; none of it is written down here. */
  trail?: CallTrail | undefined;
  /** What was thrown, for refusals with a cause and for bugs. */
  cause?: unknown;
  /** Why it was refused, where an operator has to help; any text. */
  why?: string | undefined;
}

/** Takes the lines of the edge. */
export type CallLog = (line: LogLine) => void;

const SANE_ID = /^[\w.:-]{1,128}$/;

/** The caller's own id of a request, when it is fit for a log. */
export function callerIdOf(header: string | readonly string[] | null | undefined): string | undefined {
  return typeof header === "string" && SANE_ID.test(header) ? header : undefined;
}

/** Milliseconds to the microsecond, as text: whole numbers are written for a fraction of the price of what has seventeen digits. */
function toMicros(ms: number): string {
  const micros = Math.round(ms * 1000);
  const whole = Math.floor(micros / 1000);
  const rest = micros - whole * 1000;
  return rest === 0 ? `${whole}` : `${whole}.${rest < 10 ? "00" : rest < 100 ? "0" : ""}${rest}`;
}

/** The level of these lines, as pino numbers it. */
const INFO = 30;
const GATHERED_CHARACTERS = 16_000;
const FLUSH_MS = 200;

/**
 * Writes answered calls as lines of JSON, in the form that the rest of the log has, many with one write: a line by hand costs a
 * tenth of what a logger takes for any object.
 */
export class CallLines {
  readonly #write: (text: string) => void;
  readonly #tail: string;
  readonly #rest: () => void;
  #gathered = "";

  /** `process` names this process on every line, such as by its id and its host. */
  constructor(write: (text: string) => void, process: object) {
    this.#write = write;
    this.#tail = `,${JSON.stringify(process).slice(1, -1)},"msg":"call"}\n`;
    this.#rest = every(FLUSH_MS, () => this.flush());
  }

  /** Takes a line without a cause. */
  add({ requestId, transport, rpc, status, code, keyId, latencyMs, callerRequestId, why }: LogLine): void {
    // No other string holds a letter that JSON would escape: they are ours, or were found fit by `callerIdOf`.
    this.#gathered +=
      `{"level":${INFO},"time":${now()},"requestId":"${requestId}","transport":"${transport}","rpc":"${rpc}","status":${status},` +
      (code === undefined ? "" : `"code":"${code}",`) +
      (why === undefined ? "" : `"why":${JSON.stringify(why)},`) +
      (keyId === undefined ? "" : `"keyId":"${keyId}",`) +
      (callerRequestId === undefined ? "" : `"callerRequestId":"${callerRequestId}",`) +
      `"latencyMs":${toMicros(latencyMs)}${this.#tail}`;
    if (this.#gathered.length >= GATHERED_CHARACTERS) this.flush();
  }

  /** Writes what was gathered. */
  flush(): void {
    const text = this.#gathered;
    this.#gathered = "";
    if (text !== "") this.#write(text);
  }

  /** Writes the last lines, and takes no more. */
  close(): void {
    this.#rest();
    this.flush();
  }
}

/** The RPCs whose calls the log is about, and what it calls them. */
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
 * The caller left, asks again for a call that still runs, or the gateway takes no calls: to write that down would cost what refusing saves.
 */
const UNTOLD = new Set([
  "client_closed_request",
  "idempotency_in_progress",
  "overloaded",
  "not_ready",
  "store_unavailable",
  "internal_error",
]);

/** The refused calls of one organization that are recorded: per second, and at once. */
const PER_SECOND = 10;
const AT_ONCE = 100;
/** The number of organizations whose share is remembered. */
const MOST_ORGS = 10_000;
/** Longer names are no model and no preset. */
const LONGEST_WORD = 256;

interface RecordShare {
  left: number;
  at: number;
}

/** Puts refused calls on record, a bounded number per organization. */
export class RefusedCalls {
  readonly #note: (record: RequestRecord) => void;
  readonly #shares = new Map<string, RecordShare>();

  /** `note` takes a record, and never throws. */
  constructor(note: (record: RequestRecord) => void) {
    this.#note = note;
  }

  /** Takes the end of any call. */
  take({ requestId, rpc, status, code, latencyMs, trail }: LogLine): void {
    const contract = CONTRACTS[rpc];
    if (contract === undefined || trail?.principal === undefined || trail.isBilled) return;
    const { principal, inputBytes, batchId } = trail;
    const isPreviewed = contract === "preview" && code === undefined;
    if (!isPreviewed && (code === undefined || status === 401 || UNTOLD.has(code))) return;
    if (!this.#hasRoom(principal.orgId)) return;
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
      ...askedIn(trail, principal),
    });
  }

  #hasRoom(orgId: string): boolean {
    const at = steadyNow();
    const share = this.#shares.get(orgId) ?? { left: AT_ONCE, at };
    share.left = Math.min(AT_ONCE, share.left + ((at - share.at) / 1000) * PER_SECOND);
    share.at = at;
    // The latest stand last.
    this.#shares.delete(orgId);
    this.#shares.set(orgId, share);
    if (this.#shares.size > MOST_ORGS) this.#shares.delete(this.#shares.keys().next().value!);
    if (share.left < 1) return false;
    share.left -= 1;
    return true;
  }
}

/** The fields that requests of models have, as far as one has them. */
interface AskedFields {
  readonly model?: string;
  readonly preset?: string;
  readonly preference?: Preference;
  readonly robotId?: string;
  readonly metadata?: JsonObject;
  readonly provider?: { readonly sessionId?: string; readonly deadlineMs?: number };
}

/** What the log has of a request; its fields may break rules of the schema. Where no data is retained, nothing of the caller's own words. */
function askedIn(
  { request, traceparent, plan }: CallTrail,
  principal: KeyPrincipal,
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
    log: { ...known, metadata: isSmall(metadata) ? metadata : undefined },
  };
}

/** The request inside: of a preview, of a control loop. */
function fieldsOf(request: Message | undefined): AskedFields {
  // Which of them a message has depends on its RPC; every field is looked at before it is used.
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
