/** The clock on the wall, which a test may move on. */
import type { Clock } from "../../src/clock.ts";

/** Runs as time does, and on by what a test skips. Give it to `replaceAmbient({ clock })` before what is to follow it is opened. */
export class SkippingClock implements Clock {
  #skipped = 0;
  readonly #timers = new Map<NodeJS.Timeout, { readonly at: number; readonly run: () => void }>();

  wall(): number {
    return Date.now() + this.#skipped;
  }

  steady(): number {
    return performance.now() + this.#skipped;
  }

  after(ms: number, run: () => void): () => void {
    const timer = setTimeout(() => this.#ring(timer), Math.min(Math.max(ms, 0), 2 ** 31 - 1));
    this.#timers.set(timer, { at: this.steady() + ms, run });
    return () => this.#forget(timer);
  }

  /** Moves time on by `ms`: what was due meanwhile is done now, in order. */
  skip(ms: number): void {
    this.#skipped += ms;
    const now = this.steady();
    const due = [...this.#timers].filter(([, { at }]) => at <= now).sort(([, a], [, b]) => a.at - b.at);
    for (const [timer] of due) this.#ring(timer);
  }

  #ring(timer: NodeJS.Timeout): void {
    const known = this.#timers.get(timer);
    this.#forget(timer);
    known?.run();
  }

  #forget(timer: NodeJS.Timeout): void {
    clearTimeout(timer);
    this.#timers.delete(timer);
  }
}
