/** Changes of resources (RFC 7644 section 3.5.2), on their JSON. */
import { Reason, refuse } from "../../refusal.ts";
import { type Attribute, type Kind, type Place, partOf, placeOf } from "./attributes.ts";
import { type Filter, type Path, parsePath } from "./filter.ts";
import { matches } from "./match.ts";

/** A JSON object that is being changed. */
export type Resource = Record<string, unknown>;

/** One change, as it came. */
export interface Change {
  readonly op?: string | undefined;
  readonly path?: string | undefined;
  readonly value?: unknown;
}

type Op = "add" | "replace" | "remove";

const MAX_CHANGES = 1000;

/** A resource after some changes, in their order; the one that came in stays what it is. Refuses in SCIM's own words. */
export function patched(kind: Kind, resource: Resource, changes: readonly Change[]): Resource {
  if (changes.length === 0) throw refuse(Reason.MALFORMED_BODY, "Operations must have at least one operation");
  if (changes.length > MAX_CHANGES)
    throw refuse(Reason.MALFORMED_BODY, `Operations must have no more than ${MAX_CHANGES} operations`);
  const after = structuredClone(resource);
  for (const change of changes) applyOne(kind, after, change);
  return after;
}

function applyOne(kind: Kind, resource: Resource, { op: said, path, value }: Change): void {
  const op = said?.toLowerCase();
  if (op !== "add" && op !== "replace" && op !== "remove")
    throw refuse(Reason.MALFORMED_BODY, "op must be add, replace or remove");
  if (path !== undefined && path !== "") {
    change(resource, op, parsePath(kind, path), value);
    return;
  }
  if (op === "remove") throw refuse(Reason.NO_TARGET, "a removal must have a path");
  if (!isObject(value))
    throw refuse(Reason.INVALID_VALUE, "an operation without a path must have an object for its value");
  for (const [name, each] of Object.entries(value)) {
    const place = placeOf(kind, name);
    // What is not for callers to change, or not known here, comes along in whole resources.
    if (place && place.attribute.mutability !== "readOnly")
      change(resource, op, { place, filter: undefined, part: undefined }, each);
  }
}

const isObject = (value: unknown): value is Resource =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function change(resource: Resource, op: Op, path: Path, value: unknown): void {
  const { place, filter, part } = path;
  const { attribute, parent } = place;
  const changed = part ?? attribute;
  if ([attribute, parent, part].some((each) => each?.mutability === "readOnly"))
    throw refuse(Reason.NOT_MUTABLE, `${changed.name} is not for callers to change`);
  if (op === "remove" && changed.required && !parent && !filter)
    throw refuse(Reason.NOT_MUTABLE, `${changed.name} cannot be removed`);
  if (op !== "remove" && value === undefined) throw refuse(Reason.INVALID_VALUE, `${changed.name} needs a value`);
  const { holder, name } = holderOf(resource, place, op !== "remove");
  if (!holder) return;
  if (filter) chosen(holder, name, op, path, filter, value);
  else if (parent?.multiValued && Array.isArray(holder)) eachPart(holder, name, op, attribute, value);
  else if (!isObject(holder)) throw refuse(Reason.NO_TARGET, `${changed.name} leads to no value`);
  else if (attribute.multiValued) several(holder, name, op, attribute, value);
  else single(holder, name, op, attribute, value);
}

/** The object that holds what a place names; made on the way where `make` says so. */
function holderOf(resource: Resource, { names }: Place, make: boolean): { holder: unknown; name: string } {
  let holder: unknown = resource;
  for (const name of names.slice(0, -1)) {
    if (!isObject(holder)) break;
    if (holder[name] === undefined && make) holder[name] = {};
    holder = holder[name];
  }
  return { holder, name: names.at(-1) ?? "" };
}

function single(holder: Resource, name: string, op: Op, attribute: Attribute, value: unknown): void {
  if (op === "remove" || value === null) {
    delete holder[name];
    return;
  }
  const made = coerced(attribute, value);
  const before = holder[name];
  // Parts that a change does not speak of stay what they are.
  holder[name] = isObject(made) && isObject(before) ? { ...before, ...made } : made;
}

function several(holder: Resource, name: string, op: Op, attribute: Attribute, value: unknown): void {
  const before = listOf(holder[name]);
  const given = listOf(value).map((each) => coerced(attribute, each));
  if (op === "add") put(holder, name, joined(before, given));
  else if (op === "replace") put(holder, name, joined([], given));
  // Some identity providers name in the value what they want removed.
  else if (given.length > 0)
    put(
      holder,
      name,
      before.filter((each) => !given.some((one) => same(each, one))),
    );
  else delete holder[name];
}

/** The parts of all values of an attribute at once. */
function eachPart(values: unknown[], name: string, op: Op, part: Attribute, value: unknown): void {
  for (const each of values) if (isObject(each)) single(each, name, op, part, value);
}

