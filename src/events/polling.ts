/** Rounds over work that the database keeps: one at a time, and another where a notification came meanwhile. */
import { after, every } from "../clock.ts";
import type { NotificationChannel, Notifications } from "../store/database/notifications.ts";

const SWEEP_MS = 10_000;

/** What is looked for. */
export interface PollingDeps {
  readonly notifications: Notifications;
  /** The notifications of new work. */
  readonly channel: NotificationChannel;
  /** Begins what there is to do; returns in how many milliseconds more is due, if any is. Called again after it rejected. */
  look(): Promise<number | undefined>;
  /** Called with the reason why a round failed. */
  failed(cause: unknown): void;
}

/** A round is made at a notification, when work is due, and every ten seconds for work whose notification was lost. */
export class Polling {
  readonly #deps: PollingDeps;
  readonly #stops: (() => void)[];
  #looking: Promise<void> | undefined;
  #again = false;
  #over = false;
  #forgetDue = (): void => {};

  /** Starts in a microtask, when its owner is constructed. */
  constructor(deps: PollingDeps) {
    this.#deps = deps;
    const wake = (): void => this.wake();
    this.#stops = [deps.notifications.on(deps.channel, wake, wake), every(SWEEP_MS, wake)];
    queueMicrotask(wake);
  }

  /** Whether no more should be begun. */
  get over(): boolean {
    return this.#over;
  }

  /** Makes a round now, or once more after the present one. */
  wake(): void {
    if (this.#over) return;
    this.#again = true;
    this.#looking ??= this.#look()
      .catch((cause) => this.#deps.failed(cause))
      .finally(() => {
        this.#looking = undefined;
        if (this.#again) this.wake();
      });
  }

  /** Makes no more rounds; resolves when the last one is over. */
  async close(): Promise<void> {
    this.#over = true;
    for (const stop of this.#stops) stop();
    await this.#looking;
    this.#forgetDue();
  }

  async #look(): Promise<void> {
    this.#again = false;
    const ms = await this.#deps.look();
    this.#forgetDue();
    if (ms !== undefined && ms < SWEEP_MS && ms > 0) this.#forgetDue = after(ms + 1, () => this.wake());
  }
}
