/** Resource attributes: those of RFC 7643 that the messages have, with the facts that message fields lack. */
import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { EnterpriseUserSchema, GroupSchema, UserSchema } from "../../../gen/limber/scim/v2/resource_pb.ts";
import { Reason, Refusal, refuse } from "../../errors.ts";
import { breathe } from "../../slices.ts";

/** One attribute, as a schema shows it (RFC 7643 section 7). */
export interface Attribute {
  readonly name: string;
  readonly type: "string" | "boolean" | "dateTime" | "reference" | "complex";
  readonly multiValued: boolean;
  readonly description: string;
  readonly required: boolean;
  readonly caseExact: boolean;
  readonly mutability: "readOnly" | "readWrite" | "immutable";
  readonly returned: "default" | "always";
  readonly uniqueness: "none" | "server";
  readonly canonicalValues?: readonly string[];
  readonly referenceTypes?: readonly string[];
  readonly subAttributes?: readonly Attribute[];
}

/** A schema as the discovery endpoint shows it. */
export interface SchemaDocument {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly attributes: readonly Attribute[];
}

/** A resource type: its own schema, and its possible extensions. */
export interface Kind {
  readonly name: "User" | "Group";
  readonly endpoint: string;
  readonly schema: SchemaDocument;
  readonly extensions: readonly SchemaDocument[];
}

const READ_ONLY = { mutability: "readOnly" } as const;
const PLACES = { canonicalValues: ["work", "home", "other"] };
const EXTERNAL = { type: "reference", referenceTypes: ["external"] } as const;

/** Facts of attributes and their parts; parts inherit the mutability. */
const FACTS: Readonly<Record<string, Partial<Attribute>>> = {
  userName: { required: true, uniqueness: "server" },
  profileUrl: EXTERNAL,
  "emails.type": PLACES,
  "addresses.type": PLACES,
  "phoneNumbers.type": { canonicalValues: ["work", "home", "mobile", "fax", "pager", "other"] },
  "photos.value": EXTERNAL,
  "photos.type": { canonicalValues: ["photo", "thumbnail"] },
  groups: READ_ONLY,
  "groups.type": { canonicalValues: ["direct", "indirect"] },
  "groups.$ref": { referenceTypes: ["Group"] },
  "manager.$ref": { referenceTypes: ["User"] },
  "manager.displayName": READ_ONLY,
  "Group.displayName": { required: true },
  "members.value": { mutability: "immutable" },
  "members.$ref": { mutability: "immutable", referenceTypes: ["User"] },
  "members.type": { mutability: "immutable", canonicalValues: ["User"] },
};

const DEFAULTS = {
  ...({ type: "string", multiValued: false, required: false, caseExact: false } as const),
  ...({ mutability: "readWrite", returned: "default", uniqueness: "none" } as const),
};

const attribute = (name: string, more: Partial<Attribute> = {}): Attribute => {
  const description = name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  return { name, ...DEFAULTS, description, ...more };
};

/** Assigned by the gateway, and case-sensitive. */
const OWN = { mutability: "readOnly", caseExact: true } as const;

/** The attributes of every resource (RFC 7643 section 3.1). */
const COMMON: readonly Attribute[] = [
  attribute("id", { ...OWN, returned: "always" }),
  attribute("schemas", { ...OWN, type: "reference", multiValued: true, returned: "always" }),
  attribute("externalId", { caseExact: true }),
  attribute("meta", {
    ...({ ...OWN, type: "complex" } as const),
    subAttributes: [
      ...["resourceType", "version"].map((name) => attribute(name, OWN)),
      ...["created", "lastModified"].map((name) => attribute(name, { ...OWN, type: "dateTime" })),
      attribute("location", { ...OWN, type: "reference" }),
    ],
  }),
];

function attributeOf(
  { jsonName: name, fieldKind, scalar, message }: DescField,
  path: string,
  above: object,
): Attribute {
  const facts: Partial<Attribute> = { ...above, ...FACTS[name], ...FACTS[path] };
  const { mutability = DEFAULTS.mutability } = facts;
  return attribute(name, {
    type: message ? "complex" : scalar === ScalarType.BOOL ? "boolean" : name === "$ref" ? "reference" : "string",
    multiValued: fieldKind === "list",
    ...facts,
    ...(message && {
      subAttributes: message.fields.map((part) => attributeOf(part, `${name}.${part.jsonName}`, { mutability })),
    }),
  });
}

