/** Filters (RFC 7644 section 3.4.2.2): read into a tree whose attributes are known to exist. */
import { Reason, type Refusal, refuse } from "../../refusal.ts";
import { type Attribute, type Kind, type Place, partOf, placeOf } from "./attributes.ts";

/** How a value is compared. */
export type Comparison = "eq" | "ne" | "co" | "sw" | "ew" | "gt" | "ge" | "lt" | "le";

/** What values are compared with. */
export type Literal = string | number | boolean | null;

/** A filter. Places inside of `some` are those of the parts of its attribute. */
export type Filter =
  | { readonly op: "and" | "or"; readonly all: readonly Filter[] }
  | { readonly op: "not"; readonly inner: Filter }
  | { readonly op: "pr"; readonly place: Place }
  | { readonly op: Comparison; readonly place: Place; readonly value: Literal }
  | { readonly op: "some"; readonly place: Place; readonly inner: Filter };

/** A path of a change: an attribute, which of its values, and which part of these. */
export interface Path {
  readonly place: Place;
  readonly filter: Filter | undefined;
  readonly part: Attribute | undefined;
}

const MAX_LENGTH = 4096;
const MAX_DEPTH = 32;
const MAX_TERMS = 256;

const TOKEN = /\s*(?:(?<text>"(?:[^"\\]|\\.)*")|(?<sign>[()[\]])|(?<word>[A-Za-z0-9_$:.\-+]+))/y;
const COMPARISONS: ReadonlySet<string> = new Set(["eq", "ne", "co", "sw", "ew", "gt", "ge", "lt", "le"]);
const TEXTUAL: ReadonlySet<string> = new Set(["co", "sw", "ew"]);
const ORDERED: ReadonlySet<string> = new Set(["gt", "ge", "lt", "le"]);
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

/** Reads a filter over resources of a kind. Refuses with `invalid_filter` what is malformed, too long, too deep, or speaks of no attribute. */
export function parseFilter(kind: Kind, text: string): Filter {
  const reader = new Reader(kind, text, bad);
  const filter = reader.either(undefined, 0);
  reader.end();
  return filter;
}

/** Reads the path of a change. Refuses with `invalid_path`. */
export function parsePath(kind: Kind, text: string): Path {
  const reader = new Reader(kind, text, badPath);
  const path = reader.path();
  reader.end();
  return path;
}

const bad = (text: string): Refusal => refuse(Reason.INVALID_FILTER, `the filter ${text}`);
const badPath = (text: string): Refusal => refuse(Reason.INVALID_PATH, `the path ${text}`);

interface Token {
  readonly kind: "text" | "sign" | "word";
  readonly text: string;
}

/** Reads from left to right; it never goes back, so that its time grows with the length alone. */
class Reader {
  readonly #kind: Kind;
  readonly #tokens: readonly Token[];
  readonly #no: (text: string) => Refusal;
  #at = 0;
  #terms = 0;

  constructor(kind: Kind, text: string, no: (text: string) => Refusal) {
    this.#kind = kind;
    this.#no = no;
    if (text.length > MAX_LENGTH) throw no(`is longer than ${MAX_LENGTH} letters`);
    this.#tokens = tokensOf(text, no);
  }

