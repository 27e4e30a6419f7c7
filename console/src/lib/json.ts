/** Messages as the JSON that REST answers with: field names and enum values as they are spelt there. */
import { type DescField, type DescMessage, type JsonValue, type MessageShape, toJson } from "@bufbuild/protobuf";
import { codeOf, codesOf, numberOfCode } from "./words.ts";

/** A message as REST spells it. `shorten` cuts strings that are longer than so many characters, such as pictures. */
export function restJson<S extends DescMessage>(
  schema: S,
  message: MessageShape<S>,
  shorten = Number.POSITIVE_INFINITY,
): JsonValue {
  const json = toJson(schema, message, { useProtoFieldName: true, enumAsInteger: true, alwaysEmitImplicit: false });
  return respelt(schema, json, shorten);
}

function respelt(schema: DescMessage, json: JsonValue, shorten: number): JsonValue {
  if (json === null || typeof json !== "object" || Array.isArray(json) || schema.typeName.startsWith("google."))
    return json;
  const entries = Object.entries(json).map(([name, value]): [string, JsonValue] => {
    const field = schema.fields.find((candidate) => candidate.name === name);
    if (field === undefined) return [name, value];
    // Steps of an action are lists of numbers on REST.
    if (field.message?.name === "ActionStep" && Array.isArray(value))
      return [name, value.map((step) => (isRecord(step) ? (step.values ?? []) : step))];
    return [name, ofField(field, value, shorten)];
  });
  return Object.fromEntries(entries);
}

function ofField(field: DescField, value: JsonValue, shorten: number): JsonValue {
  if (field.fieldKind === "list" && Array.isArray(value)) return value.map((element) => ofOne(field, element, shorten));
  if (field.fieldKind === "map" && isRecord(value))
    return Object.fromEntries(Object.entries(value).map(([key, element]) => [key, ofOne(field, element, shorten)]));
  return ofOne(field, value, shorten);
}

function ofOne(field: DescField, value: JsonValue, shorten: number): JsonValue {
  if (field.enum !== undefined && typeof value === "number") return codeOf(field.enum, value);
  if (field.message !== undefined) return respelt(field.message, value, shorten);
  if (typeof value === "string" && value.length > shorten) return `${value.slice(0, 48)}… (${value.length} characters)`;
  return value;
}

const isRecord = (value: JsonValue): value is { [key: string]: JsonValue } =>
  value !== null && typeof value === "object" && !Array.isArray(value);

/** JSON as REST spells it, as the schema's own reader takes it: enum values by their numbers, steps of actions as messages. */
export function fromRest(schema: DescMessage, json: JsonValue): JsonValue {
  if (!isRecord(json) || schema.typeName.startsWith("google.")) return json;
  const entries = Object.entries(json).map(([name, value]): [string, JsonValue] => {
    const field = schema.fields.find((candidate) => candidate.name === name);
    if (field === undefined) return [name, value];
    if (Array.isArray(value)) return [name, value.map((element) => oneFromRest(field, element))];
    if (field.fieldKind === "map" && isRecord(value))
      return [
        name,
        Object.fromEntries(Object.entries(value).map(([key, element]) => [key, oneFromRest(field, element)])),
      ];
    return [name, oneFromRest(field, value)];
  });
  return Object.fromEntries(entries);
}

function oneFromRest(field: DescField, value: JsonValue): JsonValue {
  if (field.enum !== undefined && typeof value === "string") {
    const number = numberOfCode(field.enum, value);
    if (number === undefined)
      throw new Error(`${field.name}: there is no ${value}; there are ${codesOf(field.enum).join(", ")}`);
    return number;
  }
  if (field.message?.name === "ActionStep" && Array.isArray(value)) return { values: value };
  return field.message === undefined ? value : fromRest(field.message, value);
}
