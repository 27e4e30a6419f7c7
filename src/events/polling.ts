/** Looking for work that the database keeps: one look at a time, and another where something was told meanwhile. */
import { after, every } from "../clock.ts";
import type { NotificationChannel, Notifications } from "../store/database/notifications.ts";

const SWEEP_MS = 10_000;

/** What is looked for. */
export interface PollingDeps {
  readonly notifications: Notifications;
  /** The notifications that tell of work. */
  readonly channel: NotificationChannel;
  /** Begins what there is to do; answers in how many milliseconds more is due, if any is. Asked for again after it rejected. */
  look(): Promise<number | undefined>;
  /** Hears why a look was in vain. */
  failed(cause: unknown): void;
}

/** Rounds that are made when work is told of, when it is due, and every ten seconds for what nobody told of. */
export class Polling {
  readonly #deps: PollingDeps;
  readonly #stops: (() => void)[];
  #looking: Promise<void> | undefined;
  #again = false;
  #over = false;
  #forgetDue = (): void => {};

  /** Begins at once, after who made it is whole. */
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

  /** Looks now, or once more after the present look. */
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

  /** Looks no more; resolves when the last look is over. */
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
