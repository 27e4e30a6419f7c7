/** The schema's own words: an enum's value as REST spells it, and as a page shows it. */
import type { DescEnum, EnumShape } from "@bufbuild/protobuf";

/** How REST spells a value: `UPSTREAM_ERROR` of `AttemptFailure` is `upstream_error`; empty where nothing is stated. */
export function codeOf(schema: DescEnum, value: number | undefined): string {
  if (value === undefined || value === 0) return "";
  const name = schema.value[value]?.name ?? "";
  const prefix = schema.sharedPrefix ?? "";
  return name.toLowerCase().replace(new RegExp(`^${prefix}`, "i"), "");
}

/** A value as a page shows it: `upstream error`. */
export const wordOf = (schema: DescEnum, value: number | undefined): string => spaced(codeOf(schema, value));

/** A word of the schema with spaces. */
export const spaced = (code: string): string => code.replaceAll("_", " ");

/** The value that REST spells so; undefined where there is none. */
export const numberOfCode = <E extends DescEnum>(schema: E, code: string): EnumShape<E> | undefined =>
  schema.values.find(({ number }) => number !== 0 && codeOf(schema, number) === code)?.number as
    | EnumShape<E>
    | undefined;

/** Every value that states something, as REST spells it. */
export const codesOf = (schema: DescEnum): readonly string[] =>
  schema.values.filter(({ number }) => number !== 0).map(({ number }) => codeOf(schema, number));
