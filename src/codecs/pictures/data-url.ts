/** Decodes `data:` URLs. Source: RFC 2397, and the "data: URL processor" of the WHATWG fetch standard. */
import { decodeBase64, withoutSpaces } from "../base64.ts";
import { CodecError } from "../error.ts";

const SCHEME = "data:";
/** Media types are short: a limit avoids a search through megabytes for the comma. */
const MAX_HEADER = 256;
/** The mark comes last; some clients write a parameter or a space after it. */
const BASE64_MARK = /; *base64 *(?:;|$)/i;

/** Whether the text has the scheme of a data URL. */
export const isDataUrl = (url: string): boolean => url.slice(0, SCHEME.length).toLowerCase() === SCHEME;

/**
 * Returns the body of a data URL, base64 (either alphabet, padded or not, with white space) or percent-encoded. The media type is not trusted
 * and not returned. Throws CodecError: `malformed` for invalid characters, `too_large` above `maxBytes`.
 */
export function decodeDataUrl(url: string, maxBytes: number): Buffer {
  const comma = commaOf(url);
  const body = url.slice(comma + 1);
  const bytes = isBase64(url, comma) ? inBase64(body, maxBytes) : decodePercent(body, maxBytes);
  if (bytes.length > maxBytes) throw new CodecError("too_large");
  return bytes;
}

/**
 * Returns the first bytes of a data URL's body, at least `bytes` of them if it is long enough and has few line breaks; `isWhole` if they are
 * all. Throws CodecError as `decodeDataUrl` does.
 */
export function startOfDataUrl(url: string, bytes: number): { bytes: Buffer; isWhole: boolean } {
  const comma = commaOf(url);
  const digits = 4 * Math.ceil(bytes / 3);
  const end = comma + 1 + Math.ceil(SLACK * digits);
  if (end >= url.length) return { bytes: decodeDataUrl(url, Number.POSITIVE_INFINITY), isWhole: true };
  const start = isBase64(url, comma) ? withoutSpaces(url.slice(comma + 1, end)) : url.slice(comma + 1, end);
  return {
    bytes: decodeDataUrl(url.slice(0, comma + 1) + start.slice(0, start.length & ~3), bytes * 2),
    isWhole: false,
  };
}

/** Two line breaks, each after 64 or 76 digits. */
const SLACK = 1.04;

function commaOf(url: string): number {
  const comma = url.indexOf(",");
  if (!isDataUrl(url) || comma < 0 || comma > MAX_HEADER) throw new CodecError("malformed");
  return comma;
}

const isBase64 = (url: string, comma: number): boolean => BASE64_MARK.test(url.slice(0, comma));

const inBase64 = (body: string, maxBytes: number): Buffer =>
  decodeBase64(
    body.includes("%") ? decodePercent(withoutSpaces(body), body.length).toString("latin1") : body,
    maxBytes,
  );

const PERCENT = 0x25;
const HASH = 0x23;

function decodePercent(body: string, maxBytes: number): Buffer {
  const bytes = Buffer.allocUnsafe(Math.min(body.length, maxBytes));
  let length = 0;
  for (let at = 0; at < body.length; at++) {
    const code = body.charCodeAt(at);
    if (length === maxBytes) throw new CodecError("too_large");
    if (code <= 0x20 || code >= 0x7f || code === HASH) throw new CodecError("malformed");
    if (code === PERCENT) {
      bytes[length++] = hexAt(body, at + 1);
      at += 2;
    } else bytes[length++] = code;
  }
  return bytes.subarray(0, length);
}

function hexAt(text: string, at: number): number {
  const pair = text.slice(at, at + 2);
  if (!/^[0-9a-f]{2}$/i.test(pair)) throw new CodecError("malformed");
  return Number.parseInt(pair, 16);
}
