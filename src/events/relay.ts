/** Publishes events from the outbox to NATS: at least once each, under one id, and each organization's in their order. */
import { after, sleep } from "../clock.ts";
import { random } from "../random.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import { carryEvents } from "../store/events/outbox.ts";
import type { RelayTurns } from "./nats/leadership.ts";
import { NatsLink } from "./nats/link.ts";

/** What a relay depends on. */
export interface RelayDeps {
  sql: Sql;
  notifications: Notifications;
  /** Where NATS is. */
  url: string;
  /** Names this replica among all. */
  replica: string;
  /** Called once whenever events begin to wait. */
  warn(text: string): void;
  /** How long a relay that does not lead waits for word that events were relayed, in milliseconds; 250 unless given. */
  patienceMs?: number;
}

/** Events that are published at a time. */
export const BATCH = 512;
/** Milliseconds between two looks for events of which the notification was lost: of the relay that leads, and of others. */
const SWEEP_MS = { leader: 10_000, other: 60_000 };
/** Milliseconds until the next look for events behind a transaction, which sends no notification when it is rolled back, or behind another relay. */
const HELD_MS = 100;
const PATIENCE_MS = 250;
const RETRY_MS = { first: 250, most: 10_000 };

/**
 * A running relay. Any number of them may share an outbox; one publishes at a time, and the next takes over when it ends. Events that were written
 * make the one that leads look at once. It says what it has relayed, by the mark of the last notification that it had heard before it looked:
 * notifications come in the order of commits everywhere. Another relay looks where it has heard a mark and waited in vain for that word, so that a
 * leader that died or stands still delays events by no more than that.
 */
export class Relay {
  readonly #deps: RelayDeps;
  readonly #leaving = new AbortController();
  readonly #work: Promise<void>;
  readonly #unlisten: () => void;
  #woken = Promise.withResolvers<void>();
  #failures = 0;
  #turns: RelayTurns | undefined;
  /** Of the last notification: which transaction wrote events. */
  #mark = "";
  /** Up to which mark another relay has relayed everything. */
  #relayed = "";
  /** Forgets that the word of another relay is waited for; undefined while it is not. */
  #waiting: (() => void) | undefined;

  /** Starts. NATS need not be reachable: events wait in the outbox until it is. */
  constructor(deps: RelayDeps) {
    this.#deps = deps;
    this.#unlisten = deps.notifications.on("outbox", this.#ring, this.#wake);
    this.#work = this.#run();
  }

  /** Events wait: NATS does not take them. */
  get isWaiting(): boolean {
    return this.#failures > 0;
  }

  /** Ends what is being published, no later than NATS has to answer, and stops. */
  close(): Promise<void> {
    this.#unlisten();
    this.#leaving.abort();
    this.#wake();
    return this.#work;
  }

  readonly #wake = (): void => {
    this.#forget();
    this.#woken.resolve();
  };

  readonly #ring = (mark: string): void => {
    this.#mark = mark;
    // The word of another relay may come before the database's.
    if (mark === this.#relayed) this.#forget();
    else if (this.#turns?.leads) this.#wake();
    else this.#await();
  };

  #hear(mark: string): void {
    const wasAwaited = this.#waiting !== undefined;
    this.#forget();
    if (mark !== "") this.#relayed = mark;
    if (wasAwaited && mark !== this.#mark) this.#await();
  }

  #await(): void {
    this.#waiting ??= after(this.#patienceMs, this.#wake);
  }

  #forget(): void {
    this.#waiting?.();
    this.#waiting = undefined;
  }

  get #patienceMs(): number {
    return this.#deps.patienceMs ?? PATIENCE_MS;
  }

  async #run(): Promise<void> {
    const { signal } = this.#leaving;
    while (!signal.aborted) {
      const cause = await this.#runOnce(signal).catch((error: unknown) => error);
      if (signal.aborted) return;
      if (++this.#failures === 1) this.#deps.warn(`events wait in the outbox until NATS takes them: ${reason(cause)}`);
      const longest = Math.min(RETRY_MS.first * 2 ** (this.#failures - 1), RETRY_MS.most);
      await sleep(longest * (0.5 + random() / 2), signal).catch(() => {});
    }
  }

  /** Publishes over one connection. Returns when that is over, rejects when it could not be made or failed. */
  async #runOnce(signal: AbortSignal): Promise<void> {
    const { url, sql, replica } = this.#deps;
    const link = await NatsLink.dial(url);
    void link.over.then(() => this.#wake());
    const turns = link.takeTurns({ replica, begins: this.#wake, hear: (mark) => this.#hear(mark) });
    this.#turns = turns;
    try {
      while (!signal.aborted && !link.isOver) {
        // Before looking, so that what comes meanwhile is looked for again.
        this.#woken = Promise.withResolvers();
        this.#forget();
        const mark = this.#mark;
        const { count, heldBack, elsewhere } = await carryEvents(sql, BATCH, (events) => link.publish(events));
        this.#failures = 0;
        const isDone = count < BATCH && !heldBack;
        if (!elsewhere) turns.say(isDone ? mark : "");
        if (isDone) await this.#waitForEvents(turns.leads ? SWEEP_MS.leader : SWEEP_MS.other);
        else if (heldBack) await this.#waitForEvents(elsewhere && !turns.leads ? this.#patienceMs : HELD_MS);
      }
    } finally {
      this.#turns = undefined;
      turns.leave();
      await link.close();
    }
  }

  async #waitForEvents(patienceMs: number): Promise<void> {
    const forget = after(patienceMs, this.#wake);
    await this.#woken.promise;
    forget();
  }
}

const reason = (cause: unknown): string => (cause instanceof Error ? cause.message : "the connection was lost");
