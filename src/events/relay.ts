/** Publishes events from the outbox to NATS: at least once each, under one id, and each organisation's in their order. */
import { after, sleep } from "../clock.ts";
import { random } from "../random.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import { carryEvents } from "../store/events/outbox.ts";
import { NatsLink } from "./nats/link.ts";

/** What a relay depends on. */
export interface RelayDeps {
  sql: Sql;
  notifications: Notifications;
  /** Where NATS is. */
  url: string;
  /** Called once whenever events begin to wait. */
  warn(text: string): void;
}

/** Events that are published at a time. */
export const BATCH = 512;
/** Milliseconds between two looks for events of which the notification was lost. */
const SWEEP_MS = 10_000;
/** Milliseconds until the next look for events behind a transaction, which sends no notification when it is rolled back, or behind another relay. */
const HELD_MS = 100;
const RETRY_MS = { first: 250, most: 10_000 };

/** A running relay. Any number of them may share an outbox; one publishes at a time, and the next takes over when it ends. */
export class Relay {
  readonly #deps: RelayDeps;
  readonly #leaving = new AbortController();
  readonly #work: Promise<void>;
  readonly #unlisten: () => void;
  #rung = Promise.withResolvers<void>();
  #failures = 0;

  /** Starts. NATS need not be reachable: events wait in the outbox until it is. */
  constructor(deps: RelayDeps) {
    this.#deps = deps;
    this.#unlisten = deps.notifications.on("outbox", this.#ring, this.#ring);
    this.#work = this.#stay();
  }

  /** Events wait: NATS does not take them. */
  get isWaiting(): boolean {
    return this.#failures > 0;
  }

  /** Ends what is being published, no later than NATS has to answer, and stops. */
  close(): Promise<void> {
    this.#unlisten();
    this.#leaving.abort();
    this.#ring();
    return this.#work;
  }

  readonly #ring = (): void => this.#rung.resolve();

  async #stay(): Promise<void> {
    const { signal } = this.#leaving;
    while (!signal.aborted) {
      const cause = await this.#once(signal).catch((error: unknown) => error);
      if (signal.aborted) return;
      if (++this.#failures === 1) this.#deps.warn(`events wait in the outbox until NATS takes them: ${reason(cause)}`);
      const longest = Math.min(RETRY_MS.first * 2 ** (this.#failures - 1), RETRY_MS.most);
      await sleep(longest * (0.5 + random() / 2), signal).catch(() => {});
    }
  }

  /** Publishes over one connection. Returns when that is over, rejects when it could not be made or failed. */
  async #once(signal: AbortSignal): Promise<void> {
    const link = await NatsLink.dial(this.#deps.url);
    void link.over.then(this.#ring);
    try {
      while (!signal.aborted && !link.isOver) {
        // Before looking, so that what comes meanwhile is looked for again.
        this.#rung = Promise.withResolvers();
        const { count, heldBack } = await carryEvents(this.#deps.sql, BATCH, (events) => link.publish(events));
        this.#failures = 0;
        if (count < BATCH) await this.#bell(heldBack ? HELD_MS : SWEEP_MS);
      }
    } finally {
      await link.close();
    }
  }

  async #bell(patienceMs: number): Promise<void> {
    const forget = after(patienceMs, this.#ring);
    await this.#rung.promise;
    forget();
  }
}

const reason = (cause: unknown): string => (cause instanceof Error ? cause.message : "the connection was lost");
