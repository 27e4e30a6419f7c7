/** Payments and their reversals. Amounts are micro-dollars. */
import { grantCredits } from "../account/orgs.ts";
import { firstRecord, type Queryable, type Sql, type Tx } from "../database/tx.ts";
import { type ChargedRule, noteCharged } from "./auto-topup.ts";

/** The status of a payment. */
export type PaymentStatus = "pending" | "succeeded" | "failed" | "expired" | "refunded";

/** A payment. Times are unix seconds. */
export interface PaymentRecord {
  id: string;
  orgId: string;
  amountMicro: number;
  status: PaymentStatus;
  /** The amount of refunds and disputes, and the part of it that the balance has not covered yet. */
  refundedMicro: number;
  owedMicro: number;
  successUrl: string;
  cancelUrl: string;
  sessionId: string | undefined;
  checkoutUrl: string | undefined;
  /** Set for a charge to a stored payment method: the processor's ids of customer, payment method and charge. */
  automatic: boolean;
  customerId: string | undefined;
  methodId: string | undefined;
  intentId: string | undefined;
  created: number;
  expiresAt: number;
  completedAt: number | undefined;
}

/** The fields of a new payment. */
export interface NewPayment {
  id: string;
  orgId: string;
  keyId: string;
  amountMicro: number;
  successUrl: string;
  cancelUrl: string;
  idempotencyKey: string | undefined;
  /** Unix seconds. */
  expiresAt: number;
}

/** The processor's report on a checkout. It can arrive late, twice and out of order. */
export interface CheckoutFact {
  kind: "checkout";
  /** Our payment id, as given to the processor. */
  paymentId: string;
  /** Empty if none was opened. */
  sessionId: string;
  intentId: string | undefined;
  amountMicro: number;
  status: "pending" | "succeeded" | "failed" | "expired";
}

/** Why the charge was declined. */
export type DeclineReason =
  | "declined"
  | "insufficient_funds"
  | "expired_card"
  | "authentication_required"
  | "method_gone";

/** The processor's report on a charge to a stored payment method. It can arrive late, twice and out of order. */
export interface ChargeFact {
  kind: "charge";
  /** Our payment id, as given to the processor. */
  paymentId: string;
  intentId: string | undefined;
  customerId: string;
  amountMicro: number;
  /** `expired`: the processor has no such charge and will not make one. */
  status: "pending" | "succeeded" | "failed" | "expired";
  /** Why it failed. */
  why: DeclineReason | undefined;
}

/** The processor's report on a refund or dispute: `taken` when the money left, `returned` when it can no longer leave. */
export interface ReversalFact {
  kind: "reversal";
  /** The processor's id of it. */
  id: string;
  of: "refund" | "dispute";
  intentId: string;
  /** US dollars, or a share of the payment if it is in another currency. */
  amount: { readonly micro: number } | { readonly part: number; readonly whole: number };
  state: "taken" | "returned";
}

/** The columns of a payment. */
export const columns = (sql: Queryable) => sql`
  id, org_id, amount_micro, status, success_url, cancel_url, session_id, checkout_url, created, expires_at, completed_at,
  automatic, customer_id, method_id, intent_id,
  (select coalesce(sum(r.amount_micro), 0) from payment_reversal as r where r.payment_id = payment.id and state = 'taken') as refunded_micro,
  (select coalesce(sum(r.owed_micro), 0) from payment_reversal as r where r.payment_id = payment.id) as owed_micro`;

