/** The payment processor: Stripe, through its official package. No text of the processor reaches a caller. */
import Stripe from "stripe";
import { BRAND } from "../brand.ts";
import { inTime, now } from "../clock.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import type { ChargeFact, CheckoutFact, DeclineReason, ReversalFact } from "../store/billing/payments.ts";

/** A checkout to open. Idempotent: the same payment opens the same checkout. */
interface Checkout {
  paymentId: string;
  orgId: string;
  amountMicro: number;
  successUrl: string;
  cancelUrl: string;
  /** Unix seconds. */
  expiresAt: number;
}

/** A checkout of one of our payments in a foreign currency, without its amount in US dollars. */
export interface UnclearCheckout {
  kind: "unclear";
  paymentId: string;
  sessionId: string;
  currency: string;
  isPaid: boolean;
}

/** A refund or dispute in the payer's currency; the amount is in its smallest unit. */
export interface ForeignReversal extends Omit<ReversalFact, "amount"> {
  foreign: { amount: number; currency: string; chargeId: string | undefined };
}

/** A report of the processor, or a hint to query the payment `intentId`, that of a charge, or a page for stored payment methods. */
export type Word =
  | CheckoutFact
  | UnclearCheckout
  | ChargeFact
  | ReversalFact
  | ForeignReversal
  | { kind: "hint"; intentId: string }
  | { kind: "charged"; chargeId: string }
  | { kind: "stored"; sessionId: string };

/** The interface of a payment processor. Every method rejects with `processor_unavailable` while it is unreachable. */
export interface Processor {
  /** The processor's display name. */
  readonly name: string;
  /** Opens a checkout; returns its id and URL. */
  open(checkout: Checkout): Promise<{ sessionId: string; url: string }>;
  /** All reports on a checkout: its outcome, then its reversals. */
  ask(sessionId: string): Promise<(CheckoutFact | UnclearCheckout | ReversalFact | ForeignReversal)[]>;
  /** The checkout that `intentId` paid. */
  find(intentId: string): Promise<string | undefined>;
  /** The payment intent of a charge; undefined if it has none, or is unknown. */
  intentOf(chargeId: string): Promise<string | undefined>;
  /** The reversals of the payment `intentId`. */
  reversals(intentId: string): Promise<(ReversalFact | ForeignReversal)[]>;
  /** An amount in the payer's currency as a share of its charge; undefined if the processor has no charge in that currency. */
  shareOf(reversal: ForeignReversal): Promise<{ part: number; whole: number } | undefined>;
  /** Stored payment methods. */
  readonly charges: Charges;
  /** The reports in a signed webhook. Refuses a wrong or old signature with `invalid_signature`. */
  read(payload: Uint8Array, signature: string): Word[];
}

/** The connection to Stripe. */
interface StripeSettings {
  secretKey: string;
  /** Verifies webhooks; without it, none is accepted. */
  webhookSecret: string | undefined;
  /** A server that replaces Stripe's, with the path before its `/v1` if any; Stripe's own by default. */
  apiBase: string | undefined;
}

const TIMEOUT_MS = 10_000;
const RETRIES = 2;
/** The maximum age of a signed webhook. */
const TOLERANCE_S = 300;

