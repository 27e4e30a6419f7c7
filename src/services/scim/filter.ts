/** Filters and paths (RFC 7644 sections 3.4.2.2 and 3.5.2): read by SCIMMY, behind a guard, into a tree whose attributes exist. */
import SCIMMY from "scimmy";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { type Attribute, type AttributePlace, type Kind, partOf, placeOf } from "./attributes.ts";
import { assertNests, type Outer, outerOf, withoutTexts } from "./filter/guard.ts";

/** How a value is compared. */
export type Comparison = "eq" | "ne" | "co" | "sw" | "ew" | "gt" | "ge" | "lt" | "le";

/** What values are compared with. */
export type Literal = string | number | boolean | null;

/** A filter. Places inside of `some` are those of the parts of its attribute. */
export type Filter =
  | { readonly op: "and" | "or"; readonly all: readonly Filter[] }
  | { readonly op: "not"; readonly inner: Filter }
  | { readonly op: "pr"; readonly place: AttributePlace }
  | { readonly op: Comparison; readonly place: AttributePlace; readonly value: Literal }
  | { readonly op: "some"; readonly place: AttributePlace; readonly inner: Filter };

/** A path of a change: an attribute, which of its values, and which part of these. */
export interface Path {
  readonly place: AttributePlace;
  readonly filter: Filter | undefined;
  readonly part: Attribute | undefined;
}

const MAX_TERMS = 256;
const TEXTUAL: ReadonlySet<string> = new Set(["co", "sw", "ew"]);
const ORDERED: ReadonlySet<string> = new Set(["gt", "ge", "lt", "le"]);

/** Reads a filter over resources of a kind. Refuses with `invalid_filter` what is malformed, too long, too deep, or names no attribute. */
export function parseFilter(kind: Kind, text: string): Filter {
  const reader = new FilterReader(kind, text, (says) => refuse(Reason.INVALID_FILTER, `the filter ${says}`));
  return reader.level(reader.text, undefined);
}

/** Reads the path of a change. Refuses with `invalid_path`. */
export function parsePath(kind: Kind, text: string): Path {
  const reader = new FilterReader(kind, text, (says) => refuse(Reason.INVALID_PATH, `the path ${says}`));
  return reader.path();
}

/** What SCIMMY makes of one comparison: `["eq", "ada"]`, `["not", "pr"]`; of several of one attribute, their list; of parts, an object. */
type FilterText = readonly unknown[] | { readonly [part: string]: FilterText };

const WORD = String.raw`[A-Za-z$][\w$:.\-]*`;
const LITERAL = String.raw`"-\d+"|true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])`;
const COMPARES = "(?i:eq|ne|co|sw|ew|gt|ge|lt|le)";
const TERM = String.raw`(?:(?:(?i:not)\s+)?-g\d+ pr|-v\d+ pr|${WORD}\s+(?i:pr)|${WORD}\s+${COMPARES}\s+(?:${LITERAL}))`;
/** What one level of a filter is, once its texts and groups are taken out of it. */
const LEVEL = new RegExp(`^${TERM}(?:\\s+(?i:and|or)\\s+${TERM})*$`);
const NAMED = new RegExp(`(?<![\\w$:.\\-])(${WORD})(?=\\s+(?:(?i:pr)|${COMPARES})(?:\\s|$))`, "g");
const LAST_WORD = new RegExp(`(?<=^|\\s)(${WORD})\\s*$`);
const PATH = new RegExp(`^\\s*(${WORD})(?:\\s*\\[(.*)\\](?:\\.(${WORD}))?)?\\s*$`);

/**
 * Reads level by level. SCIMMY reads each: its words, comparisons and values, and which belong to which `and` and `or`. What it would
 * read wrongly is put aside for it, under names that no attribute has: `-0` for a text, `-g0` for a group, `-v0` for a choice among values,
 * `-a0` for an attribute made of parts.
 */
class FilterReader {
  readonly text: string;
  readonly #kind: Kind;
  readonly #no: (text: string) => Refusal;
  readonly #texts: readonly string[];
  readonly #aside: Filter[] = [];
  readonly #whole: AttributePlace[] = [];
  #terms = 0;

  constructor(kind: Kind, text: string, no: (text: string) => Refusal) {
    this.#kind = kind;
    this.#no = no;
    const { rest, texts } = withoutTexts(text, no);
    assertNests(rest, no);
    this.text = rest;
    this.#texts = texts;
  }

