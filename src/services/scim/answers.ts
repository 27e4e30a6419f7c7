/** Shared parts of responses: list pages (RFC 7644 section 3.4.2), requested attributes (3.9), and versions (3.14). */

import { create } from "@bufbuild/protobuf";
import {
  type ResourceType,
  ResourceTypeSchema,
  type Schema,
  type SchemaAttribute,
  SchemaAttributeSchema,
  SchemaSchema,
  type ServiceProviderConfig,
  ServiceProviderConfigSchema,
} from "../../../gen/limber/scim/v2/discovery_pb.ts";
import { Reason, refuse } from "../../errors.ts";
import type { ScimQuery, ScimResource } from "../../store/account/issuers.ts";
import type { Sql } from "../../store/database/tx.ts";
import {
  type Attribute,
  type AttributePlace,
  type Comparison,
  type Filter,
  KINDS,
  type Kind,
  type Literal,
  parseFilter,
  placeOf,
  type Resource,
  type SchemaDocument,
} from "./attributes.ts";

/** Dependencies of SCIM. */
export interface ScimDeps {
  sql: Sql;
  /** Applies a change to a key, or to the keys of a member or an organization, on this replica immediately; others are notified. */
  changed(id: string): void;
}

/** The parameters of a list. */
interface ListQuery {
  readonly filter?: string | undefined;
  readonly sortBy?: string | undefined;
  readonly sortOrder?: string | undefined;
  readonly startIndex?: number | undefined;
  readonly count?: number | undefined;
}

const DEFAULT_COUNT = 100;

/** The schema of lists. */
export const LIST_SCHEMA = "urn:ietf:params:scim:api:messages:2.0:ListResponse";

/** The store's query for list parameters. */
export function queryFor(kind: Kind, orgId: string, wish: ListQuery): ScimQuery {
  const { filter, sortBy, sortOrder, startIndex = 1, count = DEFAULT_COUNT } = wish;
  const sorted = sortBy === undefined ? undefined : placeOf(kind, sortBy);
  if (sortBy !== undefined && !sorted)
    throw refuse(Reason.INVALID_PATH, "`sortBy` names an unknown attribute", {}, { param: "sortBy" });
  return {
    orgId,
    filter: filter === undefined ? undefined : jsonPathOf(parseFilter(kind, filter)),
    sortBy: sorted && sortPathOf(sorted),
    descending: sortOrder === "descending",
    // Out-of-range values are clamped (RFC 7644 section 3.4.2.4).
    offset: Math.max(0, startIndex - 1),
    limit: Math.min(MAX_RESULTS, Math.max(0, count)),
  };
}

/** A page of a list response; `shown` converts a resource for the caller. */
export const pageOf = <R, S>(
  { offset }: Pick<ScimQuery, "offset">,
  { total, resources }: { readonly total: number; readonly resources: readonly R[] },
  shown: (resource: R) => S,
) => ({
  ...{ schemas: [LIST_SCHEMA], totalResults: total, startIndex: offset + 1, itemsPerPage: resources.length },
  resources: resources.map(shown),
});

/** The requested attributes: separated by commas, or lists of them. */
export interface Projection {
  readonly attributes?: string | readonly string[] | undefined;
  readonly excludedAttributes?: string | readonly string[] | undefined;
}

/** Attributes that every response has. */
const ALWAYS: ReadonlySet<string> = new Set(["id", "schemas"]);

/** A resource with its schemas and the requested attributes, or without the excluded ones. Unknown names have no effect. */
export function shownOf(
  kind: Kind,
  resource: Resource,
  { attributes = "", excludedAttributes = "" }: Projection,
): Resource {
  const followed = kind.extensions.filter(({ id }) => id in resource).map(({ id }) => id);
  const whole: Resource = { schemas: [kind.schema.id, ...followed], ...resource };
  if (String(attributes).trim() !== "") {
    const projected = Object.fromEntries(Object.entries(whole).filter(([name]) => ALWAYS.has(name)));
    for (const { names } of placesOf(kind, attributes)) copy(whole, projected, names);
    return projected;
  }
  const projected = structuredClone(whole);
  for (const { names } of placesOf(kind, excludedAttributes)) if (!ALWAYS.has(names[0] ?? "")) drop(projected, names);
  return projected;
}

