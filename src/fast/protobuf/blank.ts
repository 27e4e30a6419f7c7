/** Empty messages, all of one type of one shape. */
import { create, type DescMessage } from "@bufbuild/protobuf";

type BlankFields = Record<string, unknown>;

/**
 * What makes empty messages of a type, as `create` does: by copying an empty one, which costs a small part of putting one together from
 * its description. What could change in a copy, lists, maps and oneofs, is made anew.
 */
export function blankOf(desc: DescMessage): () => BlankFields {
  const template = create(desc) as unknown as BlankFields;
  const members = Object.entries(template).filter(([, value]) => typeof value === "object" && value !== null);
  const renewals = members.map(([name, value]) => [name, renewalOf(value as object)] as const);
  // Messages of the older syntax have their defaults on a prototype.
  const isPlain = Object.getPrototypeOf(template) === Object.prototype;
  if (!isPlain || renewals.some(([, renew]) => renew === undefined))
    return () => create(desc) as unknown as BlankFields;
  return () => {
    const blank = { ...template };
    for (const [name, renew] of renewals) blank[name] = renew!();
    return blank;
  };
}

/** What makes an empty value of this kind; undefined where it is none of those that messages have. */
function renewalOf(value: object): (() => unknown) | undefined {
  if (Array.isArray(value)) return () => [];
  // There is nothing in empty bytes that could change.
  if (value instanceof Uint8Array) return () => value;
  const keys = Object.keys(value);
  if (keys.length === 0) return () => ({});
  return keys.length === 1 && keys[0] === "case" ? () => ({ case: undefined }) : undefined;
}
