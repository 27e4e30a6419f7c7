/** Batches and exports: jobs whose items each run once and are recorded before the next begins. */
import { Cancel, type Signal } from "../cancellation.ts";
import { sleep } from "../clock.ts";
import { type EventData, emit } from "../events/emit.ts";
import { newId } from "../ids.ts";
import type { JobSeal, JobSeals } from "../services/job.ts";
import { type Sql, type Tx, tx } from "../store/database/tx.ts";
import { countLines, writePart } from "../store/jobs/exports.ts";
import {
  advance,
  dropRest,
  type HeldJob,
  hasOpenItems,
  type ItemEnd,
  type ItemRecord,
  MOST_TRIES,
  outcomeOf,
  turn,
  workspaceOf,
} from "../store/jobs/jobs.ts";
import { type JobWatch, type JobWork, Resting } from "./worker.ts";

/** The stored request of a batch. */
interface BatchRequest {
  contract: "act" | "predict";
  metadata?: object | undefined;
}

/** One request of a batch, to be served like a single call. */
interface BatchCall {
  readonly contract: "act" | "predict";
  readonly request: object;
  readonly requestId: string;
  readonly idempotencyKey: string;
  readonly batchId: string;
  readonly signal: Signal;
}

/** Its outcome. A `retryable` refusal is temporary; `againMs` is when a retry can succeed. */
type BatchAnswer =
  | { readonly kind: "answer"; readonly statusCode: number; readonly body: object; readonly costMicro: number }
  | { readonly kind: "refusal"; readonly body: object; readonly retryable: boolean; readonly againMs?: number };

/** A reservation in a key's rate limits, for one request. */
export interface BatchPlace {
  leave(): void;
  unused(): void;
}

/** What batches depend on. */
interface BatchDeps {
  readonly sql: Sql;
  readonly seals: JobSeals;
  /** Reserves up to `most` requests in a key's rate limits; also returns the milliseconds until more can be available. */
  places(keyId: string, most: number): Promise<{ places: BatchPlace[]; againMs: number }>;
  answer(keyId: string, call: BatchCall, place: BatchPlace): Promise<BatchAnswer>;
  /** Whether queued callers leave no capacity for low-priority work. */
  crowded(): boolean;
}

/** Concurrent requests of one batch: each waits for its claim and for its charge to be durable, which others can share. */
const AT_ONCE = 64;
const GATHER_MS = 5;
const CROWDED_MS = 20;
/** A batch that waits longer than this for its key's limits goes back to the queue, and frees its worker. */
const HELD_MS = 2_000;
const NO_PLACES = { places: [], againMs: 1_000 };
/** Delays between attempts of a request with a temporary refusal. */
const PATIENCE_MS = [200, 1_000, 5_000, 15_000, 30_000];

const internalError = (message: string) => ({
  error: { code: "internal_error", type: "server_error", status: 500, message, retryable: false },
});
const POISON = internalError(`this request was begun ${MOST_TRIES} times and ended its worker each time`);
const BROKEN = internalError("internal error; include the batch id when you report it");

/** The batch worker. */
export const batchWork =
  (deps: BatchDeps): JobWork =>
  async (job, watch) =>
    new BatchRun(deps, job, await deps.seals.of(job), watch).finish();

class BatchRun {
  readonly #deps: BatchDeps;
  readonly #job: HeldJob;
  readonly #seal: JobSeal;
  readonly #watch: JobWatch;
  readonly #running = new Set<Promise<void>>();
  #ended: ItemEnd[] = [];

  constructor(deps: BatchDeps, job: HeldJob, seal: JobSeal, watch: JobWatch) {
    this.#deps = deps;
    this.#job = job;
    this.#seal = seal;
    this.#watch = watch;
  }

