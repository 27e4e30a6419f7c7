/** Repeats what may be repeated: reads, what stops robots, and what an idempotency key makes repeatable. */
import { ConnectionFailed, errorOf } from "./errors.ts";
import { type LimberError, Refused } from "./refused.ts";

/** How long a call may take, and what calls it off. */
export interface CallOptions {
  /** Milliseconds for the call with all its repetitions; 120,000 when absent. */
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** What one attempt is given. */
export interface AttemptOptions {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/** Attempts of a call in all. */
const MOST_ATTEMPTS = 3;
/** The pause before the first repetition, doubled each time, where the gateway names none. */
const PAUSE_MS = 100;
export const DEFAULT_TIMEOUT_MS = 120_000;

/**
 * Makes a call, and makes it again where `isRepeatable` and it failed in a way that may pass. What the gateway says of waiting is kept to;
 * where that is longer than the call has left, the refusal is thrown at once.
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

/** Milliseconds to wait before a call is made again; undefined where that would change nothing. */
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
