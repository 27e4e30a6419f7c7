/** One REST request: its HTTP exchange, and its message from path, query, body and headers. */
import { create, type DescField, type Message, ScalarType } from "@bufbuild/protobuf";
import type { Violation } from "../../../../gen/limber/v1/error_pb.ts";
import type { CallTrail } from "../../../call.ts";
import { Cancel } from "../../../cancellation.ts";
import { steadyNow } from "../../../clock.ts";
import { Reason, refuse } from "../../../errors.ts";
import { newId } from "../../../ids.ts";
import { type BodyMemory, type HeldBytes, ownerOf, UNCOUNTED_BYTES } from "../../body-memory.ts";
import type { Admission, CallContext } from "../../gate/authenticate.ts";
import { type Given, segmentsOf } from "../../messages/errors.ts";
import { decoderOf } from "../../messages/json.ts";
import { Faults, unknown } from "../../messages/json-text.ts";
import { invalid, violationOf, violationsOf } from "../../messages/validate.ts";
import { type HttpRequest, type HttpResponse, headerOf } from "./body.ts";
import type { RestRoute } from "./routes.ts";

/** Parameters of a path, by their names. */
export type Parameters = Readonly<Record<string, string>>;

/** One running call of the transport. */
export class HttpExchange {
  readonly route: RestRoute;
  readonly request: HttpRequest;
  readonly response: HttpResponse;
  readonly context: CallContext;
  /** Cancels it. */
  readonly call = new Cancel();
  readonly startedAt = steadyNow();
  readonly trail: CallTrail = {};
  readonly parameters: Parameters;
  /** The caller's values, for error responses. */
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

