/** Cold starts as they are paid for: once among all replicas, by the attempt that causes one. */
import { inTime } from "../clock.ts";
import { newId } from "../ids.ts";
import type { HealthBoard, PlanStep, Wake } from "../routing/index.ts";
import type { Queryable } from "../store/database/tx.ts";
import { claimWake, giveWakeBack, keepAwake } from "../store/replicas/awake-offerings.ts";

/** A claim that is not answered in this time is not paid for: an answer does not wait longer for the database. */
const CLAIM_MS = 2_000;

/** How long a statement waits for its turn, and how long it may take then: one that is never answered holds up none after it. */
const STATEMENT_MS = 2_000;

/** The cold starts that calls of this replica cause. */
export class Wakes {
  readonly #sql: Queryable;
  readonly #health: HealthBoard;
  /** By offering: the last statement, which the next one waits for. */
  readonly #last = new Map<string, Promise<unknown>>();

  constructor(sql: Queryable, health: HealthBoard) {
    this.#sql = sql;
    this.#health = health;
  }

  /** The cold start that an attempt causes which was just admitted; undefined where another one wakes its offering, or it is awake. */
  begin({ offering, wakeUpMicro }: PlanStep, at: number): Wake | undefined {
    const { id: offeringId, scaledownS = 0, timeoutMs, coldTimeoutMs = timeoutMs } = offering;
    if (!this.#health.wakes(offeringId, at)) return undefined;
    const sleepsOn = (): void => this.#health.sleepsOn(offeringId);
    // Nothing is paid: by the list, or because the caller's own key at the provider is.
    if (wakeUpMicro === 0) return { pays: Promise.resolve(false), answered: () => {}, failed: sleepsOn };
    const warmMs = scaledownS * 1000;
    const waker = newId("req");
    const claim = this.#inTurn(offeringId, () =>
      claimWake(this.#sql, { offeringId, waker, holdMs: coldTimeoutMs + warmMs }),
    );
    const tell = (statement: () => Promise<void>): void => void this.#inTurn(offeringId, statement).catch(() => {});
    return {
      pays: inTime(claim, { ms: CLAIM_MS, late }).catch(() => false),
      answered: () => tell(() => keepAwake(this.#sql, { offeringId, waker, warmMs })),
      failed: () => {
        sleepsOn();
        tell(() => giveWakeBack(this.#sql, { offeringId, waker }));
      },
    };
  }

  /** Statements about one offering reach the database in their order. One whose turn does not come in time is not sent, and rejects. */
  #inTurn<T>(offeringId: string, statement: () => Promise<T>): Promise<T> {
    const before = this.#last.get(offeringId) ?? Promise.resolve();
    const said = inTime(before.then(done, done), { ms: STATEMENT_MS, late }).then(() =>
      inTime(statement(), { ms: STATEMENT_MS, late }),
    );
    const forget = (): void => {
      if (this.#last.get(offeringId) === said) this.#last.delete(offeringId);
    };
    this.#last.set(offeringId, said);
    said.then(forget, forget);
    return said;
  }
}

const done = (): void => {};
const late = (): Error => new Error("the database did not answer in time");
