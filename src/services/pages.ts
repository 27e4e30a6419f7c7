/** Pages of lists: the fields that every list response has beside its data. */
import { violation } from "../contracts/contract.ts";

/** The default page size. */
export const DEFAULT_PAGE = 50;

/** A page of a list. All fields except `records` are fields of the response message. */
export interface Page<T> {
  records: T[];
  object: "list";
  /** Whether another page follows. */
  hasMore: boolean;
  /** The cursor for the next page's request; absent on the last page. */
  nextCursor?: string;
}

/** What was read for a page. `until`: the cursor at which reading stopped early, with fewer elements than match. */
export interface Found<T> {
  readonly rows: readonly T[];
  readonly until: string | undefined;
}

/**
 * Reads a page of `limit` elements. `read` returns up to the requested number of elements after the request's cursor. One more element is
 * requested than the page has, to learn whether another page follows. `cursorOf` returns the cursor after an element. If reading stopped early,
 * the page is short, even empty, and another follows.
 */
export async function readPage<T>(
  limit: number,
  read: (most: number) => Promise<readonly T[] | Found<T>>,
  cursorOf: (last: T) => string,
): Promise<Page<T>> {
  const found = await read(limit + 1);
  const { rows, until } = "rows" in found ? found : { rows: found, until: undefined };
  const records = rows.slice(0, limit);
  const last = records.at(-1);
  const nextCursor = rows.length > limit && last !== undefined ? cursorOf(last) : until;
  return {
    records,
    object: "list",
    hasMore: nextCursor !== undefined,
    ...(nextCursor !== undefined && { nextCursor }),
  };
}

/** Does the same for a short list in memory, complete if no limit is given. `keyOf` is both the sort key and the cursor of an element. */
export const pageIn = <T>(
  all: readonly T[],
  { limit = all.length, cursor = "" }: { readonly limit?: number | undefined; readonly cursor?: string | undefined },
  keyOf: (element: T) => string,
): Promise<Page<T>> => {
  const rest = all.filter((element) => keyOf(element) > cursor).sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
  return readPage(limit, async (most) => rest.slice(0, most), keyOf);
};

const NAMED = "name_";

/** The cursor after an element of a list that is sorted by name: opaque, so that callers don't take it for a name. */
export const cursorOfName = (name: string): string => NAMED + Buffer.from(name).toString("base64url");

/** The name in such a cursor; empty if there is none. Refuses other text with 422. */
export function nameOfCursor(cursor: string | undefined): string {
  if (cursor === undefined) return "";
  const name = Buffer.from(cursor.slice(NAMED.length), "base64url").toString();
  if (cursorOfName(name) !== cursor) throw violation("cursor", "must be the `next_cursor` of a page", "value_error");
  return name;
}
