/** Base64 as clients write it. Source: RFC 4648, sections 4 and 5; "forgiving-base64 decode" of the WHATWG infra standard. */
import { CodecError } from "./error.ts";

/** The characters that the forgiving decode skips. */
const WHITE_SPACE = /[\t\n\f\r ]+/g;
/** Free for one-byte strings, as nearly all texts are: the engine knows that they cannot match. */
const WIDE = /[\u0100-\uffff]/;

/** Returns the text without ASCII white space, such as the line breaks of MIME's base64. */
export const withoutSpaces = (text: string): string => text.replace(WHITE_SPACE, "");

/**
 * Decodes base64 in either alphabet, padded or not, with white space anywhere. Throws CodecError: `malformed` for any other character and for an
 * extra digit, `too_large` above `maxBytes`.
 */
export function decodeBase64(text: string, maxBytes: number = Number.POSITIVE_INFINITY): Buffer {
  const maxDigits = 4 * Math.ceil(maxBytes / 3);
  const exact = text.length <= maxDigits ? exactly(text) : undefined;
  if (exact !== undefined) return exact;
  const bare = withoutSpaces(text);
  if (bare.length > maxDigits) throw new CodecError("too_large");
  const bytes = bare.length === text.length ? undefined : exactly(bare);
  if (bytes === undefined) throw new CodecError("malformed");
  return bytes;
}

/** As decodeBase64, but returns undefined for malformed text, including white space. */
export function exactly(text: string): Buffer | undefined {
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const digits = text.length - padding;
  const bytes = Buffer.from(text, "base64");
  // Node skips invalid characters, which leaves fewer bytes than the digits encode, and reads wide characters by their low byte.
  const isExact = digits % 4 !== 1 && bytes.length === Math.floor((digits * 3) / 4);
  return isExact && !WIDE.test(text) ? bytes : undefined;
}
