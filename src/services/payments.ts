/** Payments: opens them, reads their outcome from the processor, and records it with its event. */

import { create } from "@bufbuild/protobuf";
import {
  type AutoTopUp,
  AutoTopUpSchema,
  type SetUpPaymentMethodRequest,
  type UpdateAutoTopUpRequest,
} from "../../gen/limber/v1/auto_topup_pb.ts";
import type { BillingService } from "../../gen/limber/v1/billing_service_pb.ts";
import {
  type ForeignReversal,
  MICRO_PER_CENT,
  type Processor,
  type UnclearCheckout,
  type Word,
} from "../billing/payments.ts";
import { fromUsd, toUsd } from "../billing/price.ts";
import { byCall, type Implementation, keyOf } from "../call.ts";
import { nowSeconds } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import { Polling } from "../events/polling.ts";
import { newId } from "../ids.ts";
import { audit } from "../store/account/audit.ts";
import {
  type AutoTopUpRecord,
  beginDue,
  dropMethod,
  findAutoTopUp,
  hurryToForget,
  lockAutoTopUp,
  noteForgotten,
  noteSetUp,
  orgOfSetUp,
  saveAutoTopUp,
  storeMethod,
  type ToForget,
  takeCharges,
  takeToForget,
} from "../store/billing/auto-topup.ts";
import { assertSameCall } from "../store/billing/idempotency.ts";
import {
  addPayment,
  type ChargeFact,
  type CheckoutFact,
  conclude,
  findPayment,
  isPayment,
  noteCheckout,
  type PaymentRecord,
  paymentOfIntent,
  type ReversalFact,
  reverse,
  takeForgotten,
} from "../store/billing/payments.ts";
import type { Notifications } from "../store/database/notifications.ts";
import { type Sql, tx } from "../store/database/tx.ts";

/** Dependencies of payments. */
interface PaymentDeps {
  sql: Sql;
  processor: Processor;
  /** Returns the organization's idle credit leases of this replica. */
  leaser: { giveBack(orgId: string): Promise<void> };
  warn(text: string): void;
  /** Reports money that an operator must resolve because the gateway cannot account for it. */
  alert(text: string): void;
}

/** The actor for the audit log. */
interface By {
  actor: string;
  requestId?: string | undefined;
}

/** A payment to open. */
interface PaymentRequest extends By {
  orgId: string;
  keyId: string;
  /** The calling key and its ancestors. */
  line: readonly string[];
  amountUsd: number;
  successUrl: string;
  cancelUrl: string;
  /** The return addresses that the caller gave. Otherwise this replica's address is used; the first replica to answer decides it. */
  named: { successUrl: string | undefined; cancelUrl: string | undefined };
  idempotencyKey: string | undefined;
  /** Called if the idempotency key already opened this payment. */
  known(): void;
}

/** How long a checkout can be paid. Shorter than the processor's 24 h memory of idempotency keys. */
const LIFE_S = 23 * 3600;

/**
 * Opens a checkout, or returns the one that the same idempotency key opened. Refuses an amount with fractional cents with
 * `validation_failed`, and an idempotency key that was used for a different request with `idempotency_conflict`.
 */
export async function openCheckout({ sql, processor }: PaymentDeps, wish: PaymentRequest): Promise<PaymentRecord> {
  const { orgId, keyId, successUrl, cancelUrl, idempotencyKey, actor, requestId } = wish;
  const amountMicro = fromUsd(wish.amountUsd);
  if (amountMicro % MICRO_PER_CENT !== 0) throw violation("amount_usd", "must be in whole cents", "multiple_of");
  const expiresAt = nowSeconds() + LIFE_S;
  const wanted = { id: newId("pay"), orgId, keyId, amountMicro, successUrl, cancelUrl, idempotencyKey, expiresAt };
  const asked = { amountMicro, ...wish.named };
  const payment = await tx(sql, async (tx) => {
    const { payment, by, isNew } = await addPayment(tx, wanted);
    const details = { amount_usd: wish.amountUsd };
    const same = (["amountMicro", "successUrl", "cancelUrl"] as const).every(
      (field) => asked[field] === undefined || asked[field] === payment[field],
    );
    assertSameCall({ keyId: by, same }, wish.line);
    if (!isNew) wish.known();
    if (isNew) await audit(tx, { actor, requestId, orgId, action: "payment.requested", subject: payment.id, details });
    return payment;
  });
  if (payment.sessionId !== undefined || payment.status !== "pending") return payment;
  // The payment id is the idempotency key, so the processor returns an existing checkout.
  const checkout = await processor.open({ ...payment, paymentId: payment.id });
  await noteCheckout(sql, payment.id, checkout);
  return { ...payment, sessionId: checkout.sessionId, checkoutUrl: checkout.url };
}

