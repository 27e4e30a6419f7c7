/** How a payment goes: asked for, paid somewhere else, believed, put on record with its event. */

import { create } from "@bufbuild/protobuf";
import {
  type AutoTopUp,
  AutoTopUpSchema,
  DeletePaymentMethodResponseSchema,
  GetAutoTopUpResponseSchema,
  type SetUpPaymentMethodRequest,
  SetUpPaymentMethodResponseSchema,
  type UpdateAutoTopUpRequest,
  UpdateAutoTopUpResponseSchema,
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

/** What payments depends on. */
interface PaymentDeps {
  sql: Sql;
  processor: Processor;
  /** Gives back what this replica holds of an organisation's credit and needs for no call. */
  leaser: { giveBack(orgId: string): Promise<void> };
  warn(text: string): void;
  /** Called with what an operator has to decide: money that the gateway can't account for by itself. */
  alert(text: string): void;
}

/** Who had something done, for the audit log. */
interface By {
  actor: string;
  requestId?: string | undefined;
}

/** A payment to open. */
interface PaymentRequest extends By {
  orgId: string;
  keyId: string;
  /** The key that asks, and those that it descends from. */
  line: readonly string[];
  amountUsd: number;
  successUrl: string;
  cancelUrl: string;
  /** The addresses that the caller gave. The others are where this replica listens, and another replica's first answer stands. */
  named: { successUrl: string | undefined; cancelUrl: string | undefined };
  idempotencyKey: string | undefined;
  /** Called where the idempotency key opened it before. */
  known(): void;
}

/** A checkout may be paid for so long: less than the day for which the processor remembers that it was asked for it. */
const LIFE_S = 23 * 3600;

/**
 * Opens a checkout, or answers the one that the idempotency key opened before. Refuses with `validation_failed` an amount that is
 * not of whole cents, and with `idempotency_conflict` a key that was used for something else.
 */
export async function openCheckout({ sql, processor }: PaymentDeps, wish: PaymentRequest): Promise<PaymentRecord> {
  const { orgId, keyId, successUrl, cancelUrl, idempotencyKey, actor, requestId } = wish;
  const amountMicro = fromUsd(wish.amountUsd);
  if (amountMicro % MICRO_PER_CENT !== 0) throw violation("amount_usd", "must be of whole cents", "multiple_of");
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
  // Asked again under the payment's name, the processor answers with the checkout that it has.
  const checkout = await processor.open({ ...payment, paymentId: payment.id });
  await noteCheckout(sql, payment.id, checkout);
  return { ...payment, sessionId: checkout.sessionId, checkoutUrl: checkout.url };
}

/** Asks the processor what became of a payment, and believes it. */
export async function reconcile(deps: PaymentDeps, payment: PaymentRecord, by: By): Promise<void> {
  const { id: paymentId, sessionId, amountMicro, expiresAt } = payment;
  if (payment.automatic) return charge(deps, payment, by);
  if (sessionId !== undefined) return believe(deps, await deps.processor.ask(sessionId), by);
  // No payer ever got the address of the checkout.
  if (nowSeconds() <= expiresAt) return;
  await concluded(
    deps,
    { kind: "checkout", paymentId, sessionId: "", intentId: undefined, amountMicro, status: "expired" },
    by,
  );
}

/**
 * Has an automatic payment charged, or asks what became of that, and believes it. Asked again under the payment's name, the processor
 * answers with the charge that it made; when it may have forgotten the name, nothing is charged any more.
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

/** Believes what the processor says, in any order and however often. */
export async function believe(deps: PaymentDeps, words: readonly Word[], by: By): Promise<void> {
  for (const word of words) {
    if (word.kind === "checkout" || word.kind === "charge") await concluded(deps, word, by);
    else if (word.kind === "unclear") await clarify(deps, word, by);
    else if (word.kind === "stored") await learnStored(deps, word.sessionId, by);
    else if (word.kind === "reversal") await reversed(deps, word, by);
    else await learn(deps, word.intentId, by);
  }
}

/** Asks about a checkout in another currency: the answer is of the version that the gateway speaks, the message of its endpoint's. */
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
    `payment ${paymentId} was paid in ${wordOf(currency)} and nothing was credited: look at the checkout ${wordOf(sessionId)} and add credit or refund it`,
  );
}

/** What the processor names, as a word of a sentence in the log. */
const wordOf = (text: string): string => text.replaceAll(/[^\w-]/g, "").slice(0, 80);