const documentOf = (id: string, name: string, description: string, { fields }: DescMessage): SchemaDocument => ({
  ...{ id, name, description },
  attributes: fields
    .filter(({ jsonName }) => !jsonName.includes(":") && !COMMON.some((common) => common.name === jsonName))
    .map((field) => attributeOf(field, `${name}.${field.jsonName}`, {})),
});

const SCHEMAS = "urn:ietf:params:scim:schemas";

/** The supported resource types. */
export const KINDS = {
  user: {
    ...{ name: "User", endpoint: "/Users" },
    schema: documentOf(`${SCHEMAS}:core:2.0:User`, "User", "User account", UserSchema),
    extensions: [
      documentOf(`${SCHEMAS}:extension:enterprise:2.0:User`, "EnterpriseUser", "Enterprise user", EnterpriseUserSchema),
    ],
  },
  group: {
    ...{ name: "Group", endpoint: "/Groups" },
    schema: documentOf(`${SCHEMAS}:core:2.0:Group`, "Group", "Group", GroupSchema),
    extensions: [],
  },
} as const satisfies Record<string, Kind>;

/** The position and definition of an attribute in a resource. */
export interface AttributePlace {
  /** The names on the path, such as `["name", "familyName"]`; the first may be the name of an extension. */
  readonly names: readonly string[];
  readonly attribute: Attribute;
  /** The attribute that contains it. */
  readonly parent?: Attribute;
}

const same = (a: string, b: string): boolean => a.toLowerCase() === b.toLowerCase();

/** A part of a complex attribute, by case-insensitive name. */
const partOf = ({ subAttributes }: Attribute, name: string): Attribute | undefined =>
  subAttributes?.find((part) => same(part.name, name));

/**
 * Finds an attribute by its case-insensitive name, with or without its schema, such as `name.familyName`. The name of an extension alone
 * means all of it. Undefined if there is none.
 */
export function placeOf({ schema, extensions }: Kind, path: string): AttributePlace | undefined {
  const own = [...COMMON, ...schema.attributes];
  // Some identity providers join the schema and the attribute by a dot.
  const extension = extensions.find(
    ({ id }) => same(path, id) || (same(path.slice(0, id.length), id) && /^[:.]/.test(path.slice(id.length))),
  );
  if (extension === undefined)
    return within(
      own,
      same(path.slice(0, schema.id.length + 1), `${schema.id}:`) ? path.slice(schema.id.length + 1) : path,
    );
  const { id, attributes } = extension;
  if (same(path, id)) return { names: [id], attribute: attribute(id, { type: "complex", subAttributes: attributes }) };
  const found = within(attributes, path.slice(id.length + 1));
  return found && { ...found, names: [id, ...found.names] };
}

function within(attributes: readonly Attribute[], path: string): AttributePlace | undefined {
  const [first = "", second, ...others] = path.split(".");
  const attribute = attributes.find(({ name }) => same(name, first));
  if (!attribute || others.length > 0) return undefined;
  if (second === undefined) return { names: [attribute.name], attribute };
  const part = partOf(attribute, second);
  return part && { names: [attribute.name, part.name], attribute: part, parent: attribute };
}

// Filters and paths (RFC 7644 sections 3.4.2.2 and 3.5.2), read by recursive descent into a tree whose attributes exist.

const COMPARISONS = ["eq", "ne", "co", "sw", "ew", "gt", "ge", "lt", "le"] as const;
/** The comparison operators. */
export type Comparison = (typeof COMPARISONS)[number];

/** The values in comparisons. */
export type Literal = string | number | boolean | null;

/** A filter. Places inside `some` are parts of its attribute. */
export type Filter =
  | { readonly op: "and" | "or"; readonly all: readonly Filter[] }
  | { readonly op: "not"; readonly inner: Filter }
  | { readonly op: "pr"; readonly place: AttributePlace }
  | { readonly op: Comparison; readonly place: AttributePlace; readonly value: Literal }
  | { readonly op: "some"; readonly place: AttributePlace; readonly inner: Filter };

/** A change's path: an attribute, a filter on its values, and a part of those. */
interface Path {
  readonly place: AttributePlace;
  readonly filter: Filter | undefined;
  readonly part: Attribute | undefined;
}

const MAX_LENGTH = 4096;
const MAX_TERMS = 256;
const MAX_DEPTH = 32;
/** A token: a string (in single quotes too, as some clients write it), a bracket with an optional dot, a word, or a number. */
const TOKEN =
  /\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[()[\].]|[A-Za-z$][\w$:.-]*|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))/sy;
