/** Whether the database answers: asked all the time on one connection, so that no statement waits long for a server that stands still. */
import { everySpan, ioClock, setWall } from "../../clock.ts";

/** Without an answer for this long, in milliseconds, the database counts as silent. */
export const SILENCE_MS = 3_000;
/** How often silence is measured. */
const LOOK_MS = 250;

/**
 * The pulse of one database. The connection that listens to its notifications asks it for its time twice a second (`listen.ts`) and reports each
 * answer. A server that is frozen, or behind a network that swallows everything, closes no connection: statements would wait for it
 * without an end, and its own `statement_timeout` does not run. After three seconds of silence clients of the database give up what
 * waits, count their connections as lost, and refuse at once until it answers again. Before the first answer nothing counts as silent.
 */
export class Pulse {
  readonly #listeners = new Set<() => void>();
  readonly #stop: () => void;
  #heard = false;
  #silent = false;
  #silentForMs = 0;

  constructor() {
    this.#stop = everySpan(LOOK_MS, (spanMs) => this.#look(spanMs), ioClock);
  }

  /** Whether the database has not answered for a while. */
  get silent(): boolean {
    return this.#silent;
  }

  /** The database answered with its time in unix milliseconds; the question left and the answer came at these steady moments. */
  answered(wallMs: number, askedAt: number, answeredAt: number): void {
    setWall(wallMs, askedAt, answeredAt);
    this.#heard = true;
    this.#silentForMs = 0;
    this.#silent = false;
  }

  /** Calls `run` whenever the database falls silent, until the returned function is called. */
  onSilence(run: () => void): () => void {
    this.#listeners.add(run);
    return () => this.#listeners.delete(run);
  }

  /** Measures no more. */
  close(): void {
    this.#stop();
  }

  #look(spanMs: number): void {
    if (!this.#heard || this.#silent) return;
    this.#silentForMs += spanMs;
    if (this.#silentForMs < SILENCE_MS) return;
    this.#silent = true;
    // Who gives up a client opens the next one, which listens too.
    for (const run of [...this.#listeners]) run();
  }
}
