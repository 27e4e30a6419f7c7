/** The OpenAPI 3.1 description of the REST transport, derived from the schema and its comments. */
import {
  create,
  type DescEnum,
  type DescEnumValue,
  type DescField,
  type DescMessage,
  type DescMethod,
  type DescService,
  getOption,
  ScalarType,
} from "@bufbuild/protobuf";
import { type FieldRules, field as fieldRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { Access, inline, nonempty, nullable, rpc, WorkspaceReach, whole } from "../../gen/limber/edge/v1/options_pb.ts";
import { ErrorBodySchema, ErrorDetailsSchema } from "../../gen/limber/v1/error_pb.ts";
import { ADMIN_HEADER, API_VERSION, BRAND } from "../../src/brand.ts";
import { wordsOf } from "../../src/edge/messages/json-text.ts";
import { violationsOf } from "../../src/edge/messages/validate.ts";
import { type RestRoute, routesOf } from "../../src/edge/transports/rest/routes.ts";
import { EXAMPLES } from "./examples.ts";

/** Returns the document for `services`, whose files were compiled with source information; `errorBody` is the message of every refusal. */
export function openapiOf(services: readonly DescService[], errorBody: DescMessage): Keywords {
  if (errorBody.typeName !== ErrorBodySchema.typeName)
    throw new Error(`refusals are not written as ${errorBody.typeName}`);
  const routes = routesOf(services);
  const schemas = new Schemas(routes.flatMap(bodyOf));
  const paths: Record<string, Record<string, Keywords>> = {};
  for (const route of routes) {
    paths[route.template] = { ...paths[route.template], [route.verb.toLowerCase()]: operationOf(route, schemas) };
  }
  const refusal = schemas.message(errorBody);
  return {
    openapi: "3.1.0",
    info: {
      title: `${BRAND[0]?.toUpperCase()}${BRAND.slice(1)}`,
      version: API_VERSION,
      summary: "The routing gateway for embodied AI.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/" }],
    tags: services.map((service) => ({ name: tagOf(service), description: commentOf(service) })),
    paths,
    components: {
      schemas: schemas.all,
      responses: {
        Refusal: { description: "An error.", headers: HEADERS, content: { "application/json": { schema: refusal } } },
      },
      headers: {
        RequestId: { description: "Request id; include it when you report a problem.", schema: { type: "string" } },
      },
      securitySchemes: {
        apiKey: { type: "http", scheme: "bearer", description: "API key, sent as `Authorization: Bearer`." },
        adminToken: { type: "apiKey", in: "header", name: ADMIN_HEADER, description: "Admin token of the operator." },
      },
    },
  };
}

const HEADERS = { "X-Request-Id": { $ref: "#/components/headers/RequestId" } };

const tagOf = (service: DescService): string => service.name.replace(/Service$/, "").toLowerCase();

/** The message that a caller sends as the body, completely or in part. */
function bodyOf({ method, body }: RestRoute): DescMessage[] {
  if (body === undefined) return [];
  return body === "*" ? [method.input] : body.message === undefined ? [] : [body.message];
}

function operationOf(route: RestRoute, schemas: Schemas): Keywords {
  const { method } = route;
  const { access, idempotent, workspaces } = getOption(method, rpc);
  const parameters = [
    ...route.path.map((field) => parameterOf("path", field.name, schemas.field(field))),
    ...[...route.query].map(([name, field]) => parameterOf("query", name, schemas.asked(field))),
    ...[...route.headers].map(([name, field]) => parameterOf("header", name, schemas.field(field))),
    ...(idempotent || method.input.field.idempotencyKey
      ? [parameterOf("header", "Idempotency-Key", IDEMPOTENCY_KEY)]
      : []),
  ];
  const [body] = bodyOf(route);
  const comment = commentOf(method);
  return {
    operationId: method.localName,
    tags: [tagOf(method.parent)],
    summary: comment.split(/(?<=\.)\s/)[0],
    description: [comment, REACH[workspaces]].filter(Boolean).join(" "),
    security: SECURITY[access],
    ...(parameters.length > 0 && { parameters }),
    ...(body && { requestBody: requestBodyOf(route, body, schemas) }),
    ...(route.raw && { requestBody: RAW_BODY }),
    responses: { [route.status]: answerOf(route, schemas), ...refusalsOf(route) },
  };
}

