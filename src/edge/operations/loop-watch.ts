/**
 * Whether the event loop that serves calls is late or silent, as another thread sees it: it is asked for a sign of life again and again. Times
 * in milliseconds.
 */
import { everySpan, steadyNow } from "../../clock.ts";

/** How often it is asked. */
export const LOOK_MS = 250;
/** A sign of life after longer is late, and the loop counts as late for a while after it. */
const LATE_MS = 10;
const STAYS_LATE_MS = 2_000;

/** Looks after one event loop. */
export class LoopWatch {
  readonly #ping: () => void;
  readonly #rest: () => void;
  #isWaiting = false;
  #pingedAt = 0;
  #lateAt = Number.NEGATIVE_INFINITY;
  #silentMs = 0;

  /** `ping` asks for a sign of life, which `heard` is told of. */
  constructor(ping: () => void) {
    this.#ping = ping;
    this.#rest = everySpan(LOOK_MS, (spanMs) => this.#look(spanMs));
    this.#ask();
  }

  /** A sign of life has come. */
  heard(): void {
    const at = steadyNow();
    if (this.#isWaiting && at - this.#pingedAt > LATE_MS) this.#lateAt = at;
    this.#isWaiting = false;
    this.#silentMs = 0;
  }

  /** What is asked of it now may take long. */
  get isLate(): boolean {
    const at = steadyNow();
    return at - this.#lateAt < STAYS_LATE_MS || (this.#isWaiting && at - this.#pingedAt > LATE_MS);
  }

  /** For how long it gave no sign of life. Time in which this thread stood still too does not count. */
  get silentMs(): number {
    return this.#silentMs;
  }

  close(): void {
    this.#rest();
  }

  #look(spanMs: number): void {
    // A timer that is late: what holds this thread, such as a quota of its process, holds the loop too.
    if (spanMs > LOOK_MS + LATE_MS) this.#lateAt = steadyNow();
    if (this.#isWaiting) this.#silentMs += spanMs;
    else this.#ask();
  }

  #ask(): void {
    this.#isWaiting = true;
    this.#pingedAt = steadyNow();
    this.#ping();
  }
}
