/** Filters on one value in memory, as changes choose what they change. */
import type { Comparison, Filter, Literal } from "../filter.ts";

/** Whether a filter over the parts of an attribute holds for one of its values. */
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

/** What lies at the end of some names, with every value of those that have several. */
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
