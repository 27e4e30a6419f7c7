/** JSON as Python's `json.dumps` writes it: with `NaN`, `Infinity` and `-Infinity`, which RFC 8259 excludes. */

const NOT_FINITE = /(-?)\b(?:NaN|Infinity)\b/g;
/** Parsed as infinity. */
const INFINITE = "1e999";

/** Parses JSON text; numbers that are not finite become infinite. Throws a SyntaxError. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (!text.includes("NaN") && !text.includes("Infinity")) throw error;
    return JSON.parse(withoutNonFinite(text));
  }
}

/** Replaces the names outside of strings. */
function withoutNonFinite(text: string): string {
  let out = "";
  for (let at = 0; at < text.length; ) {
    const quote = text.indexOf('"', at);
    const end = quote < 0 ? text.length : quote;
    out += text.slice(at, end).replace(NOT_FINITE, `$1${INFINITE}`);
    if (quote < 0) break;
    let close = quote + 1;
    while (close < text.length && text[close] !== '"') close += text[close] === "\\" ? 2 : 1;
    out += text.slice(quote, close + 1);
    at = close + 1;
  }
  return out;
}
