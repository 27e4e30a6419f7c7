/** RFC 7644's spelling of messages: fields by their JSON names, whatever their case; what is empty is left out. */
import { type DescField, type DescMessage, getOption, ScalarType } from "@bufbuild/protobuf";
import { kept } from "../../../../../gen/limber/edge/v1/options_pb.ts";

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
  return deps;
}

/** Identifiers that some identity providers write as numbers. */
const NUMBERED: ReadonlySet<string> = new Set(["externalId", "employeeNumber"]);

/** A value in the dialects of identity providers: one object in place of a list, booleans as text, identifiers as numbers. */
function toField(field: DescField, given: unknown): unknown {
  const values = field.fieldKind === "list" && isObject(given) ? [given] : given;
  if (field.message !== undefined) return inside(field, values, toNative);
  if (field.scalar === ScalarType.BOOL && typeof values === "string" && /^(true|false)$/i.test(values))
    return values.toLowerCase() === "true";
  return NUMBERED.has(field.jsonName) && typeof values === "number" ? String(values) : values;
}

/** JSON by the schema's names as identity providers read it; addresses that begin with a slash get `origin` before it. */
export function fromNative(desc: DescMessage, value: unknown, origin: string): unknown {
  if (isFree(desc) || !isObject(value)) return value;
  const told: ScimFields = {};
  for (const field of desc.fields) {
    const given = value[field.name];
    if (given === undefined || given === null) continue;
    if (Array.isArray(given) && given.length === 0 && !getOption(field, kept)) continue;
    const spelled = inside(field, given, (of, inner) => fromNative(of, inner, origin));
    told[field.jsonName] = isAddress(field, spelled) ? origin + spelled : spelled;
  }
  return told;
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
