/** From a request to its message: what the path, the query, the body and the head say, and where that was said. */
import { create, type DescField, type Message } from "@bufbuild/protobuf";
import type { Violation } from "../../../../gen/limber/v1/error_pb.ts";
import { Reason, refuse } from "../../../errors.ts";
import { type Given, segmentsOf } from "../../messages/errors.ts";
import { decoderOf, Faults } from "../../messages/json.ts";
import { invalid, violationOf, violationsOf } from "../../messages/validate.ts";
import { type HttpExchange, headerOf } from "./exchange.ts";
import { queryOf, valuesOf } from "./query.ts";
import type { RestRoute } from "./route.ts";

/** The request's message from its path, query and body, or the refusal that lists everything that is wrong with them. */
export async function readMessage(exchange: HttpExchange): Promise<Message> {
  const { route, request, parameters } = exchange;
  if (route.path.length > 0 && Object.values(parameters).includes(""))
    throw refuse(Reason.NOT_FOUND, "there is no such path");
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
  for (const { name } of route.path) {
    if (route.body === "*" && isObject(body) && Object.hasOwn(body, name))
      faults.add("extra_forbidden", "is given by the path", name);
    decoder.set(message, name, parameters[name], faults);
  }
  const query = queryOf(request.url ?? "");
  if (query !== undefined) {
    const values = valuesOf(query, route.query, faults, route.dialect.ignoresUnknown);
    exchange.query = Object.fromEntries(values);
    for (const [name, value] of values) decoder.set(message, route.query.get(name)?.name ?? name, value, faults);
  }
  return withHead(exchange, message, faults);
}

/** The message with what the request's head says of it, or the refusal of all that is wrong with it. */
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
  else for (const key of Object.keys(body)) faults.add("extra_forbidden", "this call takes no fields in its body", key);
}

const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The faults of reading and, for what could be read, the broken rules, so that one answer lists them all. */
function allViolations(faults: Faults, route: RestRoute, message: Message): Violation[] {
  const read = faults.list.map(violationOf);
  const unread = new Set(read.map(({ path }) => path));
  const around = new Set(read.flatMap(({ path }) => trail(path)));
  // What could not be read is missing from the message, and from what it is in.
  const isAside = ({ path }: Violation): boolean => !around.has(path) && !trail(path).some((each) => unread.has(each));
  return [...read, ...violationsOf(route.method.input, message).filter(isAside)];
}

/** A path and the paths of all that it is in. */
const trail = (path: string): string[] => path.split(".").map((_, i, parts) => parts.slice(0, i + 1).join("."));

/** What the caller sent and where, for the answer to a refusal. */
export function givenOf({ route, parameters, body, query }: HttpExchange): Given {
  const inputs = { path: parameters, ...(body !== undefined && { body }), ...(query && { query }) };
  return { inputs, locate: (path) => locate(route, segmentsOf(path)), secret: route.secret };
}

function locate(route: RestRoute, [head, ...rest]: (string | number)[]): (string | number)[] {
  if (head === undefined) return ["body"];
  const name = String(head);
  if (name === "query" && rest.length > 0) return ["query", rest.join(".")];
  if (route.path.some((field) => field.name === name)) return ["path", name];
  if (route.query.has(name)) return ["query", name, ...rest];
  return route.body !== "*" && route.body?.name === name ? ["body", ...rest] : ["body", head, ...rest];
}
