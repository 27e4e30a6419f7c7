/** Changes of resources (RFC 7644 section 3.5.2), on their JSON, in the dialects of identity providers. */
import { Reason, Refusal, refuse } from "../../errors.ts";
import { breathe } from "../../slices.ts";
import { type Attribute, type Kind, partOf } from "./attributes.ts";
import { type Filter, type Path, parsePath } from "./filter.ts";
import { matches } from "./patch/match.ts";

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
/** Values of an attribute that does not refer to other resources, as members do. */
const MAX_VALUES = 1000;

/** A resource after some changes, in their order; the one that came in stays what it is. Refuses in SCIM's own words. */
export async function patched(kind: Kind, resource: Resource, changes: readonly Change[]): Promise<Resource> {
  if (changes.length === 0) throw refuse(Reason.MALFORMED_BODY, "Operations must have at least one operation");
  if (changes.length > MAX_CHANGES)
    throw refuse(Reason.MALFORMED_BODY, `Operations must have no more than ${MAX_CHANGES} operations`);
  const after = structuredClone(resource);
  for (const each of changes) {
    applyOne(kind, after, each);
    await breathe(); // a group has many members
  }
  return after;
}

function applyOne(kind: Kind, resource: Resource, { op: said, path, value }: Change): void {
  const op = said?.toLowerCase();
  if (op !== "add" && op !== "replace" && op !== "remove")
    throw refuse(Reason.MALFORMED_BODY, "op must be add, replace or remove");
  if (path !== undefined && path !== "") {
    change(kind, resource, op, parsePath(kind, path), value);
    return;
  }
  if (op === "remove") throw refuse(Reason.NO_TARGET, "a removal must have a path");
  if (!isObject(value))
    throw refuse(Reason.INVALID_VALUE, "an operation without a path must have an object for its value");
  for (const [name, each] of Object.entries(value)) {
    const path = knownPath(kind, name);
    // What is not for callers to change, or not known here, comes along in whole resources.
    if (path && path.place.attribute.mutability !== "readOnly") change(kind, resource, op, path, each);
  }
}

function knownPath(kind: Kind, name: string): Path | undefined {
  try {
    return parsePath(kind, name);
  } catch (thrown) {
    if (thrown instanceof Refusal && thrown.reason === Reason.INVALID_PATH) return undefined;
    throw thrown;
  }
}

function change(kind: Kind, resource: Resource, op: Op, { place, filter, part }: Path, value: unknown): void {
  const { attribute, parent } = place;
  const changed = part ?? attribute;
  if ([attribute, parent, part].some((each) => each?.mutability === "readOnly"))
    throw refuse(Reason.NOT_MUTABLE, `${changed.name} is not for callers to change`);
  if (op === "remove" && changed.required && !parent && !filter)
    throw refuse(Reason.NOT_MUTABLE, `${changed.name} cannot be removed`);
  if (op !== "remove" && value === undefined) throw refuse(Reason.INVALID_VALUE, `${changed.name} needs a value`);
  const extension = kind.extensions.find(({ id }) => id === place.names[0])?.id;
  const [name, ...others] = extension === undefined ? place.names : place.names.slice(1);
  if (name === undefined) {
    changeAll(kind, resource, op, extension ?? "", value);
    return;
  }
  const holder = extension === undefined ? resource : isObject(resource[extension]) ? resource[extension] : {};
  const held = others.length > 0 && parent ? parent : attribute;
  const inner = part ?? (held === attribute ? undefined : attribute);
  const target = { held, inner, filter };
  const after = held.multiValued
    ? several(holder[name], op, target, value)
    : set(holder[name], target, op === "remove" ? undefined : value);
  if (isEmpty(after)) delete holder[name];
  else holder[name] = after;
  if (extension === undefined) return;
  if (isEmpty(holder)) delete resource[extension];
  else resource[extension] = holder;
}

/** An extension as a whole: what a change does not name stays. */
function changeAll(kind: Kind, resource: Resource, op: Op, extension: string, value: unknown): void {
  if (op === "remove" || value === null) delete resource[extension];
  else if (!isObject(value)) throw refuse(Reason.INVALID_VALUE, `${extension} must be an object`);
  else
    for (const [name, each] of Object.entries(value))
      applyOne(kind, resource, { op, value: { [`${extension}:${name}`]: each } });
}

interface PatchTarget {
  /** The attribute that a resource holds. */
  readonly held: Attribute;
  /** The part of it, or of its values, that is changed. */
  readonly inner: Attribute | undefined;
  /** Which of its values. */
  readonly filter: Filter | undefined;
}

/** A value after a part of it is set or taken away, or all that is named of it is set: other parts stay (section 3.5.2.3). */
function set(before: unknown, { held, inner }: PatchTarget, value: unknown): unknown {
  const parts = isObject(before) ? before : {};
  if (inner) {
    const { [inner.name]: _, ...others } = parts;
    return value === undefined || value === null ? others : { ...others, [inner.name]: typed(inner, value) };
  }
  if (value === undefined || value === null) return undefined;
  const made = typed(held, value);
  return isObject(made) ? { ...parts, ...made } : made;
}