/** Creates a payment, or finds the one with the same idempotency key. Returns it with the API key that created it. */
export async function addPayment(
  tx: Tx,
  payment: NewPayment,
): Promise<{ payment: PaymentRecord; by: string; isNew: boolean }> {
  const { id, orgId, keyId, amountMicro, successUrl, cancelUrl, idempotencyKey = null, expiresAt } = payment;
  const { count } = await tx`
    insert into payment (id, org_id, key_id, amount_micro, success_url, cancel_url, idempotency_key, expires_at)
    values (${id}, ${orgId}, ${keyId}, ${amountMicro}, ${successUrl}, ${cancelUrl}, ${idempotencyKey}, ${new Date(expiresAt * 1000)})
    on conflict (org_id, idempotency_key) where idempotency_key is not null do nothing`;
  const row = await firstRecord<PaymentRecord & { keyId: string }>(tx`
    select ${columns(tx)}, key_id from payment
    where org_id = ${orgId} and ${count > 0 ? tx`id = ${id}` : tx`idempotency_key = ${idempotencyKey}`}`);
  const { keyId: by, ...made } = row!; // it was made before, or just now
  return { payment: made, by, isNew: count > 0 };
}

/** Stores the URL of a payment's checkout. Idempotent. */
export async function noteCheckout(sql: Sql, id: string, checkout: { sessionId: string; url: string }): Promise<void> {
  const { sessionId, url } = checkout;
  await sql`update payment set session_id = ${sessionId}, checkout_url = ${url} where id = ${id}`;
}

/** A payment of an organization. */
export async function findPayment(sql: Sql, orgId: string, id: string): Promise<PaymentRecord | undefined> {
  return firstRecord<PaymentRecord>(sql`select ${columns(sql)} from payment where org_id = ${orgId} and id = ${id}`);
}

/** Whether a payment with this id exists in any organization. */
export async function isPayment(sql: Queryable, id: string): Promise<boolean> {
  return (await sql`select from payment where id = ${id}`).count > 0;
}

/** The payment with the processor's id `intentId`. */
export async function paymentOfIntent(sql: Queryable, intentId: string): Promise<string | undefined> {
  const [row] = await sql<{ id: string }[]>`select id from payment where intent_id = ${intentId}`;
  return row?.id;
}

/** Pending payments that were not queried at the processor for an hour, oldest first; marks them as queried now. */
export async function takeForgotten(sql: Sql, limit: number): Promise<{ orgId: string; id: string }[]> {
  return sql<{ orgId: string; id: string }[]>`
    update payment set asked_at = now()
    where id in (
      select id from payment
      where status = 'pending' and not automatic and coalesce(asked_at, created) < now() - interval '1 hour'
      order by expires_at limit ${limit} for update skip locked
    )
    returning org_id, id`;
}

/**
 * How long a report on a payment waits for another one that is being stored. A longer transaction belongs to a dead or stalled process, and
 * the processor can be queried again.
 */
const PATIENCE = "5s";

/** Later reports replace only these statuses; a paid payment stays paid. */
const OVERRULES: Readonly<Record<(CheckoutFact | ChargeFact)["status"], readonly PaymentStatus[]>> = {
  pending: [],
  failed: ["pending"],
  expired: ["pending"],
  succeeded: ["pending", "failed", "expired"],
};

/** The subject of a report and the resulting status; undefined if it was known before. */
export interface Concluded {
  id: string;
  orgId: string;
  amountMicro: number;
  automatic: boolean;
  became: "succeeded" | "failed" | "expired" | undefined;
  /** The effect of an automatic payment's result on its rule. */
  rule: ChargedRule | undefined;
}

type ConcludingRow = Pick<
  PaymentRecord,
  "orgId" | "amountMicro" | "status" | "sessionId" | "automatic" | "customerId" | "intentId"
>;

/**
 * Applies the processor's report on a checkout or charge. Credits a paid payment once. Returns undefined if the payment is not ours or differs
 * from the request.
 */
