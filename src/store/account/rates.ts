/** What all replicas share of keys' rate limits: token buckets, and places for running calls and streams. */
import type { Sql } from "../database/tx.ts";

/** What a replica asks for a key. */
export interface RateAsk {
  id: string;
  /** Tokens that come back in a second, and the most that there can be. */
  perS: number;
  burst: number;
  /** Tokens to take; negative to return some. */
  tokens: number;
  /** How many calls and streams the replica wants to be able to run in all, and the most that all replicas may. */
  calls: number;
  mostCalls: number;
  streams: number;
  mostStreams: number;
}

/** What it got. */
export interface RateGrant {
  id: string;
  tokens: number;
  /** Tokens that are left for all. */
  remaining: number;
  calls: number;
  streams: number;
}

/** How long a replica's places are kept for it without a sign of life. */
const LIFE = "15 seconds";

/** Serves what a replica asks for its keys, in one statement. Tokens are never given twice, whichever replica asks. */
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

/** Deletes buckets that nobody used for a day, and the places of replicas that died. */
export async function pruneRates(sql: Sql): Promise<void> {
  await sql`select rate_prune()`;
}