  /** A filter; `inside` is the attribute whose parts it names. */
  level(text: string, inside: Attribute | undefined): Filter {
    let flat = "";
    for (const outer of outerOf(text)) flat = this.#putAside(flat, outer, inside);
    flat = flat.trim();
    if (!LEVEL.test(flat)) throw this.#no("cannot be read");
    const known = flat.replace(NAMED, (word) => this.#leaf(word, inside));
    const branches = [...new SCIMMY.Types.Filter(known)] as Record<string, FilterText>[]; // what its documentation says it holds
    return joined(
      "or",
      branches.map((branch) => joined("and", this.#read(branch, [], inside))),
    );
  }

  path(): Path {
    const [, word = "", chosen, part] = PATH.exec(this.text) ?? [];
    if (word === "") throw this.#no("cannot be read");
    const place = this.#place(word, undefined);
    if (chosen === undefined) return { place, filter: undefined, part: undefined };
    const { attribute } = place;
    if (!attribute.multiValued) throw this.#no(`chooses among values of ${attribute.name}, which has one`);
    const filter = this.level(chosen, attribute);
    const found = part === undefined ? undefined : partOf(attribute, part);
    if (part !== undefined && !found) throw this.#no("names a part that there is not");
    return { place, filter, part: found };
  }

  /**
   * SCIMMY negates a group by negating each of its terms, multiplies groups out, and gives up the values that a bracket belongs to:
   * groups are read by themselves.
   */
  #putAside(flat: string, { before, sign, inner }: Outer, inside: Attribute | undefined): string {
    if (sign === undefined) return flat + before;
    const at = this.#aside.length;
    this.#aside.push({ op: "and", all: [] });
    if (sign === "(") {
      this.#aside[at] = this.level(inner, inside);
      return `${flat}${before} -g${at} pr `;
    }
    const word = LAST_WORD.exec(before)?.[1];
    if (word === undefined) throw this.#no("has a bracket without an attribute before it");
    const place = this.#place(word, inside);
    if (inside || place.attribute.type !== "complex")
      throw this.#no(`looks for parts of ${place.attribute.name}, which has none`);
    this.#aside[at] = { op: "some", place, inner: this.level(inner, place.attribute) };
    return `${flat}${before.trimEnd().slice(0, -word.length)} -v${at} pr `;
  }

  /**
   * Only attributes that exist get to SCIMMY, which would look up `__proto__`. It forgets what is said of an attribute as a whole when the
   * same level names its parts too: the whole goes by another name.
   */
  #leaf(word: string, inside: Attribute | undefined): string {
    if (++this.#terms > MAX_TERMS) throw this.#no(`has more than ${MAX_TERMS} terms`);
    const place = this.#place(word, inside);
    if (place.attribute.type !== "complex") return word;
    return `-a${this.#whole.push(place) - 1}`;
  }

  #read(said: Record<string, FilterText>, path: readonly string[], inside: Attribute | undefined): Filter[] {
    return Object.entries(said).flatMap(([name, more]) => {
      const here = [...path, name];
      if (!isList(more)) return this.#read(more, here, inside);
      const each = more.every(isList) ? more : [more];
      return each.map((one) => this.#compared(here.join("."), one, inside));
    });
  }

  #compared(name: string, said: readonly unknown[], inside: Attribute | undefined): Filter {
    const [, mark = "", number = ""] = /^-([agv])(\d+)$/.exec(name) ?? [];
    const aside = mark === "g" || mark === "v" ? this.#aside[Number(number)] : undefined;
    if (aside) return said[0] === "not" ? { op: "not", inner: aside } : aside;
    const place = (mark === "a" ? this.#whole[Number(number)] : undefined) ?? this.#place(name, inside);
    const [op, value] = said;
    if (op === "pr") return { op, place };
    return this.#valued(place, op as Comparison, value as Literal); // the guard let no other by
  }

  #valued(place: AttributePlace, op: Comparison, given: Literal): Filter {
    const at = place.attribute.type === "complex" ? onlyValueOf(place) : place;
    if (!at) throw this.#no(`compares ${place.attribute.name}, which is made of parts`);
    const value = typeof given === "string" ? (this.#texts[Number(given.slice(1))] ?? "") : given;
    const { name, type } = at.attribute;
    const wanted = type === "boolean" ? "boolean" : type === "integer" || type === "decimal" ? "number" : "string";
    if (value !== null && typeof value !== wanted) throw this.#no(`compares ${name} with what it never is`);
    if (value === null && op !== "eq" && op !== "ne") throw this.#no("compares with null, which has no order");
    if (type === "boolean" && (TEXTUAL.has(op) || ORDERED.has(op)))
      throw this.#no(`orders ${name}, which has no order`);
    if (type !== "dateTime" || typeof value !== "string" || TEXTUAL.has(op)) return { op, place: at, value };
    const moment = Date.parse(value);
    if (Number.isNaN(moment)) throw this.#no(`compares ${name} with what is no time`);
    return { op, place: at, value: new Date(moment).toISOString() };
  }

  #place(path: string, inside: Attribute | undefined): AttributePlace {
    const part = inside && partOf(inside, path);
    const place = inside ? part && { names: [part.name], attribute: part, parent: inside } : placeOf(this.#kind, path);
    if (!place) throw this.#no("speaks of an attribute that there is not");
    return place;
  }
}

const isList = (said: unknown): said is readonly unknown[] => Array.isArray(said);

const joined = (op: "and" | "or", all: readonly Filter[]): Filter =>
  all.length === 1 && all[0] !== undefined ? all[0] : { op, all };

/** What a complex attribute is compared by: its value, such as that of a member or a manager. */
function onlyValueOf({ names, attribute }: AttributePlace): AttributePlace | undefined {
  const value = partOf(attribute, "value");
  return value && { names: [...names, value.name], attribute: value, parent: attribute };
}
