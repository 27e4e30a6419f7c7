/** The spans of a call: `gateway.<contract>`, with a child for each attempt, each with a child `upstream`. */

import { hash } from "node:crypto";
import { type Attributes, type HrTime, SpanKind, SpanStatusCode, TraceFlags } from "@opentelemetry/api";
import { type Resource, resourceFromAttributes } from "@opentelemetry/resources";
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import { API_VERSION, BRAND } from "../brand.ts";
import { now } from "../clock.ts";
import { newId } from "../ids.ts";
import type { TargetRecord } from "../store/events/broadcast.ts";

const SCOPE = { name: BRAND, version: API_VERSION };

/** The resource of a target's spans: this gateway, and the target's own attributes. */
export const resourceOf = ({ resourceAttributes }: Pick<TargetRecord, "resourceAttributes">): Resource =>
  resourceFromAttributes({ "service.name": BRAND, "service.version": API_VERSION, ...resourceAttributes });

/** The spans of a call for a target, root first. `endedAt` is Unix time in milliseconds. */
export function spansOf(call: EndedCall, resource: Resource, privacy: boolean, endedAt: number): ReadableSpan[] {
  const { requestId } = call;
  const { traceId, parentId } = traceOf(call.traceparent, requestId);
  const startedAt = endedAt - call.latencyMs;
  const rootId = spanIdOf(requestId, "root");
  const root = spanOf(resource, {
    name: `gateway.${call.contract}`,
    kind: SpanKind.SERVER,
    traceId,
    spanId: rootId,
    parentId,
    startedAt,
    endedAt,
    error: call.errorCode,
    attributes: attributesOf(call, privacy),
  });
  const spans = [root];
  const seen = new Map<string, number>();
  let at = startedAt;
  for (const { offeringId, model, provider, status, reason, latencyMs } of call.attempts) {
    const nth = seen.get(offeringId) ?? 0;
    seen.set(offeringId, nth + 1);
    // Sequential, as fallbacks run. A hedge ran in parallel with another attempt: it is placed where it still fits.
    const began = Math.max(startedAt, Math.min(at, endedAt - latencyMs));
    const ended = Math.min(endedAt, began + latencyMs);
    at = ended;
    const shared = {
      kind: SpanKind.CLIENT,
      traceId,
      startedAt: began,
      endedAt: ended,
      error: status === "error" ? (reason ?? "upstream_error") : undefined,
      attributes: {
        "gen_ai.request.model": model,
        "gen_ai.provider.name": provider,
        "limber.offering_id": offeringId,
        "limber.attempt.status": status,
        ...(reason !== undefined && { "error.type": reason }),
      },
    };
    const attemptId = spanIdOf(requestId, "attempt", offeringId, nth);
    const upstreamId = spanIdOf(requestId, "upstream", offeringId, nth);
    spans.push(
      spanOf(resource, {
        ...shared,
        name: "attempt",
        kind: SpanKind.INTERNAL,
        spanId: attemptId,
        parentId: rootId,
      }),
      spanOf(resource, { ...shared, name: "upstream", spanId: upstreamId, parentId: attemptId }),
    );
  }
  return spans;
}

/** The test span that a target must accept before it is saved. */
export function testSpan(resource: Resource): ReadableSpan {
  const requestId = newId("req");
  const at = now();
  return spanOf(resource, {
    name: "limber.test",
    kind: SpanKind.INTERNAL,
    traceId: traceOf(undefined, requestId).traceId,
    spanId: spanIdOf(requestId, "root"),
    parentId: undefined,
    startedAt: at,
    endedAt: at,
    error: undefined,
    attributes: {},
  });
}

/** An event for export. */
export interface ToldEvent {
  readonly id: string;
  /** Such as `batch.completed`. */
  readonly name: string;
  /** Unix seconds. */
  readonly createdAt: number;
  /** The data as JSON. */
  readonly data: string;
}

/** An event as a zero-length span in its own trace. Both ids derive from the event, so that a repeated export is identical. */
export const eventSpan = (event: ToldEvent, resource: Resource, privacy: boolean): ReadableSpan =>
  spanOf(resource, {
    name: `event.${event.name}`,
    kind: SpanKind.INTERNAL,
    traceId: traceOf(undefined, event.id).traceId,
    spanId: spanIdOf(event.id, "root"),
    parentId: undefined,
    startedAt: event.createdAt * 1000,
    endedAt: event.createdAt * 1000,
    error: undefined,
    attributes: {
      "limber.event.id": event.id,
      "limber.event.name": event.name,
      // The data may contain names of users and keys.
      ...(!privacy && { "limber.event.data": event.data }),
    },
  });

function attributesOf(call: EndedCall, privacy: boolean): Attributes {
  const act = call.contract === "act";
  return defined({
    "gen_ai.request.model": call.modelRequested,
    "gen_ai.response.model": call.errorCode === undefined ? call.model : undefined,
    "gen_ai.provider.name": call.errorCode === undefined ? call.provider : undefined,
    "session.id": privacy && call.sessionId !== undefined ? digestOf(call.sessionId).slice(0, 32) : call.sessionId,
    "user.id": privacy ? undefined : call.userId,
    "error.type": call.errorCode,
    "http.response.status_code": call.httpStatus,
    "robot.contract": call.contract,
    "robot.action_space": call.actionSpace,
    "robot.horizon": act ? call.units : undefined,
    "robot.dt_ms": call.dtMs,
    "robot.simulated": call.simulated,
    "robot.observation_age_ms": act ? call.latencyMs : undefined,
    "robot.deadline_ms": call.deadlineMs,
    "route.fallback_used": call.fallbackUsed,
    "route.hedged": call.hedged,
    "cost.usd": call.costMicro / 1e6,
    "limber.request_id": call.requestId,
    "limber.offering_id": call.errorCode === undefined ? call.offeringId : undefined,
    "limber.region": call.region,
    "limber.units": call.units,
    "limber.stream_id": call.streamId,
    "limber.workspace_id": call.workspaceId,
    "limber.key_id": privacy ? undefined : call.keyId,
    ...(privacy ? {} : metadataOf(call.metadata)),
  });
}

