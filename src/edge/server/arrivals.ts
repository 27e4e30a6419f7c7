/** Ends HTTP/2 requests whose bodies don't arrive in time, as node:http does for HTTP/1. */
import { after, everyTogether } from "../../clock.ts";

/** A request whose body may still be coming. */
export interface Arriving {
  /** How many looks its watch had taken when it began. */
  readonly since: number;
  /** Set by the watch, once. */
  isLate: boolean;
  /** Nothing more has to come. */
  readonly isWhole: boolean;
  /** Answers that the request is late, unless an answer has begun. */
  refuse(): void;
  /** Ends what is left of it, if anything is. */
  reset(): void;
}

/** How long the peer has to read why it was turned away, before its stream is reset. */
const LINGER_MS = 100;
/** How often one looks: the share of the limit that an answer may come too early by. */
const LOOKS = 10;

/** The watch over the requests of one connection. */
export class Arrivals {
  /** Watches no longer. */
  readonly end: () => void;
  #looks = 0;

  /** Refuses whatever `each` shows that is not whole after `limitMs`, and then resets it. */
  constructor(limitMs: number, each: (visit: (arriving: Arriving) => void) => void) {
    this.end = everyTogether(limitMs / LOOKS, () => {
      this.#looks++;
      each(this.#look);
    });
  }

  /** How many looks it has taken: what a request notes when it begins. */
  get looks(): number {
    return this.#looks;
  }

  readonly #look = (arriving: Arriving): void => {
    if (this.#looks - arriving.since < LOOKS || arriving.isLate || arriving.isWhole) return;
    arriving.isLate = true;
    arriving.refuse();
    after(LINGER_MS, () => arriving.reset());
  };
}