const placesOf = (kind: Kind, list: string | readonly string[]): AttributePlace[] =>
  String(list)
    .split(",")
    .flatMap((name) => placeOf(kind, name.trim()) ?? []);

function copy(from: Resource, to: Resource, [name = "", ...rest]: readonly string[]): void {
  const value = from[name];
  if (value === undefined) return;
  if (rest.length === 0) to[name] = value;
  else if (Array.isArray(value)) {
    const before = Array.isArray(to[name]) ? to[name] : value.map(() => ({}));
    for (const [at, each] of value.entries()) copy(each, before[at], rest);
    to[name] = before;
  } else {
    to[name] = to[name] ?? {};
    copy(value as Resource, to[name] as Resource, rest);
  }
}

function drop(from: Resource, [name = "", ...rest]: readonly string[]): void {
  const value = from[name];
  if (rest.length === 0) delete from[name];
  else if (Array.isArray(value)) for (const each of value) drop(each, rest);
  else if (typeof value === "object" && value !== null) drop(value as Resource, rest);
}

/** Refuses with `version_mismatch` if the resource's version does not match `If-Match`. */
export function assertVersion({ meta }: ScimResource, ifMatch: string | undefined): void {
  if (ifMatch === undefined) return;
  const { version } = meta as { version?: string };
  const asked = ifMatch.split(",").map((each) => each.trim());
  if (!asked.includes("*") && !asked.some((each) => each === version || `W/${each}` === version))
    throw refuse(Reason.VERSION_MISMATCH, "the resource has changed; read it again");
}

// Filters as paths that PostgreSQL evaluates over resources, so that no list has to fit into memory.

/** Names of the resource as stored and in lower case, in the database's JSON. */
const RAW = "r";
const LOWER = "l";

/**
 * A filter as an SQL/JSON path over `{r: resource, l: resource in lower case}`. All caller text is included as quoted literals.
 */
const jsonPathOf = (filter: Filter): string => `$ ? (${predicate(filter, "top")})`;

/** The sort key in the same form. */
function sortPathOf({ names, attribute, parent }: AttributePlace): string {
  const value =
    attribute.type === "complex" ? (attribute.subAttributes ?? []).find(({ name }) => name === "value") : undefined;
  const all = value ? [...names, value.name] : names;
  const many = (parent ?? attribute).multiValued ? "[0]" : "";
  const [first = "", ...rest] = steps(all, isExact(attribute, names));
  return `${rootOf(attribute, names, "$")}${first}${many}${rest.join("")}`;
}

/** Only top-level identifiers are case-sensitive. */
const isExact = ({ caseExact, type }: Attribute, names: readonly string[]): boolean =>
  caseExact === true && type !== "boolean" && (names.length === 1 || names[0] === "meta");

const rootOf = (attribute: Attribute, names: readonly string[], base: string): string =>
  `${base}.${isExact(attribute, names) ? RAW : LOWER}`;

const steps = (names: readonly string[], exact: boolean): string[] =>
  names.map((name) => `.${JSON.stringify(exact ? name : name.toLowerCase())}`);

function predicate(filter: Filter, level: "top" | "inner"): string {
  switch (filter.op) {
    case "and":
    case "or":
      return filter.all.map((each) => `(${predicate(each, level)})`).join(filter.op === "and" ? " && " : " || ");
    case "not":
      return `!(${predicate(filter.inner, level)})`;
    case "pr":
      return `exists(${pathTo(filter.place, level)} ? (@ != null))`;
    case "some":
      return `exists(${pathTo(filter.place, level)} ? (${predicate(filter.inner, "inner")}))`;
    case "ne":
      return `!(${compared(filter.place, "eq", filter.value, level)})`;
    default:
      return compared(filter.place, filter.op, filter.value, level);
  }
}