/** What an operation's description says about workspace keys. */
const REACH: Readonly<Record<WorkspaceReach, string>> = {
  [WorkspaceReach.UNSPECIFIED]: "",
  [WorkspaceReach.NONE]: "",
  [WorkspaceReach.OWN_WORKSPACE]: "Workspace keys can access only the resources of their own workspace.",
  [WorkspaceReach.ORGANISATION_READ]: "Workspace keys can read what the organization shares with its workspaces.",
  [WorkspaceReach.ORGANISATION]: "Requires an organization key; workspace keys are refused with `scope_denied`.",
};

const RAW_BODY = {
  required: true,
  content: {
    "application/json": {
      schema: { type: "object", additionalProperties: true },
      example: { id: "evt_1", type: "checkout.session.completed", data: { object: { id: "cs_1" } } },
    },
  },
};

const IDEMPOTENCY_KEY = {
  ...scalarType(9),
  minLength: 1,
  maxLength: 255,
  pattern: "^[!-~]*$",
  description:
    "Idempotency key: repeated requests with it within 24 hours return the first response, without running or charging again.",
};

const SECURITY: Readonly<Record<Access, readonly Keywords[]>> = {
  [Access.UNSPECIFIED]: [],
  [Access.PUBLIC]: [],
  [Access.KEY]: [{ apiKey: [] }],
  [Access.ADMIN]: [{ adminToken: [] }],
  [Access.ADMIN_OR_KEY]: [{ adminToken: [] }, { apiKey: [] }],
  [Access.ADMIN_OR_SIGNUP]: [{ adminToken: [] }, {}],
};

function parameterOf(place: string, name: string, { description, ...schema }: Keywords): Keywords {
  return { name, in: place, description, ...(place === "path" && { required: true }), schema };
}

function requestBodyOf({ method, path, dialect }: RestRoute, body: DescMessage, schemas: Schemas): Keywords {
  const example = EXAMPLES[body.name];
  // Path parameters are not part of the body.
  const schema = path.length > 0 && body === method.input ? schemas.without(body, path) : schemas.message(body);
  return {
    required: !schemas.mayBeEmpty(body),
    content: { [dialect.contentType]: { schema, ...(example !== undefined && { example }) } },
  };
}

function answerOf(route: RestRoute, schemas: Schemas): Keywords {
  const { method, answer } = route;
  if (route.file) return fileAnswer(route);
  const whole = method.methodKind === "unary" ? { [route.dialect.contentType]: wholeAnswer(route, schemas) } : {};
  const events = route.events ? { "text/event-stream": eventsOf(route, schemas) } : {};
  const lines = route.lines ? { "text/plain": linesOf(route, schemas) } : {};
  return {
    description: commentOf(answer?.message ?? method.output),
    headers: HEADERS,
    content: { ...whole, ...events, ...lines },
  };
}

/** A file; its media type is in the response. */
const fileAnswer = ({ method }: RestRoute): Keywords => ({
  description: commentOf(method.output),
  headers: HEADERS,
  content: { "*/*": { schema: { type: "string", format: "binary" } } },
});

function wholeAnswer({ method, answer }: RestRoute, schemas: Schemas): Keywords {
  const desc = answer?.message ?? method.output;
  const example = EXAMPLES[desc.name];
  return { schema: schemas.message(desc), ...(example !== undefined && { example }) };
}

