/** Wakes those who watch events, when events were written on any replica. */
import type { Signal } from "../cancellation.ts";
import { after } from "../clock.ts";
import type { Notifications } from "../store/database/notifications.ts";

/** Where many events are written, it rings no more often. */
const PACE_MS = 100;

/** Hears of every event of the database, and rings for those who wait. */
export class EventBell {
  readonly #off: () => void;
  readonly #waiting = new Set<() => void>();
  #rings = 0;
  #pausing = false;
  #missed = false;

  constructor(notifications: Notifications) {
    const ring = (): void => this.#ring();
    this.#off = notifications.on("outbox", ring, ring);
  }

  /** How often it has rung. */
  get rings(): number {
    return this.#rings;
  }

  /** Resolves when it has rung more often than `rings`, or after `ms` milliseconds. Rejects with the reason of the signal. */
  wait(rings: number, ms: number, signal: Signal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      if (this.#rings > rings) return resolve();
      const end = (settle: () => void): void => {
        forget();
        this.#waiting.delete(rung);
        signal.removeEventListener("abort", left);
        settle();
      };
      const rung = (): void => end(resolve);
      const left = (): void => end(() => reject(signal.reason));
      const forget = after(ms, rung);
      this.#waiting.add(rung);
      signal.addEventListener("abort", left, { once: true });
    });
  }

  /** Hears no more. */
  close(): void {
    this.#off();
  }

  #ring(): void {
    if (this.#pausing) {
      this.#missed = true;
      return;
    }
    this.#rings += 1;
    if (this.#waiting.size === 0) return;
    this.#pausing = true;
    for (const rung of [...this.#waiting]) rung();
    after(PACE_MS, () => {
      this.#pausing = false;
      if (this.#missed) this.#ring();
      this.#missed = false;
    });
  }
}