/** Asks the processor about what was paid as `intentId`: of a message that overtook the one before it, or says too little. */
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

async function wordsOfCharge(
  processor: Processor,
  intentId: string,
): Promise<(ChargeFact | ReversalFact | ForeignReversal)[]> {
  const fact = await processor.charges.askCharge(intentId);
  return fact === undefined ? [] : [fact, ...(await processor.reversals(intentId))];
}

/** Asks the processor what was stored on a page of an organisation; answers whether something was. */
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
  const told = await tx(sql, async (tx) => {
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
  if (told || !fact.paymentId.startsWith("pay_")) return;
  if (fact.status === "succeeded" && (await isPayment(sql, fact.paymentId)))
    alert(
      `payment ${fact.paymentId} was paid otherwise than it was asked for ($${toUsd(fact.amountMicro)}) and nothing was credited: compare it with the processor and add credit or refund it`,
    );
  else warn(`the payment processor speaks of a payment ${fact.paymentId} that is none of ours, or of another amount`);
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
      `${word.of} ${wordOf(word.id)} of payment ${paymentId} is ${amount} ${wordOf(currency)}, in the smallest unit, and its share of the payment is not known: nothing was taken back; charge the organization for it`,
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
      `${word.of} ${wordOf(word.id)} of payment ${paymentId} takes back more than is left of it: $${toUsd(change.claimedMicro)}, of which $${toUsd(change.movedMicro)} were taken`,
    );
  // What this replica holds ready for the next calls is there to be taken.
  if (change.owes) await leaser.giveBack(change.orgId);
}

/** The share of a payment that a reversal in the payer's currency is. A dispute puts the whole payment in question, until it ends. */
async function shareOf({ processor }: PaymentDeps, word: ForeignReversal) {
  return word.of === "dispute" || word.state === "returned" ? { part: 1, whole: 1 } : processor.shareOf(word);
}

/** The most forgotten payments that are asked about at a time. */
const FORGOTTEN = 50;

/** Asks about payments whose messages may have been lost; answers how many. */
export async function askForgotten(deps: PaymentDeps): Promise<number> {
  const forgotten = await takeForgotten(deps.sql, FORGOTTEN);
  for (const { orgId, id } of forgotten) {
    const payment = await findPayment(deps.sql, orgId, id);
    if (payment) await reconcile(deps, payment, { actor: "system" });
  }
  return forgotten.length;
}

// Credit that is bought without anybody asking: the rule and the payment method by RPC, and the charges on every worker.

/** What the RPCs depend on. */
interface AutoTopUpDeps {
  sql: Sql;
  /** The return address of payers without another one. */
  home: string;
  /** Refuses with `billing_unavailable` where no payment processor is set up. */
  payments(): PaymentDeps;
}

type AutoTopUpCalls = "getAutoTopUp" | "updateAutoTopUp" | "setUpPaymentMethod" | "deletePaymentMethod";

/** A page of the processor is open for so long. */
const PAGE_S = 23 * 3600;

