/** Rate limits that all replicas share: token buckets, and slots for concurrent calls and streams. */
import type { Sql } from "../database/tx.ts";

/** A replica's request for one key. */
export interface RateAsk {
  id: string;
  /** The refill rate in tokens per second, and the capacity. */
  perS: number;
  burst: number;
  /** Tokens to take; negative returns some. */
  tokens: number;
  /** The total of concurrent calls and streams that the replica wants to be able to run, and the most for all replicas. */
  calls: number;
  mostCalls: number;
  streams: number;
  mostStreams: number;
}

/** The granted tokens and slots. */
export interface RateGrant {
  id: string;
  tokens: number;
  /** Remaining tokens of all replicas. */
  remaining: number;
  calls: number;
  streams: number;
}

/** How long the slots of a silent replica stay reserved. */
const LIFE = "15 seconds";

/** Serves a replica's requests for its keys in one statement. No token is granted twice to any replicas. */
export async function takeRates(sql: Sql, replica: string, asks: readonly RateAsk[]): Promise<RateGrant[]> {
  const rows = asks.map(({ id, perS, burst, tokens, calls, mostCalls, streams, mostStreams }) => ({
    id,
    per_s: perS,
    burst,
    tokens,
    calls,
    most_calls: mostCalls,
    streams,
    most_streams: mostStreams,
  }));
  return sql<RateGrant[]>`
    select id, granted as tokens, remaining, calls, streams
    from rate_take(${replica}, ${LIFE}::text::interval, ${JSON.stringify(rows)}::text::json)`;
}

/** Deletes buckets that were unused for a day, and the slots of dead replicas. */
export async function pruneRates(sql: Sql): Promise<void> {
  await sql`select rate_prune()`;
}
