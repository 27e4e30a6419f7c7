/** A batch: each request runs once, is billed once, and its end is written down with those that ended with it. */
import { newId, sleep } from "../ambient.ts";
import { emit, type Happening } from "../services/emit.ts";
import type { Signal } from "../signal.ts";
import { type Sql, type Tx, tx } from "../store/database/tx.ts";
import { type ItemEnd, type ItemRecord, MOST_TRIES, outcomeOf, turn } from "../store/jobs/job-items.ts";
import { advance, dropRest, type HeldJob, workspaceOf } from "../store/jobs/jobs.ts";
import type { JobWatch, JobWork } from "./worker.ts";

/** What a batch's own record says. */
export interface BatchRequest {
  contract: "act" | "predict";
  metadata?: object | undefined;
}

/** One request of a batch, to be answered as its own call would be. */
export interface BatchCall {
  readonly contract: "act" | "predict";
  readonly request: object;
  readonly requestId: string;
  readonly idempotencyKey: string;
  readonly signal: Signal;
}

/** How it was. What is `retryable` passes by itself. */
export type BatchAnswer =
  | { readonly kind: "answer"; readonly statusCode: number; readonly body: object; readonly costMicro: number }
  | { readonly kind: "refusal"; readonly body: object; readonly retryable: boolean };

/** What batches need of the house. */
export interface BatchParts {
  readonly sql: Sql;
  answer(keyId: string, call: BatchCall): Promise<BatchAnswer>;
  /** Whether callers who wait leave no room for work that can wait. */
  crowded(): boolean;
}

/** Requests of one batch that run at one time: each waits for its claim and for its charge to be durable, which others may share. */
const AT_ONCE = 64;
const GATHER_MS = 5;
const CROWDED_MS = 20;
/** Waits between the tries of a request whose refusal passes by itself. */
const PATIENCE_MS = [200, 1_000, 5_000, 15_000, 30_000];

const POISON = {
  error: {
    code: "internal_error",
    type: "server_error",
    status: 500,
    message: `this request was begun ${MOST_TRIES} times and ended its worker each time`,
    retryable: false,
  },
};

/** How batches are worked on. */
export const batchWork =
  (parts: BatchParts): JobWork =>
  (job, watch) =>
    new Run(parts, job, watch).finish();

class Run {
  readonly #parts: BatchParts;
  readonly #job: HeldJob;
  readonly #watch: JobWatch;
  readonly #running = new Set<Promise<void>>();
  #ended: ItemEnd[] = [];

  constructor(parts: BatchParts, job: HeldJob, watch: JobWatch) {
    this.#parts = parts;
    this.#job = job;
    this.#watch = watch;
  }

  async finish(): Promise<void> {
    const { sql } = this.#parts;
    await tx(sql, (tx) => advance(tx, this.#job, "in_progress"));
    for (;;) {
      const taken = await this.#writeAndTake();
      for (const item of taken) this.#begin(item);
      if (this.#running.size === 0 && this.#ended.length === 0) break;
      if (this.#ended.length === 0) await Promise.race(this.#running);
      // What ends at nearly the same time is written down together.
      if (this.#running.size > 0) await sleep(GATHER_MS);
    }
    await this.#close();
  }

  /** What ended is written down and what comes next is taken, in one statement; what a lost worker did is not kept. */
  async #writeAndTake(): Promise<ItemRecord[]> {
    const { lost, stopped } = this.#watch;
    lost.throwIfAborted();
    const free = AT_ONCE - this.#running.size;
    if (free > 0 && !stopped.aborted) await this.#letOthersFirst();
    const ended = this.#ended.splice(0);
    try {
      return await turn(this.#parts.sql, this.#job, { ended, take: stopped.aborted ? 0 : free, poison: POISON });
    } catch (thrown) {
      this.#ended.unshift(...ended);
      throw thrown;
    }
  }

  /** Robots in their loops go before work that can wait. */
  async #letOthersFirst(): Promise<void> {
    const { lost, stopped } = this.#watch;
    while (this.#parts.crowded() && !stopped.aborted && !lost.aborted) await sleep(CROWDED_MS, lost).catch(() => {});
  }

  #begin(item: ItemRecord): void {
    const running = this.#answer(item).then((end) => {
      this.#running.delete(running);
      if (end) this.#ended.push(end);
    });
    this.#running.add(running);
  }

  /** Undefined when the worker lost the job meanwhile: whoever has it now runs the request again, and is given the same answer. */
  async #answer({ index, request }: ItemRecord): Promise<ItemEnd | undefined> {
    const { answer } = this.#parts;
    const { id, keyId, request: about } = this.#job;
    const { contract } = about as BatchRequest;
    const { lost } = this.#watch;
    for (const [tried, patienceMs] of [...PATIENCE_MS, 0].entries()) {
      const call = {
        contract,
        request: request ?? {},
        requestId: newId("req"),
        idempotencyKey: `${id}.${index}`,
        signal: lost,
      };
      const answered = await answer(keyId, call);
      if (lost.aborted) return undefined;
      if (answered.kind === "answer") {
        const { statusCode, body, costMicro } = answered;
        return { index, state: "completed", response: { status_code: statusCode, body }, costMicro };
      }
      if (answered.retryable && tried < PATIENCE_MS.length) {
        await sleep(patienceMs, lost).catch(() => {});
        if (lost.aborted) return undefined;
      } else return { index, state: "failed", error: answered.body, costMicro: 0 };
    }
    return undefined;
  }

  async #close(): Promise<void> {
    const { stopped } = this.#watch;
    await tx(this.#parts.sql, async (tx) => {
      await advance(tx, this.#job, "finalizing");
      if (stopped.aborted) await dropRest(tx, this.#job);
    });
    await tx(this.#parts.sql, async (tx) => {
      const status = await this.#endOf(tx);
      await advance(tx, this.#job, status);
      const { id, orgId } = this.#job;
      await emit(tx, orgId, EVENTS[status](id), await workspaceOf(tx, id));
    });
  }

  async #endOf(tx: Tx): Promise<keyof typeof EVENTS> {
    const { cancelled, dropped, ran } = await outcomeOf(tx, this.#job.id);
    if (cancelled) return "cancelled";
    if (dropped) return "expired";
    return ran ? "completed" : "failed";
  }
}

const EVENTS = {
  completed: (jobId: string): Happening => ({ case: "batchCompleted", value: { jobId } }),
  failed: (jobId: string): Happening => ({ case: "batchFailed", value: { jobId } }),
  cancelled: (jobId: string): Happening => ({ case: "batchCancelled", value: { jobId } }),
  expired: (jobId: string): Happening => ({ case: "batchExpired", value: { jobId } }),
} as const;
