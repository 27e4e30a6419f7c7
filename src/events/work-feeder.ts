/** Sends messages for work that waits in the database, from the one replica that leads. */
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import { beginSending, noteUnsent, type WaitingWork } from "../store/events/work.ts";
import type { JobKind } from "../store/jobs/jobs.ts";
import { Polling } from "./polling.ts";
import type { WorkKind, WorkQueue, WorkToSend } from "./work-queue.ts";

/** What it depends on. */
export interface WorkFeederDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  readonly queue: WorkQueue;
  warn(text: string, cause: unknown): void;
}

/** Which workers take which jobs. */
export const KIND_OF_JOB: Readonly<Partial<Record<JobKind, WorkKind>>> = {
  batch: "batch",
  export: "batch",
  evaluation: "evaluation",
};

const LIMIT = 512;
/** Of one webhook: so many stand before another's at most. */
const AT_ONE_HOOK = 128;
/** Milliseconds until more is sent for a webhook of which as much is due as may have a message. */
const BEHIND_MS = 25;
/** What NATS had and did not bring for as long is sent again: seconds. */
const [JOB_S, DELIVERY_S] = [300, 90];

/** The sender of one replica; it does something while that one leads. */
export class WorkFeeder {
  readonly #deps: WorkFeederDeps;
  readonly #rounds: Polling;
  readonly #stops: (() => void)[];
  /** The webhook that was visited last. */
  #visited = "";

  /** Begins at once. */
  constructor(deps: WorkFeederDeps) {
    this.#deps = deps;
    const { notifications, queue, warn } = deps;
    this.#rounds = new Polling({
      notifications,
      channel: "webhook",
      look: () => this.#feed(),
      failed: (cause) => {
        if (queue.isUp) warn("work that waits can't be sent at the moment", cause);
      },
    });
    const wake = (): void => this.#rounds.wake();
    this.#stops = [notifications.on("job", wake, wake), queue.onChange(wake)];
  }

  /** Sends no more. */
  close(): Promise<void> {
    for (const stop of this.#stops) stop();
    return this.#rounds.close();
  }

  /** Sends what waits; returns in how many milliseconds more is due. */
  async #feed(): Promise<number | undefined> {
    const { sql, queue } = this.#deps;
    while (queue.leads && !this.#rounds.over) {
      const born = await queue.born();
      const kinds = Object.keys(KIND_OF_JOB) as JobKind[]; // the table's own keys
      const round = {
        born,
        kinds,
        limit: LIMIT,
        jobS: JOB_S,
        deliveryS: DELIVERY_S,
        atOneHook: AT_ONE_HOOK,
        after: this.#visited,
      };
      const done = await beginSending(sql, round);
      // Another replica is at it, or the last one has not left yet.
      if (done === undefined) return BEHIND_MS;
      await queue.send(messagesOf(done)).catch(async (cause) => {
        await noteUnsent(sql, done);
        throw cause;
      });
      const { jobs, deliveries } = done;
      const isWhole = this.#visited === "" && deliveries.last === undefined;
      this.#visited = deliveries.last ?? "";
      if (jobs.length === LIMIT || deliveries.queued.length === LIMIT || !isWhole) continue;
      return deliveries.isBehind ? BEHIND_MS : deliveries.nextMs;
    }
    return undefined;
  }
}

function messagesOf({ jobs, deliveries }: WaitingWork): WorkToSend[] {
  return [
    ...jobs.flatMap(({ id, kind, turn }) => {
      const taker = KIND_OF_JOB[kind];
      return taker === undefined ? [] : [{ kind: taker, text: id, name: `${id}.${turn}` }];
    }),
    ...deliveries.queued.map(({ id, hookId, turn }) => ({
      kind: "webhook" as const,
      text: `${id} ${hookId}`,
      name: `${id}.${turn}`,
    })),
  ];
}
