/** Which attributes an answer has (RFC 7644 section 3.9). */
import { type AttributePlace, type Kind, placeOf } from "./attributes.ts";
import type { Resource } from "./patch.ts";

/** What a caller wants to see, as lists of attributes parted by commas. */
export interface Projection {
  readonly attributes?: string | undefined;
  readonly excludedAttributes?: string | undefined;
}

/** The wish of a search, which has lists where a query has commas. */
export const wishOf = (search: {
  readonly attributes: readonly string[];
  readonly excludedAttributes: readonly string[];
}): Projection => ({
  ...(search.attributes.length > 0 && { attributes: search.attributes.join() }),
  ...(search.excludedAttributes.length > 0 && { excludedAttributes: search.excludedAttributes.join() }),
});

/** Always in answers. */
const ALWAYS: ReadonlySet<string> = new Set(["id", "schemas"]);

/** A resource with the attributes that are wished for, or without those that are not. Names that are not known wish for nothing. */
export function projected(kind: Kind, resource: Resource, { attributes, excludedAttributes }: Projection): Resource {
  if (attributes !== undefined && attributes.trim() !== "") return only(resource, placesOf(kind, attributes));
  if (excludedAttributes !== undefined) return without(resource, placesOf(kind, excludedAttributes));
  return resource;
}

const placesOf = (kind: Kind, list: string): AttributePlace[] =>
  list.split(",").flatMap((name) => placeOf(kind, name.trim()) ?? []);

function only(resource: Resource, places: readonly AttributePlace[]): Resource {
  const told: Resource = {};
  for (const name of ALWAYS) if (resource[name] !== undefined) told[name] = resource[name];
  for (const { names } of places) copy(resource, told, names);
  return told;
}

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

function without(resource: Resource, places: readonly AttributePlace[]): Resource {
  const told = structuredClone(resource);
  for (const { names } of places) if (!ALWAYS.has(names[0] ?? "")) drop(told, names);
  return told;
}

function drop(from: Resource, [name = "", ...rest]: readonly string[]): void {
  const value = from[name];
  if (rest.length === 0) delete from[name];
  else if (Array.isArray(value)) for (const each of value) drop(each, rest);
  else if (typeof value === "object" && value !== null) drop(value as Resource, rest);
}