export async function conclude(tx: Tx, fact: CheckoutFact | ChargeFact): Promise<Concluded | undefined> {
  const { paymentId: id, intentId = null, status } = fact;
  await tx.unsafe(`set local lock_timeout = '${PATIENCE}'`);
  const row = await firstRecord<ConcludingRow>(tx`
    select org_id, amount_micro, status, session_id, automatic, customer_id, intent_id from payment where id = ${id} for update`);
  if (!row || row.amountMicro !== fact.amountMicro || !isAbout(row, fact)) return undefined;
  if (intentId !== null && row.intentId === undefined && (await paymentOfIntent(tx, intentId)) !== undefined)
    return undefined;
  const { orgId, amountMicro, automatic } = row;
  const sessionId = fact.kind === "checkout" ? fact.sessionId || null : null;
  await tx`
    update payment set session_id = ${sessionId}, intent_id = coalesce(intent_id, ${intentId})
    where id = ${id}`;
  const known = { id, orgId, amountMicro, automatic, became: undefined, rule: undefined };
  if (status === "pending" || !OVERRULES[status].includes(row.status)) return known;
  await tx`update payment set status = ${status}, completed_at = now() where id = ${id}`;
  // Lock the rule's row before the account's, in the same order as changes of the rule.
  const rule = automatic ? await noteCharged(tx, orgId, status) : undefined;
  if (status === "succeeded") await grantCredits(tx, { orgId, amountMicro, reason: "payment", entryId: id });
  return { ...known, became: status, rule };
}

/** Whether a report belongs to this payment's checkout or charge. */
function isAbout(row: ConcludingRow, fact: CheckoutFact | ChargeFact): boolean {
  if (row.automatic !== (fact.kind === "charge")) return false;
  if (fact.kind === "checkout") return (row.sessionId ?? fact.sessionId) === fact.sessionId;
  const isSame = fact.intentId === undefined || row.intentId === undefined || row.intentId === fact.intentId;
  return row.customerId === fact.customerId && isSame;
}

/** The effect of a reversal on a balance. */
export interface Reversed {
  orgId: string;
  /** The amount taken from the balance or returned to it, and the amount of the reversal at the processor. */
  movedMicro: number;
  claimedMicro: number;
  /** The amount that the balance now owes. */
  owes: boolean;
}

/**
 * Applies the processor's report on a refund or dispute of a credited payment. The amount is taken from the balance, which never falls below
 * zero; what is missing is taken from later credit. All reversals of a payment together never take more than was paid. Undefined if nothing
 * changed.
 */
export async function reverse(tx: Tx, paymentId: string, fact: ReversalFact): Promise<Reversed | undefined> {
  await tx.unsafe(`set local lock_timeout = '${PATIENCE}'`);
  const [payment] = await tx<{ orgId: string; amountMicro: number; status: PaymentStatus }[]>`
    select org_id, amount_micro, status from payment where id = ${paymentId} for update`;
  if (payment?.status !== "succeeded" && payment?.status !== "refunded") return undefined;
  const { orgId } = payment;
  await tx`select from account where org_id = ${orgId} for update`;
  const paid = { id: paymentId, orgId, amountMicro: payment.amountMicro };
  const moved = fact.state === "taken" ? await take(tx, paid, fact) : await giveBack(tx, paid, fact);
  if (!moved) return undefined;
  await tx`
    update payment set status = case when amount_micro <= (
      select coalesce(sum(r.amount_micro), 0) from payment_reversal as r where r.payment_id = payment.id and state = 'taken'
    ) then 'refunded' else 'succeeded' end
    where id = ${paymentId}`;
  const [account] = await tx<{ owes: boolean }[]>`select owed_micro > 0 as owes from account where org_id = ${orgId}`;
  return { orgId, ...moved, owes: account?.owes ?? false };
}

/** A payment with a reversal. */
type Paid = Pick<PaymentRecord, "id" | "orgId" | "amountMicro">;

/** A share of the payment, rounded half up and at most all of it; amounts in dollars are unchanged. */
const claimedOf = ({ amountMicro }: Paid, amount: ReversalFact["amount"]): number =>
  "micro" in amount
    ? amount.micro
    : Math.min(
        amountMicro,
        Number((2n * BigInt(amountMicro) * BigInt(amount.part) + BigInt(amount.whole)) / (2n * BigInt(amount.whole))),
      );

