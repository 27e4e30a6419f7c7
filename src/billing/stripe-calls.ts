/** What all calls of Stripe share: how long they take, what a failure is, and how its objects name each other. */
import Stripe from "stripe";
import { inTime } from "../clock.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";

/** How long a question may take in all, with every retry and every page of its answer. */
const PATIENCE_MS = 20_000;

/** Amounts are cents there and micro-dollars here. */
export const MICRO_PER_CENT = 10_000;

/** A failure of the processor is not the caller's: the refusal asks for a retry, and the cause goes to the log. */
export async function reached<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await inTime(ask(), { ms: PATIENCE_MS, late: () => new Error(`no answer within ${PATIENCE_MS} ms`) });
  } catch (cause) {
    throw away(cause);
  }
}

/** The refusal of a call that the processor does not serve. */
export function away(cause: unknown): Refusal {
  const text = isRefused(cause)
    ? "the payment processor does not take what the gateway asks; its operator's log says why; nothing was changed"
    : "the payment processor cannot be reached at the moment; nothing was changed";
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
export async function listed<T>(list: Promise<{ data: T[] }>): Promise<T[]> {
  try {
    return (await list).data;
  } catch (thrown) {
    if (thrown instanceof Stripe.errors.StripeInvalidRequestError && thrown.statusCode === 404) return [];
    throw thrown;
  }
}

/** The name of a thing that is there in whole or by name, in a list of one; an empty list where there is none. */
export function idOf(thing: string | { id: string } | null | undefined): string[] {
  if (thing === null || thing === undefined) return [];
  return [typeof thing === "string" ? thing : thing.id];
}