/** Stripe as the gateway's payment processor. */
export function stripeProcessor({ secretKey, webhookSecret, apiBase }: StripeSettings): Processor {
  const stripe = new Stripe(secretKey, {
    ...(apiBase !== undefined && reachedAt(new URL(apiBase))),
    timeout: TIMEOUT_MS,
    maxNetworkRetries: RETRIES,
    telemetry: false,
    appInfo: { name: BRAND },
  });

  const reversals = async (intentId: string): Promise<(ReversalFact | ForeignReversal)[]> => {
    const [refunds, disputes] = await Promise.all([
      listed(stripe.refunds.list({ payment_intent: intentId, limit: 100 })),
      listed(stripe.disputes.list({ payment_intent: intentId, limit: 100 })),
    ]);
    return [...refunds.flatMap(refundOf), ...disputes.flatMap(disputeOf)];
  };

  return {
    name: "stripe",
    charges: stripeCharges(stripe),
    reversals: (intentId) => reached(() => reversals(intentId)),

    async open({ paymentId, orgId, amountMicro, successUrl, cancelUrl, expiresAt }) {
      const metadata = { payment_id: paymentId, org_id: orgId };
      const price = { currency: "usd", unit_amount: amountMicro / MICRO_PER_CENT, product_data: { name: CREDIT } };
      const session = await reached(() =>
        stripe.checkout.sessions.create(
          {
            mode: "payment",
            client_reference_id: paymentId,
            line_items: [{ quantity: 1, price_data: price }],
            success_url: successUrl,
            cancel_url: cancelUrl,
            expires_at: expiresAt,
            metadata,
            payment_intent_data: { metadata },
          },
          { idempotencyKey: paymentId },
        ),
      );
      // The response to an idempotent request is that of the first one, which may have ended before there was a URL.
      const url = session.url ?? (await reached(() => stripe.checkout.sessions.retrieve(session.id))).url;
      if (!url) throw away(new Error(`checkout session ${session.id} has no URL`));
      return { sessionId: session.id, url };
    },

    ask: (sessionId) =>
      reached(async () => {
        const session = checkoutOf(await stripe.checkout.sessions.retrieve(sessionId));
        if (!session) return [];
        const intentId = session.kind === "checkout" ? session.intentId : undefined;
        return intentId === undefined ? [session] : [session, ...(await reversals(intentId))];
      }),

    shareOf: ({ intentId, foreign: { amount, currency, chargeId } }) =>
      reached(async () => {
        const charges =
          chargeId === undefined
            ? await listed(stripe.charges.list({ payment_intent: intentId, limit: 100 }))
            : await listed(stripe.charges.retrieve(chargeId).then((data) => ({ data: [data] })));
        const wholes = charges.map((charge) => chargedIn(charge, currency)).filter((whole) => whole !== undefined);
        const [whole] = wholes;
        return whole === undefined || amount > whole ? undefined : { part: amount, whole };
      }),

    intentOf: (chargeId) =>
      reached(async () => {
        const [charge] = await listed(stripe.charges.retrieve(chargeId).then((data) => ({ data: [data] })));
        return idOf(charge?.payment_intent)[0];
      }),

    find: (intentId) =>
      reached(async () => {
        const { data } = await stripe.checkout.sessions.list({ payment_intent: intentId, limit: 1 });
        return data[0]?.id;
      }),

    read(payload, signature) {
      if (webhookSecret === undefined)
        throw refuse(
          Reason.BILLING_UNAVAILABLE,
          "this gateway does not accept payment webhooks: no payment processor is configured",
        );
      const event = verified(stripe, payload, signature, webhookSecret);
      try {
        return wordsOf(event);
      } catch (cause) {
        throw noEvent(cause);
      }
    },
  };
}

const CREDIT = `${BRAND[0]?.toUpperCase()}${BRAND.slice(1)} credit`;

/** The options for another server. Stripe's package supports neither a path before `/v1` nor brackets around a host, so both are added here. */
function reachedAt({ protocol, hostname, port, pathname }: URL) {
  const before = pathname.replace(/\/+$/, "").replace(/\/v1$/, "");
  const httpClient = Stripe.createNodeHttpClient();
  const send = httpClient.makeRequest.bind(httpClient);
  httpClient.makeRequest = (host, to, path, ...rest) => send(host, to, before + path, ...rest);
  return {
    protocol: protocol === "http:" ? ("http" as const) : ("https" as const),
    host: hostname.replace(/^\[(.+)\]$/, "$1"),
    port: port || (protocol === "http:" ? 80 : 443),
    httpClient,
  };
}

function verified(stripe: Stripe, payload: Uint8Array, signature: string, secret: string): Stripe.Event {
  try {
    return stripe.webhooks.constructEvent(payload, signature, secret, TOLERANCE_S, undefined, now());
  } catch (cause) {
    if (cause instanceof Stripe.errors.StripeSignatureVerificationError) {
      const text = "the webhook's signature is invalid or too old";
      throw refuse(Reason.INVALID_SIGNATURE, text, {}, { cause });
    }
    throw noEvent(cause, isThin(payload));
  }
}

