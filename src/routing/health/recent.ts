/** Calls and failures of the last five minutes, minute by minute. */

const MINUTE_MS = 60_000;
const MINUTES = 5;

/** A window that slides with the minutes of one clock. */
export class Recent {
  private readonly minutes = new Float64Array(MINUTES).fill(Number.NEGATIVE_INFINITY);
  private readonly calls = new Uint32Array(MINUTES);
  private readonly failures = new Uint32Array(MINUTES);

  /** Adds calls that ended at `at`, in milliseconds. */
  add(calls: number, failures: number, at: number): void {
    const minute = Math.floor(at / MINUTE_MS);
    const slot = ((minute % MINUTES) + MINUTES) % MINUTES;
    if (this.minutes[slot] !== minute) {
      this.minutes[slot] = minute;
      this.calls[slot] = 0;
      this.failures[slot] = 0;
    }
    this.calls[slot]! += calls;
    this.failures[slot]! += failures;
  }

  /** The share that failed; undefined when there were no calls. */
  failureRate(now: number): number | undefined {
    const oldest = Math.floor(now / MINUTE_MS) - MINUTES;
    let [calls, failures] = [0, 0];
    for (let slot = 0; slot < MINUTES; slot++) {
      if (this.minutes[slot]! <= oldest) continue;
      calls += this.calls[slot]!;
      failures += this.failures[slot]!;
    }
    return calls === 0 ? undefined : failures / calls;
  }
}