/** Reads the outcome of a payment from the processor and applies it. */
export async function reconcile(deps: PaymentDeps, payment: PaymentRecord, by: By): Promise<void> {
  const { id: paymentId, sessionId, amountMicro, expiresAt } = payment;
  if (payment.automatic) return charge(deps, payment, by);
  if (sessionId !== undefined) return believe(deps, await deps.processor.ask(sessionId), by);
  // The checkout's address was never sent to a payer.
  if (nowSeconds() <= expiresAt) return;
  await concluded(
    deps,
    { kind: "checkout", paymentId, sessionId: "", intentId: undefined, amountMicro, status: "expired" },
    by,
  );
}

/**
 * Charges an automatic payment, or reads the outcome of an earlier charge, and applies it. The payment id is the idempotency key, so the
 * processor returns an existing charge. Nothing is charged once the processor may have dropped that key.
 */
async function charge(deps: PaymentDeps, payment: PaymentRecord, by: By): Promise<void> {
  const { id: paymentId, amountMicro, customerId = "", methodId = "", intentId, expiresAt } = payment;
  const { charges } = deps.processor;
  const wish = { ...payment, paymentId, customerId, methodId };
  const fact =
    intentId !== undefined
      ? await charges.askCharge(intentId)
      : nowSeconds() < expiresAt
        ? await charges.charge(wish)
        : ((await charges.findCharge(wish)) ?? nothingOf({ paymentId, customerId, amountMicro }));
  if (fact) await believe(deps, [fact], by);
}

const nothingOf = (of: Pick<ChargeFact, "paymentId" | "customerId" | "amountMicro">): ChargeFact => ({
  ...of,
  kind: "charge",
  intentId: undefined,
  status: "expired",
  why: undefined,
});

/** Applies messages of the processor. Idempotent, in any order. */
export async function believe(deps: PaymentDeps, words: readonly Word[], by: By): Promise<void> {
  for (const word of words) {
    if (word.kind === "checkout" || word.kind === "charge") await concluded(deps, word, by);
    else if (word.kind === "unclear") await clarify(deps, word, by);
    else if (word.kind === "stored") await learnStored(deps, word.sessionId, by);
    else if (word.kind === "reversal") await reversed(deps, word, by);
    else if (word.kind === "charged") await learnCharge(deps, word.chargeId, by);
    else await learn(deps, word.intentId, by);
  }
}

/** Queries a checkout in another currency: the response has the API version that the gateway uses; the webhook has its endpoint's. */
async function clarify(deps: PaymentDeps, { paymentId, sessionId }: UnclearCheckout, by: By): Promise<void> {
  if (!(await isPayment(deps.sql, paymentId))) return;
  const words = await deps.processor.ask(sessionId);
  for (const word of words) if (word.kind === "unclear") await unclear(deps, word);
  await believe(
    deps,
    words.filter((word) => word.kind !== "unclear"),
    by,
  );
}

async function unclear({ sql, alert }: PaymentDeps, { paymentId, sessionId, currency, isPaid }: UnclearCheckout) {
  if (!isPaid || !(await isPayment(sql, paymentId))) return;
  alert(
    `payment ${paymentId} was paid in ${wordOf(currency)} and nothing was credited; check the checkout ${wordOf(sessionId)} and add credit or refund it`,
  );
}

/** A value of the processor, made safe for a log line. */
const wordOf = (text: string): string => text.replaceAll(/[^\w-]/g, "").slice(0, 80);