const noEvent = (cause: unknown, thin = false): Refusal =>
  refuse(
    Reason.MALFORMED_BODY,
    thin
      ? "thin events have no amounts; set the payload style of the processor's event destination to snapshot"
      : "the body is not an event of the payment processor",
    {},
    { cause },
  );

/** Whether a payload is an event of Stripe's second API, which only refers to its object. */
function isThin(payload: Uint8Array): boolean {
  try {
    const event: unknown = JSON.parse(Buffer.from(payload).toString("utf8"));
    return typeof event === "object" && event !== null && "object" in event && event.object === "v2.core.event";
  } catch {
    return false;
  }
}

/** The reports in an event; empty for irrelevant event types. */
function wordsOf(event: Stripe.Event): Word[] {
  switch (event.type) {
    case "checkout.session.completed":
    case "checkout.session.async_payment_succeeded":
    case "checkout.session.expired": {
      const { id: sessionId, mode } = event.data.object;
      // The stored payment method is queried rather than trusted from the event.
      if (mode === "setup") return [{ kind: "stored", sessionId }];
      const word = checkoutOf(event.data.object);
      return word ? [word] : [];
    }
    case "checkout.session.async_payment_failed": {
      const word = checkoutOf(event.data.object);
      return word?.kind === "checkout" && word.status === "pending" ? [{ ...word, status: "failed" }] : [];
    }
    case "payment_intent.succeeded":
    case "payment_intent.processing":
    case "payment_intent.payment_failed":
    case "payment_intent.canceled": {
      const word = chargeOf(event.data.object);
      return word ? [word] : [];
    }
    case "refund.created":
    case "refund.updated":
    case "refund.failed":
    case "charge.refund.updated":
      return named(event.data.object) ?? refundOf(event.data.object);
    case "charge.refunded":
      return idOf(event.data.object.payment_intent).map((intentId) => ({ kind: "hint", intentId }));
    case "charge.dispute.created":
    case "charge.dispute.updated":
    case "charge.dispute.closed":
    case "charge.dispute.funds_withdrawn":
    case "charge.dispute.funds_reinstated":
      return named(event.data.object) ?? disputeOf(event.data.object);
    default:
      return [];
  }
}

/** The charge of a reversal that names no payment intent, as in older API versions: the reversals of its payment are queried. */
function named({ payment_intent: intent, charge }: Stripe.Refund | Stripe.Dispute): Word[] | undefined {
  if (idOf(intent).length > 0) return undefined;
  return idOf(charge).map((chargeId) => ({ kind: "charged", chargeId }));
}

/** The sales currency. */
const CURRENCY = "usd";

/** Whether a currency is the sales currency; servers other than Stripe's also write it in capitals. */
const isDollars = (currency: string | null | undefined): boolean => currency?.toLowerCase() === CURRENCY;

/**
 * The report in a checkout. Its amount is the requested one: older API versions return it in the payer's currency, with dollars separately.
 */
function checkoutOf(session: Stripe.Checkout.Session): CheckoutFact | UnclearCheckout | undefined {
  const { id: sessionId, client_reference_id: paymentId, currency, status, payment_status: paid } = session;
  if (!paymentId) return undefined;
  const { currency_conversion: conversion } = session as { currency_conversion?: Conversion | null };
  const dollars = isDollars(currency) ? session : conversion?.source_currency === CURRENCY ? conversion : undefined;
  const isPaid = paid === "paid";
  const { amount_subtotal: asked, amount_total: total } = dollars ?? {};
  // Taxes add to the requested amount. The gateway offers no discounts, which would credit more than was paid.
  const isDiscounted = isPaid && typeof asked === "number" && typeof total === "number" && total < asked;
  if (dollars === undefined || isDiscounted)
    return { kind: "unclear", paymentId, sessionId, currency: currency ?? "none", isPaid };
  const [intentId] = idOf(session.payment_intent);
  const cents = asked ?? total ?? 0;
  const became = isPaid ? "succeeded" : status === "expired" ? "expired" : "pending";
  return { kind: "checkout", paymentId, sessionId, intentId, amountMicro: cents * MICRO_PER_CENT, status: became };
}

