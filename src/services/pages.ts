/** One page of a list: what every response of a list says beside its data. */
import { violation } from "../contracts/contract.ts";

/** How many elements a page has where the request does not say. */
export const DEFAULT_PAGE = 50;

/** A page of a list; all but `records` are fields of the response message. */
export interface Page<T> {
  records: T[];
  object: "list";
  /** Whether there are more after these. */
  hasMore: boolean;
  /** What the next page's request sends as its cursor; absent on the last page. */
  nextCursor?: string;
}

/**
 * Reads a page of `limit` elements. `read` answers the first elements after the request's cursor, at most as many as it is asked for: one more
 * than the page has, which tells whether another page follows. `cursorOf` answers the cursor that follows an element.
 */
export async function readPage<T>(
  limit: number,
  read: (most: number) => Promise<readonly T[]>,
  cursorOf: (last: T) => string,
): Promise<Page<T>> {
  const found = await read(limit + 1);
  const records = found.slice(0, limit);
  const last = records.at(-1);
  const hasMore = found.length > limit;
  return { records, object: "list", hasMore, ...(hasMore && last !== undefined && { nextCursor: cursorOf(last) }) };
}

/** The same of a short list that is in memory, all of it where no limit is given; `keyOf` is what it is ordered by, and the cursor that follows an element. */
export const pageIn = <T>(
  all: readonly T[],
  { limit = all.length, cursor = "" }: { readonly limit?: number | undefined; readonly cursor?: string | undefined },
  keyOf: (element: T) => string,
): Promise<Page<T>> => {
  const rest = all.filter((element) => keyOf(element) > cursor).sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
  return readPage(limit, async (most) => rest.slice(0, most), keyOf);
};

const NAMED = "name_";

/** The cursor of an element that a list is ordered by the name of: a text that no caller takes for a name. */
export const cursorOfName = (name: string): string => NAMED + Buffer.from(name).toString("base64url");

/** The name in such a cursor, and the empty one where there is none. Refuses (422) what was never one. */
export function nameOfCursor(cursor: string | undefined): string {
  if (cursor === undefined) return "";
  const name = Buffer.from(cursor.slice(NAMED.length), "base64url").toString();
  if (cursorOfName(name) !== cursor) throw violation("cursor", "is not the next_cursor of a page", "value_error");
  return name;
}
