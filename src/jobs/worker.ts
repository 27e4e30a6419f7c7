/** Works off jobs: takes one after the other, keeps each while it is worked on, and lets go of what was taken from it. */

import { Cancel, type Signal } from "../cancellation.ts";
import { after, every, nowSeconds, steadyNow } from "../clock.ts";
import type { WorkKind, WorkMessage, WorkQueue, WorkTaking } from "../events/work-queue.ts";
import { random } from "../random.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import {
  Fenced,
  giveBack,
  type HeldJob,
  type JobKind,
  jobWait,
  LEASE_S,
  othersWait,
  renew,
  takeJob,
} from "../store/jobs/jobs.ts";

/** What a worker gives to the work on a job. */
export interface JobWatch {
  /** Aborted when the job is another's now, or when the gateway closes: nothing that is still done will be kept. */
  readonly lost: Signal;
  /** Aborted when the job was called off, or its time is over. */
  readonly stopped: Signal;
  /**
   * Whether the work should throw `Resting` where it can go on later: no place is free, it has had one for a turn, and a job of an
   * organization with fewer under way waits.
   */
  isAwaited(): Promise<boolean>;
}

/** Thrown by work that has to wait long: its job goes back to the queue, and is not taken before its time. */
export class Resting extends Error {
  override readonly name = "Resting";
  readonly ms: number;

  constructor(ms: number) {
    super(`waits for ${ms} ms`);
    this.ms = ms;
  }
}

/** How one kind of job is worked on. It resolves when the job has ended; it throws `Fenced` as the store does. */
export type JobWork = (job: HeldJob, watch: JobWatch) => Promise<void>;

/** What a worker needs. */
interface WorkerDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  /** Names this worker among all. */
  readonly owner: string;
  readonly work: Readonly<Partial<Record<JobKind, JobWork>>>;
  /** Jobs at one time: in all, and of one organization; the same where nothing is said. */
  readonly atOnce: number;
  readonly atOncePerOrg?: number;
  /** Milliseconds that a job keeps its place although others wait; a few seconds where nothing is said. */
  readonly turnMs?: number;
  /** What tells by messages that a job waits, and whose these are; without it, and while it is down, the database is asked. */
  readonly queue?: { readonly of: WorkQueue; readonly kind: WorkKind } | undefined;
  warn(text: string, cause: unknown): void;
}

/** Milliseconds after which a job is found whose notification was lost. */
const SWEEP_MS = 5_000;
/** The same while messages tell of jobs; varied by half, so that workers do not ask at once. */
const SLOW_SWEEP_MS = 60_000;
/** After a message of a job that waits and that this worker has no place for, it takes the next message so much later. */
const FRUITLESS_MS = 1_000;
/** A job that waits may be in the middle of being taken by another worker: its message comes again so much later. */
const CONTENDED_MS = 100;
/** What a job costs to begin again should not be more than a small part of its turn. */
const TURN_MS = 5_000;
/** The longest rest: what a job waits for may come earlier than expected. */
const LONGEST_REST_MS = 30_000;
const HEARTBEAT_MS = (LEASE_S * 1000) / 3;

/** A job that is worked on. */
interface Held {
  readonly job: HeldJob;
  readonly lost: Cancel;
  readonly stopped: Cancel;
  readonly done: Promise<void>;
  /** The message for which it was taken: not always its own, for of all jobs that wait the next one is taken. */
  readonly message: WorkMessage | undefined;
}

/** A worker; any number of them share the jobs of one database. */
export class Worker {
  readonly #deps: WorkerDeps;
  readonly #kinds: readonly JobKind[];
  readonly #held = new Map<string, Held>();
  readonly #messages: WorkTaking | undefined;
  /** Messages for which a job is being looked for. */
  #attending = 0;
  #fruitlessUntil = 0;
  #sweepAt = 0;
  readonly #stops: (() => void)[];
  /** Ends the timers of jobs that rest in the queue. */
  readonly #rests = new Set<() => void>();
  #taking: Promise<void> | undefined;
  #again = false;
  #closed = false;