/** The dollar amount of a checkout before the conversion to the payer's currency. */
interface Conversion {
  readonly source_currency?: string;
  readonly amount_subtotal?: number | null;
  readonly amount_total?: number | null;
}

/** A charged amount in a currency's smallest unit. */
function chargedIn(charge: Stripe.Charge, currency: string): number | undefined {
  const { presentment_details: shown } = charge as { presentment_details?: Presentment | null };
  const whole =
    charge.currency === currency
      ? charge.amount
      : shown?.presentment_currency === currency
        ? shown.presentment_amount
        : undefined;
  return whole !== undefined && Number.isSafeInteger(whole) && whole > 0 ? whole : undefined;
}

interface Presentment {
  readonly presentment_amount?: number;
  readonly presentment_currency?: string;
}

/** A refund takes the money at once, unless it failed. */
const refundOf = (refund: Stripe.Refund): (ReversalFact | ForeignReversal)[] =>
  reversalOf("refund", refund, refund.status === "failed" || refund.status === "canceled" ? "returned" : "taken");

/** The dispute states in which the bank has the money, and those after which it never will; others are warnings. */
const DISPUTES: Readonly<Record<string, ReversalFact["state"]>> = {
  needs_response: "taken",
  under_review: "taken",
  appeal_needs_response: "taken",
  appeal_under_review: "taken",
  lost: "taken",
  won: "returned",
};

const disputeOf = (dispute: Stripe.Dispute): (ReversalFact | ForeignReversal)[] =>
  reversalOf("dispute", dispute, DISPUTES[dispute.status]);

function reversalOf(
  of: ReversalFact["of"],
  reversal: Pick<Stripe.Refund | Stripe.Dispute, "id" | "amount" | "currency" | "payment_intent" | "charge">,
  state: ReversalFact["state"] | undefined,
): (ReversalFact | ForeignReversal)[] {
  const { id, amount } = reversal;
  const currency = reversal.currency?.toLowerCase();
  if (state === undefined || !Number.isSafeInteger(amount) || amount <= 0) return [];
  const [chargeId] = idOf(reversal.charge);
  return idOf(reversal.payment_intent).map((intentId) => {
    const known = { kind: "reversal", id, of, intentId, state } as const;
    // Compatible servers may omit what has only one known value.
    return currency === undefined || isDollars(currency)
      ? { ...known, amount: { micro: amount * MICRO_PER_CENT } }
      : { ...known, foreign: { amount, currency, chargeId } };
  });
}

/** A page on which a payment method is stored. */
interface SetUp {
  /** The same id opens the same page. */
  setUpId: string;
  orgId: string;
  /** The processor's known customer. */
  customerId: string | undefined;
  successUrl: string;
  cancelUrl: string;
  /** Unix seconds. */
  expiresAt: number;
}

/** A stored payment method: the processor's ids and its display data. */
interface StoredMethod {
  customerId: string;
  methodId: string;
  kind: string;
  brand: string | undefined;
  last4: string | undefined;
}

/** A charge to a stored payment method. */
interface Charge {
  paymentId: string;
  orgId: string;
  amountMicro: number;
  customerId: string;
  methodId: string;
  /** When the payment was created, in unix seconds. */
  created: number;
}

/** The interface for stored payment methods. Every method rejects with `processor_unavailable` while the processor is unreachable. */
interface Charges {
  /** Opens a page; returns its id and URL. */
  setUp(wish: SetUp): Promise<{ sessionId: string; url: string }>;
  /** The payment method stored on a page; undefined if there is none yet. */
  askSetUp(sessionId: string): Promise<StoredMethod | undefined>;
  /** Deletes a payment method. Idempotent. */
  forget(methodId: string): Promise<void>;
  /**
   * Charges once, however often it is called within the day for which the processor remembers the payment id. Rejects if the outcome is
   * unknown.
   */
  charge(charge: Charge): Promise<ChargeFact>;
  /** The state of the charge `intentId`; undefined if it is not ours. */
  askCharge(intentId: string): Promise<ChargeFact | undefined>;
  /** The charge of a payment of any age; undefined if there is none. */
  findCharge(charge: Charge): Promise<ChargeFact | undefined>;
}

/** The tolerated clock difference. */
const EARLIER_S = 600;

