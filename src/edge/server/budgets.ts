/** Budgets of one connection for what costs the gateway time and brings no work. */
import { steadyNow } from "../../clock.ts";

/** The allowed frames without work: `burst` at once, `perSecond` on average. */
export interface BudgetOptions {
  readonly burst: number;
  readonly perSecond: number;
}

/** A token bucket that refills at a steady rate. */
export class TimedBudget {
  readonly #burst: number;
  readonly #perSecond: number;
  #left: number;
  #at = steadyNow();

  constructor({ burst, perSecond }: BudgetOptions) {
    this.#burst = burst;
    this.#perSecond = perSecond;
    this.#left = burst;
  }

  /** Spends one token; false if there is none. */
  spend(): boolean {
    this.#fill();
    return --this.#left >= 0;
  }

  /** Whether more than half of it is spent. */
  get isLow(): boolean {
    this.#fill();
    return this.#left < this.#burst / 2;
  }

  #fill(): void {
    const time = steadyNow();
    this.#left = Math.min(this.#burst, this.#left + (Math.max(0, time - this.#at) * this.#perSecond) / 1000);
    this.#at = time;
  }
}

/** The size of tiny pieces of bodies, in bytes, and how many a connection may send: each costs as much time as kilobytes do. */
const TINY_BYTES = 16;
const TINY: BudgetOptions = { burst: 16_384, perSecond: 16_384 };

/** The budget of one connection for tiny pieces of bodies: HTTP/2 data frames, HTTP/1 chunks. */
export class TinyPieces {
  readonly #budget = new TimedBudget(TINY);

  /** Counts a piece; false if the connection has sent too many tiny ones. */
  take(bytes: number): boolean {
    return bytes >= TINY_BYTES || this.#budget.spend();
  }
}
