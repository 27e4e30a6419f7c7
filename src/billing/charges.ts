/** Payment methods that are stored at Stripe, and charges to them that nobody attends. */
import Stripe from "stripe";
import type { ChargeFact, DeclineReason } from "../store/billing/payments.ts";
import { idOf, MICRO_PER_CENT, reached } from "./stripe-calls.ts";

/** A page on which a payment method is stored. */
export interface SetUp {
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
export interface StoredMethod {
  customerId: string;
  methodId: string;
  kind: string;
  brand: string | undefined;
  last4: string | undefined;
}

/** A charge to a stored payment method. */
export interface Charge {
  paymentId: string;
  orgId: string;
  amountMicro: number;
  customerId: string;
  methodId: string;
  /** When the payment was made, in unix seconds. */
  created: number;
}

/** What the gateway needs of stored payment methods. Each rejects with `processor_unavailable` while the processor can't be reached. */
export interface Charges {
  /** Opens a page; answers its name and where it is. */
  setUp(wish: SetUp): Promise<{ sessionId: string; url: string }>;
  /** What was stored on a page; undefined where nothing was, or not yet. */
  askSetUp(sessionId: string): Promise<StoredMethod | undefined>;
  /** Forgets a payment method; one that is forgotten already is too. */
  forget(methodId: string): Promise<void>;
  /** Charges once, however often it is asked within the day for which the processor remembers the payment's name. Rejects where that is in doubt. */
  charge(charge: Charge): Promise<ChargeFact>;
  /** What became of what was charged as `intentId`; undefined where it is no charge of ours. */
  askCharge(intentId: string): Promise<ChargeFact | undefined>;
  /** The charge of a payment, however long ago it was asked for; undefined where there is none. */
  findCharge(charge: Charge): Promise<ChargeFact | undefined>;
}

/** Clocks differ. */
const EARLIER_S = 600;

/** Stored payment methods at Stripe. */
export function stripeCharges(stripe: Stripe): Charges {
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
          if (fact === undefined) throw new Error(`the charge ${intent.id} does not say what it is for`);
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
export function chargeOf(intent: Stripe.PaymentIntent): ChargeFact | undefined {
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