/** Queries the payment with the intent `intentId`, for a message that arrived out of order or lacks fields. */
async function learn(deps: PaymentDeps, intentId: string, by: By): Promise<boolean> {
  const { processor } = deps;
  const sessionId = await processor.find(intentId);
  const words = sessionId === undefined ? await wordsOfCharge(processor, intentId) : await processor.ask(sessionId);
  for (const word of words)
    if (word.kind === "unclear") await unclear(deps, word);
    else if (word.kind !== "reversal") await concluded(deps, word, by);
  if ((await paymentOfIntent(deps.sql, intentId)) === undefined) return false;
  for (const word of words) if (word.kind === "reversal") await reversed(deps, word, by);
  return true;
}

/** Queries the payment of a charge. Charges without a payment intent are another shop's. */
async function learnCharge(deps: PaymentDeps, chargeId: string, by: By): Promise<void> {
  const intentId = await deps.processor.intentOf(chargeId);
  if (intentId !== undefined) await learn(deps, intentId, by);
}

async function wordsOfCharge(
  processor: Processor,
  intentId: string,
): Promise<(ChargeFact | ReversalFact | ForeignReversal)[]> {
  const fact = await processor.charges.askCharge(intentId);
  return fact === undefined ? [] : [fact, ...(await processor.reversals(intentId))];
}

/** Reads the payment method that was stored on a page of an organization. Resolves with whether one was stored. */
async function learnStored({ sql, processor }: PaymentDeps, sessionId: string, by: By): Promise<boolean> {
  const orgId = await orgOfSetUp(sql, sessionId);
  if (orgId === undefined) await hurryToForget(sql, sessionId);
  const method = orgId === undefined ? undefined : await processor.charges.askSetUp(sessionId);
  if (orgId === undefined || method === undefined) return false;
  return tx(sql, async (tx) => {
    if (!(await storeMethod(tx, sessionId, method))) return false;
    const { kind, brand, last4 } = method;
    const details = { kind, brand, last4 };
    await audit(tx, { ...by, orgId, action: "payment_method.stored", subject: orgId, details });
    return true;
  });
}

async function concluded({ sql, warn, alert }: PaymentDeps, fact: CheckoutFact | ChargeFact, by: By): Promise<void> {
  const isKnown = await tx(sql, async (tx) => {
    const payment = await conclude(tx, fact);
    if (!payment?.became) return payment;
    const { id: paymentId, orgId, amountMicro, became, rule } = payment;
    const amountUsd = toUsd(amountMicro);
    if (became === "succeeded") await emit(tx, orgId, { case: "paymentSucceeded", value: { paymentId, amountUsd } });
    else await emit(tx, orgId, { case: "paymentFailed", value: { paymentId, status: became } });
    const reason = fact.kind === "charge" && became === "failed" ? (fact.why ?? "declined") : undefined;
    if (rule && reason !== undefined)
      await emit(tx, orgId, { case: "topupFailed", value: { paymentId, reason, amountUsd, ...rule } });
    const details = { amount_usd: amountUsd, reason, automatic: rule && true };
    await audit(tx, { ...by, orgId, action: `payment.${became}`, subject: paymentId, details });
    if (rule?.turnedOff) {
      const act = { action: "auto_topup.turned_off", subject: orgId, details: { declines: rule.declines } };
      await audit(tx, { ...by, orgId, ...act });
    }
    return payment;
  });
  if (isKnown || !fact.paymentId.startsWith("pay_")) return;
  if (fact.status === "succeeded" && (await isPayment(sql, fact.paymentId)))
    alert(
      `payment ${fact.paymentId} was paid with another amount or currency than requested ($${toUsd(fact.amountMicro)}) and nothing was credited; compare it with the processor and add credit or refund it`,
    );
  else warn(`the payment processor reported payment ${fact.paymentId}, which is unknown or has another amount`);
}

