/** Filters as paths that PostgreSQL evaluates over resources, so that no list has to fit into this process. */
import type { Attribute, AttributePlace } from "./attributes.ts";
import type { Comparison, Filter, Literal } from "./filter.ts";

/** The names under which the database keeps a resource as it is, and in lower case. */
const RAW = "r";
const LOWER = "l";

/**
 * A filter as an SQL/JSON path over `{r: resource, l: resource in lower case}`. Every text of the caller's is in it as a quoted
 * literal.
 */
export const jsonPathOf = (filter: Filter): string => `$ ? (${predicate(filter, "top")})`;

/** Where a place is sorted by, in the same form. */
export function sortPathOf({ names, attribute, parent }: AttributePlace): string {
  const value =
    attribute.type === "complex" ? (attribute.subAttributes ?? []).find(({ name }) => name === "value") : undefined;
  const all = value ? [...names, value.name] : names;
  const many = (parent ?? attribute).multiValued ? "[0]" : "";
  const [first = "", ...rest] = steps(all, isExact(attribute, names));
  return `${rootOf(attribute, names, "$")}${first}${many}${rest.join("")}`;
}

/** Only what stands at the top is looked at as it is: identifiers, which differ by case. */
const isExact = ({ caseExact, type }: Attribute, names: readonly string[]): boolean =>
  caseExact === true && type !== "boolean" && (names.length === 1 || names[0] === "meta");

const rootOf = (attribute: Attribute, names: readonly string[], base: string): string =>
  `${base}.${isExact(attribute, names) ? RAW : LOWER}`;

const steps = (names: readonly string[], exact: boolean): string[] =>
  names.map((name) => `.${JSON.stringify(exact ? name : name.toLowerCase())}`);

function predicate(filter: Filter, level: "top" | "inner"): string {
  switch (filter.op) {
    case "and":
    case "or":
      return filter.all.map((each) => `(${predicate(each, level)})`).join(filter.op === "and" ? " && " : " || ");
    case "not":
      return `!(${predicate(filter.inner, level)})`;
    case "pr":
      return `exists(${pathTo(filter.place, level)} ? (@ != null))`;
    case "some":
      return `exists(${pathTo(filter.place, level)} ? (${predicate(filter.inner, "inner")}))`;
    case "ne":
      return `!(${compared(filter.place, "eq", filter.value, level)})`;
    default:
      return compared(filter.place, filter.op, filter.value, level);
  }
}

function pathTo({ names, attribute, parent }: AttributePlace, level: "top" | "inner"): string {
  const exact = level === "top" && isExact(attribute, names);
  const root = level === "top" ? `@.${exact ? RAW : LOWER}` : "@";
  const all = steps(names, exact);
  // The attribute that has several values is the last one, or the one before it.
  const many = attribute.multiValued ? all.length - 1 : parent?.multiValued && level === "top" ? all.length - 2 : -1;
  return root + all.map((step, at) => (at === many ? `${step}[*]` : step)).join("");
}

const SIGNS: Readonly<Partial<Record<Comparison, string>>> = { eq: "==", gt: ">", ge: ">=", lt: "<", le: "<=" };

function compared(
  place: AttributePlace,
  op: Exclude<Comparison, "ne">,
  literal: Literal,
  level: "top" | "inner",
): string {
  const path = pathTo(place, level);
  if (literal === null) return `!exists(${path} ? (@ != null))`;
  if (typeof literal !== "string") return `${path} ${SIGNS[op]} ${JSON.stringify(literal)}`;
  const exact = level === "top" && isExact(place.attribute, place.names);
  const text = exact ? literal : literal.toLowerCase();
  switch (op) {
    case "sw":
      return `${path} starts with ${quoted(text)}`;
    case "co":
      return `${path} like_regex ${quoted(text)} flag "q"`;
    case "ew":
      return `${path} like_regex ${quoted(`${text.replaceAll(/[^\p{L}\p{N}]/gu, "\\$&")}$`)}`;
    default:
      return `${path} ${SIGNS[op]} ${quoted(text)}`;
  }
}

const quoted = (text: string): string => JSON.stringify(text);
