/** The bytes inside a `data:` URL. Source: RFC 2397, and the "data: URL processor" of the WHATWG fetch standard, strictly. */
import { CodecError } from "../error.ts";

const SCHEME = "data:";
/** Media types are short; nobody needs us to search megabytes for the comma. */
const MAX_HEADER = 256;
const BASE64_MARK = /; *base64$/i;

/** Costs nothing on the one-byte strings that nearly every URL is: the engine knows that they can't match. */
const WIDE = /[\u0100-\uffff]/;

/** Whether the text is meant as a data URL. */
export const isDataUrl = (url: string): boolean => url.slice(0, SCHEME.length).toLowerCase() === SCHEME;

/**
 * The body of a data URL, base64 (either alphabet, padded or not) or percent-encoded; the media type is not believed, so not
 * returned. Throws CodecError: `malformed` for any character that belongs to neither, `too_large` beyond `maxBytes`.
 */
export function decodeDataUrl(url: string, maxBytes: number): Buffer {
  const comma = url.indexOf(",");
  if (!isDataUrl(url) || comma < 0 || comma > MAX_HEADER) throw new CodecError("malformed");
  const body = url.slice(comma + 1);
  const bytes = BASE64_MARK.test(url.slice(0, comma)) ? decodeBase64(body, maxBytes) : decodePercent(body, maxBytes);
  if (bytes.length > maxBytes) throw new CodecError("too_large");
  return bytes;
}

function decodeBase64(body: string, maxBytes: number): Buffer {
  const maxDigits = 4 * Math.ceil(maxBytes / 3);
  const text = body.includes("%") ? decodePercent(body, maxDigits).toString("latin1") : body;
  if (text.length > maxDigits) throw new CodecError("too_large");
  const digits = text.length - paddingOf(text);
  const bytes = Buffer.from(text, "base64");
  // Node skips what isn't base64, which leaves fewer bytes than the digits are worth, and reads wide characters by their low byte.
  const isExact = digits % 4 !== 1 && bytes.length === Math.floor((digits * 3) / 4);
  if (!isExact || WIDE.test(text)) throw new CodecError("malformed");
  return bytes;
}

function paddingOf(text: string): number {
  if (text.length % 4 !== 0 || !text.endsWith("=")) return 0;
  return text.endsWith("==") ? 2 : 1;
}

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
