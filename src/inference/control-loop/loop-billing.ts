/**
 * Billing of a control loop. Credit for many chunks is reserved ahead in pages of about one second each; the next page is opened while the
 * last one is valid, so that no chunk waits for the ledger. The cost of each chunk is added in memory.
 */
import type { Route } from "../../../gen/limber/v1/route_pb.ts";
import { type Call, keyOf } from "../../call.ts";
import { steadyNow } from "../../clock.ts";
import { factsOf, Reason, Refusal, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { type Plan, sameWay } from "../../routing/index.ts";
import {
  CallBilling,
  type CallFacts,
  type Charge,
  dearestOf,
  type Leaser,
  narrowed,
  withUnaffordable,
} from "../call-billing.ts";
import type { StretchCounts } from "./loop-registry.ts";

/**
 * Age at which a page is settled, so that little is uncertain if the gateway dies. All loops settle at the same moments and share commits.
 */
const BILL_MS = 1_000;
/** The next page is opened when this share of the last one is used, in time or in credit. */
const AHEAD = 0.8;
/**
 * Milliseconds for which an expired page stays usable while the next one is opened: as long as there is credit, no step waits for the
 * ledger.
 */
const LATE_MS = 500;
/** Chunks in the first page, and the maximum in any page. */
const CHUNKS = { first: 8, most: 4_096, growth: 4 } as const;
/** Milliseconds after which an idle loop returns its credit. */
const IDLE_MS = 5_000;

/** One page: a bill that covers many chunks. */
interface HoldWindow {
  readonly bill: CallBilling;
  readonly chunks: number;
  readonly openedAt: number;
  readonly endsAt: number;
  /** Remaining credit, in micro-dollars. */
  leftMicro: number;
  used: number;
  usedAt: number;
  durable: boolean;
  /** Its charge; undefined if there is none. A page belongs to one offering. */
  owed: Owed | undefined;
  route: Route | undefined;
}

/** Whether a chunk can be charged to a page: it has the same offering, and the page has enough credit. */
function takes({ owed, used, leftMicro }: HoldWindow, { step, costMicro, hedgeMicro = 0 }: Charge): boolean {
  if (owed !== undefined && !sameWay(owed.step, step)) return false;
  // Of several calls in flight, one may cost more than any that the page was opened for.
  return used === 0 || leftMicro >= costMicro + hedgeMicro;
}

/** An accumulating charge. */
type Owed = { -readonly [K in keyof Charge]: Charge[K] };

/** Credit and charges of one loop. */
export class LoopBilling {
  readonly #leaser: Leaser;
  readonly #call: Call;
  readonly #asked: CallFacts;
  /** Provides what is recorded beside charges. */
  readonly #stretch: StretchCounts | undefined;
  #page: HoldWindow | undefined;
  #next: Promise<HoldWindow | undefined> | undefined;
  #ahead: HoldWindow | undefined;
  #opened = 0;
  #chunks: number = CHUNKS.first;
  #over = false;
  readonly #narrow: (plan: Plan, less: Plan) => void;

  /** `narrow` receives the remaining plan if some steps are too expensive. */
  constructor(
    leaser: Leaser,
    call: Call,
    { stretch, ...asked }: CallFacts & { stretch?: StretchCounts },
    narrow: (plan: Plan, less: Plan) => void,
  ) {
    this.#narrow = narrow;
    this.#leaser = leaser;
    this.#call = call;
    this.#asked = asked;
    this.#stretch = stretch;
  }

  /** Whether the most expensive chunk of a plan is covered now. The next page is opened before it no longer is. */
  tryCover(plan: Plan, at: number): boolean {
    if (!this.#has(plan.ceilingMicro, at)) return false;
    this.#lookAhead(plan, at);
    return true;
  }

  /**
   * Ensures that the most expensive chunk of a plan is covered. Rejects with 402 if there is no credit for a single chunk, and with
   * `store_unavailable` if the ledger is down.
   */
  async cover(plan: Plan): Promise<void> {
    if (!this.tryCover(plan, steadyNow())) await this.#renew(plan);
  }

  /** Ensures that so many of the most expensive chunks of a plan are covered; returns false if that needs the ledger. */
  covers(plan: Plan, chunks: number): boolean {
    return this.#has(plan.ceilingMicro * chunks, steadyNow());
  }

  /** Whether the page has this much credit left. If not, or if it is too old, switches to the next page if that is open. */
  #has(wantedMicro: number, at: number): boolean {
    const page = this.#page;
    const isGood = page !== undefined && page.leftMicro >= wantedMicro;
    if (isGood && at < page.endsAt) return true;
    // Running calls are charged to the page that is open when they end.
    if (!this.#ahead || this.#ahead.leftMicro < wantedMicro) return isGood && at < page.endsAt + LATE_MS;
    this.#turn(this.#ahead);
    return true;
  }

  /** Whether a chunk of this step can be charged and sent: its intent is durable, on a page of its own offering. */
  isReady(charge: Charge): boolean {
    const page = this.#page;
    return page?.durable === true && takes(page, charge);
  }

  /** Resolves when a chunk of this step can be charged and sent. */
  async ready(charge: Charge, plan: Plan): Promise<void> {
    while (!this.isReady(charge)) {
      const page = this.#page;
      if (page !== undefined && takes(page, charge)) await this.#made(page);
      else {
        // The credit that it returns covers the next one.
        if (page !== undefined) this.#close(page);
        await this.#renew(plan);
      }
    }
  }

  /** The price of so many units for the loop's key. */
  priceOf(units: number, nanoPerUnit: number, mostMicro: number): { micro: number; restNano: number } {
    return this.#leaser.remainders.charge(keyOf(this.#call).keyId, units, nanoPerUnit, mostMicro);
  }

  /** Charges a chunk that is sent at `at`, after `ready`. */
  add(
    { step, units, costMicro, wakeUpMicro, hedgeMicro, losers, gpuSeconds = 0, restNano }: Charge,
    route: Route | undefined,
    at: number,
  ): void {
    const page = this.#page;
    if (!page) throw new Error("a chunk was charged before its page was ready");
    page.owed ??= { step, units: 0, costMicro: 0, wakeUpMicro: 0, hedgeMicro: undefined };
    const { owed } = page;
    owed.units += units;
    owed.costMicro += costMicro;
    owed.wakeUpMicro += wakeUpMicro;
    owed.gpuSeconds = (owed.gpuSeconds ?? 0) + gpuSeconds;
    if (hedgeMicro !== undefined) owed.hedgeMicro = (owed.hedgeMicro ?? 0) + hedgeMicro;
    if (losers) owed.losers = [...(owed.losers ?? []), ...losers];
    page.route = route ?? page.route;
    page.leftMicro -= costMicro + (hedgeMicro ?? 0);
    this.#leaser.remainders.keep(keyOf(this.#call).keyId, restNano);
    page.used += 1;
    page.usedAt = at;
  }

  /** Settles old pages and returns unused credit. Call it about once a second while the loop is idle. */
  tidy(): void {
    const page = this.#page;
    if (!page) return;
    const now = steadyNow();
    const idle = now - Math.max(page.usedAt, page.openedAt);
    if (idle >= (page.owed ? BILL_MS : IDLE_MS)) this.end(undefined);
  }

  /** Settles everything. `refusal` is the reason for a page without charges. Billing can continue afterwards. */
  end(refusal: Refusal | undefined): void {
    const unused = refusal ?? refuse(Reason.CLIENT_CLOSED_REQUEST, "the control loop was idle");
    for (const page of [this.#page, this.#ahead]) if (page) this.#close(page, unused);
    this.#page = undefined;
    this.#ahead = undefined;
  }

  /** Ends billing: pages that are still being opened are closed again. */
  close(refusal: Refusal | undefined): void {
    this.#over = true;
    this.end(refusal);
  }

  #lookAhead(plan: Plan, at: number): void {
    const page = this.#page;
    if (!page || this.#next || this.#ahead) return;
    const used = 1 - page.leftMicro / (page.chunks * plan.ceilingMicro || 1);
    const isNew = used < AHEAD && at < page.endsAt - (1 - AHEAD) * BILL_MS;
    if (page.used === 0 || isNew) return;
    this.#next = this.#open(plan, this.#size(page)).then(
      async (next) => {
        await this.#made(next);
        this.#next = undefined;
        if (this.#over) this.#close(next);
        else this.#ahead = next;
        return next;
      },
      () => {
        // Nothing is lost: the credit check is repeated when credit is needed.
        this.#next = undefined;
        return undefined;
      },
    );
    this.#next.catch(() => {
      this.#next = undefined;
    });
  }

  async #renew(plan: Plan): Promise<void> {
    const last = this.#page;
    const chunks = last ? this.#size(last) : this.#chunks;
    // The next page may need, or wait for, the credit that this one returns.
    if (last) this.#close(last);
    if (this.#next) await this.#next.catch(() => undefined);
    if (this.#ahead && this.#ahead.leftMicro >= plan.ceilingMicro) return this.#turn(this.#ahead);
    const page = await this.#open(plan, chunks);
    if (!this.#over) return this.#turn(page);
    this.#close(page);
    throw refuse(Reason.CLIENT_CLOSED_REQUEST, "the control loop has ended");
  }

  #turn(page: HoldWindow): void {
    if (this.#page && this.#page !== page) this.#close(this.#page);
    if (this.#ahead === page) this.#ahead = undefined;
    this.#page = page;
  }

  /** Estimates the chunks of the next second from the use of the last page. */
  #size(page: HoldWindow): number {
    const perMs = page.used / Math.max(1, steadyNow() - page.openedAt);
    const wanted = Math.ceil(perMs * BILL_MS * 1.25);
    this.#chunks = Math.max(CHUNKS.first, Math.min(wanted, this.#chunks * CHUNKS.growth, CHUNKS.most));
    return this.#chunks;
  }

  /**
   * Opens a page for `chunks` chunks, or for as many as there is credit for. If there is none for one, keeps only the steps that the caller
   * can pay for.
   */
  async #open(whole: Plan, chunks: number): Promise<HoldWindow> {
    let plan = whole;
    for (let count = chunks; ; ) {
      try {
        return await this.#openFor(plan, count);
      } catch (thrown) {
        if (!(thrown instanceof Refusal) || factsOf(thrown.reason).status !== 402) throw thrown;
        if (count === 1) {
          const less = narrowed(plan, thrown);
          if (!less) throw withUnaffordable(thrown, whole);
          this.#narrow(plan, less);
          plan = less;
          continue;
        }
        const affordable = Math.floor((thrown.details.maxAffordable?.horizon ?? 0) / dearestOf(plan).units);
        count = Math.max(1, Math.min(count - 1, affordable));
      }
    }
  }

  async #openFor(plan: Plan, chunks: number): Promise<HoldWindow> {
    const steps = plan.steps.map((step) => ({ ...step, units: step.units * chunks }));
    const whole = { ...plan, ceilingMicro: plan.ceilingMicro * chunks, steps };
    const requestId = this.#opened++ === 0 ? this.#call.requestId : newId("req");
    const bill = await CallBilling.open(this.#leaser, whole, { ...this.#call, requestId }, this.#asked);
    const now = steadyNow();
    const page: HoldWindow = {
      bill,
      chunks,
      openedAt: now,
      endsAt: Math.ceil(now / BILL_MS + 0.5) * BILL_MS,
      leftMicro: whole.ceilingMicro,
      used: 0,
      usedAt: now,
      durable: false,
      owed: undefined,
      route: undefined,
    };
    this.#made(page).catch(() => {});
    return page;
  }

  /** Resolves when a page's intent is durable. A page whose intent cannot be stored is dropped. */
  async #made(page: HoldWindow): Promise<void> {
    try {
      await page.bill.durable;
      page.durable = true;
    } catch (thrown) {
      if (this.#page === page) this.#page = undefined;
      if (this.#ahead === page) this.#ahead = undefined;
      this.#close(page);
      throw thrown;
    }
  }

  #close(page: HoldWindow, unused?: Refusal): void {
    if (this.#page === page) this.#page = undefined;
    page.bill.tell(this.#stretch?.take());
    if (page.owed) page.bill.close(page.owed, page.route);
    else void page.bill.void(unused ?? refuse(Reason.CLIENT_CLOSED_REQUEST, "nothing was charged"));
  }
}