  /** Begins at once. */
  constructor(deps: WorkerDeps) {
    this.#deps = deps;
    this.#kinds = Object.keys(deps.work) as JobKind[]; // the table's own keys
    const wake = (): void => this.#wake();
    this.#stops = [
      deps.notifications.on(
        "job",
        (id) => {
          const held = this.#held.get(id);
          if (held) void this.#renew(held);
          if (!this.#isTold) wake();
        },
        wake,
      ),
      every(SWEEP_MS, () => {
        if (!this.#isTold || steadyNow() >= this.#sweepAt) wake();
      }),
      deps.queue?.of.onChange(() => {
        if (!this.#isTold) wake();
      }) ?? (() => {}),
      every(HEARTBEAT_MS, () => {
        for (const held of this.#held.values()) void this.#renew(held);
      }),
    ];
    this.#messages = deps.queue?.of.take(
      deps.queue.kind,
      () => this.#places(),
      (message) => void this.#attend(message),
    );
    wake();
  }

  /** Takes no more work, and gives back what isn't done yet: another worker goes on with it at once. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const stop of [...this.#stops, ...this.#rests]) stop();
    await this.#messages?.close();
    await this.#taking;
    for (const { lost } of this.#held.values()) lost.abort(new Fenced("the worker closes"));
    await Promise.all([...this.#held.values()].map(({ done }) => done));
  }

  /** Messages tell of jobs at the moment. */
  get #isTold(): boolean {
    return this.#deps.queue?.of.isUp ?? false;
  }

  #places(): number {
    if (this.#closed || steadyNow() < this.#fruitlessUntil) return 0;
    return this.#deps.atOnce - this.#held.size - this.#attending;
  }

  /** Takes the job that is next: it need not be the one that the message is of. */
  async #attend(message: WorkMessage): Promise<void> {
    const { sql, owner, warn } = this.#deps;
    this.#attending += 1;
    try {
      const job = this.#isFull()
        ? undefined
        : await takeJob(sql, owner, this.#kinds, this.#fullOrgs(), { hasMessage: true });
      if (job) this.#begin(job, message);
      else await this.#decline(message);
    } catch (cause) {
      warn("jobs can't be taken at the moment", cause);
      message.later(FRUITLESS_MS * (1 + random()));
      this.#pause();
    } finally {
      this.#attending -= 1;
      this.#messages?.wake();
    }
  }

  /** There is no job that this worker may take now. */
  async #decline(message: WorkMessage): Promise<void> {
    const { ms = 0, isAnyWaiting } = await jobWait(this.#deps.sql, message.text, this.#kinds);
    // The job of a message may have been taken for another's, whose own job waits: as many messages as jobs have to stay.
    if (!isAnyWaiting && ms > 0) message.later(ms);
    else if (!isAnyWaiting) message.done();
    else if (this.#fullOrgs().length === 0) message.later(CONTENDED_MS * (1 + random()));
    else {
      message.later(FRUITLESS_MS * (1 + random()));
      this.#pause();
    }
  }

  /** Otherwise the messages of jobs for which there is no place would come round and round. */
  #pause(): void {
    this.#fruitlessUntil = steadyNow() + FRUITLESS_MS;
    after(FRUITLESS_MS + 1, () => this.#messages?.wake());
  }

  #wake(): void {
    this.#again = true;
    this.#taking ??= this.#fill().finally(() => {
      this.#taking = undefined;
      if (this.#again && !this.#closed) this.#wake();
    });
  }

  async #fill(): Promise<void> {
    this.#again = false;
    this.#sweepAt = steadyNow() + SLOW_SWEEP_MS * (0.5 + random());
    const { sql, owner, warn } = this.#deps;
    try {
      while (!this.#closed && !this.#isFull()) {
        const job = await takeJob(sql, owner, this.#kinds, this.#fullOrgs());
        if (!job) return;
        this.#begin(job);
      }
    } catch (cause) {
      // The next sweep tries again.
      warn("jobs can't be taken at the moment", cause);
    }
  }

  #isFull(): boolean {
    return this.#held.size >= this.#deps.atOnce;
  }

  /** Organizations that have all the places that one may have. */
  #fullOrgs(): string[] {
    const { atOnce, atOncePerOrg = atOnce } = this.#deps;
    const counts = new Map<string, number>();
    for (const { job } of this.#held.values()) counts.set(job.orgId, (counts.get(job.orgId) ?? 0) + 1);
    return [...counts].flatMap(([orgId, count]) => (count < atOncePerOrg ? [] : [orgId]));
  }

  #begin(job: HeldJob, message?: WorkMessage): void {
    const [lost, stopped] = [new Cancel(), new Cancel()];
    if (job.cancelled) stopped.abort("cancelled");
    else if (job.expires <= nowSeconds()) stopped.abort("expired");
    const turnEnds = steadyNow() + (this.#deps.turnMs ?? TURN_MS);
    const isAwaited = async (): Promise<boolean> =>
      this.#isFull() && steadyNow() >= turnEnds && (await othersWait(this.#deps.sql, job, this.#kinds));
    const work = async (): Promise<void> => {
      // From the first moment on it is one of those that are held.
      await undefined;
      await this.#run(job, { lost, stopped, isAwaited }, message);
      this.#held.delete(job.id);
      this.#messages?.wake();
      if (!this.#closed && !this.#isTold) this.#wake();
    };
    const done = work();
    this.#held.set(job.id, { job, lost, stopped, done, message });
  }

  async #run(job: HeldJob, watch: JobWatch, message: WorkMessage | undefined): Promise<void> {
    const { work, sql, warn } = this.#deps;
    try {
      await work[job.kind]?.(job, watch);
      message?.done();
    } catch (cause) {
      if (cause instanceof Resting) return this.#letRest(job, Math.min(cause.ms, LONGEST_REST_MS), message);
      if (this.#closed) {
        await giveBack(sql, job).catch(() => {});
        message?.later(0);
      } else if (!(cause instanceof Fenced)) {
        // A job that failed for another reason is tried again when its lease is over, by any free worker.
        warn(`job ${job.id} stopped in the middle`, cause);
        message?.later(LEASE_S * 1000);
      }
    }
  }

  /** A rest that is not recorded ends with the lease. */
  async #letRest(job: HeldJob, ms: number, message: WorkMessage | undefined): Promise<void> {
    await giveBack(this.#deps.sql, job, ms).catch(() => {});
    message?.later(ms);
    if (this.#closed || (message !== undefined && this.#isTold)) return;
    const stop = after(ms, () => {
      this.#rests.delete(stop);
      this.#wake();
    });
    this.#rests.add(stop);
  }

  /** Extends the lease, and learns whether the job was cancelled meanwhile. */
  async #renew({ job, lost, stopped, message }: Held): Promise<void> {
    try {
      const { cancelled, expired } = await renew(this.#deps.sql, job);
      if (cancelled) stopped.abort("cancelled");
      else if (expired) stopped.abort("expired");
      message?.working();
    } catch (cause) {
      // While the database is away no other worker can take the job; the writes that follow fail if one has.
      if (cause instanceof Fenced) lost.abort(cause);
    }
  }
}
