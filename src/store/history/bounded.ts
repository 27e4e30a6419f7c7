/** Lists of requests by keyset, over a bounded number of rows. Request ids sort by creation time, and so do their partitions. */
import type { Sql } from "../database/tx.ts";

/** The most rows that one page reads to find those that match. */
export const MOST_SCANNED = 10_000;

/** How much later than its id's time a request can be recorded and still be found by time: longer calls are listed without `since` only. */
const SLACK_S = 3_600;

/** Rows of a page. */
export interface Bounded<T> {
  rows: T[];
  /** The last id that was read, where reading stopped before the page was full; older rows may match. */
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

/** A window of rows, newest first, at most as many as a page may read. `rows` selects them, without an order. */
export const newest = (sql: Sql, rows: ReturnType<typeof within>) =>
  sql`${rows} order by request_id desc limit ${MOST_SCANNED}`;

/** Completes a page: if it is not full, the id at which its window ended. */
export async function boundedPage<T>(
  sql: Sql,
  { rows, limit, window }: { rows: T[]; limit: number; window: ReturnType<typeof within> },
): Promise<Bounded<T>> {
  if (rows.length >= limit) return { rows, until: undefined };
  const [last] = await sql<{ requestId: string }[]>`
    select request_id from (${window}) as scanned order by request_id desc offset ${MOST_SCANNED - 1} limit 1`;
  return { rows, until: last?.requestId };
}
