/** Job workers: take jobs, renew their leases while they run, and drop jobs that they lost. */

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

/** The context of a running job. */
export interface JobWatch {
  /** Aborted when another worker takes the job, or when the gateway shuts down: later writes are not kept. */
  readonly lost: Signal;
  /** Aborted when the job is canceled or expires. */
  readonly stopped: Signal;
  /**
   * Whether the work should throw `Resting` at a point where it can resume later: all slots are in use, its turn is over, and a job of an
   * organization with fewer running jobs waits. A share also makes room if its organization's slots are in use and another job of that
   * organization waits.
   */
  isAwaited(): Promise<boolean>;
}

/** Thrown by work that has to wait for long: its job goes back to the queue until then. */
export class Resting extends Error {
  override readonly name = "Resting";
  readonly ms: number;

  constructor(ms: number) {
    super(`waits for ${ms} ms`);
    this.ms = ms;
  }
}

/** The implementation of one kind of job. Resolves when the job has ended; throws `Fenced` as the store does. */
export type JobWork = (job: HeldJob, watch: JobWatch) => Promise<void>;

/** The dependencies of a worker. */
interface WorkerDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  /** The unique name of this worker. */
  readonly owner: string;
  readonly work: Readonly<Partial<Record<JobKind, JobWork>>>;
  /** Concurrent jobs: in total, and of one organization; the same by default. */
  readonly atOnce: number;
  readonly atOncePerOrg?: number;
  /** Milliseconds that a job keeps its slot although others wait; a few seconds by default. */
  readonly turnMs?: number;
  /** Messages about waiting jobs, and their organizations; without it, and while it is down, the worker polls the database. */
  readonly queue?: { readonly of: WorkQueue; readonly kind: WorkKind } | undefined;
  warn(text: string, cause: unknown): void;
}

/** The polling interval in milliseconds, for jobs whose notification was lost. */
const SWEEP_MS = 5_000;
/** The same with messages; randomized by half, so that workers do not poll at once. */
const SLOW_SWEEP_MS = 60_000;
/** The delay before the next message, after one for a job that this worker has no slot for. */
const FRUITLESS_MS = 1_000;
/** The delay before a message is repeated whose job another worker may be taking. */
const CONTENDED_MS = 100;
/** The restart cost of a job should be a small part of its turn. */
const TURN_MS = 5_000;
/** The longest rest: the awaited event may occur earlier than expected. */
const LONGEST_REST_MS = 30_000;
const HEARTBEAT_MS = (LEASE_S * 1000) / 3;

/** A running job. */
interface Held {
  readonly job: HeldJob;
  readonly lost: Cancel;
  readonly stopped: Cancel;
  readonly done: Promise<void>;
  /** The message for which it was taken; it may be another job's, since the worker takes the next job in order. */
  readonly message: WorkMessage | undefined;
}

/** A worker; any number of them share the jobs of one database. */
export class Worker {
  readonly #deps: WorkerDeps;
  readonly #kinds: readonly JobKind[];
  readonly #held = new Map<string, Held>();
  readonly #messages: WorkTaking | undefined;
  /** Messages whose jobs are being looked up. */
  #attending = 0;
  #fruitlessUntil = 0;
  #sweepAt = 0;
  readonly #stops: (() => void)[];
  /** Cancels the timers of resting jobs. */
  readonly #rests = new Set<() => void>();
  #taking: Promise<void> | undefined;
  #again = false;
  #closed = false;

  /** Starts at once. */
  constructor(deps: WorkerDeps) {
    this.#deps = deps;
    this.#kinds = Object.keys(deps.work) as JobKind[]; // the table's own keys
    const wake = (): void => this.#takeJobs();
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

  /** Takes no more jobs, and returns unfinished ones to the queue: another worker resumes them at once. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const stop of [...this.#stops, ...this.#rests]) stop();
    await this.#messages?.close();
    await this.#taking;
    for (const { lost } of this.#held.values()) lost.abort(new Fenced("the worker closes"));
    await Promise.all([...this.#held.values()].map(({ done }) => done));
  }

  /** Whether messages about jobs currently arrive. */
  get #isTold(): boolean {
    return this.#deps.queue?.of.isUp ?? false;
  }

