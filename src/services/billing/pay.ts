/** How a payment goes: asked for, paid somewhere else, believed, put on record with its event. */

import type { ForeignReversal, Processor, UnclearCheckout, Word } from "../../billing/payments.ts";
import { fromUsd, toUsd } from "../../billing/price.ts";
import { nowSeconds } from "../../clock.ts";
import { violation } from "../../contracts/contract.ts";
import { emit } from "../../events/emit.ts";
import { newId } from "../../ids.ts";
import { audit } from "../../store/account/audit.ts";
import { hurryToForget, orgOfSetUp, storeMethod } from "../../store/billing/auto-topup.ts";
import { assertSameCall } from "../../store/billing/idempotency.ts";
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
} from "../../store/billing/payments.ts";
import { type Sql, tx } from "../../store/database/tx.ts";

/** What payments depends on. */
export interface PaymentDeps {
  sql: Sql;
  processor: Processor;
  /** Gives back what this replica holds of an organisation's credit and needs for no call. */
  leaser: { giveBack(orgId: string): Promise<void> };
  warn(text: string): void;
  /** Called with what an operator has to decide: money that the gateway can't account for by itself. */
  alert(text: string): void;
}

/** Who had something done, for the audit log. */
export interface By {
  actor: string;
  requestId?: string | undefined;
}

/** A payment to open. */
export interface PaymentRequest extends By {
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

const MICRO_PER_CENT = 10_000;
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
export async function charge(deps: PaymentDeps, payment: PaymentRecord, by: By): Promise<void> {
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
export async function learnStored({ sql, processor }: PaymentDeps, sessionId: string, by: By): Promise<boolean> {
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
