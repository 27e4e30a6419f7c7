/** The kinds of HTTP messages that the port hands on. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { CallTrail } from "../../../call.ts";
import { Cancel } from "../../../cancellation.ts";
import { steadyNow } from "../../../clock.ts";
import { Reason, refuse } from "../../../errors.ts";
import { newId } from "../../../ids.ts";
import { type BodyMemory, type HeldBytes, ownerOf, UNCOUNTED_BYTES } from "../../body-memory.ts";
import type { Admission, CallContext } from "../../gate/gate.ts";
import type { WholeRequest, WholeResponse } from "../../server/whole-requests.ts";
import type { RestRoute } from "./route.ts";

/** A request of HTTP/1.1 or HTTP/2. */
export type HttpRequest = IncomingMessage | Http2ServerRequest | WholeRequest;

/** Its response. */
export type HttpResponse = ServerResponse | Http2ServerResponse | WholeResponse;

/** A header that may be given once; undefined where it is not. */
export function headerOf(request: HttpRequest, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === "string" ? value : undefined;
}

/** Parameters of a path, by their names. */
export type Parameters = Readonly<Record<string, string>>;

/** One call on its way through the transport. */
export class HttpExchange {
  readonly route: RestRoute;
  readonly request: HttpRequest;
  readonly response: HttpResponse;
  readonly context: CallContext;
  /** Calls it off. */
  readonly call = new Cancel();
  readonly startedAt = steadyNow();
  readonly trail: CallTrail = {};
  readonly parameters: Parameters;
  /** What the caller sent, for the answer to a refusal. */
  body: unknown;
  query: Record<string, unknown> | undefined;
  admission: Admission | undefined;
  readonly #memory: BodyMemory;
  #held: HeldBytes | undefined;
  #isOver = false;

  constructor(
    route: RestRoute,
    parameters: Parameters,
    request: HttpRequest,
    response: HttpResponse,
    memory: BodyMemory,
  ) {
    this.#memory = memory;
    this.route = route;
    this.parameters = parameters;
    this.request = request;
    this.response = response;
    this.context = {
      requestId: ("body" in request && request.requestId) || newId("req"),
      signal: this.call,
      arrivedAt: this.startedAt,
      deadline: undefined,
      idempotencyKey: headerOf(request, "idempotency-key"),
      traceparent: headerOf(request, "traceparent"),
      host: headerOf(request, ":authority") ?? request.headers.host,
      isUrgent: "body" in request && request.isUrgent === true,
      trail: this.trail,
    };
  }

  /** Holds memory for a body of so many bytes; throws the refusal where there is none. */
  readonly hold = (bytes: number): void => {
    this.trail.inputBytes = bytes;
    if (bytes <= UNCOUNTED_BYTES || this.#isOver) return;
    this.#held ??= this.#memory.open(this.admission === undefined ? "" : ownerOf(this.admission.principal));
    this.#held.to(bytes);
  };

  /** Gives the memory back, and the place. */
  leave(): void {
    this.#isOver = true;
    this.#held?.release();
    this.admission?.leave();
  }

  /** The caller has left. */
  readonly left = (): void =>
    this.call.abort(refuse(Reason.CLIENT_CLOSED_REQUEST, "the caller left before the answer"));
}