/** Stored payment methods at Stripe. */
function stripeCharges(stripe: Stripe): Charges {
  return {
    async setUp({ setUpId, orgId, customerId, successUrl, cancelUrl, expiresAt }) {
      const metadata = { org_id: orgId };
      const payer = customerId === undefined ? { customer_creation: "always" as const } : { customer: customerId };
      const session = await reached(() =>
        stripe.checkout.sessions.create(
          {
            mode: "setup",
            client_reference_id: setUpId,
            allowed_payment_method_types: ["card"],
            ...payer,
            success_url: successUrl,
            cancel_url: cancelUrl,
            expires_at: expiresAt,
            metadata,
            setup_intent_data: { metadata },
          },
          { idempotencyKey: setUpId },
        ),
      );
      return { sessionId: session.id, url: session.url ?? "" };
    },

    askSetUp: (sessionId) =>
      reached(async () => {
        const expand = ["setup_intent.payment_method"];
        return storedOf(await stripe.checkout.sessions.retrieve(sessionId, { expand }));
      }),

    forget: (methodId) =>
      reached(async () => {
        try {
          await stripe.paymentMethods.detach(methodId);
        } catch (thrown) {
          // It is detached already or does not exist.
          if (!(thrown instanceof Stripe.errors.StripeInvalidRequestError)) throw thrown;
        }
      }),

    charge: (charge) =>
      reached(async () => {
        const { paymentId, orgId, amountMicro, customerId, methodId } = charge;
        try {
          const intent = await stripe.paymentIntents.create(
            {
              amount: amountMicro / MICRO_PER_CENT,
              currency: "usd",
              customer: customerId,
              payment_method: methodId,
              confirm: true,
              off_session: true,
              // No user is present to answer the bank's authentication request.
              error_on_requires_action: true,
              metadata: { payment_id: paymentId, org_id: orgId, [MARK]: "true" },
            },
            { idempotencyKey: paymentId },
          );
          const fact = chargeOf(intent);
          // Without a response, the outcome is unknown.
          if (fact === undefined) throw new Error(`charge ${intent.id} has no metadata that identifies its purpose`);
          return fact;
        } catch (thrown) {
          const fact = declineOf(charge, thrown);
          if (fact === undefined) throw thrown;
          return fact;
        }
      }),

    askCharge: (intentId) =>
      reached(async () => {
        try {
          return chargeOf(await stripe.paymentIntents.retrieve(intentId));
        } catch (thrown) {
          // A shop on the same account can cause reports; what they refer to may be deleted.
          if (thrown instanceof Stripe.errors.StripeInvalidRequestError && thrown.statusCode === 404) return undefined;
          throw thrown;
        }
      }),

    findCharge: ({ paymentId, customerId, created }) =>
      reached(async () => {
        const since = { customer: customerId, created: { gte: created - EARLIER_S }, limit: 100 };
        for await (const intent of stripe.paymentIntents.list(since)) {
          const fact = chargeOf(intent);
          if (fact?.paymentId === paymentId) return fact;
        }
        return undefined;
      }),
  };
}

/** Distinguishes a charge from a checkout's payment, which carries the same payment id. */
const MARK = "automatic";

/** The report in a payment intent; undefined if it is not one of our charges. */
function chargeOf(intent: Stripe.PaymentIntent): ChargeFact | undefined {
  const { id: intentId, metadata, currency, status, amount, amount_received: received } = intent;
  const paymentId = metadata?.payment_id;
  if (!paymentId || metadata?.[MARK] !== "true" || currency !== "usd") return undefined;
  const [customerId] = idOf(intent.customer);
  if (customerId === undefined) return undefined;
  const became =
    status === "succeeded" ? "succeeded" : status === "processing" ? "pending" : ("failed" as ChargeFact["status"]);
  const cents = became === "succeeded" ? (received ?? amount) : amount;
  const why =
    became === "failed"
      ? reasonOf(intent.last_payment_error?.code, intent.last_payment_error?.decline_code)
      : undefined;
  return { kind: "charge", paymentId, intentId, customerId, amountMicro: cents * MICRO_PER_CENT, status: became, why };
}

