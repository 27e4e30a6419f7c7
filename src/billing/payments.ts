/** The payment processor: Stripe, through its own package. Nothing of what it says in text reaches a caller. */
import Stripe from "stripe";
import { BRAND } from "../brand.ts";
import { inTime, now } from "../clock.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import type { ChargeFact, CheckoutFact, DeclineReason, ReversalFact } from "../store/billing/payments.ts";

/** A checkout to open. The same payment opens the same checkout, however often it is asked for. */
interface Checkout {
  paymentId: string;
  orgId: string;
  amountMicro: number;
  successUrl: string;
  cancelUrl: string;
  /** Unix seconds. */
  expiresAt: number;
}

/** A checkout of a payment of ours in a currency that the gateway doesn't sell in, and without what it was in US dollars. */
export interface UnclearCheckout {
  kind: "unclear";
  paymentId: string;
  sessionId: string;
  currency: string;
  isPaid: boolean;
}

/** A refund or a dispute in the payer's currency: the amount is in the smallest unit of that. */
export interface ForeignReversal extends Omit<ReversalFact, "amount"> {
  foreign: { amount: number; currency: string; chargeId: string | undefined };
}

/** Something that the processor says, or a hint that it has something to say of what was paid as `intentId`, or stored on a page. */
export type Word =
  | CheckoutFact
  | UnclearCheckout
  | ChargeFact
  | ReversalFact
  | ForeignReversal
  | { kind: "hint"; intentId: string }
  | { kind: "stored"; sessionId: string };

/** What the gateway needs of a payment processor. Each rejects with `processor_unavailable` while it can't be reached. */
export interface Processor {
  /** What callers call it. */
  readonly name: string;
  /** Opens a checkout; returns its name and where it is paid. */
  open(checkout: Checkout): Promise<{ sessionId: string; url: string }>;
  /** All that there is to say of a checkout: what became of it, then what went back. */
  ask(sessionId: string): Promise<(CheckoutFact | UnclearCheckout | ReversalFact | ForeignReversal)[]>;
  /** The checkout by which `intentId` was paid. */
  find(intentId: string): Promise<string | undefined>;
  /** What went back of what was paid as `intentId`. */
  reversals(intentId: string): Promise<(ReversalFact | ForeignReversal)[]>;
  /** What share of its charge an amount in the payer's currency is; undefined where the processor knows no charge in that currency. */
  shareOf(reversal: ForeignReversal): Promise<{ part: number; whole: number } | undefined>;
  /** Payment methods that are stored there. */
  readonly charges: Charges;
  /** The words in a message that the processor signed. Refuses with `invalid_signature` what it did not, or too long ago. */
  read(payload: Uint8Array, signature: string): Word[];
}

/** How Stripe is reached. */
interface StripeSettings {
  secretKey: string;
  /** Signs its messages; without it none is taken. */
  webhookSecret: string | undefined;
  /** A server in place of Stripe's, with the path before its `/v1` where it has one; Stripe's own when absent. */
  apiBase: string | undefined;
}

const TIMEOUT_MS = 10_000;
const RETRIES = 2;
/** How old a signed message may be. */
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
      // The answer of an idempotent request is that of its first time, which may have ended before there was an address.
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

    find: (intentId) =>
      reached(async () => {
        const { data } = await stripe.checkout.sessions.list({ payment_intent: intentId, limit: 1 });
        return data[0]?.id;
      }),

    read(payload, signature) {
      if (webhookSecret === undefined)
        throw refuse(Reason.BILLING_UNAVAILABLE, "this gateway does not accept payment webhooks: no payment processor is configured");
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

/** The options by which Stripe's package uses another server. It knows no path before `/v1` and no brackets around a host: both are handled here. */
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
    throw noEvent(cause);
  }
}

const noEvent = (cause: unknown): Refusal =>
  refuse(Reason.MALFORMED_BODY, "the body is not an event of the payment processor", {}, { cause });

/** What an event says; nothing where it is of a kind that is no affair of ours. */
function wordsOf(event: Stripe.Event): Word[] {
  switch (event.type) {
    case "checkout.session.completed":
    case "checkout.session.async_payment_succeeded":
    case "checkout.session.expired": {
      const { id: sessionId, mode } = event.data.object;
      // Who stored what is asked, not believed.
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
      return refundOf(event.data.object);
    case "charge.refunded":
      return idOf(event.data.object.payment_intent).map((intentId) => ({ kind: "hint", intentId }));
    case "charge.dispute.created":
    case "charge.dispute.updated":
    case "charge.dispute.closed":
    case "charge.dispute.funds_withdrawn":
    case "charge.dispute.funds_reinstated":
      return disputeOf(event.data.object);
    default:
      return [];
  }
}

/** The currency that is sold in. */
const CURRENCY = "usd";

/**
 * What a checkout says. Its amount is what was asked for: endpoints of older versions tell it in the payer's currency, and the dollars beside it.
 */
function checkoutOf(session: Stripe.Checkout.Session): CheckoutFact | UnclearCheckout | undefined {
  const { id: sessionId, client_reference_id: paymentId, currency, status, payment_status: paid } = session;
  if (!paymentId) return undefined;
  const { currency_conversion: conversion } = session as { currency_conversion?: Conversion | null };
  const dollars = currency === CURRENCY ? session : conversion?.source_currency === CURRENCY ? conversion : undefined;
  const isPaid = paid === "paid";
  if (dollars === undefined) return { kind: "unclear", paymentId, sessionId, currency: currency ?? "none", isPaid };
  const [intentId] = idOf(session.payment_intent);
  const cents = dollars.amount_subtotal ?? dollars.amount_total ?? 0;
  const became = isPaid ? "succeeded" : status === "expired" ? "expired" : "pending";
  return { kind: "checkout", paymentId, sessionId, intentId, amountMicro: cents * MICRO_PER_CENT, status: became };
}

/** What a checkout was before the payer's currency was put in its place. */
interface Conversion {
  readonly source_currency?: string;
  readonly amount_subtotal?: number | null;
  readonly amount_total?: number | null;
}

/** What was charged in a currency, in its smallest unit. */
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

/** A refund takes the money at once, unless it has come to nothing. */
const refundOf = (refund: Stripe.Refund): (ReversalFact | ForeignReversal)[] =>
  reversalOf("refund", refund, refund.status === "failed" || refund.status === "canceled" ? "returned" : "taken");

/** The states of a dispute in which the bank has the money, and those after which it never will; the others are warnings. */
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
  const { id, amount, currency } = reversal;
  if (state === undefined || !Number.isSafeInteger(amount) || amount <= 0) return [];
  const [chargeId] = idOf(reversal.charge);
  return idOf(reversal.payment_intent).map((intentId) => {
    const known = { kind: "reversal", id, of, intentId, state } as const;
    // Servers that speak for Stripe's may leave out what they know only one of.
    return currency === undefined || currency === CURRENCY
      ? { ...known, amount: { micro: amount * MICRO_PER_CENT } }
      : { ...known, foreign: { amount, currency, chargeId } };
  });
}

