/** Payers whose payments are told of twice, late, out of order, to gateways that die: each is credited once all the same. */
import { setTimeout as rest } from "node:timers/promises";
import { type Answer, callRest } from "../../../support/app.ts";
import type { Pair } from "../../../support/pair.ts";
import type { StripeServer } from "../../../support/stripe.ts";

const AMOUNT = { usd: 5, micro: 5_000_000 };
const REFUND = { cents: 100, micro: 1_000_000 };
const PATIENCE_MS = 60_000;

/** Payers of one organisation at both gateways of a pair. */
export class Payers {
  /** Payments that were paid, and what went back of them, in micro-dollars. */
  paid = 0;
  refunded = 0;
  /** What should not have happened, in words. */
  readonly faults: string[] = [];
  readonly #pair: Pair;
  readonly #stripe: StripeServer;
  readonly #key: string;
  readonly #random: () => number;
  #stopped = false;
  #running: Promise<unknown> = Promise.resolve();

  constructor(pair: Pair, stripe: StripeServer, key: string, random: () => number) {
    this.#pair = pair;
    this.#stripe = stripe;
    this.#key = key;
    this.#random = random;
  }

  /** What the balance was given by them. */
  get netMicro(): number {
    return this.paid - this.refunded;
  }

  /** Begins to pay, `count` payers at once. */
  start(count: number): void {
    this.#running = Promise.all(Array.from({ length: count }, (_, number) => this.#pay(number)));
  }

  /** Begins no new payment, and brings the last ones to their end. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
  }

  async #pay(number: number): Promise<void> {
    for (let i = 0; !this.#stopped; i++) {
      const body = { amount_usd: AMOUNT.usd, idempotency_key: `payer-${number}-${i}` };
      const opened = await this.#insist("/v1/billing/topup", body, 201);
      if (!opened) return;
      const id: string = opened.body.payment_id;
      this.paid += AMOUNT.micro;
      const events = [this.#stripe.pay(id)];
      if (this.#random() < 0.3) {
        events.push(this.#stripe.refund(id, REFUND.cents).event);
        this.refunded += REFUND.micro;
      }
      // Each message comes up to three times, in any order, and may meet a gateway that dies; the payer asks as well.
      const deliveries = events.flatMap((event) => [event, event, event]).filter(() => this.#random() < 0.7);
      deliveries.sort(() => this.#random() - 0.5);
      const asking = this.#random() < 0.5 ? this.#call(`/v1/billing/payments/${id}/reconcile`, {}) : undefined;
      await Promise.all([...deliveries.map((event) => this.#deliver(event)), asking]);
      const last = await this.#insist(`/v1/billing/payments/${id}/reconcile`, {}, 200);
      if (last && last.body.status !== "succeeded") this.faults.push(`${id} was paid and is ${last.body.status}`);
      const again = await this.#insist("/v1/billing/topup", body, 201);
      if (again && again.body.payment_id !== id) this.faults.push(`${id} was asked for once and made twice`);
      await rest(this.#random() * 500);
    }
  }

  #url(): string | undefined {
    return this.#pair.urlOf(this.#random() < 0.5 ? 0 : 1) ?? this.#pair.urlOf(0) ?? this.#pair.urlOf(1);
  }

  async #deliver(event: string): Promise<void> {
    const url = this.#url();
    if (url !== undefined) await this.#stripe.deliver(url, event).catch(() => undefined);
  }

  async #call(path: string, body: object): Promise<Answer | undefined> {
    const url = this.#url();
    const signal = AbortSignal.timeout(10_000);
    return url === undefined ? undefined : callRest(url, path, body, { key: this.#key, signal }).catch(() => undefined);
  }

  /** Asks until it's answered as it should be. */
  async #insist(path: string, body: object, status: number): Promise<Answer | undefined> {
    const end = performance.now() + PATIENCE_MS;
    let answer: Answer | undefined;
    while (performance.now() < end) {
      answer = await this.#call(path, body);
      if (answer?.status === status) return answer;
      if (answer !== undefined && answer.status < 500) break;
      await rest(50);
    }
    this.faults.push(`${path} was answered ${answer?.status} ${answer?.text}`);
    return undefined;
  }
}
