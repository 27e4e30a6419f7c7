/** Empty messages, all of one type of one shape. */
import { create, type DescMessage } from "@bufbuild/protobuf";

type BlankFields = Record<string, unknown>;

/**
 * What makes empty messages of a type, as `create` does. It is code of its own for each type: an object whose shape the engine can
 * read in the source costs a small part of one that is put together from a description. Only the schema's names are in it.
 */
export function blankOf(desc: DescMessage): () => BlankFields {
  const template = create(desc) as unknown as BlankFields;
  const literals = Object.entries(template).map(([name, value]) => [JSON.stringify(name), literalOf(value)]);
  // Messages of the older syntax have their defaults on a prototype.
  const isPlain = Object.getPrototypeOf(template) === Object.prototype;
  if (!isPlain || literals.some(([, literal]) => literal === undefined))
    return () => create(desc) as unknown as BlankFields;
  const members = literals.map(([name, literal]) => `${name}: ${literal}`);
  return new Function("NO_BYTES", `return () => ({ ${members.join(", ")} });`)(NO_BYTES) as () => BlankFields;
}

/** There is nothing in them that could change. */
const NO_BYTES = new Uint8Array();

/** How an empty value is written in a program; undefined where it is none of those that messages have. */
function literalOf(value: unknown): string | undefined {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (Array.isArray(value)) return "[]";
  if (value instanceof Uint8Array) return "NO_BYTES";
  if (typeof value !== "object" || value === null) return undefined;
  const keys = Object.keys(value);
  if (keys.length === 0) return "{}";
  return keys.length === 1 && keys[0] === "case" ? "{ case: undefined }" : undefined;
}
