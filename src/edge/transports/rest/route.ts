/** The REST routes that the schema declares, read from its `google.api.http` rules. */
import {
  type DescField,
  type DescMessage,
  type DescMethod,
  type DescService,
  getOption,
  hasOption,
} from "@bufbuild/protobuf";
import { http } from "../../../../gen/google/api/annotations_pb.ts";
import { header, raw, rpc, StreamFormat } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { type Bounds, boundsOf } from "../../messages/bounds.ts";
import { type Dialect, dialectOf } from "./dialects/index.ts";

/** One RPC as REST serves it. */
export interface RestRoute {
  readonly method: DescMethod;
  /** Its name in the log. */
  readonly rpc: string;
  readonly verb: "GET" | "PUT" | "POST" | "DELETE" | "PATCH";
  /** The path with its parameters in braces, as the schema and OpenAPI write it. */
  readonly template: string;
  /** The fields that the path carries. */
  readonly path: readonly DescField[];
  /** The field that the body is, or `*` for all that the path does not carry; undefined where there is no body. */
  readonly body: DescField | "*" | undefined;
  /** The body is the bytes of its field as they are, not JSON. */
  readonly raw: boolean;
  /** The fields that headers carry, by the names of the headers. */
  readonly headers: ReadonlyMap<string, DescField>;
  /** The fields that the query carries, by the name of their parameter. */
  readonly query: ReadonlyMap<string, DescField>;
  /** The field of the response that the answer is; the whole response when undefined. */
  readonly answer: DescField | undefined;
  /** The HTTP status of a success. */
  readonly status: number;
  /** The request has a place for a secret: a field marked `debug_redact`. */
  readonly secret: boolean;
  /** The answer is server-sent events, always for a stream, at the caller's wish for a unary call. */
  readonly events: boolean;
  /** The answer is JSON Lines. */
  readonly lines: boolean;
  /** Its event stream resumes after the last event that the reader received (`Last-Event-ID`). */
  readonly resumed: boolean;
  /** The most that its body may be. */
  readonly bounds: Bounds;
  /** The convention that bodies and refusals follow. */
  readonly dialect: Dialect;
}

/** The routes of `services`, in the schema's order. Throws where a rule names what the message does not have. */
export function routesOf(services: Iterable<DescService>): RestRoute[] {
  const methods = [...services].flatMap((service) => service.methods);
  return methods.filter((method) => hasOption(method, http) && method.methodKind !== "bidi_streaming").map(known);
}

/** What the options of a method say never changes, and takes longer to read than all else that a server does at its start. */
const routes = new WeakMap<DescMethod, RestRoute>();

function known(method: DescMethod): RestRoute {
  const route = routes.get(method) ?? routeOf(method);
  routes.set(method, route);
  return route;
}

/** The paths of the RPCs that talk both ways, which REST has no form for: the refusal says where they are served. */
export function conversationsOf(services: Iterable<DescService>): { method: DescMethod; url: string }[] {
  const methods = [...services].flatMap((service) => service.methods);
  return methods
    .filter((method) => method.methodKind === "bidi_streaming")
    .map((method) => ({ method, url: getOption(method, http).pattern.value as string })); // sound: no custom verbs
}

function routeOf(method: DescMethod): RestRoute {
  const rule = getOption(method, http);
  const { case: verb, value: template } = rule.pattern;
  if (verb === undefined || verb === "custom") throw new Error(`${method} has no HTTP verb`);
  const { successStatus, streamFormat, dialect } = getOption(method, rpc);
  const events = streamFormat === StreamFormat.SSE;
  const lines = streamFormat === StreamFormat.LINES;
  const fit = method.methodKind === "unary" || (method.methodKind === "server_streaming" && (events || lines));
  if (!fit) throw new Error(`${method} streams in a way that REST has no form for`);
  const convention = dialectOf(dialect);
  const parameterOf = convention.parameterOf ?? ((field: DescField) => field.name);
  const path = [...template.matchAll(/\{(\w+)\}/g)].map(([, name]) => fieldOf(method.input.fields, name, method));
  const body =
    rule.body === "" || rule.body === "*" ? rule.body || undefined : fieldOf(method.input.fields, rule.body, method);
  return {
    method,
    rpc: `${method.parent.typeName}/${method.name}`,
    verb: VERBS[verb],
    template,
    path,
    body: body as RestRoute["body"],
    raw: typeof body === "object" && getOption(body, raw),
    headers: new Map(headerFields(method).map((field) => [getOption(field, header), field])),
    query: new Map(body === "*" ? [] : queryFields(method, path, body).map((field) => [parameterOf(field), field])),
    answer: rule.responseBody === "" ? undefined : fieldOf(method.output.fields, rule.responseBody, method),
    status: successStatus || 200,
    secret: holdsSecret(method.input),
    events,
    lines,
    resumed: headerFields(method).some((field) => getOption(field, header) === "last-event-id"),
    bounds: boundsOf(method),
    dialect: convention,
  };
}

function holdsSecret(message: DescMessage, seen = new Set<DescMessage>()): boolean {
  if (seen.has(message)) return false;
  seen.add(message);
  return message.fields.some(
    (field) =>
      field.proto.options?.debugRedact === true || (field.message !== undefined && holdsSecret(field.message, seen)),
  );
}

const VERBS = { get: "GET", put: "PUT", post: "POST", delete: "DELETE", patch: "PATCH" } as const;

function fieldOf(fields: readonly DescField[], name: string | undefined, method: DescMethod): DescField {
  const field = fields.find((each) => each.name === name);
  if (field === undefined) throw new Error(`the HTTP rule of ${method} names ${name}, which is no field`);
  return field;
}

const headerFields = (method: DescMethod): DescField[] =>
  method.input.fields.filter((field) => getOption(field, header) !== "");

function queryFields(method: DescMethod, path: readonly DescField[], body: unknown): DescField[] {
  const elsewhere = [body, ...path, ...headerFields(method)];
  const fields = method.input.fields.filter((field) => !elsewhere.includes(field));
  const unfit = fields.find((field) => field.message !== undefined || field.fieldKind === "map");
  if (unfit !== undefined) throw new Error(`${unfit} does not fit into a query`);
  return fields;
}
