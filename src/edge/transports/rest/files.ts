/** Responses that are a file: the bytes of a field, completely or in part (RFC 9110, sections 13 and 14). */

/** The request's conditions on a file. */
interface FileConditions {
  /** The request's method. Ranges are defined only for GET. */
  readonly method: string | undefined;
  readonly range: string | undefined;
  readonly ifRange: string | undefined;
  readonly ifNoneMatch: string | undefined;
}

/** The status of the response, its bytes, and headers, alternating names and values. */
interface FilePart {
  readonly status: 200 | 206 | 304 | 416;
  readonly bytes: Buffer;
  readonly headers: readonly string[];
}

const NONE = Buffer.alloc(0);

/**
 * Selects what of a file to send. Of several ranges, and for a range that cannot be parsed, the complete file: a server may ignore them. `etag`
 * is strong.
 */
export function partOf(file: Buffer, etag: string, asked: FileConditions): FilePart {
  const { method, range, ifRange, ifNoneMatch } = asked;
  const headers = ["accept-ranges", "bytes"];
  if (ifNoneMatch !== undefined && matches(ifNoneMatch, etag)) return { status: 304, bytes: NONE, headers };
  const isAsked = method === "GET" && range !== undefined && (ifRange === undefined || ifRange.trim() === etag);
  const span = isAsked ? spanOf(range, file.length) : undefined;
  if (span === undefined) return { status: 200, bytes: file, headers };
  if (span === "unsatisfiable")
    return { status: 416, bytes: NONE, headers: [...headers, "content-range", `bytes */${file.length}`] };
  const { first, last } = span;
  const bytes = file.subarray(first, last + 1);
  return { status: 206, bytes, headers: [...headers, "content-range", `bytes ${first}-${last}/${file.length}`] };
}

/** Whether `If-None-Match` names an entity tag; weak tags match too. */
const matches = (header: string, etag: string): boolean =>
  header.split(",").some((each) => each.trim() === "*" || each.trim().replace(/^W\//, "") === etag);

/** A range: `first-last`, `first-` or `-length`. */
const RANGE = /^bytes=[ \t]*(?:(\d+)-(\d*)|-(\d+))[ \t]*$/i;

/** The first and the last byte of a range; undefined if the header is to be ignored. */
function spanOf(header: string, size: number): { first: number; last: number } | "unsatisfiable" | undefined {
  const found = RANGE.exec(header);
  if (!found) return undefined;
  const [, from, to, length] = found;
  if (from === undefined) {
    if (Number(length) === 0) return "unsatisfiable";
    return { first: Math.max(0, size - Number(length)), last: size - 1 };
  }
  const last = to === "" ? size - 1 : Number(to);
  if (to !== "" && last < Number(from)) return undefined;
  return Number(from) >= size ? "unsatisfiable" : { first: Number(from), last: Math.min(last, size - 1) };
}
