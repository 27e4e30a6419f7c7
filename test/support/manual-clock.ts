/** A clock that stands still until a test moves it. */
import type { Clock } from "../../src/clock.ts";

interface Timer {
  readonly ms: number;
  readonly at: number;
  readonly order: number;
  readonly run: () => void;
}

/** Time in a test's hand. Give it to `replaceAmbient({ clock })`, or to whatever takes a `Clock`. */
export class ManualClock implements Clock {
  private elapsed = 0;
  private readonly epoch: number;
  private readonly timers = new Set<Timer>();
  private set = 0;

  /** `epoch` is the wall clock at the start, in unix milliseconds. */
  constructor(epoch = Date.UTC(2026, 0, 1)) {
    this.epoch = epoch;
  }

  wall(): number {
    return this.epoch + this.elapsed;
  }

  steady(): number {
    return this.elapsed;
  }

  after(ms: number, run: () => void): () => void {
    const timer: Timer = { ms, at: this.elapsed + Math.max(0, ms), order: this.set++, run };
    this.timers.add(timer);
    return () => this.timers.delete(timer);
  }

  /** How many timers are set: none should be left when all is over. */
  get pending(): number {
    return this.timers.size;
  }

  /** How many timers of this delay are set. Other files of the process may have left code running that sets timers of other delays. */
  pendingOf(ms: number): number {
    return [...this.timers].filter((timer) => timer.ms === ms).length;
  }

  /** Lets what is ready run, then moves time by `ms`, stopping at every timer on the way so that what it wakes can run. */
  async advance(ms: number): Promise<void> {
    const end = this.elapsed + ms;
    await settle();
    for (let due = this.nextUntil(end); due; due = this.nextUntil(end)) {
      this.timers.delete(due);
      this.elapsed = Math.max(this.elapsed, due.at);
      due.run();
      await settle();
    }
    this.elapsed = end;
  }

  /** Moves time by `ms` at once, as a process that stalls sees it: due timers run at the next `advance`. */
  stall(ms: number): void {
    this.elapsed += ms;
  }

  private nextUntil(end: number): Timer | undefined {
    const due = [...this.timers].filter((timer) => timer.at <= end);
    return due.sort((a, b) => a.at - b.at || a.order - b.order)[0];
  }
}

/** Lets every promise that is ready run to where it waits again. */
export const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
