/** Retries calls that are safe to repeat: reads, emergency stops, and calls with an idempotency key. */
import { ConnectionFailed, errorOf } from "./errors.ts";
import { type LimberError, Refused } from "./refused.ts";

/** The time limit and the cancellation signal of a call. */
export interface CallOptions {
  /** Time limit for the call with all its attempts, in milliseconds (default: 120,000). */
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The options of one attempt. */
export interface AttemptOptions {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/** Maximum number of attempts of a call. */
const MOST_ATTEMPTS = 3;
/** Delay before the first retry, doubled for each further retry, if the gateway gives none. */
const PAUSE_MS = 100;
export const DEFAULT_TIMEOUT_MS = 120_000;

/**
 * Makes a call, and retries transient failures if `isRepeatable`. The delay that the gateway requests is respected; if it exceeds the
 * remaining time, the refusal is thrown at once.
 */
export async function attempted<T>(
  options: CallOptions,
  isRepeatable: boolean,
  attempt: (options: AttemptOptions) => Promise<T>,
): Promise<T> {
  const { timeoutMs = DEFAULT_TIMEOUT_MS, signal } = options;
  const until = performance.now() + timeoutMs;
  for (let made = 1; ; made++) {
    try {
      return await attempt({ timeoutMs: Math.max(1, Math.ceil(until - performance.now())), ...(signal && { signal }) });
    } catch (thrown) {
      const error = errorOf(thrown, signal);
      const pauseMs = isRepeatable && made < MOST_ATTEMPTS ? pauseBefore(error, made) : undefined;
      if (pauseMs === undefined || performance.now() + pauseMs >= until) throw error;
      await pause(pauseMs, signal);
    }
  }
}

/** Returns the milliseconds to wait before a retry; undefined if a retry would not help. */
function pauseBefore(error: LimberError, made: number): number | undefined {
  const usual = PAUSE_MS * 2 ** (made - 1);
  if (error instanceof ConnectionFailed) return usual;
  if (!(error instanceof Refused) || !error.retryable) return undefined;
  return error.retryAfterS === undefined ? usual : error.retryAfterS * 1000;
}

/** Resolves after `ms`, or as soon as the signal is aborted. */
export const pause = (ms: number, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const over = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", over);
      resolve();
    };
    const timer = setTimeout(over, ms);
    signal?.addEventListener("abort", over);
  });
