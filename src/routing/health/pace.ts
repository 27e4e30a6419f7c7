/** How much slower an offering is than it usually is: noticed after four slow calls in a row, and not for a single one. */

/** How much a call moves what is usual. */
const USUAL_SHARE = 0.01;
/** The most usual calls for which a single one counts in the usual time; else an offering that turns slow would soon be usual. */
const MOST_USUAL = 1.5;
/** What is so at the moment is the median of so many calls: no clamp, so that two slow ones can be told apart by how slow they are. */
const NEWEST = 7;
/** From here on it is slow. */
const SLOW = 2;
/** How steeply the weight falls: an offering that is ten times slower gets one call in fifteen thousand, one that is three times slower one in ten. */
const STEEPNESS = 3;
/** Before so many calls nothing is usual. */
const ENOUGH = 10;
/** Slow offerings are passed over, so that nothing is measured of them: after this time they are tried once. */
const FORGIVEN_MS = 10_000;

const sorted = new Float64Array(NEWEST);

/** The pace of one offering. Clocks are in milliseconds. */
export class Pace {
  private calls = 0;
  private usualMs = 0;
  private readonly newest = new Float64Array(NEWEST);
  private heardAt = 0;

  /** Notes a warm call. */
  add(latencyMs: number, at: number): void {
    this.forgive(at);
    this.heardAt = at;
    if (this.calls === 0) this.begin(latencyMs);
    this.newest[this.calls % NEWEST] = latencyMs;
    this.calls++;
    const asUsual = Math.min(latencyMs, this.usualMs * MOST_USUAL);
    this.usualMs += (asUsual - this.usualMs) * Math.max(USUAL_SHARE, 1 / this.calls);
  }

  /** What a call takes at the moment where that is much more than usual; undefined while it isn't. */
  slowMs(now: number): number | undefined {
    this.forgive(now);
    if (this.calls < ENOUGH) return undefined;
    sorted.set(this.newest);
    const nowMs = sorted.sort()[NEWEST >> 1]!;
    return nowMs > this.usualMs * SLOW ? nowMs : undefined;
  }

  /**
   * 1, and the less the slower it is than usual. Not one small number for all that are slow: a pause of the gateway itself makes all of
   * them slow, and must not make one that is ten times slower as good as the others.
   */
  weight(now: number): number {
    const slowMs = this.slowMs(now);
    return slowMs === undefined ? 1 : ((this.usualMs * SLOW) / slowMs) ** STEEPNESS;
  }

  private forgive(now: number): void {
    if (now - this.heardAt >= FORGIVEN_MS) this.begin(this.usualMs);
  }

  private begin(usualMs: number): void {
    this.usualMs = usualMs;
    this.newest.fill(usualMs);
  }
}