async function reversed(deps: PaymentDeps, word: ReversalFact | ForeignReversal, by: By): Promise<void> {
  const { sql, leaser, alert } = deps;
  const paymentId = await paymentOfIntent(sql, word.intentId);
  if (paymentId === undefined) {
    await learn(deps, word.intentId, by);
    return;
  }
  const amount = "amount" in word ? word.amount : await shareOf(deps, word);
  if (amount === undefined) {
    const { amount, currency } = (word as ForeignReversal).foreign;
    alert(
      `${word.of} ${wordOf(word.id)} of payment ${paymentId} is ${amount} ${wordOf(currency)}, in the smallest unit, and its share of the payment is unknown; nothing was deducted, so charge the organization for it`,
    );
    return;
  }
  const change = await tx(sql, async (tx) => {
    const { of, id, state } = word;
    const change = await reverse(tx, paymentId, { ...word, amount });
    if (change === undefined) return undefined;
    const { orgId, movedMicro, claimedMicro } = change;
    const details = {
      ...{ payment_id: paymentId, kind: of, amount_usd: toUsd(movedMicro) },
      ...(claimedMicro !== movedMicro && { claimed_usd: toUsd(claimedMicro) }),
      ...("foreign" in word && { currency: word.foreign.currency, foreign_amount: word.foreign.amount }),
    };
    const action = state === "taken" ? "payment.reversed" : "payment.restored";
    await audit(tx, { ...by, orgId, action, subject: id, details });
    return change;
  });
  if (change === undefined) return;
  if (word.state === "taken" && change.movedMicro < change.claimedMicro)
    alert(
      `${word.of} ${wordOf(word.id)} of payment ${paymentId} claims more than remains: $${toUsd(change.claimedMicro)}, of which $${toUsd(change.movedMicro)} were deducted`,
    );
  // Return this replica's idle leases, so that the deduction can use them.
  if (change.owes) await leaser.giveBack(change.orgId);
}

/** The share of a payment that a reversal in the payer's currency covers. A dispute covers the complete payment until it ends. */
async function shareOf({ processor }: PaymentDeps, word: ForeignReversal) {
  return word.of === "dispute" || word.state === "returned" ? { part: 1, whole: 1 } : processor.shareOf(word);
}

/** The most unresolved payments per query. */
const FORGOTTEN = 50;

/** Queries payments whose messages may have been lost. Resolves with their number. */
export async function queryPendingPayments(deps: PaymentDeps): Promise<number> {
  const forgotten = await takeForgotten(deps.sql, FORGOTTEN);
  for (const { orgId, id } of forgotten) {
    const payment = await findPayment(deps.sql, orgId, id);
    if (payment) await reconcile(deps, payment, { actor: "system" });
  }
  return forgotten.length;
}

// Automatic top-up: the rule and the payment method by RPC, and the charges on every worker.

/** Dependencies of the RPCs. */
interface AutoTopUpDeps {
  sql: Sql;
  /** The return address for payers whose request has none. */
  home: string;
  /** Refuses with `billing_unavailable` if no payment processor is configured. */
  payments(): PaymentDeps;
}

type AutoTopUpCalls = "getAutoTopUp" | "updateAutoTopUp" | "setUpPaymentMethod" | "deletePaymentMethod";

/** How long a page of the processor stays open. */
const PAGE_S = 23 * 3600;

/** The RPCs about automatic top-up. */
export function autoTopUpCalls({
  sql,
  home,
  payments,
}: AutoTopUpDeps): Pick<Implementation<typeof BillingService>, AutoTopUpCalls> {
  return {
    async getAutoTopUp(_request, call) {
      return { autoTopup: messageOf(await findAutoTopUp(sql, keyOf(call).orgId)) };
    },

    async updateAutoTopUp(request, call) {
      const { orgId, keyId } = keyOf(call);
      const asked = changesOf(request);
      if (request.enabled) {
        const deps = payments();
        const { setupSession } = await findAutoTopUp(sql, orgId);
        // The processor's message about the page may be lost or late.
        if (setupSession !== undefined) await learnStored(deps, setupSession, byCall(call));
      }
      const rule = await tx(sql, async (tx) => {
        const before = await lockAutoTopUp(tx, orgId);
        const after = { ...before, ...asked };
        assertSound(after);
        await saveAutoTopUp(tx, orgId, { ...after, keyId, renews: request.enabled === true });
        const { enabled, thresholdMicro = 0, amountMicro = 0, ceilingMicro = 0 } = after;
        const details = {
          enabled,
          threshold_usd: toUsd(thresholdMicro),
          amount_usd: toUsd(amountMicro),
          monthly_ceiling_usd: toUsd(ceilingMicro),
        };
        await audit(tx, { ...byCall(call), orgId, action: "auto_topup.changed", subject: orgId, details });
        return findAutoTopUp(tx, orgId);
      });
      return { autoTopup: messageOf(rule) };
    },

    async setUpPaymentMethod(request: SetUpPaymentMethodRequest, call) {
      const { orgId } = keyOf(call);
      const { processor } = payments();
      const urls = returnUrls(request, home);
      const expiresAt = nowSeconds() + PAGE_S;
      const { customerId } = await findAutoTopUp(sql, orgId);
      const page = await processor.charges.setUp({ ...urls, setUpId: newId("pms"), orgId, customerId, expiresAt });
      await tx(sql, async (tx) => {
        await noteSetUp(tx, orgId, { sessionId: page.sessionId, expiresAt });
        await audit(tx, { ...byCall(call), orgId, action: "payment_method.requested", subject: orgId });
      });
      return { setupUrl: page.url, expiresAt };
    },

    async deletePaymentMethod(_request, call) {
      const { orgId } = keyOf(call);
      const { method } = await findAutoTopUp(sql, orgId);
      if (method) await payments().processor.charges.forget(method.methodId);
      const rule = await tx(sql, async (tx) => {
        const before = await lockAutoTopUp(tx, orgId);
        await dropMethod(tx, orgId);
        if (before.method || before.setupSession !== undefined)
          await audit(tx, { ...byCall(call), orgId, action: "payment_method.deleted", subject: orgId });
        return findAutoTopUp(tx, orgId);
      });
      return { autoTopup: messageOf(rule) };
    },
  };
}

