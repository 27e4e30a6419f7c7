/** A gateway whose payments are taken by a processor, one that has none, and what becomes of payers. */
import { fromBinary } from "@bufbuild/protobuf";
import { expect } from "vitest";
import { EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import type { Answer, App, Caller } from "../../support/app.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { StripeServer } from "../../support/stripe.ts";
import { ownGateway } from "../../support/world.ts";

/** The gateway with a processor, between `begin` and `end`. */
export let app: App;
/** The one without. */
export let poor: App;
/** The processor. */
export let stripe: StripeServer;

/** Before all tests. */
export async function begin(): Promise<void> {
  stripe = await StripeServer.start();
  [app, poor] = await Promise.all([
    ownGateway({ stripe: stripe.settings, publicUrl: "https://api.test" }),
    ownGateway(),
  ]);
}

/** After each test. */
export async function endEach(): Promise<void> {
  stripe.trouble = "none";
  expect(await brokenInvariants(app.sql)).toEqual([]);
}

/** After all tests. */
export async function end(): Promise<void> {
  await Promise.all([app.close(), poor.close()]);
  await stripe.close();
}

/** Asks for a checkout. */
export const topUp = (
  key: string,
  body: object = { amount_usd: 20 },
  headers: Record<string, string> = {},
): Promise<Answer> => app.call("/v1/billing/topup", body, { key, headers });

/** Has a payment looked up at the processor. */
export const reconcile = (key: string, id: string): Promise<Answer> =>
  app.call(`/v1/billing/payments/${id}/reconcile`, {}, { key });

/** The payments of a key's organisation. */
export const payments = async (key: string): Promise<Answer["body"]> =>
  (await app.call("/v1/billing/payments", undefined, { key })).body.data;

/** Its balance. */
export const balance = async (key: string): Promise<Answer["body"]> =>
  (await app.call("/v1/billing/balance", undefined, { key })).body;

/** Opens a checkout; answers the payment's id. */
export const open = async (key: string, amount_usd = 20): Promise<string> =>
  (await topUp(key, { amount_usd })).body.payment_id;

/** Tells the gateway of something, as the processor does; answers the status. */
export const deliver = (payload: string, signature?: string): Promise<number> =>
  stripe.deliver(app.url, payload, signature);

/** What was put on record of an organisation's payments. */
export const audited = async (org: string): Promise<string[]> =>
  (await app.sql`select action from audit where org_id = ${org} and action like 'payment.%' order by seq`).map(
    ({ action }) => action,
  );

/** The events of its payments. */
export const events = async (org: string): Promise<(string | undefined)[]> =>
  (await app.sql`select payload from outbox where org_id = ${org} and name like 'payment.%' order by position`).map(
    ({ payload }) => fromBinary(EventSchema, payload).data.case,
  );

/** An organisation whose payment was paid. */
export async function paid(amount = 20): Promise<Caller & { id: string }> {
  const caller = await app.caller(0);
  const id = await open(caller.key, amount);
  expect(await deliver(stripe.pay(id))).toBe(200);
  return { ...caller, id };
}