const WORD = /^[A-Za-z$]/;

/** Parses a filter over resources of a type. Refuses with `invalid_filter` a malformed, too long or too deep one, or an unknown attribute. */
export function parseFilter(kind: Kind, text: string): Filter {
  const reader = new Reader(kind, text, (says) => refuse(Reason.INVALID_FILTER, `the filter ${says}`));
  return reader.whole(() => reader.filter(undefined));
}

/** Parses the path of a change. Refuses with `invalid_path`. */
function parsePath(kind: Kind, text: string): Path {
  const reader = new Reader(kind, text, (says) => refuse(Reason.INVALID_PATH, `the path ${says}`));
  return reader.whole(() => reader.path());
}

class Reader {
  readonly #kind: Kind;
  readonly #refusal: (text: string) => Refusal;
  readonly #tokens: string[] = [];
  #at = 0;
  #depth = 0;
  #terms = 0;

  constructor(kind: Kind, text: string, no: (text: string) => Refusal) {
    this.#kind = kind;
    this.#refusal = no;
    if (text.length > MAX_LENGTH) throw no(`must have at most ${MAX_LENGTH} characters, got ${text.length}`);
    const end = text.trimEnd().length;
    TOKEN.lastIndex = 0;
    while (TOKEN.lastIndex < end) {
      const from = TOKEN.lastIndex;
      const [, token] = TOKEN.exec(text) ?? [];
      if (token === undefined) throw no(`is invalid at character ${from + 1}; text must be in double quotes`);
      this.#tokens.push(token);
    }
  }