const metadataOf = (metadata: object | undefined): Attributes =>
  Object.fromEntries(
    Object.entries(metadata ?? {}).map(([key, value]) => [
      `limber.metadata.${key}`,
      typeof value === "string" || typeof value === "number" || typeof value === "boolean"
        ? value
        : JSON.stringify(value),
    ]),
  );

const defined = (attributes: Attributes): Attributes =>
  Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined && value !== ""));

interface SpanFacts {
  readonly name: string;
  readonly kind: SpanKind;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentId: string | undefined;
  readonly startedAt: number;
  readonly endedAt: number;
  readonly error: string | undefined;
  readonly attributes: Attributes;
}

function spanOf(resource: Resource, facts: SpanFacts): ReadableSpan {
  const { name, kind, traceId, spanId, parentId, startedAt, endedAt, error, attributes } = facts;
  const context = { traceId, spanId, traceFlags: TraceFlags.SAMPLED };
  return {
    name,
    kind,
    spanContext: () => context,
    ...(parentId !== undefined && { parentSpanContext: { traceId, spanId: parentId, traceFlags: TraceFlags.SAMPLED } }),
    startTime: momentOf(startedAt),
    endTime: momentOf(endedAt),
    duration: momentOf(endedAt - startedAt),
    status: error === undefined ? { code: SpanStatusCode.UNSET } : { code: SpanStatusCode.ERROR, message: error },
    attributes,
    links: [],
    events: [],
    ended: true,
    resource,
    instrumentationScope: SCOPE,
    droppedAttributesCount: 0,
    droppedEventsCount: 0,
    droppedLinksCount: 0,
  };
}

function momentOf(ms: number): HrTime {
  const seconds = Math.floor(ms / 1000);
  return [seconds, Math.round((ms - seconds * 1000) * 1e6)];
}

// The reported data of a finished call, and its span ids, which are known in advance so that other spans can refer to them.

/** One attempt at one offering. */
interface EndedAttempt {
  readonly offeringId: string;
  readonly model: string;
  readonly provider: string;
  readonly status: "ok" | "error" | "cancelled";
  /** The reason of the failure, as the schema spells it. */
  readonly reason: string | undefined;
  readonly latencyMs: number;
}

/** A finished call. */
export interface EndedCall {
  readonly orgId: string;
  readonly requestId: string;
  readonly keyId: string;
  readonly userId: string | undefined;
  readonly workspaceId: string | undefined;
  readonly sessionId: string | undefined;
  /** The caller's `traceparent`, unparsed. */
  readonly traceparent: string | undefined;
  readonly contract: string;
  readonly modelRequested: string;
  readonly model: string;
  readonly provider: string;
  readonly offeringId: string;
  readonly region: string | undefined;
  readonly httpStatus: number;
  /** The code of the refusal; undefined on success. */
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

/** The parent of a trace's next span. */
interface TraceContext {
  readonly traceId: string;
  /** The caller's span; undefined if the trace begins here. */
  readonly parentId: string | undefined;
}

/** Source: https://www.w3.org/TR/trace-context/#traceparent-header. Of later versions, only the fields of this version are read. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-|$)/;

/** The caller's trace, or a new one for the request if the caller sent none or a malformed one. */
export function traceOf(traceparent: string | undefined, requestId: string): TraceContext {
  const [, traceId, parentId] = TRACEPARENT.exec(traceparent ?? "") ?? [];
  return { traceId: traceId ?? digestOf(requestId).slice(0, 32), parentId };
}

/** The caller's trace; undefined if absent or malformed. */
export const givenTraceOf = (traceparent: string): string | undefined => TRACEPARENT.exec(traceparent)?.[1];

/** The id of a request's span: of its root, or of its `nth` attempt at an offering. */
export const spanIdOf = (requestId: string, role: "root" | "attempt" | "upstream", offeringId = "", nth = 0): string =>
  digestOf(`${requestId} ${role} ${offeringId} ${nth}`).slice(0, 16);

/** Maps a session to a number between 0 and 1, the same on every replica. A call without a session is its own. */
export function shareOf(session: string): number {
  return Number.parseInt(digestOf(session).slice(0, 8), 16) / 2 ** 32;
}

/** SHA-256 in hexadecimal. */
const digestOf = (text: string): string => hash("sha256", text, "hex");

/** The `traceparent` value that propagates a trace. */
export const traceparentOf = (traceId: string, spanId: string, sampled: boolean): string =>
  `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`;

/** The caller's valid `traceparent`, propagated unchanged by calls that are sent to no target. */
export const passedOn = (traceparent: string | undefined): string | undefined =>
  traceparent !== undefined && TRACEPARENT.test(traceparent) ? traceparent : undefined;
