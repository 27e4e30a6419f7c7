/** Budgets that fill with time. */
import { steadyNow } from "../../../clock.ts";

/** How many frames that only cost a session may send: `burst` at once, `perSecond` in the long run. */
export interface BudgetOptions {
  readonly burst: number;
  readonly perSecond: number;
}

/** A budget that fills at a steady rate: what was spent is forgotten with time. */
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

  /** Spends one; false when there was none. */
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
    this.#left = Math.min(this.#burst, this.#left + ((time - this.#at) * this.#perSecond) / 1000);
    this.#at = time;
  }
}
