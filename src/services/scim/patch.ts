/** Changes of resources (RFC 7644 section 3.5.2), on their JSON. */
import { Reason, refuse } from "../../errors.ts";
import { type Attribute, type Kind, partOf, placeOf } from "./attributes.ts";
import { type Filter, type Path, parsePath } from "./filter.ts";
import { applied, EACH } from "./patch/apply.ts";
import { matches } from "./patch/match.ts";
import { isObject, tidied } from "./patch/tidy.ts";

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
export async function patched(kind: Kind, resource: Resource, changes: readonly Change[]): Promise<Resource> {
  if (changes.length === 0) throw refuse(Reason.MALFORMED_BODY, "Operations must have at least one operation");
  if (changes.length > MAX_CHANGES)
    throw refuse(Reason.MALFORMED_BODY, `Operations must have no more than ${MAX_CHANGES} operations`);
  const after = structuredClone(resource);
  for (const change of changes) await applyOne(kind, after, change);
  return after;
}

async function applyOne(kind: Kind, resource: Resource, { op: said, path, value }: Change): Promise<void> {
  const op = said?.toLowerCase();
  if (op !== "add" && op !== "replace" && op !== "remove")
    throw refuse(Reason.MALFORMED_BODY, "op must be add, replace or remove");
  if (path !== undefined && path !== "") {
    await change(kind, resource, op, parsePath(kind, path), value);
    return;
  }
  if (op === "remove") throw refuse(Reason.NO_TARGET, "a removal must have a path");
  if (!isObject(value))
    throw refuse(Reason.INVALID_VALUE, "an operation without a path must have an object for its value");
  // SCIMMY adds to lists that such an operation replaces: each attribute is changed by itself.
  for (const [name, each] of Object.entries(value)) {
    const place = placeOf(kind, name);
    // What is not for callers to change, or not known here, comes along in whole resources.
    if (place && place.attribute.mutability !== "readOnly")
      await change(kind, resource, op, { place, filter: undefined, part: undefined }, each);
  }
}

async function change(kind: Kind, resource: Resource, op: Op, path: Path, value: unknown): Promise<void> {
  const { place, filter, part } = path;
  const { attribute, parent } = place;
  const changed = part ?? attribute;
  if ([attribute, parent, part].some((each) => each?.mutability === "readOnly"))
    throw refuse(Reason.NOT_MUTABLE, `${changed.name} is not for callers to change`);
  if (op === "remove" && changed.required && !parent && !filter)
    throw refuse(Reason.NOT_MUTABLE, `${changed.name} cannot be removed`);
  if (op !== "remove" && value === undefined) throw refuse(Reason.INVALID_VALUE, `${changed.name} needs a value`);
  const extension = kind.extensions.find(({ id }) => id === place.names[0])?.id;
  const names = extension === undefined ? place.names : place.names.slice(1);
  if (extension !== undefined && names.length === 0) return changeAll(kind, resource, op, extension, value);
  const holder = extension === undefined ? resource : isObject(resource[extension]) ? resource[extension] : {};
  const [name = ""] = names;
  const held = parent?.name === name ? parent : attribute;
  const inner = part ?? (held === attribute ? undefined : attribute);
  const target = { held, inner, filter };
  const after = await (held.multiValued ? several : single)(holder[name], op, target, value);
  if (after === undefined || after === null || (Array.isArray(after) && after.length === 0)) delete holder[name];
  else holder[name] = after;
  if (extension === undefined) return;
  if (Object.keys(holder).length > 0) resource[extension] = holder;
  else delete resource[extension];
}

/** An extension as a whole: SCIMMY would put a new one in its place, and so forget what is not spoken of. */
async function changeAll(kind: Kind, resource: Resource, op: Op, extension: string, value: unknown): Promise<void> {
  if (op === "remove" || value === null) {
    delete resource[extension];
    return;
  }
  if (!isObject(value)) throw refuse(Reason.INVALID_VALUE, `${extension} must be an object`);
  const parts = Object.entries(value).map(([name, each]): [string, unknown] => [`${extension}:${name}`, each]);
  await applyOne(kind, resource, { op, value: Object.fromEntries(parts) });
}

interface PatchTarget {
  /** The attribute that a resource holds. */
  readonly held: Attribute;
  /** The part of it, or of its values, that is changed. */
  readonly inner: Attribute | undefined;
  /** Which of its values. */
  readonly filter: Filter | undefined;
}

async function single(before: unknown, op: Op, { held, inner }: PatchTarget, value: unknown): Promise<unknown> {
  const path = inner ? `${held.name}.${inner.name}` : held.name;
  if (op === "remove" || value === null) return applied(held, before, { op: "remove", path });
  // SCIMMY drops the parts that a replacement does not name, where they shall stay (section 3.5.2.3): an addition keeps them.
  return applied(held, before, { op: "add", path, value: tidied(inner ?? held, value) });
}

async function several(held: unknown, op: Op, target: PatchTarget, value: unknown): Promise<unknown[]> {
  const before = listOf(held);
  const { held: attribute, inner, filter } = target;
  if (filter || inner) {
    const chosen = before.filter((each) => isObject(each) && (!filter || matches(filter, each)));
    if (op === "remove") return lessened(attribute, before, chosen, inner);
    if (chosen.length === 0) return joined(attribute, before, [newlyDescribed(op, target, value)]);
    return altered(attribute, before, chosen, inner, value);
  }
  const given = listOf(value).map((each) => tidied(attribute, each));
  if (op === "add") return joined(attribute, before, given);
  if (op === "replace") return joined(attribute, [], given);
  if (given.length === 0) return lessened(attribute, before, before, undefined);
  // Some identity providers name in the value what they want removed.
  return lessened(attribute, before, before.filter(oneOf(given)), undefined);
}

