/** The REST routes that the schema declares, and the conventions that their bodies and refusals follow. */
import {
  type DescField,
  type DescMessage,
  type DescMethod,
  type DescService,
  getOption,
  hasOption,
  type Message,
  ScalarType,
} from "@bufbuild/protobuf";
import { http } from "../../../../gen/google/api/annotations_pb.ts";
import { header, kept, Dialect as Name, raw, rpc, StreamFormat } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { PatchOperationSchema } from "../../../../gen/limber/scim/v2/resource_pb.ts";
import { InferenceService } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { factsOf, Reason, type Refusal, refuse } from "../../../errors.ts";
import { type Bounds, boundsOf } from "../../messages/bounds.ts";
import { type ErrorAnswer, type Given, restAnswer } from "../../messages/errors.ts";
import { type Expected, parseCounted } from "../../messages/json-text.ts";
import { type BodyLimits, type BodyType, type HttpRequest, headerOf, readBody, typeOf } from "./body.ts";

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
  /** If the answer is the bytes of its field: the headers that carry the other fields, by their names. */
  readonly file: ReadonlyMap<string, DescField> | undefined;
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
  return methods.filter((method) => hasOption(method, http) && method.methodKind !== "bidi_streaming").map(routeFor);
}

/** What the options of a method say never changes, and takes longer to read than all else that a server does at its start. */
const routes = new WeakMap<DescMethod, RestRoute>();

