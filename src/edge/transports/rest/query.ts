/** Query strings: parameters in, the JSON values that they stand for out. */
import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { unknown } from "../../messages/json/near.ts";
import type { Faults } from "../../messages/json.ts";

/** The part of a request's target behind the question mark. */
export function queryOf(target: string): URLSearchParams | undefined {
  const mark = target.indexOf("?");
  return mark < 0 || mark === target.length - 1 ? undefined : new URLSearchParams(target.slice(mark + 1));
}

/** Parameters as JSON values by the types of their fields, unknown ones noted as faults unless they are to be ignored; what does not fit its type stays text, which its reader refuses. */
export function valuesOf(
  query: URLSearchParams,
  fields: ReadonlyMap<string, DescField>,
  faults: Faults,
  ignoresUnknown = false,
): Map<string, unknown> {
  const values = new Map<string, unknown>();
  for (const name of new Set(query.keys())) {
    const field = fields.get(name);
    const given = query.getAll(name);
    if (field === undefined && ignoresUnknown) continue;
    if (field === undefined) faults.add("extra_forbidden", unknown("parameter", name, fields.keys()), `query.${name}`);
    else if (field.fieldKind === "list")
      values.set(
        name,
        given.map((text) => jsonOf(text, field.scalar)),
      );
    else if (given.length > 1) faults.add("multiple_values", "must be given once", name);
    else values.set(name, jsonOf(given[0] ?? "", field.scalar));
  }
  return values;
}

const NUMBER = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;

function jsonOf(text: string, scalar: ScalarType | undefined): unknown {
  if (scalar === undefined || scalar === ScalarType.STRING || scalar === ScalarType.BYTES) return text;
  if (scalar === ScalarType.BOOL) return text === "true" || (text === "false" ? false : text);
  return NUMBER.test(text) ? Number(text) : text;
}
