/** What the edge writes down of every call: one line when its answer is out. */
import type { CallTrail } from "../call.ts";
import { every, now } from "../clock.ts";

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