/** A page on which a payment method is stored. */
interface SetUp {
  /** The same name opens the same page. */
  setUpId: string;
  orgId: string;
  /** The payer that the processor knows already. */
  customerId: string | undefined;
  successUrl: string;
  cancelUrl: string;
  /** Unix seconds. */
  expiresAt: number;
}

/** A payment method as it is stored: the processor's names, and what people know it by. */
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
  /** When the payment was made, in unix seconds. */
  created: number;
}

/** What the gateway needs of stored payment methods. Each rejects with `processor_unavailable` while the processor can't be reached. */
interface Charges {
  /** Opens a page; returns its name and where it is. */
  setUp(wish: SetUp): Promise<{ sessionId: string; url: string }>;
  /** What was stored on a page; undefined where nothing was, or not yet. */
  askSetUp(sessionId: string): Promise<StoredMethod | undefined>;
  /** Deletes a payment method; one that is forgotten already is too. */
  forget(methodId: string): Promise<void>;
  /** Charges once, however often it is asked within the day for which the processor remembers the payment's name. Rejects where that is in doubt. */
  charge(charge: Charge): Promise<ChargeFact>;
  /** What became of what was charged as `intentId`; undefined where it is no charge of ours. */
  askCharge(intentId: string): Promise<ChargeFact | undefined>;
  /** The charge of a payment, however long ago it was asked for; undefined if there is none. */
  findCharge(charge: Charge): Promise<ChargeFact | undefined>;
}

/** Clocks differ. */
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
          // It is attached to nobody, or there is none.
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
              // Nobody is there to answer a question of the bank.
              error_on_requires_action: true,
              metadata: { payment_id: paymentId, org_id: orgId, [MARK]: "true" },
            },
            { idempotencyKey: paymentId },
          );
          const fact = chargeOf(intent);
          // What is not told back is in doubt.
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
          // A shop that shares the account may be told of; what it names may be gone.
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

/** Tells a charge from what is paid by a checkout, which bears the name of its payment too. */
const MARK = "automatic";

/** What a payment intent says; undefined where it is no charge of ours. */
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

/** What a failure says of a charge: that it was declined, or that the processor knows no such payment method. Undefined where it is in doubt. */
function declineOf(charge: Charge, thrown: unknown): ChargeFact | undefined {
  const { StripeCardError, StripeInvalidRequestError } = Stripe.errors;
  if (thrown instanceof StripeCardError) {
    const fact = declined(charge, reasonOf(thrown.code, thrown.decline_code));
    return { ...fact, intentId: thrown.payment_intent?.id };
  }
  // What it does not understand it has not done.
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

/** How long a question may take in all, with every retry and every page of its answer. */
const PATIENCE_MS = 20_000;

/** Amounts are cents there and micro-dollars here. */
export const MICRO_PER_CENT = 10_000;

/** A failure of the processor is not the caller's: the refusal asks for a retry, and the cause goes to the log. */
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

/** Whether it answered that it will not, now or later: a wrong key, say, or a parameter that it does not know. */
function isRefused(cause: unknown): boolean {
  const { StripeInvalidRequestError, StripeAuthenticationError, StripePermissionError } = Stripe.errors;
  return [StripeInvalidRequestError, StripeAuthenticationError, StripePermissionError].some(
    (kind) => cause instanceof kind,
  );
}

/** The things in a list; none where there is no such list, as at servers that know checkouts alone. */
async function listed<T>(list: Promise<{ data: T[] }>): Promise<T[]> {
  try {
    return (await list).data;
  } catch (thrown) {
    if (thrown instanceof Stripe.errors.StripeInvalidRequestError && thrown.statusCode === 404) return [];
    throw thrown;
  }
}

/** The name of a thing that is there in whole or by name, in a list of one; an empty list where there is none. */
function idOf(thing: string | { id: string } | null | undefined): string[] {
  if (thing === null || thing === undefined) return [];
  return [typeof thing === "string" ? thing : thing.id];
}
