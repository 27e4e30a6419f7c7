/** The OpenAPI 3.1 description of the REST transport, derived from the schema and its comments. */
import type { DescMessage, DescService } from "@bufbuild/protobuf";
import { getOption } from "@bufbuild/protobuf";
import { Access, rpc, WorkspaceReach } from "../../../gen/limber/edge/v1/options_pb.ts";
import { ErrorBodySchema } from "../../../gen/limber/v1/error_pb.ts";
import { ADMIN_HEADER, API_VERSION, BRAND } from "../../brand.ts";
import { type RestRoute, routesOf } from "../transports/rest/route.ts";
import { type Keywords, scalarType } from "./bounds.ts";
import { commentOf } from "./comments.ts";
import { EXAMPLES } from "./examples.ts";
import { Schemas } from "./schemas.ts";

/**
 * The document for `services`, whose files were compiled with source information; `errorBody` is the message that every
 * refusal is written as.
 */
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
        Refusal: { description: "A refusal.", headers: HEADERS, content: { "application/json": { schema: refusal } } },
      },
      headers: {
        RequestId: { description: "Finds the call in the log.", schema: { type: "string" } },
      },
      securitySchemes: {
        apiKey: { type: "http", scheme: "bearer", description: "An API key." },
        adminToken: { type: "apiKey", in: "header", name: ADMIN_HEADER, description: "The operator's token." },
      },
    },
  };
}

const HEADERS = { "X-Request-Id": { $ref: "#/components/headers/RequestId" } };

const tagOf = (service: DescService): string => service.name.replace(/Service$/, "").toLowerCase();

/** The message that a caller sends as the body, in whole or in part. */
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

/** What an operation's description says of keys of workspaces. */
const REACH: Readonly<Record<WorkspaceReach, string>> = {
  [WorkspaceReach.UNSPECIFIED]: "",
  [WorkspaceReach.NONE]: "",
  [WorkspaceReach.OWN_WORKSPACE]: "A key of a workspace reaches what is of that workspace alone.",
  [WorkspaceReach.ORGANISATION_READ]: "A key of a workspace reads what the organisation shares with its workspaces.",
  [WorkspaceReach.ORGANISATION]:
    "Needs a key of the organisation: a key of a workspace is refused with `scope_denied`.",
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
  description: "The same key within 24 hours returns the first answer without running or charging again.",
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
  // What the path carries is no part of the body.
  const schema = path.length > 0 && body === method.input ? schemas.without(body, path) : schemas.message(body);
  return {
    required: !schemas.mayBeEmpty(body),
    content: { [dialect.contentType]: { schema, ...(example !== undefined && { example }) } },
  };
}

function answerOf(route: RestRoute, schemas: Schemas): Keywords {
  const { method, answer } = route;
  const whole = method.methodKind === "unary" ? { [route.dialect.contentType]: wholeAnswer(route, schemas) } : {};
  const events = route.events ? { "text/event-stream": eventsOf(route, schemas) } : {};
  const lines = route.lines ? { "text/plain": linesOf(route, schemas) } : {};
  return {
    description: commentOf(answer?.message ?? method.output),
    headers: HEADERS,
    content: { ...whole, ...events, ...lines },
  };
}

function wholeAnswer({ method, answer }: RestRoute, schemas: Schemas): Keywords {
  const desc = answer?.message ?? method.output;
  const example = EXAMPLES[desc.name];
  return { schema: schemas.message(desc), ...(example !== undefined && { example }) };
}

/** OpenAPI 3.1 has no word for events, so that they are told in words and by an extension. */
function eventsOf({ method }: RestRoute, schemas: Schemas): Keywords {
  const events =
    method.methodKind === "unary"
      ? { route: "the route", step: "each step as `{index, values}`", done: "the answer without its steps" }
      : Object.fromEntries(method.output.fields.map((field) => [field.name, schemas.field(field)]));
  const names = Object.keys(events).join("`, `");
  return {
    schema: { type: "string", description: `Events \`${names}\`; \`error\` in place of the last after a failure.` },
    "x-events": events,
  };
}

/** Nor has it one for lines. */
function linesOf({ method }: RestRoute, schemas: Schemas): Keywords {
  const [field] = method.output.fields;
  if (field === undefined) throw new Error(`${method.output} has no field to be a line`);
  return { schema: { type: "string", description: "JSON Lines: one object a line." }, "x-line": schemas.field(field) };
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