function pathTo({ names, attribute, parent }: AttributePlace, level: "top" | "inner"): string {
  const exact = level === "top" && isExact(attribute, names);
  const root = level === "top" ? `@.${exact ? RAW : LOWER}` : "@";
  const all = steps(names, exact);
  // The multi-valued attribute is the last one, or the one before it.
  const many = attribute.multiValued ? all.length - 1 : parent?.multiValued && level === "top" ? all.length - 2 : -1;
  return root + all.map((step, at) => (at === many ? `${step}[*]` : step)).join("");
}

const SIGNS: Readonly<Partial<Record<Comparison, string>>> = { eq: "==", gt: ">", ge: ">=", lt: "<", le: "<=" };

function compared(
  place: AttributePlace,
  op: Exclude<Comparison, "ne">,
  literal: Literal,
  level: "top" | "inner",
): string {
  const path = pathTo(place, level);
  if (literal === null) return `!exists(${path} ? (@ != null))`;
  if (typeof literal !== "string") return `${path} ${SIGNS[op]} ${JSON.stringify(literal)}`;
  const exact = level === "top" && isExact(place.attribute, place.names);
  const text = exact ? literal : literal.toLowerCase();
  switch (op) {
    case "sw":
      return `${path} starts with ${quoted(text)}`;
    case "co":
      return `${path} like_regex ${quoted(text)} flag "q"`;
    case "ew":
      return `${path} like_regex ${quoted(`${text.replaceAll(/[^\p{L}\p{N}]/gu, "\\$&")}$`)}`;
    default:
      return `${path} ${SIGNS[op]} ${quoted(text)}`;
  }
}

const quoted = (text: string): string => JSON.stringify(text);

// Service discovery (RFC 7643 sections 5 to 7).

const CORE = "urn:ietf:params:scim:schemas:core:2.0";
const BASE = "/v1/scim/v2";

/** The most resources per response. */
const MAX_RESULTS = 1000;

/** The resource types. */
export const RESOURCE_TYPES: readonly ResourceType[] = Object.values(KINDS).map(
  ({ name, endpoint, schema, extensions }) =>
    create(ResourceTypeSchema, {
      schemas: [`${CORE}:ResourceType`],
      id: name,
      name,
      description: schema.description,
      endpoint,
      schema: schema.id,
      schemaExtensions: extensions.map(({ id }) => ({ schema: id, required: false })),
      meta: { resourceType: "ResourceType", location: `${BASE}/ResourceTypes/${name}` },
    }),
);

/** The schemas. */
export const SCHEMAS: readonly Schema[] = Object.values(KINDS)
  .flatMap(({ schema, extensions }): SchemaDocument[] => [schema, ...extensions])
  .map(({ id, name, description, attributes }) =>
    create(SchemaSchema, {
      schemas: [`${CORE}:Schema`],
      id,
      name,
      description,
      attributes: attributes.map(attributeMessage),
      meta: { resourceType: "Schema", location: `${BASE}/Schemas/${id}` },
    }),
  );

function attributeMessage(attribute: Attribute): SchemaAttribute {
  const { canonicalValues = [], referenceTypes = [], subAttributes = [], ...rest } = attribute;
  return create(SchemaAttributeSchema, {
    ...rest,
    canonicalValues: [...canonicalValues],
    referenceTypes: [...referenceTypes],
    subAttributes: subAttributes.map(attributeMessage),
  });
}

/** The supported features. */
export const PROVIDER_CONFIG: ServiceProviderConfig = create(ServiceProviderConfigSchema, {
  schemas: [`${CORE}:ServiceProviderConfig`],
  patch: { supported: true },
  bulk: { supported: false, maxOperations: 0, maxPayloadSize: 0 },
  filter: { supported: true, maxResults: MAX_RESULTS },
  changePassword: { supported: false },
  sort: { supported: true },
  etag: { supported: true },
  authenticationSchemes: [
    {
      type: "oauthbearertoken",
      name: "API key",
      description: "An API key of the role owner or admin, as a bearer token.",
      specUri: "https://www.rfc-editor.org/info/rfc6750",
      primary: true,
    },
  ],
  meta: { resourceType: "ServiceProviderConfig", location: `${BASE}/ServiceProviderConfig` },
});
