/** What is reported of a call that ended, and the ids of its spans, which are known before the call ends, so that other spans can refer to them. */
import { hash } from "node:crypto";

/** One try at one offering. */
export interface EndedAttempt {
  readonly offeringId: string;
  readonly model: string;
  readonly provider: string;
  readonly status: "ok" | "error" | "cancelled";
  /** Why it failed, as the schema spells it. */
  readonly reason: string | undefined;
  readonly latencyMs: number;
}

/** A call that ended. */
export interface EndedCall {
  readonly orgId: string;
  readonly requestId: string;
  readonly keyId: string;
  readonly userId: string | undefined;
  readonly workspaceId: string | undefined;
  readonly sessionId: string | undefined;
  /** The caller's `traceparent`, unread. */
  readonly traceparent: string | undefined;
  readonly contract: string;
  readonly modelRequested: string;
  readonly model: string;
  readonly provider: string;
  readonly offeringId: string;
  readonly region: string | undefined;
  readonly httpStatus: number;
  /** The code of the refusal; undefined where it was answered. */
  readonly errorCode: string | undefined;
  readonly latencyMs: number;
  readonly attempts: readonly EndedAttempt[];
  readonly fallbackUsed: boolean;
  readonly hedged: boolean;
  readonly simulated: boolean;
  readonly units: number;
  readonly costMicro: number;
  readonly deadlineMs: number | undefined;
  readonly actionSpace: string | undefined;
  readonly dtMs: number | undefined;
  readonly streamId: string | undefined;
  readonly metadata: object | undefined;
}

/** Where a trace goes on. */
export interface TraceContext {
  readonly traceId: string;
  /** The caller's span; undefined where the trace begins here. */
  readonly parentId: string | undefined;
}

/** Source: https://www.w3.org/TR/trace-context/#traceparent-header. Of later versions only the part that this one has is read. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-|$)/;

/** The caller's trace, or one of the request's own where the caller sent none or a malformed one. */
export function traceOf(traceparent: string | undefined, requestId: string): TraceContext {
  const [, traceId, parentId] = TRACEPARENT.exec(traceparent ?? "") ?? [];
  return { traceId: traceId ?? digestOf(requestId).slice(0, 32), parentId };
}

/** The trace that a caller names; undefined where it names none that could be one. */
export const givenTraceOf = (traceparent: string): string | undefined => TRACEPARENT.exec(traceparent)?.[1];

/** The name of a span of a request: of its root, or of its `nth` try at an offering. */
export const spanIdOf = (requestId: string, role: "root" | "attempt" | "upstream", offeringId = "", nth = 0): string =>
  digestOf(`${requestId} ${role} ${offeringId} ${nth}`).slice(0, 16);

/** Where a session lies between 0 and 1; the same on every replica. A call without a session is its own. */
export function shareOf(session: string): number {
  return Number.parseInt(digestOf(session).slice(0, 8), 16) / 2 ** 32;
}

/** SHA-256 in hexadecimal. */
export const digestOf = (text: string): string => hash("sha256", text, "hex");

/** The value of the header by which a trace is handed on. */
export const traceparentOf = (traceId: string, spanId: string, sampled: boolean): string =>
  `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`;

/** What a caller sent, where it is a trace's; handed on as it is by a call that no target gets. */
export const passedOn = (traceparent: string | undefined): string | undefined =>
  traceparent !== undefined && TRACEPARENT.test(traceparent) ? traceparent : undefined;