/** OpenAPI 3.1 cannot describe event streams, so a text and an extension do. */
function eventsOf({ method }: RestRoute, schemas: Schemas): Keywords {
  const events =
    method.methodKind === "unary"
      ? { route: "the route", step: "each step as `{index, values}`", done: "the answer without its steps" }
      : Object.fromEntries(method.output.fields.map((field) => [field.name, schemas.field(field)]));
  const names = Object.keys(events).join("`, `");
  return {
    schema: {
      type: "string",
      description: `Server-sent events \`${names}\`; after a failure, \`error\` replaces the last one.`,
    },
    "x-events": events,
  };
}

/** Nor can it describe line streams. */
function linesOf({ method }: RestRoute, schemas: Schemas): Keywords {
  const [field] = method.output.fields;
  if (field === undefined) throw new Error(`${method.output} has no field to be a line`);
  return {
    schema: { type: "string", description: "JSON Lines: one object per line." },
    "x-line": schemas.field(field),
  };
}

const REFUSAL = { $ref: "#/components/responses/Refusal" };

function refusalsOf(route: RestRoute): Keywords {
  const { access, permission } = getOption(route.method, rpc);
  const statuses = [
    ...(access === Access.PUBLIC ? [] : [401, 403, 429]),
    ...(route.verb === "GET" && route.query.size === 0 ? [] : [422]),
    ...(route.verb === "GET" ? [] : [400, 413, 415]),
    ...(permission === "inference.run" ? [402, 404, 409, 502, 503, 504] : []),
  ].sort((a, b) => a - b);
  return Object.fromEntries([...statuses, "default"].map((status) => [status, REFUSAL]));
}

/** Collects the schemas that a document refers to. */
export class Schemas {
  readonly #schemas = new Map<string, Keywords>();
  readonly #requests: ReadonlySet<string>;

  /** `requests` are the messages that callers send; objects inside them are closed to unknown fields. */
  constructor(requests: Iterable<DescMessage>) {
    this.#requests = insideOf(requests);
  }

  /** All schemas by name, in alphabetical order. */
  get all(): Readonly<Record<string, Keywords>> {
    return Object.fromEntries([...this.#schemas].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** Returns a reference to the schema of a message. */
  message(desc: DescMessage): Keywords {
    if (desc.typeName === "google.protobuf.Struct") return { type: "object", additionalProperties: true };
    if (desc.typeName === "google.protobuf.Value") return {};
    return this.#refer(desc.name, () => (getOption(desc, inline) ? this.#inline(desc) : this.#object(desc)));
  }

  /** Returns the schema of a field's value, with its comment. */
  field(field: DescField): Keywords {
    const value = this.#value(field);
    const description = commentOf(field);
    return description === "" ? value : { ...value, description };
  }

  /** The same with the default of an absent field. */
  asked(field: DescField): Keywords {
    const { description, ...value } = this.field(field);
    const usual = usualIn(String(description ?? ""), field);
    return {
      ...value,
      ...(usual !== undefined && { default: usual }),
      ...(description !== undefined && { description }),
    };
  }

  /** Returns the schema of a request's body if `fields` of the message are sent elsewhere. */
  without(desc: DescMessage, fields: readonly DescField[]): Keywords {
    const gone = new Set(fields.map(({ name }) => name));
    const { properties, required, ...rest } = this.#object(desc);
    const left = Object.entries(properties as Keywords).filter(([name]) => !gone.has(name));
    const demanded = ((required ?? []) as string[]).filter((name) => !gone.has(name));
    return { ...rest, properties: Object.fromEntries(left), ...(demanded.length > 0 && { required: demanded }) };
  }

  /** Whether a request requires no field. */
  mayBeEmpty(desc: DescMessage): boolean {
    return demandedOf(desc).length === 0;
  }

  #refer(name: string, make: () => Keywords): Keywords {
    if (!this.#schemas.has(name)) {
      this.#schemas.set(name, {}); // a message may contain itself
      this.#schemas.set(name, make());
    }
    return { $ref: `#/components/schemas/${name}` };
  }

  #inline(desc: DescMessage): Keywords {
    const [only] = desc.fields;
    if (only === undefined) throw new Error(`${desc.typeName} cannot be inline`);
    return { description: commentOf(desc), ...this.#value(only) };
  }

  #object(desc: DescMessage): Keywords {
    const asked = this.#requests.has(desc.typeName);
    const demanded = asked ? demandedOf(desc) : alwaysThere(desc);
    // Readers take a property named `$ref` for a reference, so it is left out.
    const shown = desc.fields.filter((field) => nameOf(field) !== "$ref");
    const properties = shown.map((field) => {
      const schema = asked ? this.asked(field) : this.field(field);
      const mayBeNull = getOption(field, nullable) || (asked && !demanded.includes(field.name));
      return [nameOf(field), mayBeNull ? orNull(schema) : schema];
    });
    const required = desc.fields.filter(({ name }) => demanded.includes(name)).map(nameOf);
    // Identity providers send additional fields, and unknown ones are ignored.
    const closed = asked && !isScim(desc);
    return {
      type: "object",
      description: commentOf(desc),
      properties: Object.fromEntries(properties),
      ...(required.length > 0 && { required }),
      ...(closed && { additionalProperties: false }),
    };
  }

  #value(field: DescField): Keywords {
    switch (field.fieldKind) {
      case "list":
        return {
          type: "array",
          items: this.#item(field),
          ...(getOption(field, nonempty) && { minItems: 1 }),
          ...countBounds(field),
        };
      case "map":
        return { type: "object", additionalProperties: this.#item(field), ...countBounds(field) };
      default:
        return this.#item(field);
    }
  }

  #item(field: DescField): Keywords {
    if (field.message !== undefined) return this.message(field.message);
    if (field.enum !== undefined) return this.#enum(field.enum);
    if (field.scalar === undefined) throw new Error(`${field} has no type`);
    if (getOption(field, whole)) return { type: "integer" };
    return { ...scalarType(field.scalar), ...valueBounds(field) };
  }