/** The part of a payment that no reversal has taken. */
async function restOf(tx: Tx, { id, amountMicro }: Paid): Promise<number> {
  const [row] = await tx<{ taken: number }[]>`
    select coalesce(sum(amount_micro), 0)::bigint as taken from payment_reversal where payment_id = ${id} and state = 'taken'`;
  return Math.max(0, amountMicro - (row?.taken ?? 0));
}

async function take(
  tx: Tx,
  payment: Paid,
  { id, of, amount }: ReversalFact,
): Promise<Pick<Reversed, "movedMicro" | "claimedMicro"> | undefined> {
  const { orgId } = payment;
  const claimedMicro = claimedOf(payment, amount);
  const movedMicro = Math.min(claimedMicro, await restOf(tx, payment));
  const { count } = await tx`
    insert into payment_reversal (id, payment_id, org_id, kind, state, claimed_micro, amount_micro, owed_micro)
    values (${id}, ${payment.id}, ${orgId}, ${of}, 'taken', ${claimedMicro}, ${movedMicro}, ${movedMicro})
    on conflict (id) do nothing`;
  if (count === 0) return undefined;
  await charge(tx, orgId, movedMicro);
  return { movedMicro, claimedMicro };
}

/** Takes an amount from an account now, or from later credit; see `collect_owed`. */
async function charge(tx: Tx, orgId: string, micro: number): Promise<void> {
  await tx`update account set owed_micro = owed_micro + ${micro} where org_id = ${orgId}`;
  // Request idle credit from credit leasers.
  await tx`select lease_recall('', ${orgId}, null) from account where org_id = ${orgId} and owed_micro > 0`;
}

async function giveBack(
  tx: Tx,
  payment: Paid,
  { id, of, amount }: ReversalFact,
): Promise<Pick<Reversed, "movedMicro" | "claimedMicro"> | undefined> {
  const { orgId } = payment;
  const [known] = await tx<{ state: string; claimedMicro: number; amountMicro: number; owedMicro: number }[]>`
    select state, claimed_micro, amount_micro, owed_micro from payment_reversal where id = ${id} for update`;
  if (!known) {
    // A delayed report can still say that it was taken.
    const claimed = claimedOf(payment, amount);
    await tx`
      insert into payment_reversal (id, payment_id, org_id, kind, state, claimed_micro, amount_micro)
      values (${id}, ${payment.id}, ${orgId}, ${of}, 'returned', ${claimed}, ${claimed})`;
    return undefined;
  }
  if (known.state === "returned") return undefined;
  const given = known.amountMicro - known.owedMicro;
  await tx`update payment_reversal set state = 'returned', owed_micro = 0 where id = ${id}`;
  await tx`update account set owed_micro = owed_micro - ${known.owedMicro} where org_id = ${orgId}`;
  await takeClaims(tx, payment);
  if (given > 0) await grantCredits(tx, { orgId, amountMicro: given, reason: `${of} came to nothing`, entryId: id });
  return { movedMicro: known.amountMicro, claimedMicro: known.claimedMicro };
}

/** Gives the amount that one reversal returned to the payment's other, incompletely covered reversals. */
async function takeClaims(tx: Tx, payment: Paid): Promise<void> {
  let rest = await restOf(tx, payment);
  const short = await tx<{ id: string; missing: number }[]>`
    select id, claimed_micro - amount_micro as missing from payment_reversal
    where payment_id = ${payment.id} and state = 'taken' and claimed_micro > amount_micro order by created, id`;
  for (const { id, missing } of short) {
    const more = Math.min(rest, missing);
    if (more === 0) return;
    rest -= more;
    await tx`
      update payment_reversal set amount_micro = amount_micro + ${more}, owed_micro = owed_micro + ${more} where id = ${id}`;
    await charge(tx, payment.orgId, more);
  }
}
