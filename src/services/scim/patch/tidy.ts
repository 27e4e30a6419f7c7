/** Values as identity providers send them, made what their attributes take, before SCIMMY looks at their types. */
import { Reason, refuse } from "../../../errors.ts";
import { type Attribute, partOf } from "../attributes.ts";

/** Whether a value is a JSON object. */
export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * A value with its parts by their own names, without those that there are not; booleans that came as text, and references that came
 * as their value alone, are made what they mean. Refuses with `invalid_value` text that no attribute has.
 */
export function tidied(attribute: Attribute, given: unknown): unknown {
  const value = unwrapped(attribute, given);
  if (typeof value === "string" && (value.includes("\0") || !value.isWellFormed()))
    throw refuse(Reason.INVALID_VALUE, `${attribute.name} must be text without U+0000 and lone surrogates`);
  // A manager, or a member, may be written as its value alone.
  if (attribute.type === "complex" && typeof value === "string" && partOf(attribute, "value")) return { value };
  if (attribute.type === "complex" && isObject(value)) return partsOf(attribute, value);
  // Microsoft Entra ID writes booleans as text.
  if (attribute.type === "boolean" && typeof value === "string" && /^(true|false)$/i.test(value))
    return value.toLowerCase() === "true";
  return value;
}

/** Microsoft Entra ID writes what has one value as a list of one too, and a plain value as an object that holds it. */
function unwrapped(attribute: Attribute, value: unknown): unknown {
  if (!Array.isArray(value) || value.length !== 1) return value;
  const [only] = value;
  const isHolder = attribute.type !== "complex" && isObject(only) && Object.keys(only).join() === "value";
  return isHolder ? only.value : only;
}

function partsOf(attribute: Attribute, value: Record<string, unknown>): Record<string, unknown> {
  const parts: Record<string, unknown> = {};
  for (const [name, each] of Object.entries(value)) {
    const part = partOf(attribute, name);
    if (part && each !== null) parts[part.name] = tidied(part, each);
  }
  return parts;
}