  #enum(desc: DescEnum): Keywords {
    const { toNumber, ofNumber } = wordsOf(desc);
    const meanings = desc.values
      .filter(({ number }) => number !== 0)
      .map((value) => [ofNumber.get(value.number), commentOf(value)]);
    return this.#refer(desc.name, () => ({
      type: "string",
      description: commentOf(desc),
      enum: [...toNumber.keys()],
      "x-enum-descriptions": Object.fromEntries(meanings),
    }));
  }
}

/** How comments state the default of an absent field: `50 when absent.`, `` `act` when absent ``, `True when absent.` */
const USUAL = /(?:^|[.;] )(?:`([^`]+)`|([\d.,]+)|(true|false)) when absent/i;
/** How the comment of an enum's unspecified value states its meaning. */
const STANDS_FOR = /behaves as `?(\w+)/i;

/** The default of an absent field, if its comment states a value. */
function usualIn(comment: string, field: DescField): string | number | boolean | undefined {
  const isPlain = field.fieldKind === "scalar" || field.fieldKind === "enum";
  // In changes and partial requests, absent fields keep their values.
  if (!isPlain || field.oneof !== undefined || /^(Update|Preset)/.test(field.parent.name)) return undefined;
  const [, word, figure, truth] = USUAL.exec(comment) ?? [];
  if (field.scalar === ScalarType.BOOL) {
    // Without presence an absent boolean is false.
    if (truth !== undefined) return truth.toLowerCase() === "true";
    return hasPresence(field) ? undefined : false;
  }
  if (field.enum !== undefined) {
    const meant = word ?? STANDS_FOR.exec(commentOf(field.enum.values[0]!))?.[1]?.toLowerCase();
    return meant !== undefined && wordsOf(field.enum).toNumber.has(meant) ? meant : undefined;
  }
  // A message of that type may have other defaults set.
  if (field.scalar === ScalarType.STRING)
    return field.parent.fields.some(({ name }) => name === word) ? undefined : word;
  const number = Number(figure?.replaceAll(",", "") ?? Number.NaN);
  return Number.isNaN(number) ? undefined : number;
}

