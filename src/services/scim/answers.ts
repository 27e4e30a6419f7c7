/** What all answers share: pages of lists (RFC 7644 section 3.4.2), the attributes that are asked for (3.9), and versions (3.14). */
import { Reason, refuse } from "../../errors.ts";
import type { ScimQuery, ScimResource } from "../../store/account/scim.ts";
import type { Sql } from "../../store/database/tx.ts";
import { type AttributePlace, type Kind, placeOf } from "./attributes.ts";
import { MAX_RESULTS } from "./discovery.ts";
import { parseFilter } from "./filter.ts";
import type { Resource } from "./patch.ts";
import { jsonPathOf, sortPathOf } from "./query.ts";

/** What SCIM depends on. */
export interface ScimDeps {
  sql: Sql;
  /** Applies a change of a key, or of the keys of a member or an organisation, at this replica at once; the others are notified. */
  changed(id: string): void;
}

/** What a caller asks of a list. */
export interface ListWish {
  readonly filter?: string | undefined;
  readonly sortBy?: string | undefined;
  readonly sortOrder?: string | undefined;
  readonly startIndex?: number | undefined;
  readonly count?: number | undefined;
}

const DEFAULT_COUNT = 100;

/** The schema of lists. */
export const LIST_SCHEMA = "urn:ietf:params:scim:api:messages:2.0:ListResponse";

/** The store's query for a wish. */
export function queryFor(kind: Kind, orgId: string, wish: ListWish): ScimQuery {
  const { filter, sortBy, sortOrder, startIndex = 1, count = DEFAULT_COUNT } = wish;
  const sorted = sortBy === undefined ? undefined : placeOf(kind, sortBy);
  if (sortBy !== undefined && !sorted)
    throw refuse(Reason.INVALID_PATH, "`sortBy` names an unknown attribute", {}, { param: "sortBy" });
  return {
    orgId,
    filter: filter === undefined ? undefined : jsonPathOf(parseFilter(kind, filter)),
    sortBy: sorted && sortPathOf(sorted),
    descending: sortOrder === "descending",
    // What is out of bounds means the nearest that is not (RFC 7644 section 3.4.2.4).
    offset: Math.max(0, startIndex - 1),
    limit: Math.min(MAX_RESULTS, Math.max(0, count)),
  };
}

/** A page of a list, as answers have it; `shown` makes what a caller sees of a resource. */
export const pageOf = <R, S>(
  { offset }: Pick<ScimQuery, "offset">,
  { total, resources }: { readonly total: number; readonly resources: readonly R[] },
  shown: (resource: R) => S,
) => ({
  ...{ schemas: [LIST_SCHEMA], totalResults: total, startIndex: offset + 1, itemsPerPage: resources.length },
  resources: resources.map(shown),
});

/** What a caller wants to see: attributes parted by commas, or lists of them. */
export interface Projection {
  readonly attributes?: string | readonly string[] | undefined;
  readonly excludedAttributes?: string | readonly string[] | undefined;
}

/** Always in answers. */
const ALWAYS: ReadonlySet<string> = new Set(["id", "schemas"]);

/** A resource with its schemas and the attributes that are asked for, or without those that are not. Unknown names ask for nothing. */
export function shownOf(
  kind: Kind,
  resource: Resource,
  { attributes = "", excludedAttributes = "" }: Projection,
): Resource {
  const followed = kind.extensions.filter(({ id }) => id in resource).map(({ id }) => id);
  const whole: Resource = { schemas: [kind.schema.id, ...followed], ...resource };
  if (String(attributes).trim() !== "") {
    const told = Object.fromEntries(Object.entries(whole).filter(([name]) => ALWAYS.has(name)));
    for (const { names } of placesOf(kind, attributes)) copy(whole, told, names);
    return told;
  }
  const told = structuredClone(whole);
  for (const { names } of placesOf(kind, excludedAttributes)) if (!ALWAYS.has(names[0] ?? "")) drop(told, names);
  return told;
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

/** Refuses with `version_mismatch` when a resource is not of a version that `If-Match` asks for. */
export function assertVersion({ meta }: ScimResource, ifMatch: string | undefined): void {
  if (ifMatch === undefined) return;
  const { version } = meta as { version?: string };
  const asked = ifMatch.split(",").map((each) => each.trim());
  if (!asked.includes("*") && !asked.some((each) => each === version || `W/${each}` === version))
    throw refuse(Reason.VERSION_MISMATCH, "the resource was changed since; read it again");
}
