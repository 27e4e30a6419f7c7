/** Filters and paths (RFC 7644 sections 3.4.2.2 and 3.5.2), read by recursive descent into a tree whose attributes exist. */
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { type Attribute, type AttributePlace, type Kind, partOf, placeOf } from "./attributes.ts";

const COMPARISONS = ["eq", "ne", "co", "sw", "ew", "gt", "ge", "lt", "le"] as const;
/** How a value is compared. */
export type Comparison = (typeof COMPARISONS)[number];

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

const MAX_LENGTH = 4096;
const MAX_TERMS = 256;
const MAX_DEPTH = 32;
/** A text, a bracket or the dot behind one, a word, or a number. */
const TOKEN =
  /\s*("(?:[^"\\]|\\.)*"|[()[\].]|[A-Za-z$][\w$:.-]*|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))/sy;
const WORD = /^[A-Za-z$]/;

/** Reads a filter over resources of a kind. Refuses with `invalid_filter` what is malformed, too long, too deep, or names no attribute. */
export function parseFilter(kind: Kind, text: string): Filter {
  const reader = new Reader(kind, text, (says) => refuse(Reason.INVALID_FILTER, `the filter ${says}`));
  return reader.whole(() => reader.filter(undefined));
}

/** Reads the path of a change, in which Microsoft Entra ID writes booleans as text. Refuses with `invalid_path`. */
export function parsePath(kind: Kind, text: string): Path {
  const reader = new Reader(kind, text, (says) => refuse(Reason.INVALID_PATH, `the path ${says}`), true);
  return reader.whole(() => reader.path());
}

class Reader {
  readonly #kind: Kind;
  readonly #no: (text: string) => Refusal;
  readonly #isLenient: boolean;
  readonly #tokens: string[] = [];
  #at = 0;
  #depth = 0;
  #terms = 0;

  constructor(kind: Kind, text: string, no: (text: string) => Refusal, isLenient = false) {
    this.#kind = kind;
    this.#no = no;
    this.#isLenient = isLenient;
    if (text.length > MAX_LENGTH) throw no(`is longer than ${MAX_LENGTH} letters`);
    const end = text.trimEnd().length;
    TOKEN.lastIndex = 0;
    while (TOKEN.lastIndex < end) {
      const [, token] = TOKEN.exec(text) ?? [];
      if (token === undefined) throw no("has a character that cannot be read");
      this.#tokens.push(token);
    }
  }

  /** What `read` makes of all tokens. */
  whole<T>(read: () => T): T {
    const made = read();
    if (this.#at < this.#tokens.length) throw this.#no("goes on where it should end");
    return made;
  }

  path(): Path {
    const place = this.#place(this.#word(), undefined);
    if (!this.#takes("[")) return { place, filter: undefined, part: undefined };
    const { attribute } = place;
    if (!attribute.multiValued) throw this.#no(`chooses among values of ${attribute.name}, which has one`);
    const filter = this.#nested("]", attribute);
    if (!this.#takes(".")) return { place, filter, part: undefined };
    const part = partOf(attribute, this.#word());
    if (!part) throw this.#no("names a part that does not exist");
    return { place, filter, part };
  }

  /** A filter; `inside` is the attribute whose parts it names. */
  filter(inside: Attribute | undefined): Filter {
    return this.#joined("or", () => this.#joined("and", () => this.#term(inside)));
  }

  #joined(op: "and" | "or", read: () => Filter): Filter {
    const all = [read()];
    while (this.#takes(op)) all.push(read());
    return all.length === 1 ? all[0]! : { op, all };
  }

  #term(inside: Attribute | undefined): Filter {
    if (this.#takes("(")) return this.#nested(")", inside);
    const word = this.#word();
    if (word.toLowerCase() === "not" && this.#takes("(")) return { op: "not", inner: this.#nested(")", inside) };
    if (++this.#terms > MAX_TERMS) throw this.#no(`has more than ${MAX_TERMS} terms`);
    const place = this.#place(word, inside);
    if (this.#takes("[")) {
      if (inside || place.attribute.type !== "complex")
        throw this.#no(`looks for parts of ${place.attribute.name}, which has none`);
      return { op: "some", place, inner: this.#nested("]", place.attribute) };
    }
    const said = this.#word().toLowerCase();
    if (said === "pr") return { op: "pr", place };
    const op = COMPARISONS.find((each) => each === said);
    if (op === undefined) throw this.#no("has a comparison that does not exist");
    return this.#compared(place, op, this.#literal());
  }

  #nested(close: string, inside: Attribute | undefined): Filter {
    if (++this.#depth > MAX_DEPTH) throw this.#no(`nests deeper than ${MAX_DEPTH} levels`);
    const inner = this.filter(inside);
    this.#depth -= 1;
    if (!this.#takes(close)) throw this.#no(`lacks a ${close}`);
    return inner;
  }

  #compared(place: AttributePlace, op: Comparison, given: Literal): Filter {
    const at = place.attribute.type === "complex" ? onlyValueOf(place) : place;
    if (!at) throw this.#no(`compares ${place.attribute.name}, which is made of parts`);
    const { name, type } = at.attribute;
    const isText = type === "boolean" && this.#isLenient && typeof given === "string" && /^(true|false)$/i.test(given);
    const value = isText ? given.toLowerCase() === "true" : given;
    const isEquality = op === "eq" || op === "ne";
    if (value === null && !isEquality) throw this.#no("compares with null, which has no order");
    if (value !== null && typeof value !== (type === "boolean" ? "boolean" : "string"))
      throw this.#no(`compares ${name} with a value of another type`);
    if (type === "boolean" && !isEquality) throw this.#no(`orders ${name}, which has no order`);
    if (type !== "dateTime" || typeof value !== "string" || /co|sw|ew/.test(op)) return { op, place: at, value };
    const moment = Date.parse(value);
    if (Number.isNaN(moment)) throw this.#no(`compares ${name} with what is no time`);
    return { op, place: at, value: new Date(moment).toISOString() };
  }

  #literal(): Literal {
    let value: unknown;
    try {
      value = JSON.parse(this.#tokens[this.#at++] ?? "");
    } catch {
      throw this.#no("has a value that cannot be read");
    }
    if (typeof value === "string" && (!value.isWellFormed() || value.includes("\0")))
      throw this.#no("has a text that no attribute has");
    return value as Literal; // brackets are no JSON, and no token is an object
  }

  #place(path: string, inside: Attribute | undefined): AttributePlace {
    const part = inside && partOf(inside, path);
    const place = inside ? part && { names: [part.name], attribute: part, parent: inside } : placeOf(this.#kind, path);
    if (!place) throw this.#no("names an attribute that does not exist");
    return place;
  }

  #word(): string {
    const token = this.#tokens[this.#at++];
    if (token === undefined || !WORD.test(token)) throw this.#no("lacks a word");
    return token;
  }

  #takes(token: string): boolean {
    const isNext = this.#tokens[this.#at]?.toLowerCase() === token;
    if (isNext) this.#at += 1;
    return isNext;
  }
}

/** What a complex attribute is compared by: its value, such as that of a member or a manager. */
function onlyValueOf({ names, attribute }: AttributePlace): AttributePlace | undefined {
  const value = partOf(attribute, "value");
  return value && { names: [...names, value.name], attribute: value, parent: attribute };
}