/** The report in a failed charge: declined, or an unknown payment method. Undefined if the outcome is unknown. */
function declineOf(charge: Charge, thrown: unknown): ChargeFact | undefined {
  const { StripeCardError, StripeInvalidRequestError } = Stripe.errors;
  if (thrown instanceof StripeCardError) {
    const fact = declined(charge, reasonOf(thrown.code, thrown.decline_code));
    return { ...fact, intentId: thrown.payment_intent?.id };
  }
  // The processor does not execute a request that it rejects as invalid.
  if (thrown instanceof StripeInvalidRequestError) return declined(charge, "method_gone");
  return undefined;
}

const declined = ({ paymentId, customerId, amountMicro }: Charge, why: DeclineReason | undefined): ChargeFact => ({
  kind: "charge",
  paymentId,
  intentId: undefined,
  customerId,
  amountMicro,
  status: "failed",
  why: why ?? "declined",
});

const REASONS: Readonly<Record<string, DeclineReason>> = {
  insufficient_funds: "insufficient_funds",
  expired_card: "expired_card",
  authentication_required: "authentication_required",
  authentication_not_handled: "authentication_required",
};

const reasonOf = (code: string | undefined, decline: string | undefined): DeclineReason =>
  REASONS[decline ?? ""] ?? REASONS[code ?? ""] ?? "declined";

function storedOf(session: Stripe.Checkout.Session): StoredMethod | undefined {
  const { mode, status, setup_intent: intent } = session;
  if (mode !== "setup" || status !== "complete" || typeof intent !== "object" || intent?.status !== "succeeded")
    return undefined;
  const [customerId] = [...idOf(session.customer), ...idOf(intent.customer)];
  const [methodId] = idOf(intent.payment_method);
  if (customerId === undefined || methodId === undefined) return undefined;
  const method = typeof intent.payment_method === "object" ? intent.payment_method : undefined;
  return {
    customerId,
    methodId,
    kind: plainOf(method?.type, /^[a-z_]{1,32}$/) ?? "card",
    brand: plainOf(method?.card?.brand, /^[a-z_]{1,32}$/),
    last4: plainOf(method?.card?.last4, /^\d{4}$/),
  };
}

const plainOf = (text: string | null | undefined, form: RegExp): string | undefined =>
  text && form.test(text) ? text : undefined;

/** The timeout of a call in total, with all retries and pages. */
const PATIENCE_MS = 20_000;

/** Amounts are cents at Stripe and micro-dollars here. */
export const MICRO_PER_CENT = 10_000;

/** Converts a processor failure: the caller gets a refusal that is safe to retry, and the log gets the cause. */
async function reached<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await inTime(ask(), { ms: PATIENCE_MS, late: () => new Error(`no response within ${PATIENCE_MS} ms`) });
  } catch (cause) {
    throw away(cause);
  }
}

/** The refusal of a call that the processor does not serve. */
function away(cause: unknown): Refusal {
  const text = isRefused(cause)
    ? "the payment processor rejected the gateway's request; nothing was changed; ask the operator, whose log has the cause"
    : "the payment processor is unavailable; nothing was changed; retry later";
  return refuse(Reason.PROCESSOR_UNAVAILABLE, text, {}, { retryAfter: 5, cause });
}

/** Whether the processor rejects the call permanently, as with a wrong API key or an unknown parameter. */
function isRefused(cause: unknown): boolean {
  const { StripeInvalidRequestError, StripeAuthenticationError, StripePermissionError } = Stripe.errors;
  return [StripeInvalidRequestError, StripeAuthenticationError, StripePermissionError].some(
    (kind) => cause instanceof kind,
  );
}

/** The items of a list; empty if the list is missing, as on servers that support only checkouts. */
async function listed<T>(list: Promise<{ data: T[] }>): Promise<T[]> {
  try {
    return (await list).data;
  } catch (thrown) {
    if (thrown instanceof Stripe.errors.StripeInvalidRequestError && thrown.statusCode === 404) return [];
    throw thrown;
  }
}

/** The id of an expanded or unexpanded reference, in a list; empty if there is none. */
function idOf(thing: string | { id: string } | null | undefined): string[] {
  if (thing === null || thing === undefined) return [];
  return [typeof thing === "string" ? thing : thing.id];
}
