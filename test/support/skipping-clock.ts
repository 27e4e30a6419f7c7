/** The clock on the wall, which a test may move on and hold. */
import type { Clock } from "../../src/clock.ts";

interface Timer {
  readonly at: number;
  readonly run: () => void;
  ringing?: NodeJS.Timeout;
}

/**
 * Runs as time does, on by what a test skips, and not at all while a test holds it. Give it to `replaceAmbient({ clock })` before what is to
 * follow it is opened.
 */
export class SkippingClock implements Clock {
  #skipped = 0;
  /** Where it stands; undefined while it runs. */
  #heldAt: number | undefined;
  readonly #timers = new Set<Timer>();

  wall(): number {
    return Math.floor(performance.timeOrigin + this.steady());
  }

  steady(): number {
    return this.#heldAt ?? performance.now() + this.#skipped;
  }

  after(ms: number, run: () => void): () => void {
    const timer: Timer = { at: this.steady() + Math.max(ms, 0), run };
    this.#timers.add(timer);
    this.#set(timer);
    return () => this.#forget(timer);
  }

  /** Moves time on by `ms`: what was due meanwhile is done now, in order. */
  skip(ms: number): void {
    if (this.#heldAt === undefined) this.#skipped += ms;
    else this.#heldAt += ms;
    const now = this.steady();
    const due = [...this.#timers].filter(({ at }) => at <= now).sort((a, b) => a.at - b.at);
    for (const timer of due) this.#ring(timer);
  }

  /** Stops time: nothing becomes due until `go` or `skip`. */
  hold(): void {
    this.#heldAt ??= this.steady();
    for (const { ringing } of this.#timers) clearTimeout(ringing);
  }

  /** Lets time run on from where it was held. */
  go(): void {
    if (this.#heldAt === undefined) return;
    this.#skipped = this.#heldAt - performance.now();
    this.#heldAt = undefined;
    for (const timer of this.#timers) this.#set(timer);
  }

  #set(timer: Timer): void {
    if (this.#heldAt !== undefined) return;
    const ms = Math.min(Math.max(timer.at - this.steady(), 0), 2 ** 31 - 1);
    timer.ringing = setTimeout(() => this.#ring(timer), ms);
  }

  #ring(timer: Timer): void {
    if (!this.#timers.has(timer)) return;
    this.#forget(timer);
    timer.run();
  }

  #forget(timer: Timer): void {
    clearTimeout(timer.ringing);
    this.#timers.delete(timer);
  }
}
