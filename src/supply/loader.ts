/** Keeps what this replica knows of supply up to date with the database. */
import { after } from "../clock.ts";
import type { Notifications } from "../store/database/notifications.ts";

const RETRY_MS = 2_000;

/** Loads supply at the start and whenever the database says that it changed; what cannot be loaded is tried again. */
export class SupplyLoader {
  readonly #load: () => Promise<void>;
  readonly #warn: (text: string, cause: unknown) => void;
  #off = (): void => {};
  #running: Promise<void> | undefined;
  #again = false;
  #closed = false;
  #forget = (): void => {};
  loaded = false;
  warnings: string[] = [];

  /** `warn` gets the first of several failures in a row. */
  constructor(load: () => Promise<void>, warn: (text: string, cause: unknown) => void) {
    this.#load = load;
    this.#warn = warn;
  }

  /** From now on loads whenever the database says that supply changed. */
  follow(notifications: Notifications): void {
    const look = (): void => void this.load();
    this.#off = notifications.on("supply_changed", look, look);
  }

  /** Resolves when what the database had at the call is loaded, or could not be. */
  async load(): Promise<void> {
    this.#again = true;
    this.#running ??= this.#run();
    return this.#running;
  }

  close(): void {
    this.#closed = true;
    this.#off();
    this.#forget();
  }

  async #run(): Promise<void> {
    while (this.#again && !this.#closed) {
      this.#again = false;
      try {
        await this.#load();
        this.loaded = true;
        this.warnings = [];
      } catch (cause) {
        if (this.warnings.length === 0) this.#warn("the supply can't be read from the database", cause);
        this.warnings = ["the supply could not be read from the database; the last one that could is in use"];
        this.#forget();
        if (!this.#closed) this.#forget = after(RETRY_MS, () => void this.load());
      }
    }
    // In the same turn as the last look at `#again`, so that no change falls between two runs.
    this.#running = undefined;
  }
}
