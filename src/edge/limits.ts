/** How often a key may call: a token bucket and a count of running calls per key. */
import { Reason, refuse } from "../refusal.ts";

/** What one key may do in time. */
export interface Limit {
  /** Requests in one window. */
  requests: number;
  /** The window, in seconds. */
  windowS: number;
  /** Requests that may come at once. */
  burst: number;
  /** Requests that may run at once. */
  concurrency: number;
}

interface Bucket {
  tokens: number;
  /** When `tokens` was last brought up to date, on the steady clock in milliseconds. */
  filledAt: number;
  running: number;
  limit: Limit;
}

/** What a call took from its key's limits, and what it left. */
export interface Place {
  /** Header names and values in turn: the IETF pair, and OpenRouter's. */
  headers: readonly string[];
  /** Ends the call; further calls do nothing. */
  leave(): void;
}

/** Buckets that were full and idle this long are forgotten. */
const FORGET_AFTER_MS = 600_000;

/** The limits of all keys that this process has seen lately. */
export class Limits {
  readonly #buckets = new Map<string, Bucket>();
  #sweptAt = 0;
  #running = 0;
  #idle = (): void => {};

  /** Takes one request from a key's bucket, or refuses with 429 and the time after which it would be let in. */
  enter(keyId: string, limit: Limit, steadyMs: number, unixMs: number): Place {
    const bucket = this.#bucket(keyId, limit, steadyMs);
    const perMs = limit.requests / (limit.windowS * 1000);
    bucket.tokens = Math.min(limit.burst, bucket.tokens + (steadyMs - bucket.filledAt) * perMs);
    bucket.filledAt = steadyMs;

    if (bucket.tokens < 1) {
      const waitS = Math.max(1, Math.ceil((1 - bucket.tokens) / perMs / 1000));
      const text = `this key may send ${limit.requests} requests in ${limit.windowS} s; try again in ${waitS} s`;
      throw refuse(Reason.RATE_LIMIT_EXCEEDED, text, {}, { retryAfter: waitS });
    }
    if (bucket.running >= limit.concurrency) {
      const text = `this key may have ${limit.concurrency} requests running at once; wait for one to end`;
      throw refuse(Reason.CONCURRENCY_LIMIT_EXCEEDED, text, {}, { retryAfter: 1 });
    }
    bucket.tokens -= 1;
    bucket.running += 1;
    this.#running += 1;

    let inside = true;
    const left = Math.floor(bucket.tokens);
    const fullInS = Math.ceil((limit.burst - bucket.tokens) / perMs / 1000);
    return {
      headers: headersOf(limit, left, fullInS, unixMs),
      leave: () => {
        if (!inside) return;
        inside = false;
        bucket.running -= 1;
        this.#running -= 1;
        if (this.#running === 0) this.#idle();
      },
    };
  }

  /** Calls that are running. */
  get running(): number {
    return this.#running;
  }

  /** Resolves as soon as no call is running. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#idle = resolve;
      if (this.#running === 0) resolve();
    });
  }

  /** What a key has left, without taking any of it. */
  peek(keyId: string, limit: Limit, steadyMs: number): { remaining: number; fullInS: number } {
    const bucket = this.#buckets.get(keyId);
    if (!bucket) return { remaining: limit.burst, fullInS: 0 };
    const perMs = limit.requests / (limit.windowS * 1000);
    const tokens = Math.min(limit.burst, bucket.tokens + (steadyMs - bucket.filledAt) * perMs);
    return { remaining: Math.floor(tokens), fullInS: Math.ceil((limit.burst - tokens) / perMs / 1000) };
  }

  #bucket(keyId: string, limit: Limit, steadyMs: number): Bucket {
    if (steadyMs - this.#sweptAt > FORGET_AFTER_MS) this.#sweep(steadyMs);
    const known = this.#buckets.get(keyId);
    if (known) {
      known.limit = limit;
      return known;
    }
    const bucket = { tokens: limit.burst, filledAt: steadyMs, running: 0, limit };
    this.#buckets.set(keyId, bucket);
    return bucket;
  }

  #sweep(steadyMs: number): void {
    this.#sweptAt = steadyMs;
    for (const [keyId, bucket] of this.#buckets) {
      if (bucket.running === 0 && steadyMs - bucket.filledAt > FORGET_AFTER_MS) this.#buckets.delete(keyId);
    }
  }
}

function headersOf(limit: Limit, left: number, fullInS: number, unixMs: number): readonly string[] {
  return [
    "ratelimit-policy",
    `"key";q=${limit.requests};w=${limit.windowS}`,
    "ratelimit",
    `"key";r=${left};t=${fullInS}`,
    "x-ratelimit-limit",
    String(limit.requests),
    "x-ratelimit-remaining",
    String(left),
    "x-ratelimit-reset",
    String(Math.ceil(unixMs / 1000) + fullInS),
  ];
}