function routeFor(method: DescMethod): RestRoute {
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
  if (!fit) throw new Error(`${method} has a kind of stream that REST does not support`);
  const convention = dialectOf(dialect);
  const parameterOf = convention.parameterOf ?? ((field: DescField) => field.name);
  const path = [...template.matchAll(/\{(\w+)\}/g)].map(([, name]) => fieldOf(method.input.fields, name, method));
  const body =
    rule.body === "" || rule.body === "*" ? rule.body || undefined : fieldOf(method.input.fields, rule.body, method);
  const answer = rule.responseBody === "" ? undefined : fieldOf(method.output.fields, rule.responseBody, method);
  return {
    method,
    rpc: `${method.parent.typeName}/${method.name}`,
    verb: VERBS[verb],
    template,
    path,
    body: body as RestRoute["body"],
    raw: typeof body === "object" && getOption(body, raw),
    headers: headersOf(method.input),
    query: new Map(body === "*" ? [] : queryFields(method, path, body).map((field) => [parameterOf(field), field])),
    answer,
    file: answer && getOption(answer, raw) ? headersOf(method.output) : undefined,
    status: successStatus || 200,
    secret: holdsSecret(method.input),
    events,
    lines,
    resumed: headersOf(method.input).has("last-event-id"),
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
  if (field === undefined) throw new Error(`the HTTP rule of ${method} names the unknown field ${name}`);
  return field;
}

/** The fields of a message that headers carry, by the names of the headers. */
const headersOf = ({ fields }: DescMessage): ReadonlyMap<string, DescField> =>
  new Map(fields.filter((field) => getOption(field, header) !== "").map((field) => [getOption(field, header), field]));

function queryFields(method: DescMethod, path: readonly DescField[], body: unknown): DescField[] {
  const elsewhere = [body, ...path, ...headersOf(method.input).values()];
  const fields = method.input.fields.filter((field) => !elsewhere.includes(field));
  const unfit = fields.find((field) => field.message !== undefined || field.fieldKind === "map");
  if (unfit !== undefined) throw new Error(`${unfit} is not supported in a query`);
  return fields;
}

/** One convention. */
export interface Dialect {
  /** The prefix of its paths: unknown paths below it are refused by this convention too. */
  readonly root?: string;
  /** Whether its paths may end in a slash, as its clients write them. */
  readonly trailingSlash?: true;
  /** The content type of answers. */
  readonly contentType: string;
  /**
   * The request's body as a JSON value whose members bear the schema's names; an empty object where there is none. The bytes where the
   * route takes them as they are.
   */
  readBody(route: RestRoute, request: HttpRequest, limits: BodyLimits): Promise<unknown>;
  /** Whether members and parameters that the schema does not know are passed over rather than refused. */
  readonly ignoresUnknown: boolean;
  /** What the request's head says beside its path, query and body, put into the message. */
  readHead?(message: Message, request: HttpRequest): void;
  /** Its answers are the schema's own JSON, as `toText` writes it, and its head says nothing of them. */
  readonly plain?: true;
  /** The text of an answer whose JSON, by the schema's names, is `value`. */
  write(desc: DescMessage, value: unknown, request: HttpRequest): string;
  /** The query as its clients write it, by the names of `parameterOf`. */
  readQuery?(route: RestRoute, query: URLSearchParams): URLSearchParams;
  /** The name of a parameter of the query; the schema's where it does not say. */
  parameterOf?(field: DescField): string;
  /** Further headers of an answer, names and values in turn; the status where it is not the route's own. */
  head?(route: RestRoute, value: unknown, request: HttpRequest): { headers: readonly string[]; status?: number };
  /** A refusal as this convention writes it. */
  refuse(refusal: Refusal, requestId: string, given?: Given): ErrorAnswer;
}

const JSON_TYPE = typeOf("application/json");

/** What a body may be called, and what stands for one that is not there. */
interface ReadOptions {
  readonly type?: BodyType;
  readonly named?: string;
  readonly none?: object | null;
}

/** The JSON value of a body of one of the content types that `type` matches; `none` where there is no body. */
async function readJson(
  request: HttpRequest,
  expected: Expected,
  limits: BodyLimits,
  { type = JSON_TYPE, named = "application/json", none = {} }: ReadOptions = {},
): Promise<unknown> {
  const bytes = await readBody(request, type, named, limits);
  return bytes.length === 0 ? none : await parseCounted(bytes, expected);
}

/** JSON by the schema's names, and refusals by the schema's `ErrorBody`. */
export const native: Dialect = {
  contentType: "application/json",
  readBody(route, request, limits) {
    if (route.raw) return readBody(request, JSON_TYPE, "application/json", limits);
    if (route.verb === "GET") return Promise.resolve({});
    const desc = route.body === "*" ? route.method.input : route.body?.message;
    // A job's items are kept as they came.
    const expected = { bounds: route.bounds, desc, pictures: route.method.parent === InferenceService };
    return readJson(request, expected, limits, { none: typeof route.body === "object" ? null : {} });
  },
  ignoresUnknown: false,
  plain: true,
  write: (_desc, value) => JSON.stringify(value),
  refuse: restAnswer,
};

/** The scheme and host of a request, as far as it and a proxy before us tell; empty where they make no address. */
export function originOf(request: HttpRequest): string {
  const host = request.headers[":authority"] ?? request.headers.host;
  const forwarded = headerOf(request, "x-forwarded-proto");
  const scheme =
    forwarded === "https" || forwarded === "http" ? forwarded : "encrypted" in request.socket ? "https" : "http";
  const origin = `${scheme}://${host}`;
  return URL.canParse(origin) ? new URL(origin).origin : "";
}

const FORM = typeOf("application/x-www-form-urlencoded");
const FORM_OR_JSON = "application/x-www-form-urlencoded or application/json";
/** No honest request is near this. */
const MAX_PARAMETERS = 100;

/** The reasons that are words of RFC 6749 themselves. */
const WORDS: ReadonlySet<Reason> = new Set([
  Reason.INVALID_CLIENT,
  Reason.INVALID_GRANT,
  Reason.INVALID_SCOPE,
  Reason.UNSUPPORTED_GRANT_TYPE,
  // Of RFC 7591 and RFC 8707.
  Reason.INVALID_REDIRECT_URI,
  Reason.INVALID_CLIENT_METADATA,
  Reason.INVALID_TARGET,
]);

/** Forms or JSON in, JSON out; refusals are `{error, error_description}`. */
const oauth: Dialect = {
  trailingSlash: true,
  contentType: "application/json",
  async readBody(route, request, limits) {
    if (route.verb === "GET") return {};
    const isForm = FORM.test(request.headers["content-type"] ?? "");
    const given = isForm
      ? formOf(await readBody(request, FORM, FORM_OR_JSON, limits))
      : await readJson(request, { bounds: route.bounds }, limits, { named: FORM_OR_JSON });
    return knownOf(route, given);
  },
  ignoresUnknown: true,
  readHead(message, request) {
    // The two fields that requests of this convention may carry in their head.
    const fields = message as Message & { clientId?: string; clientSecret?: string; issuer?: string };
    if (message.$typeName.endsWith("MetadataRequest")) fields.issuer = originOf(request);
    const basic = basicOf(headerOf(request, "authorization"));
    if (!basic) return;
    if (fields.clientSecret !== undefined || (fields.clientId !== undefined && fields.clientId !== basic.id))
      throw refuse(Reason.MALFORMED_BODY, "use only one client authentication method");
    fields.clientId = basic.id;
    // A client without a secret may send an empty one (RFC 6749 section 2.3.1).
    if (basic.secret !== "") fields.clientSecret = basic.secret;
  },
  write: (_desc, value) => JSON.stringify(value),
  head: () => ({ headers: ["pragma", "no-cache"] }),
  refuse(refusal, requestId, given) {
    const { status, headers } = restAnswer(refusal, requestId, given);
    const { code } = factsOf(refusal.reason);
    const error = WORDS.has(refusal.reason)
      ? code
      : status === 503 || status === 429 // it has no word of its own for too many
        ? "temporarily_unavailable"
        : status >= 500
          ? "server_error"
          : "invalid_request";
    const violations = refusal.details.violations ?? [];
    const about = violations.map(({ path, message }) => `${path} ${message}`).join("; ") || refusal.message;
    return {
      // A wrong parameter is 400 here, whatever the gateway says elsewhere.
      status: status === 422 ? 400 : status,
      headers: headers.map((each) => (each === "Bearer" ? 'Basic realm="oauth"' : each)),
      body: JSON.stringify({ error, error_description: printable(about) }),
    };
  },
};

/** The letters that RFC 6749 section 5.2 allows in a description. */
const printable = (text: string): string => text.replaceAll(/[^\x20\x21\x23-\x5b\x5d-\x7e]/g, "?").slice(0, 500);

function formOf(bytes: Buffer): Record<string, string> {
  const parameters = [...new URLSearchParams(bytes.toString("utf8"))];
  if (parameters.length > MAX_PARAMETERS)
    throw refuse(Reason.MALFORMED_BODY, `at most ${MAX_PARAMETERS} parameters are allowed, got ${parameters.length}`);
  const names = new Set(parameters.map(([name]) => name));
  if (names.size < parameters.length) throw refuse(Reason.MALFORMED_BODY, "duplicate parameter in the form body");
  // A parameter without a value is one that was left out (RFC 6749 section 3.2).
  return Object.fromEntries(parameters.filter(([, value]) => value !== ""));
}

function knownOf(route: RestRoute, given: unknown): unknown {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return given;
  const known = new Set(route.method.input.fields.map(({ name }) => name));
  return Object.fromEntries(Object.entries(given).filter(([name]) => known.has(name)));
}

/** Name and secret of HTTP Basic, each percent-decoded (RFC 6749 section 2.3.1). */
function basicOf(authorization: string | undefined): { id: string; secret: string } | undefined {
  const given = /^basic +([A-Za-z0-9+/]+=*) *$/i.exec(authorization ?? "")?.[1];
  if (given === undefined) return undefined;
  const [, id, secret] = /^([^:]*):(.*)$/s.exec(Buffer.from(given, "base64").toString("utf8")) ?? [];
  const decoded = [id, secret].map((part) => part !== undefined && unescaped(part));
  if (!decoded[0] || decoded[1] === undefined || decoded[1] === false)
    throw refuse(Reason.INVALID_CLIENT, "the client credentials in `Authorization` are malformed");
  return { id: decoded[0], secret: decoded[1] };
}

function unescaped(text: string): string | false {
  try {
    const plain = decodeURIComponent(text.replaceAll("+", " "));
    return !plain.includes("\0") && plain;
  } catch {
    return false;
  }
}

const TYPE = typeOf("application/scim+json", "application/json");

const NAMED = "application/scim+json or application/json";

/** `application/scim+json` in and out, versions as ETags, refusals of SCIM's own schema. */
const scim: Dialect = {
  root: "/v1/scim/v2",
  trailingSlash: true,
  contentType: "application/scim+json",
  async readBody(route, request, limits) {
    if (route.body === undefined) return {};
    const given = await readJson(request, { bounds: route.bounds }, limits, { type: TYPE, named: NAMED });
    const desc = route.body === "*" ? route.method.input : route.body.message;
    if (desc === undefined) return given;
    const native = toNative(desc, given);
    // A body that says nothing is none: a resource must not be emptied by a slip.
    return route.body !== "*" && isEmpty(native) ? null : native;
  },
  ignoresUnknown: true,
  parameterOf: (field) => field.jsonName,
  readQuery(route, query) {
    const names = new Map([...route.query.keys()].map((name) => [name.toLowerCase(), name]));
    const read = new URLSearchParams();
    for (const [given, value] of query) {
      const name = names.get(given.toLowerCase());
      // A parameter without a value is one that was left out, but an empty filter would match everyone.
      if (name === undefined || (value.trim() === "" && name !== "filter")) continue;
      const others = /attributes$/i.test(name) ? read.get(name) : null;
      if (others !== null) read.set(name, `${others},${value}`);
      else read.append(name, name === "sortOrder" ? value.toLowerCase() : value);
    }
    return read;
  },
  write: (desc, value, request) => JSON.stringify(fromNative(desc, value, originOf(request))),
  head(route, value, request) {
    const { version, location } = metaOf(value);
    if (version === undefined) return { headers: [] };
    const headers = ["etag", version];
    if (route.status === 201 && location !== undefined) headers.push("location", originOf(request) + location);
    const seen = route.verb === "GET" ? headerOf(request, "if-none-match") : undefined;
    const same = seen?.split(",").some((each) => ["*", version, version.replace("W/", "")].includes(each.trim()));
    return { headers, ...(same && { status: 304 }) };
  },
  refuse(refusal, requestId, given) {
    const { status: said, headers, body } = restAnswer(refusal, requestId, given);
    // A wrong value is 400 here, whatever the gateway says elsewhere.
    const status = said === 422 ? 400 : said;
    const { scimType } = factsOf(refusal.reason);
    const error = {
      schemas: ["urn:ietf:params:scim:api:messages:2.0:Error"],
      status: String(status),
      ...(scimType !== "" && { scimType }),
      detail: JSON.parse(body).error.message, // sound: just written
    };
    return { status, headers, body: JSON.stringify(error) };
  },
};

const isEmpty = (value: unknown): boolean =>
  typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length === 0;

function metaOf(value: unknown): { version?: string | undefined; location?: string | undefined } {
  const meta = typeof value === "object" && value !== null && "meta" in value ? value.meta : undefined;
  // The schema's Meta, or that of a resource that has no version.
  return typeof meta === "object" && meta !== null ? (meta as { version?: string; location?: string }) : {};
}

type ScimFields = Record<string, unknown>;

const isObject = (value: unknown): value is ScimFields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const known = new WeakMap<DescMessage, ReadonlyMap<string, DescField>>();

function fieldsOf(desc: DescMessage): ReadonlyMap<string, DescField> {
  let fields = known.get(desc);
  if (fields === undefined) {
    fields = new Map(desc.fields.map((field) => [field.jsonName.toLowerCase(), field]));
    known.set(desc, fields);
  }
  return fields;
}

/** What free-form values hold is not the schema's to rename. */
const isFree = (desc: DescMessage): boolean => desc.typeName.startsWith("google.protobuf.");

/** JSON as identity providers send it, by the schema's names; members that the schema does not know are left out. */
export function toNative(desc: DescMessage, value: unknown): unknown {
  if (isFree(desc)) return value;
  // A reference may be written as its value alone.
  if (typeof value === "string" && desc.field.value !== undefined) return { value };
  if (!isObject(value)) return value;
  const deps: ScimFields = {};
  for (const [name, given] of Object.entries(value)) {
    const field = fieldsOf(desc).get(name.toLowerCase());
    if (field) deps[field.name] = toField(field, given);
  }
  // A null is no value (RFC 7643 section 2.5), so that replacing by it removes.
  if (desc === PatchOperationSchema && deps.value === null && /^replace$/i.test(String(deps.op))) deps.op = "remove";
  return deps;
}

/** A value in the dialects of identity providers: one object in place of a list, nulls in it, booleans as text, text as whole numbers. */
function toField(field: DescField, given: unknown): unknown {
  const list = field.fieldKind === "list" && Array.isArray(given) ? given.filter((each) => each !== null) : given;
  const values = field.fieldKind === "list" && isObject(list) ? [list] : list;
  if (field.message !== undefined) return inside(field, values, toNative);
  if (field.scalar === ScalarType.BOOL && typeof values === "string" && /^(true|false)$/i.test(values))
    return values.toLowerCase() === "true";
  return field.scalar === ScalarType.STRING && Number.isSafeInteger(values) ? String(values) : values;
}

/** JSON by the schema's names as identity providers read it; addresses that begin with a slash get `origin` before it. */
function fromNative(desc: DescMessage, value: unknown, origin: string): unknown {
  if (isFree(desc) || !isObject(value)) return value;
  const fields: ScimFields = {};
  for (const field of desc.fields) {
    const given = value[field.name];
    if (given === undefined || given === null) continue;
    if (Array.isArray(given) && given.length === 0 && !getOption(field, kept)) continue;
    const spelled = inside(field, given, (of, inner) => fromNative(of, inner, origin));
    fields[field.jsonName] = isAddress(field, spelled) ? origin + spelled : spelled;
  }
  return fields;
}

const isAddress = (field: DescField, value: unknown): value is string =>
  typeof value === "string" && value.startsWith("/v1/") && (field.name === "location" || field.name === "ref");

function inside(field: DescField, value: unknown, change: (desc: DescMessage, value: unknown) => unknown): unknown {
  const { message } = field;
  if (message === undefined) return value;
  return field.fieldKind === "list" && Array.isArray(value)
    ? value.map((item) => change(message, item))
    : change(message, value);
}

const DIALECTS: Readonly<Record<Name, Dialect>> = {
  [Name.UNSPECIFIED]: native,
  [Name.OAUTH]: oauth,
  [Name.SCIM]: scim,
};

/** The convention by which what is not there at an address is refused. */
export function dialectAt(url: string): Dialect {
  const path = url.split("?", 1)[0] ?? "";
  return Object.values(DIALECTS).find(({ root }) => root === path || path.startsWith(`${root}/`)) ?? native;
}

/** The convention of a name. */
const dialectOf = (name: Name): Dialect => DIALECTS[name] ?? native;