  /** Reserves memory for a body of so many bytes; throws the refusal if there is none. */
  readonly hold = (bytes: number): void => {
    this.trail.inputBytes = bytes;
    if (bytes <= UNCOUNTED_BYTES || this.#isOver) return;
    this.#held ??= this.#memory.open(this.admission === undefined ? "" : ownerOf(this.admission.principal));
    this.#held.to(bytes);
  };

  /** Releases the memory and the slot. */
  leave(): void {
    this.#isOver = true;
    this.#held?.release();
    this.admission?.leave();
  }

  /** Cancels the call of a disconnected caller. */
  readonly left = (): void =>
    this.call.abort(refuse(Reason.CLIENT_CLOSED_REQUEST, "the client disconnected before the response"));
}

/** The message from path, query and body; throws a refusal with all faults. */
export async function readMessage(exchange: HttpExchange): Promise<Message> {
  const { route, request, parameters } = exchange;
  if (route.path.length > 0 && Object.values(parameters).includes("")) throw refuse(Reason.NOT_FOUND, "path not found");
  const limits = { most: route.bounds.bytes, hold: exchange.hold, signal: exchange.call };
  return messageOf(exchange, await route.dialect.readBody(route, request, limits));
}

function messageOf(exchange: HttpExchange, body: unknown): Message {
  const { route, request, parameters } = exchange;
  const desc = route.method.input;
  const decoder = decoderOf(desc);
  const faults = new Faults();
  if (!route.raw) exchange.body = body;
  const message = route.body === "*" ? decoder.decode(body, faults) : create(desc);
  if (route.body === undefined) refuseMembers(body, faults);
  else if (route.raw) Object.assign(message, { [(route.body as DescField).localName]: body });
  else if (route.body !== "*") decoder.set(message, route.body.name, body, faults);
  for (const { name, scalar } of route.path) {
    if (route.body === "*" && isObject(body) && Object.hasOwn(body, name))
      faults.add("extra_forbidden", "is set by the path; omit it", name);
    decoder.set(message, name, jsonOf(parameters[name] ?? "", scalar), faults);
  }
  const given = queryOf(request.url ?? "");
  const query = given && (route.dialect.readQuery?.(route, given) ?? given);
  if (query !== undefined) {
    const values = valuesOf(query, route.query, faults, route.dialect.ignoresUnknown);
    exchange.query = Object.fromEntries(values);
    for (const [name, value] of values) decoder.set(message, route.query.get(name)?.name ?? name, value, faults);
  }
  return withHead(exchange, message, faults);
}

/** The message with the fields from headers; throws a refusal with all faults. */
function withHead({ route, request }: HttpExchange, message: Message, faults: Faults): Message {
  route.dialect.readHead?.(message, request);
  for (const [name, field] of route.headers) {
    const value = headerOf(request, name);
    if (value !== undefined) decoderOf(route.method.input).set(message, field.name, value, faults);
  }
  if (faults.list.length > 0) throw invalid(allViolations(faults, route, message));
  return message;
}

function refuseMembers(body: unknown, faults: Faults): void {
  if (!isObject(body)) faults.add("dict_type", "must be an object");
  else
    for (const key of Object.keys(body)) faults.add("extra_forbidden", "this call accepts no fields in its body", key);
}

const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The faults of parsing and, for parsed fields, of validation, so that one response lists all. */
function allViolations(faults: Faults, route: RestRoute, message: Message): Violation[] {
  const read = faults.list.map(violationOf);
  const unread = new Set(read.map(({ path }) => path));
  const around = new Set(read.flatMap(({ path }) => trail(path)));
  // Fields that could not be parsed are missing from the message and its parents.
  const isAside = ({ path }: Violation): boolean => !around.has(path) && !trail(path).some((each) => unread.has(each));
  return [...read, ...violationsOf(route.method.input, message).filter(isAside)];
}

/** A path and all its parent paths. */
const trail = (path: string): string[] => path.split(".").map((_, i, parts) => parts.slice(0, i + 1).join("."));

/** The caller's values and their locations, for error responses. */
export function givenOf({ route, parameters, body, query, request: { headers } }: HttpExchange): Given {
  const inputs = { path: parameters, header: headers, ...(body !== undefined && { body }), ...(query && { query }) };
  return { inputs, locate: (path) => locate(route, segmentsOf(path)), secret: route.secret };
}

function locate(route: RestRoute, [head, ...rest]: (string | number)[]): (string | number)[] {
  if (head === undefined) return ["body"];
  const name = String(head);
  if (name === "query" && rest.length > 0) return ["query", rest.join(".")];
  if (route.path.some((field) => field.name === name)) return ["path", name];
  const header = [...route.headers].find(([, field]) => field.name === name)?.[0];
  if (header !== undefined) return ["header", header];
  const parameter = [...route.query].find(([key, field]) => key === name || field.name === name)?.[0];
  if (parameter !== undefined) return ["query", parameter, ...rest];
  return route.body !== "*" && route.body?.name === name ? ["body", ...rest] : ["body", head, ...rest];
}

/** The query of a request target. */
export function queryOf(target: string): URLSearchParams | undefined {
  const mark = target.indexOf("?");
  return mark < 0 || mark === target.length - 1 ? undefined : new URLSearchParams(target.slice(mark + 1));
}

/**
 * Parameters as JSON values by the types of their fields, unknown ones noted as faults unless they are to be ignored; what does not fit its
 * type stays text, which its reader refuses.
 */
export function valuesOf(
  query: URLSearchParams,
  fields: ReadonlyMap<string, DescField>,
  faults: Faults,
  ignoresUnknown = false,
): Map<string, unknown> {
  const values = new Map<string, unknown>();
  for (const name of new Set(query.keys())) {
    const field = fields.get(name);
    const given = query.getAll(name);
    if (field === undefined && ignoresUnknown) continue;
    if (field === undefined) faults.add("extra_forbidden", unknown("parameter", name, fields.keys()), `query.${name}`);
    else if (field.fieldKind === "list")
      values.set(
        name,
        given.map((text) => jsonOf(text, field.scalar)),
      );
    else if (given.length > 1) faults.add("multiple_values", "must be sent only once", name);
    else values.set(name, jsonOf(given[0] ?? "", field.scalar));
  }
  return values;
}

const NUMBER = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;

function jsonOf(text: string, scalar: ScalarType | undefined): unknown {
  if (scalar === undefined || scalar === ScalarType.STRING || scalar === ScalarType.BYTES) return text;
  if (scalar === ScalarType.BOOL) return text === "true" || (text === "false" ? false : text);
  return NUMBER.test(text) ? Number(text) : text;
}