function chosen(holder: unknown, name: string, op: Op, path: Path, filter: Filter, value: unknown): void {
  if (!isObject(holder)) return;
  const before = listOf(holder[name]);
  const hit = before.filter((each) => matches(filter, each)).filter(isObject);
  if (op === "remove") put(holder, name, lessened(before, hit, path.part));
  else if (hit.length > 0) put(holder, name, altered(before, hit, path, value));
  else put(holder, name, joined(before, [newlyDescribed(op, path, filter, value)]));
}

/** Values without those that were hit, or without a part of these. */
function lessened(before: readonly unknown[], hit: readonly Resource[], part: Attribute | undefined): unknown[] {
  if (!part) return before.filter((each) => !hit.some((one) => one === each));
  for (const each of hit) delete each[part.name];
  return before.filter((each) => !isObject(each) || Object.keys(each).length > 0);
}

/** Values, those changed that were hit. */
function altered(
  before: readonly unknown[],
  hit: readonly Resource[],
  { place: { attribute }, part }: Path,
  value: unknown,
): readonly unknown[] {
  for (const each of hit) {
    if (part) single(each, part.name, "replace", part, value);
    else Object.assign(each, coerced(attribute, value));
    if (each.primary === true) for (const other of before) if (other !== each && isObject(other)) demote(other);
  }
  return before;
}

/** The value that an addition makes where its filter chooses none yet, but describes one. */
function newlyDescribed(op: Op, { place: { attribute }, part }: Path, filter: Filter, value: unknown): Resource {
  const described = op === "add" ? describedBy(filter) : undefined;
  if (!described) throw refuse(Reason.NO_TARGET, `the path chooses no value of ${attribute.name}`);
  const made = part ? { [part.name]: coerced(part, value) } : coerced(attribute, value);
  return { ...described, ...(isObject(made) && made) };
}

/** What a filter of equalities describes: the value that an addition to it makes where there is none yet. */
function describedBy(filter: Filter): Resource | undefined {
  if (filter.op === "eq") return { [filter.place.attribute.name]: filter.value };
  if (filter.op !== "and") return undefined;
  const all = filter.all.map(describedBy);
  return all.every((each) => each !== undefined) ? Object.assign({}, ...all) : undefined;
}

function put(holder: Resource, name: string, values: readonly unknown[]): void {
  if (values.length > 0) holder[name] = values;
  else delete holder[name];
}

const listOf = (value: unknown): unknown[] =>
  Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];

/** Values with more of them, each once; the last one that is said to be primary is the one. */
function joined(before: readonly unknown[], more: readonly unknown[]): unknown[] {
  const all = [...before];
  for (const each of more) {
    const known = all.findIndex((one) => same(one, each));
    if (known < 0) all.push(each);
    else if (isObject(each) && isObject(all[known])) all[known] = { ...all[known], ...each };
    if (isObject(each) && each.primary === true)
      for (const other of all) if (isObject(other) && !same(other, each)) demote(other);
  }
  return all;
}

function demote(value: Resource): void {
  if (value.primary === true) value.primary = false;
}

/** Whether two values are one: by their value and type where they have any, else by all that they hold. */
function same(one: unknown, other: unknown): boolean {
  if (!isObject(one) || !isObject(other)) return one === other;
  if (one.value === undefined && other.value === undefined) return JSON.stringify(one) === JSON.stringify(other);
  const sameType = one.type === undefined || other.type === undefined || one.type === other.type;
  return one.value === other.value && sameType;
}

/** A value as its attribute takes it. Refuses with `invalid_value`. */
function coerced(attribute: Attribute, value: unknown): unknown {
  const { name, type } = attribute;
  const wrong = (wanted: string) => refuse(Reason.INVALID_VALUE, `${name} must be ${wanted}`);
  switch (type) {
    case "complex":
      if (isObject(value)) return partsOf(attribute, value);
      // A manager, or a member, may be written as its value alone.
      if (typeof value === "string" && partOf(attribute, "value")) return { value };
      throw wrong("an object");
    case "boolean":
      if (typeof value === "boolean") return value;
      // Microsoft Entra ID writes booleans as text.
      if (typeof value === "string" && /^(true|false)$/i.test(value)) return value.toLowerCase() === "true";
      throw wrong("true or false");
    default:
      if (typeof value !== "string") throw wrong("a string");
      if (value.includes("\0") || !value.isWellFormed()) throw wrong("text without U+0000 and lone surrogates");
      return value;
  }
}

function partsOf(attribute: Attribute, value: Resource): Resource {
  const parts: Resource = {};
  for (const [name, each] of Object.entries(value)) {
    const part = partOf(attribute, name);
    if (part && each !== null) parts[part.name] = coerced(part, each);
  }
  return parts;
}