/** Returns the names of `roots` and of the messages that they contain. */
function insideOf(roots: Iterable<DescMessage>, found = new Set<string>()): Set<string> {
  for (const desc of roots) {
    if (found.has(desc.typeName)) continue;
    found.add(desc.typeName);
    insideOf(
      desc.fields.flatMap(({ message }) => message ?? []),
      found,
    );
  }
  return found;
}

/** Required fields of a request: those whose rules an empty message violates. */
function demandedOf(desc: DescMessage): string[] {
  const missed = new Set(violationsOf(desc, create(desc)).map(({ path }) => path));
  return desc.fields.map(({ name }) => name).filter((name) => missed.has(name));
}

/** Fields that a response always has: those without presence, and those that are null instead of absent. */
function alwaysThere(desc: DescMessage): string[] {
  if (desc.typeName === ErrorDetailsSchema.typeName) return []; // each refusal sets the fields of its kind
  return desc.fields
    .filter((field) => field.oneof === undefined && (!hasPresence(field) || getOption(field, nullable)))
    .map(({ name }) => name);
}

/** The messages in RFC 7644's convention, which names fields by their JSON names. */
const isScim = (desc: DescMessage): boolean => desc.file.proto.package === "limber.scim.v2";

const nameOf = (field: DescField): string => (isScim(field.parent) ? field.jsonName : field.name);

const hasPresence = (field: DescField): boolean =>
  field.fieldKind === "message" ||
  (field.fieldKind !== "list" && field.fieldKind !== "map" && field.proto.proto3Optional);

function orNull(schema: Keywords): Keywords {
  const { type, $ref, description, default: usual, enum: words, ...rest } = schema;
  const said = {
    ...(usual !== undefined && { default: usual }),
    ...(description !== undefined && { description }),
  };
  if ($ref !== undefined) return { anyOf: [{ $ref }, { type: "null" }], ...said };
  const either = { ...(type !== undefined && { type: [type, "null"] }), ...rest, ...said };
  return Array.isArray(words) ? { ...either, enum: [...words, null] } : either;
}

/** JSON Schema keywords and their values. */
export type Keywords = Readonly<Record<string, unknown>>;

/** The keywords for one value of a field: the field's own, or an item's of a repeated field or a map. */
function valueBounds(field: DescField): Keywords {
  const { type } = getOption(field, fieldRules);
  if (field.fieldKind === "list") return type.case === "repeated" ? boundsOf(type.value.items?.type) : {};
  if (field.fieldKind === "map") return type.case === "map" ? boundsOf(type.value.values?.type) : {};
  return boundsOf(type);
}

/** The keywords for the number of items or members of a repeated field or a map. */
function countBounds(field: DescField): Keywords {
  const { type } = getOption(field, fieldRules);
  if (type.case === "repeated") {
    const { minItems, maxItems, unique } = type.value;
    return defined({ minItems: count(minItems), maxItems: count(maxItems), uniqueItems: unique || undefined });
  }
  if (type.case !== "map") return {};
  const { minPairs, maxPairs, keys } = type.value;
  const names = boundsOf(keys?.type);
  return defined({
    minProperties: count(minPairs),
    maxProperties: count(maxPairs),
    propertyNames: Object.keys(names).length > 0 ? names : undefined,
  });
}

