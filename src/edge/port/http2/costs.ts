/** What a client costs without asking for anything: resets before an answer, pings and settings are rare in honest traffic and dear to serve without end. */
import { budget, type Patience } from "./budget.ts";

/** A head of more fields than anybody reads costs as much as so many. */
const LARGE_HEAD = 10;

/** The costs of one connection. */
export class Costs {
  readonly #cut: number;
  readonly #patience: () => boolean;
  /** Resets of what is answered already cost less. */
  readonly #resets: () => boolean;
  #total = 0;

  constructor(patience: Patience) {
    this.#cut = patience.burst / 2;
    this.#patience = budget(patience);
    this.#resets = budget({ burst: patience.burst, perSecond: 5 * patience.perSecond });
  }

  /** One more; false when it is one too many. */
  spend(): boolean {
    this.#total++;
    return this.#patience();
  }

  /** The same for a head that is far too large. */
  spendLarge(): boolean {
    let isLeft = true;
    for (let i = 0; i < LARGE_HEAD; i++) isLeft = this.spend() && isLeft;
    return isLeft;
  }

  /** A reset, whatever it was of; false when it is one too many. */
  spendReset(): boolean {
    return this.#resets();
  }

  /** Whether whoever ends now was costly all along. */
  get wasDear(): boolean {
    return this.#total >= this.#cut;
  }
}