/** The RPCs about automatic top-up. */
export function autoTopUpCalls({
  sql,
  home,
  payments,
}: AutoTopUpDeps): Pick<Implementation<typeof BillingService>, AutoTopUpCalls> {
  return {
    async getAutoTopUp(_request, call) {
      return create(GetAutoTopUpResponseSchema, { autoTopup: messageOf(await findAutoTopUp(sql, keyOf(call).orgId)) });
    },

    async updateAutoTopUp(request, call) {
      const { orgId, keyId } = keyOf(call);
      const asked = changesOf(request);
      if (request.enabled) {
        const deps = payments();
        const { setupSession } = await findAutoTopUp(sql, orgId);
        // The processor's message about the page may have been lost, or be on its way.
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
      return create(UpdateAutoTopUpResponseSchema, { autoTopup: messageOf(rule) });
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
      return create(SetUpPaymentMethodResponseSchema, { setupUrl: page.url, expiresAt });
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
      return create(DeletePaymentMethodResponseSchema, { autoTopup: messageOf(rule) });
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
  if (micro % MICRO_PER_CENT !== 0) throw violation(field, "must be of whole cents", "multiple_of");
  return micro;
}

/** Refuses a rule that is on and lacks something. */
function assertSound({ enabled, thresholdMicro, amountMicro, ceilingMicro, method }: AutoTopUpRecord): void {
  if (amountMicro !== undefined && ceilingMicro !== undefined && ceilingMicro < amountMicro)
    throw violation("monthly_ceiling_usd", "must be at least amount_usd", "greater_than_equal");
  if (!enabled) return;
  const needed = { threshold_usd: thresholdMicro, amount_usd: amountMicro, monthly_ceiling_usd: ceilingMicro };
  for (const [field, value] of Object.entries(needed))
    if (value === undefined) throw violation(field, "is required to turn it on", "missing");
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

/** What charging depends on. */
interface AutoTopUpWork extends PaymentDeps {
  notifications: Notifications;
}

/** Charges at one time, on one worker. */
const AT_ONCE = 8;

/** Buys credit where a balance is below its threshold; any number of workers share the organisations of one database. */
export class AutoTopUps {
  readonly #deps: AutoTopUpWork;
  readonly #rounds: Polling;

  /** Begins at once. */
  constructor(deps: AutoTopUpWork) {
    this.#deps = deps;
    this.#rounds = new Polling({
      notifications: deps.notifications,
      channel: "topup_due",
      look: () => this.#look(),
      failed: (cause) => deps.warn(`automatic top-ups wait: ${textOf(cause)}`),
    });
  }

  /** Begins no more, and waits for what is being charged. */
  close(): Promise<void> {
    return this.#rounds.close();
  }

  async #look(): Promise<undefined> {
    while (!this.#rounds.over && (await this.#begin()));
    while (!this.#rounds.over) {
      const { sql } = this.#deps;
      const [charges, leftOver] = [await takeCharges(sql, AT_ONCE), await takeToForget(sql, AT_ONCE)];
      if (charges.length + leftOver.length === 0) return;
      await Promise.all([...charges.map((each) => this.#charge(each)), ...leftOver.map((each) => this.#forget(each))]);
    }
  }

  /** What the processor did not answer stays, and is asked again. */
  async #forget({ id, methodId, setupSession, isOver }: ToForget): Promise<void> {
    const { sql, processor, warn } = this.#deps;
    try {
      const given = setupSession === null ? undefined : await processor.charges.askSetUp(setupSession);
      const method = methodId ?? given?.methodId;
      if (method !== undefined) await processor.charges.forget(method);
      if (method !== undefined || isOver) await noteForgotten(sql, id);
    } catch (thrown) {
      warn(
        `a payment method of an organisation that was deleted is still stored, and is asked about again: ${textOf(thrown)}`,
      );
    }
  }

  /** Answers whether there was something to begin. */
  #begin(): Promise<boolean> {
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

  /** What is in doubt stays pending, and is asked about again. */
  async #charge({ orgId, id }: { orgId: string; id: string }): Promise<void> {
    const { sql, warn } = this.#deps;
    try {
      const payment = await findPayment(sql, orgId, id);
      if (payment?.status === "pending") await charge(this.#deps, payment, { actor: "system" });
    } catch (thrown) {
      warn(`the automatic payment ${id} is in doubt, and is asked about again: ${textOf(thrown)}`);
    }
  }
}

const textOf = (thrown: unknown): string => {
  if (!(thrown instanceof Error)) return String(thrown);
  return thrown.cause instanceof Error ? `${thrown.message} (${thrown.cause.message})` : thrown.message;
};

// Where payers return from a page of the payment processor.

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** The addresses to which a payer returns after the checkout, `home` where the request has none. Refuses with `validation_failed`. */
export function returnUrls(
  { successUrl, cancelUrl }: { successUrl?: string | undefined; cancelUrl?: string | undefined },
  home: string,
): { successUrl: string; cancelUrl: string } {
  const success = successUrl === undefined ? home : checked(successUrl, "success_url");
  return { successUrl: success, cancelUrl: cancelUrl === undefined ? success : checked(cancelUrl, "cancel_url") };
}

/** The text is kept as it was given: the processor fills a placeholder in braces. */
function checked(text: string, field: string): string {
  const url = /^[!-~]+$/.test(text) && URL.canParse(text) ? new URL(text) : undefined;
  const secure = url?.protocol === "https:" || (url?.protocol === "http:" && LOOPBACK.has(url.hostname));
  if (!url || !secure || !/^https?:\/\/[^/\\]/i.test(text))
    throw violation(field, "must be an address that begins with https://, or http:// on loopback", "url");
  if (url.username !== "" || url.password !== "") throw violation(field, "must not hold a name or a password", "url");
  return text;
}