function changesOf(request: UpdateAutoTopUpRequest): Partial<AutoTopUpRecord> {
  const { enabled, thresholdUsd, amountUsd, monthlyCeilingUsd } = request;
  return {
    ...(enabled !== undefined && { enabled }),
    ...(thresholdUsd !== undefined && { thresholdMicro: centsOf(thresholdUsd, "threshold_usd") }),
    ...(amountUsd !== undefined && { amountMicro: centsOf(amountUsd, "amount_usd") }),
    ...(monthlyCeilingUsd !== undefined && { ceilingMicro: centsOf(monthlyCeilingUsd, "monthly_ceiling_usd") }),
  };
}

function centsOf(usd: number, field: string): number {
  const micro = fromUsd(usd, field);
  if (micro % MICRO_PER_CENT !== 0) throw violation(field, "must be in whole cents", "multiple_of");
  return micro;
}

/** Refuses an enabled rule that is incomplete. */
function assertSound({ enabled, thresholdMicro, amountMicro, ceilingMicro, method }: AutoTopUpRecord): void {
  if (amountMicro !== undefined && ceilingMicro !== undefined && ceilingMicro < amountMicro)
    throw violation("monthly_ceiling_usd", "must be at least amount_usd", "greater_than_equal");
  if (!enabled) return;
  const needed = { threshold_usd: thresholdMicro, amount_usd: amountMicro, monthly_ceiling_usd: ceilingMicro };
  for (const [field, value] of Object.entries(needed))
    if (value === undefined) throw violation(field, "is required to enable automatic top-up", "missing");
  if (!method)
    throw refuse(
      Reason.PAYMENT_METHOD_MISSING,
      "store a payment method first: POST /v1/billing/payment-method opens a page",
    );
}

function messageOf(rule: AutoTopUpRecord): AutoTopUp {
  const { enabled, thresholdMicro = 0, amountMicro = 0, ceilingMicro = 0, method, declines, nextTry } = rule;
  return create(AutoTopUpSchema, {
    enabled,
    thresholdUsd: toUsd(thresholdMicro),
    amountUsd: toUsd(amountMicro),
    monthlyCeilingUsd: toUsd(ceilingMicro),
    chargedThisMonthUsd: toUsd(rule.chargedMicro),
    declines,
    ...(method && {
      paymentMethod: {
        kind: method.kind,
        since: method.since,
        ...(method.brand !== undefined && { brand: method.brand }),
        ...(method.last4 !== undefined && { last4: method.last4 }),
      },
    }),
    ...(rule.pendingPayment !== undefined && { pendingPaymentId: rule.pendingPayment }),
    ...(nextTry > nowSeconds() && { notBefore: nextTry }),
  });
}

/** Dependencies of automatic charges. */
interface AutoTopUpWork extends PaymentDeps {
  notifications: Notifications;
}

/** Concurrent charges per worker. */
const AT_ONCE = 8;

/** Buys credit when a balance is below its threshold. Any number of workers share the organizations of one database. */
export class AutoTopUps {
  readonly #deps: AutoTopUpWork;
  readonly #rounds: Polling;

