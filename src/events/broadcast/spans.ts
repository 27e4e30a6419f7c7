/** The spans of a call: `gateway.<contract>`, below it one for each attempt, below that `upstream`. */
import { type Attributes, type HrTime, SpanKind, SpanStatusCode, TraceFlags } from "@opentelemetry/api";
import { type Resource, resourceFromAttributes } from "@opentelemetry/resources";
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import { API_VERSION, BRAND } from "../../brand.ts";
import { now } from "../../clock.ts";
import { newId } from "../../ids.ts";
import type { TargetRecord } from "../../store/events/broadcast.ts";
import { digestOf, type EndedCall, spanIdOf, traceOf } from "./ended-call.ts";

const SCOPE = { name: BRAND, version: API_VERSION };

/** The resource of a target's spans: this gateway, and the attributes that the target adds. */
export const resourceOf = ({ resourceAttributes }: Pick<TargetRecord, "resourceAttributes">): Resource =>
  resourceFromAttributes({ "service.name": BRAND, "service.version": API_VERSION, ...resourceAttributes });

/** The spans of a call as a target gets them, the root first. `endedAt` is unix time in milliseconds. */
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
    // One after the other, as fallbacks run. A hedge ran beside another one: it is drawn where it still fits.
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

/** The span that a target has to take before it is saved. */
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

/** An event as it is exported. */
export interface ToldEvent {
  readonly id: string;
  /** Such as `batch.completed`. */
  readonly name: string;
  /** Unix seconds. */
  readonly createdAt: number;
  /** Its data as JSON. */
  readonly data: string;
}

/** An event as a span of no length in a trace of its own. Both have their names from the event, so that they are the same whenever it is sent again. */
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
      // It may name users and keys.
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
