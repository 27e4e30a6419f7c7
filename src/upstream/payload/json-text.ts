/**
 * JSON as models write it: in fences and prose, with single or curly quotes, Python's words, tuples, comments, unquoted keys and trailing
 * commas, and cut off anywhere. What isn't whole is left out: half a list of numbers is never a shorter list.
 */

/** An object of a model's JSON. */
export type JsonItem = Readonly<Record<string, unknown>>;

/** What a text holds. */
export interface JsonText {
  /** The lists and objects in order, as far as they are whole. */
  readonly roots: readonly unknown[];
  /** The text is one of them and nothing else, apart from a fence. */
  readonly isAlone: boolean;
}

const MAX_DEPTH = 12;
const MAX_ITEMS = 2_000;
/** Lists and objects that may break off, as those in prose do; nothing is looked for behind them. */
const MAX_BROKEN = 100;
const WORDS: Readonly<Record<string, unknown>> = {
  true: true,
  false: false,
  null: null,
  True: true,
  False: false,
  None: null,
  undefined: null,
};
const QUOTES: Readonly<Record<string, string>> = { '"': '"', "'": "'", "“": "”", "‘": "’", "`": "`" };
const CLOSERS: Readonly<Record<string, string>> = { "[": "]", "{": "}", "(": ")" };
const NUMBER = /[+-]?(?:\d{1,17}(?:\.\d{0,17})?|\.\d{1,17})(?:[eE][+-]?\d{1,3})?/y;
const WORD = /[A-Za-z_$][\w$-]{0,63}/y;
const SPACE = /(?:\s|\/\/[^\n]*(?:\n|$)|\/\*[\s\S]{0,400}?\*\/|#[^\n]*(?:\n|$))*/y;
/** Ends of what a model quotes with an apostrophe inside: `'the robot's cup'`. */
const AFTER_STRING = /\s*(?:[,:}\])]|$)/y;

/** A value that is not whole: what of it is. */
class Broken {
  readonly whole: unknown[];
  constructor(whole: unknown[]) {
    this.whole = whole;
  }
}

/** Reads one text from left to right, each letter once. */
class Reader {
  readonly #text: string;
  at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** The list or object that begins here. */
  container(depth: number): unknown {
    const opener = this.#text[this.at++]!;
    const closer = CLOSERS[opener]!;
    const isObject = opener === "{";
    const list: unknown[] = [];
    const object: Record<string, unknown> = {};
    // A list of numbers beside a key that isn't whole is no place by itself.
    const kept = (values: readonly unknown[]): unknown[] =>
      isObject ? values.flatMap(objectsIn) : values.filter(isContainer);
    const whole = (more: readonly unknown[] = []): Broken =>
      new Broken([...kept(isObject ? Object.values(object) : list), ...kept(more)]);
    for (let count = 0; ; count++) {
      this.#skip(SPACE);
      const letter = this.#text[this.at];
      if (letter === closer) {
        this.at++;
        return isObject ? object : list;
      }
      if (letter === ",") {
        this.at++;
        continue;
      }
      if (letter === undefined || depth > MAX_DEPTH || count > 4 * MAX_ITEMS) return whole();
      const key = isObject ? this.#key() : "";
      if (key === undefined) return whole();
      const value = this.#value(depth);
      if (value instanceof Broken) return whole(value.whole);
      if (isObject) Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
      else list.push(value);
    }
  }

  #key(): string | undefined {
    const letter = this.#text[this.at]!;
    const key = QUOTES[letter] === undefined ? this.#take(WORD) : this.#string();
    this.#skip(SPACE);
    if (key === undefined || this.#text[this.at] !== ":") return undefined;
    this.at++;
    this.#skip(SPACE);
    return key;
  }

  #value(depth: number): unknown {
    const letter = this.#text[this.at];
    if (letter === undefined) return new Broken([]);
    if (CLOSERS[letter] !== undefined) return this.container(depth + 1);
    if (QUOTES[letter] !== undefined) return this.#string() ?? new Broken([]);
    const number = this.#take(NUMBER);
    // A number at the very end may go on.
    if (number !== undefined) return this.at < this.#text.length ? Number(number) : new Broken([]);
    const word = this.#take(WORD);
    return word !== undefined && Object.hasOwn(WORDS, word) ? WORDS[word] : new Broken([]);
  }

  #string(): string | undefined {
    const closer = QUOTES[this.#text[this.at]!]!;
    let text = "";
    for (this.at++; this.at < this.#text.length; this.at++) {
      const letter = this.#text[this.at]!;
      if (letter === "\\") text += escaped(this.#text[++this.at] ?? "");
      else if (letter !== closer) text += letter;
      else {
        AFTER_STRING.lastIndex = this.at + 1;
        if (closer !== '"' && !AFTER_STRING.test(this.#text)) text += letter;
        else {
          this.at++;
          return text;
        }
      }
    }
    return undefined;
  }

  #take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.#text)?.[0];
    if (found === undefined || found === "") return undefined;
    this.at += found.length;
    return found;
  }

  #skip(pattern: RegExp): void {
    this.#take(pattern);
  }
}

const escaped = (letter: string): string => ({ n: "\n", t: "\t", r: "\r" })[letter] ?? letter;
const isContainer = (value: unknown): boolean => typeof value === "object" && value !== null;
const objectsIn = (value: unknown): unknown[] =>
  Array.isArray(value) ? value.flatMap(objectsIn) : isContainer(value) ? [value] : [];
const FENCE = /```[\w+-]{0,10}\s?|~~~[\w+-]{0,10}\s?/g;

/** The JSON in a text; undefined where it holds none. */
export function jsonIn(text: string): JsonText | undefined {
  let inner = text.replace(FENCE, " ").trim();
  // JSON that was written into a string once more.
  if (/^"\s*[[{]/.test(inner)) inner = unquoted(inner) ?? inner;
  const roots: unknown[] = [];
  let isAlone = /^[[{]/.test(inner);
  const reader = new Reader(inner);
  for (let rest = 0, broken = 0; roots.length < MAX_ITEMS && broken < MAX_BROKEN; rest = reader.at) {
    const next = inner.slice(rest).search(/[[{]/);
    if (next < 0) break;
    if (rest > 0 && /[^\s,;]/.test(inner.slice(rest, rest + next))) isAlone = false;
    reader.at = rest + next;
    const value = reader.container(0);
    if (value instanceof Broken) broken++;
    roots.push(...(value instanceof Broken ? value.whole : [value]));
  }
  if (/[^\s,;]/.test(inner.slice(reader.at))) isAlone = false;
  return roots.length > 0 ? { roots, isAlone } : undefined;
}

function unquoted(text: string): string | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "string" ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Every object in some values, outer ones before those inside them. */
export function itemsIn(values: readonly unknown[], into: JsonItem[] = [], depth = 0): JsonItem[] {
  for (const value of values) {
    if (!isContainer(value) || depth > MAX_DEPTH || into.length >= MAX_ITEMS) continue;
    if (!Array.isArray(value)) into.push(value as JsonItem); // a container that is no list
    itemsIn(Object.values(value as object), into, depth + 1);
  }
  return into;
}