  /** Applies `read` to all tokens. */
  whole<T>(read: () => T): T {
    const made = read();
    if (this.#at < this.#tokens.length) throw this.#refusal("has unexpected text at the end");
    return made;
  }

  path(): Path {
    const place = this.#place(this.#word(), undefined);
    if (!this.#accept("[")) return { place, filter: undefined, part: undefined };
    const { attribute } = place;
    if (!attribute.multiValued)
      throw this.#refusal(`selects among values of ${attribute.name}, which is single-valued`);
    const filter = this.#nested("]", attribute);
    if (!this.#accept(".")) return { place, filter, part: undefined };
    const part = partOf(attribute, this.#word());
    if (!part) throw this.#refusal("names an unknown sub-attribute");
    return { place, filter, part };
  }

  /** Parses a filter; `inside` is the attribute whose parts it names. */
  filter(inside: Attribute | undefined): Filter {
    return this.#joined("or", () => this.#joined("and", () => this.#term(inside)));
  }

  #joined(op: "and" | "or", read: () => Filter): Filter {
    const all = [read()];
    while (this.#accept(op)) all.push(read());
    return all.length === 1 ? all[0]! : { op, all };
  }

  #term(inside: Attribute | undefined): Filter {
    if (this.#accept("(")) return this.#nested(")", inside);
    const word = this.#word();
    if (word.toLowerCase() === "not" && this.#accept("(")) return { op: "not", inner: this.#nested(")", inside) };
    if (++this.#terms > MAX_TERMS) throw this.#refusal(`has more than ${MAX_TERMS} terms`);
    const place = this.#place(word, inside);
    if (this.#accept("[")) {
      if (inside || place.attribute.type !== "complex")
        throw this.#refusal(`filters sub-attributes of ${place.attribute.name}, which has none`);
      const chosen = this.#nested("]", place.attribute);
      if (!this.#accept(".")) return { op: "some", place, inner: chosen };
      // Microsoft Entra ID compares a part of the selected values: `emails[type eq "work"].value eq "a@example.com"`.
      return {
        op: "some",
        place,
        inner: { op: "and", all: [chosen, this.#comparison(this.#word(), place.attribute)] },
      };
    }
    return this.#comparison(word, inside);
  }

  #comparison(word: string, inside: Attribute | undefined): Filter {
    const place = this.#place(word, inside);
    const said = this.#word().toLowerCase();
    if (said === "pr") return { op: "pr", place };
    const op = COMPARISONS.find((each) => each === said);
    if (op === undefined) throw this.#refusal("has an unknown operator");
    const token = this.#tokens[this.#at] ?? "";
    return this.#compared(place, op, this.#literal(), token);
  }

  #nested(close: string, inside: Attribute | undefined): Filter {
    if (++this.#depth > MAX_DEPTH) throw this.#refusal(`nests deeper than ${MAX_DEPTH} levels`);
    const inner = this.filter(inside);
    this.#depth -= 1;
    if (!this.#accept(close)) throw this.#refusal(`lacks a ${close}`);
    return inner;
  }

  /** `token` is the literal as written. */
  #compared(place: AttributePlace, op: Comparison, given: Literal, token: string): Filter {
    const at = place.attribute.type === "complex" ? onlyValueOf(place) : place;
    if (!at) throw this.#refusal(`compares ${place.attribute.name}, which is a complex attribute`);
    const { name, type } = at.attribute;
    const isText = type === "boolean" && typeof given === "string" && /^(true|false)$/i.test(given);
    const isNumber = type === "string" && /^\d+$/.test(token);
    const value = isText ? given.toLowerCase() === "true" : isNumber ? token : given;
    const isEquality = op === "eq" || op === "ne";
    if (value === null && !isEquality) throw this.#refusal("orders by null; null allows only eq and ne");
    if (value !== null && typeof value !== (type === "boolean" ? "boolean" : "string"))
      throw this.#refusal(`compares ${name} with a value of another type`);
    if (type === "boolean" && !isEquality)
      throw this.#refusal(`orders ${name}, a boolean, which allows only eq and ne`);
    if (type !== "dateTime" || typeof value !== "string" || /co|sw|ew/.test(op)) return { op, place: at, value };
    // A form decodes the `+` of an offset to a space.
    const moment = Date.parse(value.replace(/ (?=\d\d:\d\d$)/, "+"));
    if (Number.isNaN(moment)) throw this.#refusal(`compares ${name} with an invalid time`);
    return { op, place: at, value: new Date(moment).toISOString() };
  }

  #literal(): Literal {
    const token = this.#tokens[this.#at++] ?? "";
    const isSingle = token.startsWith("'");
    let value: unknown;
    try {
      if (isSingle) value = token.slice(1, -1).replaceAll(/\\(.)/gs, "$1");
      else value = JSON.parse(/^(true|false|null)$/i.test(token) ? token.toLowerCase() : token);
    } catch {
      throw this.#refusal("has an invalid value; text must be in double quotes");
    }
    if (typeof value === "string" && (!value.isWellFormed() || value.includes("\0")))
      throw this.#refusal("has an invalid string");
    return value as Literal; // brackets are not JSON, and no token is an object
  }

  #place(path: string, inside: Attribute | undefined): AttributePlace {
    const part = inside && partOf(inside, path);
    const place = inside ? part && { names: [part.name], attribute: part, parent: inside } : placeOf(this.#kind, path);
    if (!place) throw this.#refusal("names an unknown attribute");
    return place;
  }

  #word(): string {
    const token = this.#tokens[this.#at++];
    if (token === undefined || !WORD.test(token)) throw this.#refusal("lacks a word");
    return token;
  }

  #accept(token: string): boolean {
    const isNext = this.#tokens[this.#at]?.toLowerCase() === token;
    if (isNext) this.#at += 1;
    return isNext;
  }
}

/** The part that a complex attribute is compared by: its value, for example of a member or manager. */
function onlyValueOf({ names, attribute }: AttributePlace): AttributePlace | undefined {
  const value = partOf(attribute, "value");
  return value && { names: [...names, value.name], attribute: value, parent: attribute };
}

// Changes of resources (RFC 7644 section 3.5.2), on their JSON, with the deviations of identity providers.

/** A JSON object during a change. */
export type Resource = Record<string, unknown>;

/** One change, as received. */
export interface Change {
  readonly op?: string | undefined;
  readonly path?: string | undefined;
  readonly value?: unknown;
}

type Op = "add" | "replace" | "remove";

const MAX_CHANGES = 1000;
/** The most values of an attribute that refers to no other resources (members do). */
const MAX_VALUES = 1000;

/** Returns a copy of a resource with changes applied in order. Refuses with SCIM's error types. */
export async function patched(kind: Kind, resource: Resource, changes: readonly Change[]): Promise<Resource> {
  if (changes.length === 0) throw refuse(Reason.MALFORMED_BODY, "`Operations` must have at least one operation");
  if (changes.length > MAX_CHANGES)
    throw refuse(
      Reason.MALFORMED_BODY,
      `\`Operations\` must have at most ${MAX_CHANGES} operations, got ${changes.length}`,
    );
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
    throw refuse(Reason.MALFORMED_BODY, "`op` must be add, replace or remove");
  if (path !== undefined && path !== "") {
    change(kind, resource, op, parsePath(kind, path), value);
    return;
  }
  if (op === "remove") throw refuse(Reason.NO_TARGET, "`path` is required to remove");
  if (!isObject(value)) throw refuse(Reason.INVALID_VALUE, "`value` must be an object in an operation without `path`");
  for (const [name, each] of Object.entries(value)) {
    const path = knownPath(kind, name);
    // Complete resources include read-only and unknown attributes; these are ignored.
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
    throw refuse(Reason.NOT_MUTABLE, `${changed.name} is read-only`);
  if (op === "remove" && changed.required && !parent && !filter)
    throw refuse(Reason.NOT_MUTABLE, `${changed.name} cannot be removed`);
  if (op !== "remove" && value === undefined) throw refuse(Reason.INVALID_VALUE, `${changed.name} must have a value`);
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

/** Merges into an extension: attributes that the change does not name stay. */
function changeAll(kind: Kind, resource: Resource, op: Op, extension: string, value: unknown): void {
  if (op === "remove" || value === null) delete resource[extension];
  else if (!isObject(value)) throw refuse(Reason.INVALID_VALUE, `${extension} must be an object`);
  else
    for (const [name, each] of Object.entries(value))
      applyOne(kind, resource, { op, value: { [`${extension}:${name}`]: each } });
}

interface PatchTarget {
  /** The attribute of the resource. */
  readonly held: Attribute;
  /** The part of the attribute, or of its values, to change. */
  readonly inner: Attribute | undefined;
  /** The filter on its values. */
  readonly filter: Filter | undefined;
}

/** A value after setting or removing one part, or setting all given parts; other parts stay (section 3.5.2.3). */
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
    // A value whose `value` was removed means nothing any more.
    const isGone = (each: unknown): boolean =>
      isEmpty(each) || (inner?.name === "value" && isObject(each) && each.value === undefined);
    if (op === "remove") return values.filter((each) => !isGone(each));
    return chosen.size > 0 ? onePrimary(attribute, values, [...after.values()]) : described(before, op, target, value);
  }
  const given = listOf(value).flatMap((each) => (each === null ? [] : [typed(attribute, each)]));
  if (op !== "remove") return joined(attribute, op === "add" ? before : [], given);
  // Some identity providers put what to remove into the value.
  const named = Map.groupBy(given, keyOf);
  const isNamed = (each: unknown) => named.get(keyOf(each))?.some((one) => isSame(attribute, one, each)) ?? false;
  return value === undefined || value === null ? [] : before.filter((each) => !isNamed(each));
}

/** If an addition's filter matches no value but consists of equalities, adds the described value, as Microsoft Entra ID expects. */
function described(before: readonly unknown[], op: Op, target: PatchTarget, value: unknown): unknown[] {
  const { held, filter } = target;
  const made = op === "add" && filter ? describedBy(filter) : undefined;
  if (!made) throw refuse(Reason.NO_TARGET, `the path matches no value of ${held.name}`);
  return joined(held, before, [set(made, target, value)]);
}

function describedBy(filter: Filter): Resource | undefined {
  if (filter.op === "eq") return { [filter.place.attribute.name]: filter.value };
  const all = filter.op === "and" ? filter.all.map(describedBy) : [undefined];
  return all.every((each) => each !== undefined) ? Object.assign({}, ...all) : undefined;
}

/** Merges values without duplicates: new parts of an existing value are added to it. */
function joined(attribute: Attribute, before: readonly unknown[], more: readonly unknown[]): unknown[] {
  if (!isReference(attribute) && before.length + more.length > MAX_VALUES)
    throw refuse(Reason.INVALID_VALUE, `${attribute.name} can have at most ${MAX_VALUES} values`);
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

/** Leaves at most one primary value: the last one that a change marked. */
function onePrimary(attribute: Attribute, values: unknown[], said: readonly unknown[]): unknown[] {
  const isPrimary = (each: unknown): each is Resource => isObject(each) && each.primary === true;
  const last = said.findLast(isPrimary);
  if (!last || !partOf(attribute, "primary")) return values;
  return values.map((each) => (isPrimary(each) && !isSame(attribute, each, last) ? { ...each, primary: false } : each));
}

const isReference = (attribute: Attribute): boolean => partOf(attribute, "$ref") !== undefined;

/** The lookup key of a value: its `value`, or else all its parts. */
const keyOf = (each: unknown): string =>
  isObject(each) && each.value !== undefined ? `=${each.value}` : JSON.stringify(each);

/** Whether two values are the same: references by value, others also by type if both have one. */
function isSame(attribute: Attribute, one: unknown, other: unknown): boolean {
  if (!isObject(one) || !isObject(other) || keyOf(one) !== keyOf(other)) return one === other;
  return isReference(attribute) || one.type === undefined || other.type === undefined || one.type === other.type;
}

/** Converts a value to its attribute's type, with the deviations of identity providers. Refuses with `invalid_value`. */
function typed(attribute: Attribute, given: unknown): unknown {
  const { name, type } = attribute;
  // Microsoft Entra ID also writes a single value as a list of one, and a plain value as an object that holds it.
  const only = Array.isArray(given) && given.length === 1 ? given[0] : given;
  const isHolder = type !== "complex" && isObject(only) && Object.keys(only).join() === "value";
  const value = isHolder ? only.value : only;
  if (type === "complex" && isObject(value)) {
    const parts = Object.entries(value).map(([key, each]) => [partOf(attribute, key), each] as const);
    const known = parts.flatMap(([part, each]) => (part && each !== null ? [[part.name, typed(part, each)]] : []));
    return Object.fromEntries(known);
  }
  if (type === "boolean" && /^(true|false)$/i.test(String(value))) return String(value).toLowerCase() === "true";
  // Identity providers write employee numbers, cost centers and telephone numbers as numbers.
  const text = Number.isSafeInteger(value) ? String(value) : value;
  if (typeof text !== "string" || type === "boolean" || !text.isWellFormed() || text.includes("\0"))
    throw refuse(Reason.INVALID_VALUE, `${name} does not accept this value`);
  if (type !== "complex") return text;
  // A manager or a member may be given by its value alone.
  if (!partOf(attribute, "value")) throw refuse(Reason.INVALID_VALUE, `${name} must be an object`);
  return { value: text };
}

const isObject = (value: unknown): value is Resource =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const isEmpty = (value: unknown): boolean =>
  value === undefined || value === null || (typeof value === "object" && Object.keys(value).length === 0);

const listOf = (value: unknown): unknown[] =>
  Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];

// Filters on a single value in memory, for changes that select values.

/** Whether a filter on an attribute's parts matches one of its values. */
export function matches(filter: Filter, value: unknown): boolean {
  switch (filter.op) {
    case "and":
      return filter.all.every((each) => matches(each, value));
    case "or":
      return filter.all.some((each) => matches(each, value));
    case "not":
      return !matches(filter.inner, value);
    case "pr":
      return valuesAt(value, filter.place.names).some((each) => each !== undefined && each !== null);
    case "some":
      return valuesAt(value, filter.place.names).some((each) => matches(filter.inner, each));
    case "ne":
      return !matches({ ...filter, op: "eq" }, value);
    default:
      return compares(filter.place.attribute.caseExact, valuesAt(value, filter.place.names), filter.op, filter.value);
  }
}

/** Resolves a path of names, with every value of multi-valued attributes. */
const valuesAt = (value: unknown, names: readonly string[]): unknown[] =>
  names.reduce<unknown[]>(
    (all, name) =>
      all.flatMap((each) =>
        typeof each === "object" && each !== null ? ((each as Record<string, unknown>)[name] ?? []) : [],
      ),
    [value],
  );

function compares(
  exact: boolean,
  values: readonly unknown[],
  op: Exclude<Comparison, "ne">,
  literal: Literal,
): boolean {
  if (literal === null) return values.length === 0;
  const fold = (each: unknown): unknown => (typeof each === "string" && !exact ? each.toLowerCase() : each);
  const wanted = fold(literal);
  return values.map(fold).some((found) => {
    if (typeof found === "string" && typeof wanted === "string") return TEXTS[op](found, wanted);
    return found === wanted && (op === "eq" || op === "ge" || op === "le");
  });
}

const TEXTS: Readonly<Record<Exclude<Comparison, "ne">, (found: string, wanted: string) => boolean>> = {
  eq: (found, wanted) => found === wanted,
  co: (found, wanted) => found.includes(wanted),
  sw: (found, wanted) => found.startsWith(wanted),
  ew: (found, wanted) => found.endsWith(wanted),
  gt: (found, wanted) => found > wanted,
  ge: (found, wanted) => found >= wanted,
  lt: (found, wanted) => found < wanted,
  le: (found, wanted) => found <= wanted,
};