  async finish(): Promise<void> {
    const { sql } = this.#deps;
    const { stopped } = this.#watch;
    await tx(sql, (tx) => advance(tx, this.#job, "in_progress"));
    for (;;) {
      const againMs = await this.#writeAndTake();
      const idle = this.#running.size === 0 && this.#ended.length === 0;
      if (idle && (againMs === 0 || stopped.aborted || !(await hasOpenItems(sql, this.#job)))) break;
      if (idle) await this.#rest(againMs);
      else if (this.#ended.length === 0) await this.#hearOne(againMs);
      // Record requests that end at nearly the same time together.
      if (this.#running.size > 0) await sleep(GATHER_MS);
    }
    await this.#close();
  }

  /** Waits until a request ends, or until the key's limits can admit another one. */
  async #hearOne(againMs: number): Promise<void> {
    if (againMs === 0) return void (await Promise.race(this.#running));
    const waited = new Cancel();
    const more = sleep(Math.min(againMs, HELD_MS), waited).catch(() => {});
    await Promise.race([...this.#running, more]);
    waited.abort(undefined);
  }

  /** Waits for the key's limits: briefly here, longer in the queue. Cancellation and expiry end the wait. */
  async #rest(againMs: number): Promise<void> {
    if (againMs > HELD_MS) throw new Resting(againMs);
    const { lost, stopped } = this.#watch;
    const over = new Cancel();
    const leave = (): void => over.abort(undefined);
    for (const signal of [lost, stopped]) signal.addEventListener("abort", leave, { once: true });
    await sleep(againMs, over).catch(() => {});
    for (const signal of [lost, stopped]) signal.removeEventListener("abort", leave);
    lost.throwIfAborted();
  }

  /**
   * Records ended items and begins the next ones in one statement; writes of a worker that lost the job are not kept. Begins no more than the
   * key's limits admit. Returns when they may admit more; 0 if they were not the limit.
   */
  async #writeAndTake(): Promise<number> {
    const { lost, stopped } = this.#watch;
    lost.throwIfAborted();
    const free = AT_ONCE - this.#running.size;
    if (free > 0 && !stopped.aborted) await this.#letOthersFirst();
    const wanted = stopped.aborted ? 0 : free;
    const { sql, places: placesOf } = this.#deps;
    const { places, againMs } = wanted > 0 ? await placesOf(this.#job.keyId, wanted) : { places: [], againMs: 0 };
    const ended = this.#ended.splice(0);
    let taken: ItemRecord[] = [];
    try {
      const take = stopped.aborted ? 0 : places.length;
      taken = await turn(sql, this.#job, { ended, take, poison: POISON });
    } catch (thrown) {
      this.#ended.unshift(...ended);
      throw thrown;
    } finally {
      for (const place of places.slice(taken.length)) place.unused();
    }
    for (const [at, item] of taken.entries()) this.#begin(this.#seal.item(item), places[at]!);
    // If there were more reservations than requests, all have begun.
    return taken.length < places.length ? 0 : againMs;
  }

  /** Control loops take precedence over low-priority work. */
  async #letOthersFirst(): Promise<void> {
    const { lost, stopped } = this.#watch;
    while (this.#deps.crowded() && !stopped.aborted && !lost.aborted) await sleep(CROWDED_MS, lost).catch(() => {});
  }

  #begin(item: ItemRecord, place: BatchPlace): void {
    const running = this.#answer(item, place)
      .then((end) => end && this.#seal.end(end))
      // Any failure ends only its own request, and never leaves it running.
      .catch((): ItemEnd => this.#seal.end({ index: item.index, state: "failed", error: BROKEN, costMicro: 0 }))
      .then((end) => {
        this.#running.delete(running);
        if (end) this.#ended.push(end);
      });
    this.#running.add(running);
  }

  /** Undefined if the worker lost the job: its new worker repeats the request and gets the same response. */
  async #answer({ index, request }: ItemRecord, place: BatchPlace): Promise<ItemEnd | undefined> {
    const { answer } = this.#deps;
    const { id, keyId, request: about } = this.#job;
    const { contract } = about as BatchRequest;
    const { lost } = this.#watch;
    let tried = 0;
    for (let again = false; ; again = true) {
      const call = {
        contract,
        request: request ?? {},
        requestId: newId("req"),
        idempotencyKey: `${id}.${index}`,
        batchId: id,
        signal: lost,
      };
      // A further attempt counts as a further call in the key's limits.
      const turn = again ? await this.#placeAgain() : place;
      if (turn === undefined) return undefined;
      const answered = await answer(keyId, call, turn);
      if (lost.aborted) return undefined;
      if (answered.kind === "answer") {
        const { statusCode, body, costMicro } = answered;
        return { index, state: "completed", response: { status_code: statusCode, body }, costMicro };
      }
      // A key throttled for failed calls waits as long as required: this request may be valid.
      const patienceMs = answered.againMs ?? (answered.retryable ? PATIENCE_MS[tried++] : undefined);
      if (patienceMs === undefined) return { index, state: "failed", error: answered.body, costMicro: 0 };
      await sleep(patienceMs, lost).catch(() => {});
      if (lost.aborted) return undefined;
    }
  }

  /** Reserves one more request in the key's limits, waiting if needed; undefined if the worker lost the job. */
  async #placeAgain(): Promise<BatchPlace | undefined> {
    const { lost } = this.#watch;
    while (!lost.aborted) {
      // The database may have caused the previous failure.
      const { places, againMs } = await this.#deps.places(this.#job.keyId, 1).catch(() => NO_PLACES);
      if (places[0] !== undefined) return places[0];
      await sleep(againMs, lost).catch(() => {});
    }
    return undefined;
  }

  async #close(): Promise<void> {
    const { stopped } = this.#watch;
    await tx(this.#deps.sql, async (tx) => {
      await advance(tx, this.#job, "finalizing");
      if (stopped.aborted) await dropRest(tx, this.#job);
    });
    await tx(this.#deps.sql, async (tx) => {
      const status = await this.#endOf(tx);
      await advance(tx, this.#job, status);
      const { id, orgId } = this.#job;
      await emit(tx, orgId, EVENTS[status](id), await workspaceOf(tx, id));
    });
  }

  async #endOf(tx: Tx): Promise<keyof typeof EVENTS> {
    const { cancelled, dropped, ran } = await outcomeOf(tx, this.#job.id);
    // A cancellation that arrived after the last item had no effect.
    if (dropped) return cancelled ? "cancelled" : "expired";
    return ran ? "completed" : "failed";
  }
}

const EVENTS = {
  completed: (jobId: string): EventData => ({ case: "batchCompleted", value: { jobId } }),
  failed: (jobId: string): EventData => ({ case: "batchFailed", value: { jobId } }),
  cancelled: (jobId: string): EventData => ({ case: "batchCancelled", value: { jobId } }),
  expired: (jobId: string): EventData => ({ case: "batchExpired", value: { jobId } }),
} as const;

const EXPORT_POISON = { code: "internal_error", message: "writing this file ended its worker each time" };

/** The export worker. */
export const exportWork =
  ({ sql }: { sql: Sql }): JobWork =>
  async (job, { lost, stopped }: JobWatch) => {
    await tx(sql, (tx) => advance(tx, job, "in_progress"));
    while (!stopped.aborted) {
      lost.throwIfAborted();
      const [item] = await turn(sql, job, { take: 1, poison: EXPORT_POISON });
      if (item === undefined) break;
      while (!stopped.aborted && (await writePart(sql, job, item.index))) lost.throwIfAborted();
      if (stopped.aborted) break;
      const records = await countLines(sql, job.id, item.index);
      await turn(sql, job, { ended: [{ index: item.index, state: "completed", response: { records }, costMicro: 0 }] });
    }
    await tx(sql, async (tx) => {
      if (stopped.aborted) await dropRest(tx, job);
      await advance(tx, job, stopped.aborted ? "expired" : "completed");
    });
  };
