/** Whether an offering is slower than it usually is: noticed after four slow calls in a row, and not for a single one. */

/** How much a call moves what is usual, and what is so at the moment. */
const USUAL_SHARE = 0.01;
const NOW_SHARE = 0.2;
/** No single call counts for more than so many usual ones; and for less in what is usual, or who turns slow would soon be usual. */
const MOST = 3;
const MOST_USUAL = 1.5;
/** From here on it is slow. */
const SLOW = 2;
/** Slow ones are passed over, so that nothing is heard of them: after so long they are given a try. */
const FORGIVEN_MS = 10_000;

/** The pace of one offering. Clocks are in milliseconds. */
export class Pace {
  private calls = 0;
  private usualMs = 0;
  private nowMs = 0;
  private heardAt = 0;

  /** Notes a warm call. */
  add(latencyMs: number, at: number): void {
    this.forgive(at);
    this.heardAt = at;
    this.calls++;
    const usual = this.calls === 1 ? latencyMs : this.usualMs;
    const asUsual = Math.min(latencyMs, usual * MOST_USUAL);
    this.usualMs = usual + (asUsual - usual) * Math.max(USUAL_SHARE, 1 / this.calls);
    const asNow = Math.min(latencyMs, usual * MOST);
    this.nowMs = this.calls === 1 ? latencyMs : this.nowMs + (asNow - this.nowMs) * NOW_SHARE;
  }

  /** What a call takes at the moment where that is much more than usual; undefined while it isn't. */
  slowMs(now: number): number | undefined {
    this.forgive(now);
    return this.calls >= ENOUGH && this.nowMs > this.usualMs * SLOW ? this.nowMs : undefined;
  }

  private forgive(now: number): void {
    if (now - this.heardAt >= FORGIVEN_MS) this.nowMs = this.usualMs;
  }
}

/** Before so many calls nothing is usual. */
const ENOUGH = 10;
