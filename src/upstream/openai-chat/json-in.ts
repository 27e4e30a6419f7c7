/** The JSON objects inside a model's text, however it wraps them and wherever it was cut off. */

type JsonItem = Readonly<Record<string, unknown>>;

const MAX_DEPTH = 6;
const FENCE = /```[a-z]{0,10}\s/i;

/**
 * The objects in order, outer ones first: `[]` gives none, and a list that breaks off gives those that are whole.
 * Undefined when the text holds no JSON at all.
 */
export function jsonIn(text: string): JsonItem[] | undefined {
  const fence = FENCE.exec(text);
  const inner = fence ? text.slice(fence.index + fence[0].length) : text;
  const start = inner.search(/[[{]/);
  if (start < 0) return undefined;
  const items: JsonItem[] = [];
  let whole = false;
  for (const piece of piecesOf(inner.slice(start))) {
    const value = parsed(piece);
    if (value === undefined) continue;
    whole = true;
    collect(value, items, 0);
  }
  if (whole) return items;
  return /^\[\s*\]/.test(inner.slice(start)) ? [] : undefined;
}

/** Every balanced `{…}`, and a balanced `[…]` without any. */
function* piecesOf(text: string): Generator<string> {
  let depth = 0;
  let from = -1;
  let inString = false;
  for (let at = 0; at < text.length; at++) {
    const letter = text[at];
    if (inString) {
      if (letter === "\\") at++;
      else if (letter === '"') inString = false;
    } else if (letter === '"') inString = depth > 0;
    else if (letter === "{") {
      if (depth++ === 0) from = at;
    } else if (letter === "}" && depth > 0 && --depth === 0) yield text.slice(from, at + 1);
  }
}

function parsed(piece: string): unknown {
  try {
    return JSON.parse(piece);
  } catch {
    return undefined;
  }
}

/** Every object, outer ones before those inside them. */
function collect(value: unknown, into: JsonItem[], depth: number): void {
  if (typeof value !== "object" || value === null || depth > MAX_DEPTH) return;
  if (!Array.isArray(value)) into.push(value as JsonItem); // an object that's no array
  for (const each of Object.values(value)) collect(each, into, depth + 1);
}