/** Values without those that are chosen, or without a part of these. */
async function lessened(
  attribute: Attribute,
  before: readonly unknown[],
  chosen: readonly unknown[],
  inner: Attribute | undefined,
): Promise<unknown[]> {
  const path = inner ? `${attribute.name}${EACH}.${inner.name}` : attribute.name;
  const after = listOf(await applied(attribute, chosen, { op: "remove", path }));
  const values = putBack(before, chosen, after);
  return values.filter((each) => !isObject(each) || Object.keys(each).length > 0);
}

/** Values, those changed that are chosen. */
async function altered(
  attribute: Attribute,
  before: readonly unknown[],
  chosen: readonly unknown[],
  inner: Attribute | undefined,
  value: unknown,
): Promise<unknown[]> {
  const path = inner ? `${attribute.name}${EACH}.${inner.name}` : attribute.name + EACH;
  const after = listOf(await applied(attribute, chosen, { op: "add", path, value: tidied(inner ?? attribute, value) }));
  return onePrimary(attribute, putBack(before, chosen, after), after);
}

/** Values, those that were chosen as they are after a change: none of them where it left none. */
function putBack(before: readonly unknown[], chosen: readonly unknown[], after: readonly unknown[]): unknown[] {
  const left = new Map(chosen.map((each, at) => [each, after[at]]));
  return before.flatMap((each) => (left.has(each) ? (left.get(each) ?? []) : [each]));
}

/** The value that an addition makes where its filter chooses none yet, but describes one, as Microsoft Entra ID expects. */
function newlyDescribed(op: Op, { held, inner, filter }: PatchTarget, value: unknown): Resource {
  const described = op === "add" && filter ? describedBy(filter) : undefined;
  if (!described) throw refuse(Reason.NO_TARGET, `the path chooses no value of ${held.name}`);
  const made = inner ? { [inner.name]: tidied(inner, value) } : tidied(held, value);
  return { ...described, ...(isObject(made) && made) };
}

/** What a filter of equalities describes: the value that an addition to it makes where there is none yet. */
function describedBy(filter: Filter): Resource | undefined {
  if (filter.op === "eq") return { [filter.place.attribute.name]: filter.value };
  if (filter.op !== "and") return undefined;
  const all = filter.all.map(describedBy);
  return all.every((each) => each !== undefined) ? Object.assign({}, ...all) : undefined;
}

/** Values with more of them. SCIMMY takes what is there already a second time, and any number of primary ones; we don't. */
async function joined(attribute: Attribute, before: readonly unknown[], more: readonly unknown[]): Promise<unknown[]> {
  const { kept, fresh } = joining(before, more);
  const added = listOf(await applied(attribute, [], { op: "add", path: attribute.name, value: fresh }));
  return onePrimary(attribute, [...kept, ...added], more);
}

/** Values of which one is primary at most: the last one that a change said to be. */
async function onePrimary(attribute: Attribute, values: unknown[], said: readonly unknown[]): Promise<unknown[]> {
  const isPrimary = (each: unknown): each is Resource => isObject(each) && each.primary === true;
  const last = said.findLast(isPrimary);
  if (!last || !partOf(attribute, "primary")) return values;
  const others = values.filter((each) => isPrimary(each) && !same(each, last));
  const after = listOf(
    await applied(attribute, others, { op: "add", path: `${attribute.name}${EACH}.primary`, value: false }),
  );
  return putBack(values, others, after);
}

const listOf = (value: unknown): unknown[] =>
  Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];

/** Whether two values are one: by their value and type where they have any, else by all that they hold. */
function same(one: unknown, other: unknown): boolean {
  if (!isObject(one) || !isObject(other)) return one === other;
  if (one.value === undefined && other.value === undefined) return JSON.stringify(one) === JSON.stringify(other);
  const sameType = one.type === undefined || other.type === undefined || one.type === other.type;
  return one.value === other.value && sameType;
}

/** What values are looked up by: the same ones have the same. */
const keyOf = (each: unknown): string =>
  isObject(each) ? (each.value === undefined ? JSON.stringify(each) : `=${each.value}`) : `:${each}`;

/** Tells whether a value is one of `some`, in a time that does not grow with their number. */
function oneOf(some: readonly unknown[]): (each: unknown) => boolean {
  const byKey = Map.groupBy(some, keyOf);
  return (each) => byKey.get(keyOf(each))?.some((one) => same(each, one)) ?? false;
}

/**
 * Values that are there, each with what more is said of it, and those of the others that are new, each once. Its time grows with the
 * number of values: groups have many.
 */
function joining(before: readonly unknown[], more: readonly unknown[]): { kept: unknown[]; fresh: unknown[] } {
  const all = [...before];
  const places = new Map<string, number[]>();
  const remember = (each: unknown, at: number): void => {
    const key = keyOf(each);
    const known = places.get(key);
    if (known) known.push(at);
    else places.set(key, [at]);
  };
  for (const [at, each] of before.entries()) remember(each, at);
  for (const each of more) {
    const at = places.get(keyOf(each))?.find((known) => same(all[known], each));
    const known = at === undefined ? undefined : all[at];
    if (at === undefined) remember(each, all.push(each) - 1);
    else if (isObject(each) && isObject(known)) all[at] = { ...known, ...each };
  }
  return { kept: all.slice(0, before.length), fresh: all.slice(before.length) };
}