  /** Starts immediately. */
  constructor(deps: AutoTopUpWork) {
    this.#deps = deps;
    this.#rounds = new Polling({
      notifications: deps.notifications,
      channel: "topup_due",
      look: () => this.#poll(),
      failed: (cause) => deps.warn(`automatic top-ups are paused: ${textOf(cause)}`),
    });
  }

  /** Starts no further charge and waits for the running ones. */
  close(): Promise<void> {
    return this.#rounds.close();
  }

  async #poll(): Promise<undefined> {
    while (!this.#rounds.over && (await this.#beginNext()));
    while (!this.#rounds.over) {
      const { sql } = this.#deps;
      const [charges, leftOver] = [await takeCharges(sql, AT_ONCE), await takeToForget(sql, AT_ONCE)];
      if (charges.length + leftOver.length === 0) return;
      await Promise.all([
        ...charges.map((each) => this.#charge(each)),
        ...leftOver.map((each) => this.#deleteMethod(each)),
      ]);
    }
  }

  /** Payment methods that the processor did not delete stay queued and are deleted again later. */
  async #deleteMethod({ id, methodId, setupSession, isOver }: ToForget): Promise<void> {
    const { sql, processor, warn } = this.#deps;
    try {
      const given = setupSession === null ? undefined : await processor.charges.askSetUp(setupSession);
      const method = methodId ?? given?.methodId;
      if (method !== undefined) await processor.charges.forget(method);
      if (method !== undefined || isOver) await noteForgotten(sql, id);
    } catch (thrown) {
      warn(`could not delete the payment method of a deleted organization; trying again: ${textOf(thrown)}`);
    }
  }

  /** Resolves with whether a top-up was due. */
  #beginNext(): Promise<boolean> {
    return tx(this.#deps.sql, async (tx) => {
      const begun = await beginDue(tx);
      if (!begun) return false;
      const { orgId, paymentId, keyId, isNews } = begun;
      const amountUsd = toUsd(begun.amountMicro);
      if (paymentId !== undefined) {
        const details = { amount_usd: amountUsd, automatic: true, turned_on_by: keyId };
        await audit(tx, { actor: "system", orgId, action: "payment.requested", subject: paymentId, details });
      } else if (isNews)
        await emit(tx, orgId, { case: "topupFailed", value: { reason: "ceiling_reached", amountUsd } });
      return true;
    });
  }

  /** A charge with an unknown outcome stays pending and is queried again. */
  async #charge({ orgId, id }: { orgId: string; id: string }): Promise<void> {
    const { sql, warn } = this.#deps;
    try {
      const payment = await findPayment(sql, orgId, id);
      if (payment?.status === "pending") await charge(this.#deps, payment, { actor: "system" });
    } catch (thrown) {
      warn(`the outcome of automatic payment ${id} is unknown; querying it again: ${textOf(thrown)}`);
    }
  }
}

const textOf = (thrown: unknown): string => {
  if (!(thrown instanceof Error)) return String(thrown);
  return thrown.cause instanceof Error ? `${thrown.message} (${thrown.cause.message})` : thrown.message;
};

// Return addresses after a page of the payment processor.

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** The payer's return addresses after the checkout; `home` if the request has none. Refuses with `validation_failed`. */
export function returnUrls(
  { successUrl, cancelUrl }: { successUrl?: string | undefined; cancelUrl?: string | undefined },
  home: string,
): { successUrl: string; cancelUrl: string } {
  const success = successUrl === undefined ? home : checked(successUrl, "success_url");
  return { successUrl: success, cancelUrl: cancelUrl === undefined ? success : checked(cancelUrl, "cancel_url") };
}

/** Keeps the text unchanged, because the processor fills a placeholder in braces. */
function checked(text: string, field: string): string {
  const url = /^[!-~]+$/.test(text) && URL.canParse(text) ? new URL(text) : undefined;
  const secure = url?.protocol === "https:" || (url?.protocol === "http:" && LOOPBACK.has(url.hostname));
  if (!url || !secure || !/^https?:\/\/[^/\\]/i.test(text))
    throw violation(field, "must be an https:// address, or http:// on loopback", "url");
  if (url.username !== "" || url.password !== "")
    throw violation(field, "must not contain a user name or password", "url");
  return text;
}