function several(held: unknown, op: Op, target: PatchTarget, value: unknown): unknown[] {
  const { held: attribute, inner, filter } = target;
  const before = listOf(held);
  if (filter || inner) {
    const chosen = new Set(before.filter((each) => isObject(each) && (!filter || matches(filter, each))));
    const after = new Map([...chosen].map((each) => [each, set(each, target, op === "remove" ? undefined : value)]));
    const values = before.map((each) => (chosen.has(each) ? after.get(each) : each));
    if (op === "remove") return values.filter((each) => !isEmpty(each));
    return chosen.size > 0 ? onePrimary(attribute, values, [...after.values()]) : described(before, op, target, value);
  }
  const given = listOf(value).map((each) => typed(attribute, each));
  if (op !== "remove") return joined(attribute, op === "add" ? before : [], given);
  // Some identity providers name in the value what they want removed.
  const named = Map.groupBy(given, keyOf);
  const isNamed = (each: unknown) => named.get(keyOf(each))?.some((one) => isSame(attribute, one, each)) ?? false;
  return given.length === 0 ? [] : before.filter((each) => !isNamed(each));
}

/** Values with one that an addition makes where its filter chooses none yet, but describes one by equalities, as Microsoft Entra ID expects. */
function described(before: readonly unknown[], op: Op, target: PatchTarget, value: unknown): unknown[] {
  const { held, filter } = target;
  const made = op === "add" && filter ? describedBy(filter) : undefined;
  if (!made) throw refuse(Reason.NO_TARGET, `the path chooses no value of ${held.name}`);
  return joined(held, before, [set(made, target, value)]);
}

function describedBy(filter: Filter): Resource | undefined {
  if (filter.op === "eq") return { [filter.place.attribute.name]: filter.value };
  const all = filter.op === "and" ? filter.all.map(describedBy) : [undefined];
  return all.every((each) => each !== undefined) ? Object.assign({}, ...all) : undefined;
}

/** Values with more of them, each once: what is said of one that is there is added to it. */
function joined(attribute: Attribute, before: readonly unknown[], more: readonly unknown[]): unknown[] {
  if (!isReference(attribute) && before.length + more.length > MAX_VALUES)
    throw refuse(Reason.INVALID_VALUE, `${attribute.name} has at most ${MAX_VALUES} values`);
  const values = [...before];
  const places = Map.groupBy(values.keys(), (at) => keyOf(values[at]));
  for (const each of more) {
    const known = places.get(keyOf(each)) ?? [];
    const at = known.find((one) => isSame(attribute, values[one], each));
    if (at === undefined) places.set(keyOf(each), [...known, values.push(each) - 1]);
    else if (isObject(each)) values[at] = { ...(values[at] as Resource), ...each };
  }
  return onePrimary(attribute, values, more);
}

/** Values of which one is primary at most: the last one that a change said to be. */
function onePrimary(attribute: Attribute, values: unknown[], said: readonly unknown[]): unknown[] {
  const isPrimary = (each: unknown): each is Resource => isObject(each) && each.primary === true;
  const last = said.findLast(isPrimary);
  if (!last || !partOf(attribute, "primary")) return values;
  return values.map((each) => (isPrimary(each) && !isSame(attribute, each, last) ? { ...each, primary: false } : each));
}

const isReference = (attribute: Attribute): boolean => partOf(attribute, "$ref") !== undefined;

/** What values are looked up by: their value, or else all that they hold. */
const keyOf = (each: unknown): string =>
  isObject(each) && each.value !== undefined ? `=${each.value}` : JSON.stringify(each);

/** Whether two values are one: references by their value, others by their type too, where both have one. */
function isSame(attribute: Attribute, one: unknown, other: unknown): boolean {
  if (!isObject(one) || !isObject(other) || keyOf(one) !== keyOf(other)) return one === other;
  return isReference(attribute) || one.type === undefined || other.type === undefined || one.type === other.type;
}

/** Identifiers that some identity providers write as numbers. */
const NUMBERED: ReadonlySet<string> = new Set(["externalId", "employeeNumber"]);

/** A value as its attribute takes it, in the dialects of identity providers. Refuses with `invalid_value` what no attribute has. */
function typed(attribute: Attribute, given: unknown): unknown {
  const { name, type } = attribute;
  // Microsoft Entra ID writes what has one value as a list of one too, and a plain value as an object that holds it.
  const only = Array.isArray(given) && given.length === 1 ? given[0] : given;
  const isHolder = type !== "complex" && isObject(only) && Object.keys(only).join() === "value";
  const value = isHolder ? only.value : only;
  if (type === "complex" && isObject(value)) {
    const parts = Object.entries(value).map(([key, each]) => [partOf(attribute, key), each] as const);
    const known = parts.flatMap(([part, each]) => (part && each !== null ? [[part.name, typed(part, each)]] : []));
    return Object.fromEntries(known);
  }
  if (type === "boolean" && /^(true|false)$/i.test(String(value))) return String(value).toLowerCase() === "true";
  const text = typeof value === "number" && NUMBERED.has(name) ? String(value) : value;
  if (typeof text !== "string" || type === "boolean" || !text.isWellFormed() || text.includes("\0"))
    throw refuse(Reason.INVALID_VALUE, `${name} does not take this value`);
  if (type !== "complex") return text;
  // A manager, or a member, may be written as its value alone.
  if (!partOf(attribute, "value")) throw refuse(Reason.INVALID_VALUE, `${name} must be an object`);
  return { value: text };
}

const isObject = (value: unknown): value is Resource =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const isEmpty = (value: unknown): boolean =>
  value === undefined || value === null || (typeof value === "object" && Object.keys(value).length === 0);

const listOf = (value: unknown): unknown[] =>
  Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];
