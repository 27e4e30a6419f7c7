/** How many hedges a replica may send: when everything is slow, asking twice makes it slower. */

/** A hedge is earned by twenty calls. Source: performance, "Tail". */
const SHARE = 0.05;
const BURST = 20;

/** A token bucket that calls fill and hedges empty. */
export class HedgeBudget {
  private tokens = BURST;

  /** Notes a call. */
  earn(): void {
    this.tokens = Math.min(BURST, this.tokens + SHARE);
  }

  /** Takes what one hedge costs; false when there is not enough. */
  spend(): boolean {
    if (this.tokens < 1) return false;
    this.tokens -= 1;
    return true;
  }
}
