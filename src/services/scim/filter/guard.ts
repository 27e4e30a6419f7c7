/** What is looked at of a filter or path before SCIMMY reads it, which finds its way by patterns: length, depth, texts, brackets. */
import type { Refusal } from "../../../errors.ts";

const MAX_LENGTH = 4096;
const MAX_DEPTH = 32;
const TEXT = /"(?:[^"\\]|\\.)*"/gs;
/** How the names begin that stand for what is put aside. */
const RESERVED = /(?<![\w$:.\-"])-[a-z]/i;
const CLOSES: Readonly<Record<string, string>> = { "(": ")", "[": "]" };

type No = (text: string) => Refusal;

/** A filter with `"-0"`, `"-1"` and so on for its texts: SCIMMY takes words and brackets in a text for its own, and leaves escapes in it. */
export function withoutTexts(filter: string, no: No): { rest: string; texts: string[] } {
  if (filter.length > MAX_LENGTH) throw no(`is longer than ${MAX_LENGTH} letters`);
  const texts: string[] = [];
  const rest = filter.replace(TEXT, (quoted) => `"-${texts.push(textOf(quoted, no)) - 1}"`);
  if (rest.replaceAll(/"-\d+"/g, "").includes('"')) throw no("has a text that does not end");
  if (RESERVED.test(rest)) throw no("has a word that cannot be read");
  return { rest, texts };
}

function textOf(quoted: string, no: No): string {
  let text: unknown;
  try {
    text = JSON.parse(quoted);
  } catch {
    throw no("has a text that cannot be read");
  }
  if (typeof text === "string" && text.isWellFormed() && !text.includes("\0")) return text;
  throw no("has a text that no attribute has");
}

/** Refuses brackets that don't match, and more than 32 within each other. */
export function assertNests(text: string, no: No): void {
  const open: string[] = [];
  for (const [letter] of text.matchAll(/[()[\]]/g)) {
    const close = CLOSES[letter];
    if (close !== undefined) open.push(close);
    else if (open.pop() !== letter) throw no(`has a ${letter} where none was open`);
    if (open.length > MAX_DEPTH) throw no(`nests deeper than ${MAX_DEPTH} levels`);
  }
  if (open.length > 0) throw no(`lacks a ${open.at(-1)}`);
}

/** A stretch of a filter, and the outermost brackets behind it, where there are any. */
export interface Outer {
  readonly before: string;
  readonly sign: "(" | "[" | undefined;
  readonly inner: string;
}

/** The outermost brackets of a filter that nests, with what stands before each; the rest comes last, without a sign. */
export function outerOf(text: string): Outer[] {
  const found: Outer[] = [];
  let [depth, from, opened] = [0, 0, 0];
  for (const { 0: letter, index } of text.matchAll(/[()[\]]/g)) {
    if (letter === "(" || letter === "[") {
      if (depth++ === 0) opened = index;
    } else if (--depth === 0) {
      const sign = text[opened] === "(" ? "(" : "[";
      found.push({ before: text.slice(from, opened), sign, inner: text.slice(opened + 1, index) });
      from = index + 1;
    }
  }
  return [...found, { before: text.slice(from), sign: undefined, inner: "" }];
}