  end(): void {
    if (this.#at < this.#tokens.length) throw this.#no("goes on where it should end");
  }

  /** Terms joined by `or`; `inside` is the attribute whose parts they speak of. */
  either(inside: Attribute | undefined, depth: number): Filter {
    return this.#joined("or", () => this.#joined("and", () => this.#term(inside, depth)));
  }

  path(): Path {
    const place = this.#place(undefined);
    if (!this.#takes("[")) return { place, filter: undefined, part: undefined };
    const { attribute } = place;
    if (!attribute.multiValued) throw this.#no(`chooses among values of ${attribute.name}, which has one`);
    const filter = this.either(attribute, 0);
    this.#expect("]");
    const rest = this.#tokens[this.#at];
    if (rest?.kind !== "word") return { place, filter, part: undefined };
    this.#at++;
    const part = rest.text.startsWith(".") ? partOf(attribute, rest.text.slice(1)) : undefined;
    if (!part) throw this.#no("names a part that there is not");
    return { place, filter, part };
  }

  #joined(op: "and" | "or", next: () => Filter): Filter {
    const all = [next()];
    while (this.#isWord(op)) {
      this.#at++;
      all.push(next());
    }
    return all.length === 1 && all[0] !== undefined ? all[0] : { op, all };
  }

  #term(inside: Attribute | undefined, depth: number): Filter {
    if (depth > MAX_DEPTH) throw this.#no(`nests deeper than ${MAX_DEPTH} levels`);
    if (++this.#terms > MAX_TERMS) throw this.#no(`has more than ${MAX_TERMS} terms`);
    if (this.#isWord("not") && this.#tokens[this.#at + 1]?.text === "(") {
      this.#at++;
      return { op: "not", inner: this.#grouped(inside, depth) };
    }
    if (this.#tokens[this.#at]?.text === "(") return this.#grouped(inside, depth);
    return this.#comparison(inside, depth);
  }

  #grouped(inside: Attribute | undefined, depth: number): Filter {
    this.#expect("(");
    const inner = this.either(inside, depth + 1);
    this.#expect(")");
    return inner;
  }

  #comparison(inside: Attribute | undefined, depth: number): Filter {
    const place = this.#place(inside);
    const { attribute } = place;
    if (this.#takes("[")) {
      if (inside || attribute.type !== "complex")
        throw this.#no(`looks for parts of ${attribute.name}, which has none`);
      const inner = this.either(attribute, depth + 1);
      this.#expect("]");
      return { op: "some", place, inner };
    }
    const op = this.#word().toLowerCase();
    if (op === "pr") return { op, place };
    if (!COMPARISONS.has(op)) throw this.#no("has a word where a comparison should be");
    return this.#compared(place, op as Comparison); // sound: it is one of them
  }

  #compared(place: Place, op: Comparison): Filter {
    const at = place.attribute.type === "complex" ? onlyValueOf(place) : place;
    if (!at) throw this.#no(`compares ${place.attribute.name}, which is made of parts`);
    const { name, type } = at.attribute;
    const value = this.#literal();
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

  #place(inside: Attribute | undefined): Place {
    const path = this.#word();
    if (inside) {
      const part = partOf(inside, path);
      if (!part) throw this.#no("speaks of an attribute that there is not");
      return { names: [part.name], attribute: part, parent: inside };
    }
    const place = placeOf(this.#kind, path);
    if (!place) throw this.#no("speaks of an attribute that there is not");
    return place;
  }

  #literal(): Literal {
    const token = this.#tokens[this.#at++];
    if (token?.kind === "text") return this.#text(token.text);
    const word = token?.kind === "word" ? token.text : "";
    if (word === "true" || word === "false") return word === "true";
    if (word === "null") return null;
    if (NUMBER.test(word) && Number.isFinite(Number(word))) return Number(word);
    throw this.#no("has no value where one should be");
  }

  #text(quoted: string): string {
    let text: unknown;
    try {
      text = JSON.parse(quoted);
    } catch {
      throw this.#no("has a text that cannot be read");
    }
    if (typeof text === "string" && text.isWellFormed() && !text.includes("\0")) return text;
    throw this.#no("has a text that no attribute has");
  }

  #word(): string {
    const token = this.#tokens[this.#at++];
    if (token?.kind !== "word") throw this.#no("ends, or has a sign, where a word should be");
    return token.text;
  }

  #isWord(word: string): boolean {
    const token = this.#tokens[this.#at];
    return token?.kind === "word" && token.text.toLowerCase() === word;
  }

  #takes(sign: string): boolean {
    const token = this.#tokens[this.#at];
    const taken = token?.kind === "sign" && token.text === sign;
    if (taken) this.#at++;
    return taken;
  }

  #expect(sign: string): void {
    if (!this.#takes(sign)) throw this.#no(`lacks a ${sign}`);
  }
}

/** Where a complex attribute of several values is meant by one of them. */
function onlyValueOf({ names, attribute }: Place): Place | undefined {
  const value = attribute.multiValued ? partOf(attribute, "value") : undefined;
  return value && { names: [...names, value.name], attribute: value, parent: attribute };
}

function tokensOf(text: string, no: (text: string) => Refusal): Token[] {
  const tokens: Token[] = [];
  const pattern = new RegExp(TOKEN);
  const end = text.trimEnd().length;
  while (pattern.lastIndex < end) {
    const groups = pattern.exec(text)?.groups;
    if (!groups) throw no("cannot be read");
    if (groups.text !== undefined) tokens.push({ kind: "text", text: groups.text });
    else if (groups.sign !== undefined) tokens.push({ kind: "sign", text: groups.sign });
    else tokens.push({ kind: "word", text: groups.word ?? "" });
  }
  return tokens;
}