function boundsOf(type: FieldRules["type"] | undefined): Keywords {
  switch (type?.case) {
    case "string": {
      const { minLen, maxLen, pattern, in: words, wellKnown } = type.value;
      return defined({
        minLength: count(minLen),
        maxLength: count(maxLen),
        pattern: pattern || undefined,
        enum: words.length > 0 ? words : undefined,
        format: FORMATS[wellKnown.case ?? ""],
      });
    }
    case "bytes":
      // Four characters for every three bytes.
      return defined({ maxLength: type.value.maxLen > 0n ? Math.ceil(Number(type.value.maxLen) / 3) * 4 : undefined });
    case "double":
    case "uint32":
    case "int32": {
      const { greaterThan, lessThan } = type.value;
      return defined({
        [LOWER[greaterThan.case ?? ""] ?? ""]: greaterThan.value,
        [UPPER[lessThan.case ?? ""] ?? ""]: lessThan.value,
      });
    }
    default:
      return {};
  }
}

const FORMATS: Readonly<Record<string, string>> = { email: "email", uri: "uri" };
const LOWER: Readonly<Record<string, string>> = { gt: "exclusiveMinimum", gte: "minimum" };
const UPPER: Readonly<Record<string, string>> = { lt: "exclusiveMaximum", lte: "maximum" };

const count = (value: bigint): number | undefined => (value > 0n ? Number(value) : undefined);

const defined = (keywords: Keywords): Keywords =>
  Object.fromEntries(Object.entries(keywords).filter(([name, value]) => name !== "" && value !== undefined));

/** The keywords of a scalar type in REST JSON. */
function scalarType(scalar: ScalarType): Keywords {
  switch (scalar) {
    case ScalarType.STRING:
      return { type: "string" };
    case ScalarType.BOOL:
      return { type: "boolean" };
    case ScalarType.BYTES:
      return { type: "string", contentEncoding: "base64" };
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      return { type: "number" };
    case ScalarType.UINT32:
    case ScalarType.FIXED32:
      return { type: "integer", minimum: 0, maximum: 2 ** 32 - 1 };
    default:
      return { type: "integer" };
  }
}

/** Descriptors whose comments are used. */
type Commented = DescMessage | DescField | DescEnum | DescEnumValue | DescService | DescMethod;

// Field numbers in google/protobuf/descriptor.proto, of which source location paths consist.
const FILE_MESSAGE = 4;
const FILE_ENUM = 5;
const FILE_SERVICE = 6;
const MESSAGE_FIELD = 2;
const MESSAGE_MESSAGE = 3;
const MESSAGE_ENUM = 4;
const ENUM_VALUE = 2;
const SERVICE_METHOD = 2;

/** Returns the comment before `desc` as one text without line breaks; empty if its file was compiled without source information. */
export function commentOf(desc: Commented): string {
  const file = "file" in desc ? desc.file : desc.parent.file;
  const path = pathOf(desc).join(".");
  const location = file.proto.sourceCodeInfo?.location.find((each) => each.path.join(".") === path);
  return (location?.leadingComments ?? "").replaceAll(/\s+/g, " ").trim();
}

function pathOf(desc: Commented): number[] {
  switch (desc.kind) {
    case "message":
      return desc.parent === undefined
        ? [FILE_MESSAGE, desc.file.proto.messageType.indexOf(desc.proto)]
        : [...pathOf(desc.parent), MESSAGE_MESSAGE, desc.parent.proto.nestedType.indexOf(desc.proto)];
    case "enum":
      return desc.parent === undefined
        ? [FILE_ENUM, desc.file.proto.enumType.indexOf(desc.proto)]
        : [...pathOf(desc.parent), MESSAGE_ENUM, desc.parent.proto.enumType.indexOf(desc.proto)];
    case "field":
      return [...pathOf(desc.parent), MESSAGE_FIELD, desc.parent.proto.field.indexOf(desc.proto)];
    case "enum_value":
      return [...pathOf(desc.parent), ENUM_VALUE, desc.parent.proto.value.indexOf(desc.proto)];
    case "service":
      return [FILE_SERVICE, desc.file.proto.service.indexOf(desc.proto)];
    case "rpc":
      return [...pathOf(desc.parent), SERVICE_METHOD, desc.parent.proto.method.indexOf(desc.proto)];
  }
}
