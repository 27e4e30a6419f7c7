/**
 * What a client costs without being served. Calls that the gate refuses, resets before an answer, pings and settings are rare in honest
 * traffic and dear to serve without end. Each connection has budgets of its own, which fill with time; one that is spent ends the connection.
 */
import { steadyNow } from "../../clock.ts";

/** How many frames that only cost a session may send: `burst` at once, `perSecond` in the long run. */
export interface BudgetOptions {
  readonly burst: number;
  readonly perSecond: number;
}

/** A head that is too large to be read costs as much as so many frames. */
const LARGE_HEAD = 10;
/** Refusals in words, and resets of answered streams, cost less: their budgets fill so many times as fast. */
const SPOKEN = 5;
/** A balancer sends calls of many clients over one connection, and some of them have no key. */
const REFUSED_BURST = 2.5;

/** The costs of one connection. */
export class Costs {
  readonly #patience: BudgetOptions;
  readonly #idle: TimedBudget;
  /** Full, until something is spent. */
  #refused: TimedBudget | undefined;
  #resets: TimedBudget | undefined;

  constructor(patience: BudgetOptions) {
    this.#patience = patience;
    this.#idle = new TimedBudget(patience);
  }

  /** Something that asks for nothing; false when it is one too many, as below. */
  spend(): boolean {
    return this.#idle.spend();
  }

  /** As `spend`, for a head that is far too large. */
  spendLarge(): boolean {
    let isLeft = true;
    for (let i = 0; i < LARGE_HEAD; i++) isLeft = this.spend() && isLeft;
    return isLeft;
  }

  /** A call that the gate refused to its caller. */
  spendRefused(): boolean {
    const { burst, perSecond } = this.#patience;
    this.#refused ??= new TimedBudget({ burst: REFUSED_BURST * burst, perSecond: SPOKEN * perSecond });
    return this.#refused.spend();
  }

  /** A reset, whatever it was of. */
  spendReset(): boolean {
    const { burst, perSecond } = this.#patience;
    this.#resets ??= new TimedBudget({ burst, perSecond: SPOKEN * perSecond });
    return this.#resets.spend();
  }

  /** Whether it has lately cost a good part of what it may. */
  get isDear(): boolean {
    return this.#idle.isLow;
  }
}

/** Bytes that a session may waste at once, and at each look. */
const WASTE_BYTES = { burst: 4 << 20, look: 128 << 10 } as const;
/** What a frame costs beside what it carries, and what a client sends for each frame that it reads. */
const FRAME_BYTES = 64;

/**
 * Bytes of a session that reach no handler: padding, frames of closed streams, heads that nghttp2 refuses. Node counts none of them, and reads
 * them for as long as they come. So they are what a session has read beside what its handlers have received.
 */
export class WastedBytes {
  #used = 0;
  #seen = 0;
  #wasted = 0;

  /** A frame came whose payload has so many bytes. */
  use(bytes: number): void {
    this.#used += bytes + FRAME_BYTES;
  }

  /** Whether a session that has read so many bytes in all has wasted no more than it may. Call it at even intervals. */
  look(read: number): boolean {
    this.#wasted = Math.max(0, this.#wasted + read - this.#seen - this.#used - WASTE_BYTES.look);
    this.#seen = read;
    this.#used = 0;
    return this.#wasted <= WASTE_BYTES.burst;
  }
}

/** A budget that fills at a steady rate: what was spent is forgotten with time. */
class TimedBudget {
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
