/** Publishes events from the outbox to NATS: at least once, with a constant id, and in order per organization. */
import { after, sleep } from "../clock.ts";
import { random } from "../random.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import { carryEvents } from "../store/events/outbox.ts";
import type { RelayTurns } from "./nats/leadership.ts";
import { NatsLink } from "./nats/link.ts";

/** Dependencies of a relay. */
export interface RelayDeps {
  sql: Sql;
  notifications: Notifications;
  /** The address of NATS. */
  url: string;
  /** The unique id of this replica. */
  replica: string;
  /** Called once each time that events start to queue up. */
  warn(text: string): void;
  /** How long a follower waits for the leader's report that events were relayed, in milliseconds; 250 by default. */
  patienceMs?: number;
}

/** Events per batch. */
export const BATCH = 512;
/** Milliseconds between two checks for events whose notification was lost: of the leader, and of followers. */
const SWEEP_MS = { leader: 10_000, other: 60_000 };
/** Milliseconds until the next check for events behind an open transaction (a rollback sends no notification) or behind another relay. */
const HELD_MS = 100;
const PATIENCE_MS = 250;
const RETRY_MS = { first: 250, most: 10_000 };

/**
 * A running relay. Any number of relays may share an outbox: one publishes at a time, and another takes over when it ends. Notifications of
 * new events trigger the leader immediately. The leader reports what it relayed by the mark of the last notification that it received before
 * it checked; notifications arrive in commit order everywhere. A follower that receives a mark but no report in time checks by itself, so a
 * dead or stalled leader delays events by no more than that.
 */
export class Relay {
  readonly #deps: RelayDeps;
  readonly #closing = new AbortController();
  readonly #work: Promise<void>;
  readonly #unlisten: () => void;
  #wakeUp = Promise.withResolvers<void>();
  #failures = 0;
  #leadership: RelayTurns | undefined;
  /** Mark of the last notification: the transaction that wrote events. */
  #mark = "";
  /** The mark up to which another relay has relayed everything. */
  #relayed = "";
  /** Cancels the wait for another relay's report; undefined if there is none. */
  #cancelWait: (() => void) | undefined;

  /** Starts. NATS need not be reachable: events stay in the outbox until it is. */
  constructor(deps: RelayDeps) {
    this.#deps = deps;
    this.#unlisten = deps.notifications.on("outbox", this.#onNotification, this.#wake);
    this.#work = this.#run();
  }

  /** Whether events queue up because NATS does not accept them. */
  get isWaiting(): boolean {
    return this.#failures > 0;
  }

  /** Stops after the current batch, at the latest after the NATS timeout. */
  close(): Promise<void> {
    this.#unlisten();
    this.#closing.abort();
    this.#wake();
    return this.#work;
  }

  readonly #wake = (): void => {
    this.#stopWaiting();
    this.#wakeUp.resolve();
  };

  readonly #onNotification = (mark: string): void => {
    this.#mark = mark;
    // Another relay's report may arrive before the database's notification.
    if (mark === this.#relayed) this.#stopWaiting();
    else if (this.#leadership?.leads) this.#wake();
    else this.#await();
  };

  #onReport(mark: string): void {
    const wasAwaited = this.#cancelWait !== undefined;
    this.#stopWaiting();
    if (mark !== "") this.#relayed = mark;
    if (wasAwaited && mark !== this.#mark) this.#await();
  }

  #await(): void {
    this.#cancelWait ??= after(this.#followerDelayMs, this.#wake);
  }

  #stopWaiting(): void {
    this.#cancelWait?.();
    this.#cancelWait = undefined;
  }

  get #followerDelayMs(): number {
    return this.#deps.patienceMs ?? PATIENCE_MS;
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      const cause = await this.#runOnce(signal).catch((error: unknown) => error);
      if (signal.aborted) return;
      if (++this.#failures === 1)
        this.#deps.warn(`events wait in the outbox until NATS accepts them: ${reason(cause)}`);
      const longest = Math.min(RETRY_MS.first * 2 ** (this.#failures - 1), RETRY_MS.most);
      await sleep(longest * (0.5 + random() / 2), signal).catch(() => {});
    }
  }

  /** Publishes over one connection. Resolves when it has ended; rejects if it could not be made or failed. */
  async #runOnce(signal: AbortSignal): Promise<void> {
    const { url, sql, replica } = this.#deps;
    const link = await NatsLink.dial(url);
    void link.over.then(() => this.#wake());
    const turns = link.takeTurns({ replica, begins: this.#wake, hear: (mark) => this.#onReport(mark) });
    this.#leadership = turns;
    try {
      while (!signal.aborted && !link.isOver) {
        // Clear the flag first, so that notifications during the check trigger another one.
        this.#wakeUp = Promise.withResolvers();
        this.#stopWaiting();
        const mark = this.#mark;
        const { count, heldBack, elsewhere } = await carryEvents(sql, BATCH, (events) => link.publish(events));
        this.#failures = 0;
        const isDone = count < BATCH && !heldBack;
        if (!elsewhere) turns.say(isDone ? mark : "");
        if (isDone) await this.#waitForEvents(turns.leads ? SWEEP_MS.leader : SWEEP_MS.other);
        else if (heldBack) await this.#waitForEvents(elsewhere && !turns.leads ? this.#followerDelayMs : HELD_MS);
      }
    } finally {
      this.#leadership = undefined;
      turns.leave();
      await link.close();
    }
  }

  async #waitForEvents(patienceMs: number): Promise<void> {
    const forget = after(patienceMs, this.#wake);
    await this.#wakeUp.promise;
    forget();
  }
}

const reason = (cause: unknown): string => (cause instanceof Error ? cause.message : "the connection was lost");
