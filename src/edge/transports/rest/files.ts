/** Responses whose body is a file, or a byte range of it (RFC 9110, sections 13 and 14). */

/** The request's conditions on a file. */
interface FileConditions {
  /** The request's method. Ranges are defined only for GET. */
  readonly method: string | undefined;
  readonly range: string | undefined;
  readonly ifRange: string | undefined;
  readonly ifNoneMatch: string | undefined;
}

/** A response that sends a file, a range of it, or neither. */
interface FilePart {
  readonly status: 200 | 206 | 304 | 416;
  /** A view of the file's bytes. */
  readonly bytes: Buffer;
  /** Alternating names and values. */
  readonly headers: readonly string[];
}

const NONE = Buffer.alloc(0);

/**
 * Selects the bytes of a file that a response sends, without copying them. Returns the complete file for several ranges and for a range that
 * cannot be parsed, because a server may ignore both. `etag` must be strong.
 */
export function partOf(file: Uint8Array, etag: string, conditions: FileConditions): FilePart {
  const { method, range, ifRange, ifNoneMatch } = conditions;
  const whole = Buffer.from(file.buffer, file.byteOffset, file.byteLength);
  const headers = ["accept-ranges", "bytes"];
  if (ifNoneMatch !== undefined && matches(ifNoneMatch, etag)) return { status: 304, bytes: NONE, headers };
  const applies = method === "GET" && range !== undefined && (ifRange === undefined || ifRange.trim() === etag);
  const span = applies ? spanOf(range, whole.length) : undefined;
  if (span === undefined) return { status: 200, bytes: whole, headers };
  if (span === "unsatisfiable")
    return { status: 416, bytes: NONE, headers: [...headers, "content-range", `bytes */${whole.length}`] };
  const { first, last } = span;
  const bytes = whole.subarray(first, last + 1);
  return { status: 206, bytes, headers: [...headers, "content-range", `bytes ${first}-${last}/${whole.length}`] };
}

/** Whether `If-None-Match` contains an entity tag. The comparison is weak. */
const matches = (header: string, etag: string): boolean =>
  header.split(",").some((each) => each.trim() === "*" || each.trim().replace(/^W\//, "") === etag);

/** A range: `first-last`, `first-` or `-length`. */
const RANGE = /^bytes=[ \t]*(?:(\d+)-(\d*)|-(\d+))[ \t]*$/i;

/** Returns the indexes of a range's first and last byte; undefined if the header must be ignored. */
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