  #places(): number {
    if (this.#closed || steadyNow() < this.#fruitlessUntil) return 0;
    return this.#deps.atOnce - this.#held.size - this.#attending;
  }

  /** Takes the next job in order, which is not always the message's. */
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
      warn("could not claim jobs; trying again", cause);
      message.later(FRUITLESS_MS * (1 + random()));
      this.#pause();
    } finally {
      this.#attending -= 1;
      this.#messages?.wake();
    }
  }

  /** No job is available to this worker now. */
  async #decline(message: WorkMessage): Promise<void> {
    const { sql, owner } = this.#deps;
    const { ms = 0, isAnyWaiting } = await jobWait(sql, message.text, { owner, kinds: this.#kinds });
    // The message's job may have been taken for another message, whose own job still waits: there must be as many messages as jobs.
    if (!isAnyWaiting && ms > 0) message.later(ms);
    else if (!isAnyWaiting) message.done();
    else if (this.#fullOrgs().length === 0) message.later(CONTENDED_MS * (1 + random()));
    else {
      message.later(FRUITLESS_MS * (1 + random()));
      this.#pause();
    }
  }

  /** Delays messages of jobs without a free slot, which would otherwise be redelivered in a loop. */
  #pause(): void {
    this.#fruitlessUntil = steadyNow() + FRUITLESS_MS;
    after(FRUITLESS_MS + 1, () => this.#messages?.wake());
  }

  #takeJobs(): void {
    this.#again = true;
    this.#taking ??= this.#fill().finally(() => {
      this.#taking = undefined;
      if (this.#again && !this.#closed) this.#takeJobs();
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
      // The next poll retries.
      warn("could not claim jobs; trying again", cause);
    }
  }

  #isFull(): boolean {
    return this.#held.size >= this.#deps.atOnce;
  }

  /** Organizations that use all of their slots. */
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
    const hasNoSlot = (): boolean =>
      this.#isFull() || (job.parent !== undefined && this.#fullOrgs().includes(job.orgId));
    const isAwaited = async (): Promise<boolean> =>
      steadyNow() >= turnEnds && hasNoSlot() && (await othersWait(this.#deps.sql, job, this.#kinds));
    const work = async (): Promise<void> => {
      // Register it as held from the start.
      await undefined;
      await this.#run(job, { lost, stopped, isAwaited }, message);
      this.#held.delete(job.id);
      this.#messages?.wake();
      if (!this.#closed && !this.#isTold) this.#takeJobs();
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
        // A job that failed for another reason is retried by any free worker when its lease expires.
        warn(`job ${job.id} was interrupted`, cause);
        message?.later(LEASE_S * 1000);
      }
    }
  }

  /** An unrecorded rest ends with the lease. */
  async #letRest(job: HeldJob, ms: number, message: WorkMessage | undefined): Promise<void> {
    await giveBack(this.#deps.sql, job, ms).catch(() => {});
    message?.later(ms);
    if (this.#closed || (message !== undefined && this.#isTold)) return;
    const stop = after(ms, () => {
      this.#rests.delete(stop);
      this.#takeJobs();
    });
    this.#rests.add(stop);
  }

  /** Renews the lease, and checks whether the job was canceled. */
  async #renew({ job, lost, stopped, message }: Held): Promise<void> {
    try {
      const { cancelled, expired } = await renew(this.#deps.sql, job);
      if (cancelled) stopped.abort("cancelled");
      else if (expired) stopped.abort("expired");
      message?.working();
    } catch (cause) {
      // While the database is unavailable, no other worker can take the job; later writes fail if one has.
      if (cause instanceof Fenced) lost.abort(cause);
    }
  }
}
