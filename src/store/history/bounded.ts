/** Lists by keyset, newest first, over a bounded number of rows. Request ids sort by creation time, and so do their partitions. */
import type { Sql } from "../database/tx.ts";

/** The most rows that one page reads to find those that match. */
export const MOST_SCANNED = 10_000;

/** How much later than its id's time a request can be recorded and still be found by time: longer calls are listed without `since` only. */
const SLACK_S = 3_600;

/** Rows of a page. */
export interface Bounded<T> {
  rows: T[];
  /** The cursor of the last row that was read, where reading stopped before the page was full; older rows may match. */
  until: string | undefined;
}

/** The part of a filter that the ids serve. Times are unix seconds. */
export interface Span {
  requestId?: string | undefined;
  since?: number | undefined;
  until?: number | undefined;
  /** The last id of the previous page. */
  cursor?: string | undefined;
}

/** The rows of an organization whose ids are in a span. */
export function within(sql: Sql, orgId: string, { requestId, since, until, cursor }: Span) {
  const mark = (seconds: number) => sql`(select request_mark(to_timestamp(${seconds}::float8)))`;
  return sql`org_id = ${orgId}
    ${requestId === undefined ? sql`` : sql`and request_id = ${requestId}`}
    ${since === undefined ? sql`` : sql`and request_id >= ${mark(Math.max(0, since - SLACK_S))}`}
    ${until === undefined ? sql`` : sql`and request_id < ${mark(until + SLACK_S)}`}
    ${cursor === undefined ? sql`` : sql`and request_id < ${cursor}`}`;
}

/** The rows of a list, in the order of an index, before a filter that no index serves. */
export interface Window {
  /** Selects them, without an order. */
  rows: Fragment;
  /** The columns of the index, such as `id desc`. */
  order: Fragment;
  /** What a cursor says of a row. */
  cursor: Fragment;
}

type Fragment = ReturnType<typeof within>;

/** A window of rows of requests. */
export const requestsIn = (sql: Sql, rows: Fragment): Window => ({
  rows,
  order: sql`request_id desc`,
  cursor: sql`request_id`,
});

/** The newest rows of a window, as many as a page may read. */
export const newest = (sql: Sql, { rows, order }: Window) => sql`${rows} order by ${order} limit ${MOST_SCANNED}`;

/** Completes a page: if it is not full, the cursor at which its window ended. */
export async function boundedPage<T>(
  sql: Sql,
  { rows, limit, window }: { rows: T[]; limit: number; window: Window },
): Promise<Bounded<T>> {
  if (rows.length >= limit) return { rows, until: undefined };
  const { rows: all, order, cursor } = window;
  const [last] = await sql<{ until: string }[]>`
    select ${cursor} as until from (${all}) as scanned order by ${order} offset ${MOST_SCANNED - 1} limit 1`;
  return { rows, until: last?.until };
}
