/** Polls the database for work: one round at a time, and another if a notification arrived meanwhile. */
import { after, every } from "../clock.ts";
import type { NotificationChannel, Notifications } from "../store/database/notifications.ts";

const SWEEP_MS = 10_000;

/** Parameters of polling. */
export interface PollingDeps {
  readonly notifications: Notifications;
  /** The notifications of new work. */
  readonly channel: NotificationChannel;
  /** Starts the due work. Returns the milliseconds until more is due, if any. Called again after a rejection. */
  look(): Promise<number | undefined>;
  /** Called with the reason if a round fails. */
  failed(cause: unknown): void;
}

/** Runs a round on a notification, when work is due, and every ten seconds in case a notification was lost. */
export class Polling {
  readonly #deps: PollingDeps;
  readonly #stops: (() => void)[];
  #running: Promise<void> | undefined;
  #again = false;
  #isClosed = false;
  #cancelDue = (): void => {};

  /** Starts in a microtask, after its owner's constructor. */
  constructor(deps: PollingDeps) {
    this.#deps = deps;
    const wake = (): void => this.wake();
    this.#stops = [deps.notifications.on(deps.channel, wake, wake), every(SWEEP_MS, wake)];
    queueMicrotask(wake);
  }

  /** Whether to start no more work. */
  get over(): boolean {
    return this.#isClosed;
  }

  /** Runs a round now, or again after the current one. */
  wake(): void {
    if (this.#isClosed) return;
    this.#again = true;
    this.#running ??= this.#poll()
      .catch((cause) => this.#deps.failed(cause))
      .finally(() => {
        this.#running = undefined;
        if (this.#again) this.wake();
      });
  }

  /** Stops; resolves when the last round has ended. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const stop of this.#stops) stop();
    await this.#running;
    this.#cancelDue();
  }

  async #poll(): Promise<void> {
    this.#again = false;
    const ms = await this.#deps.look();
    this.#cancelDue();
    if (ms !== undefined && ms < SWEEP_MS && ms > 0) this.#cancelDue = after(ms + 1, () => this.wake());
  }
}
