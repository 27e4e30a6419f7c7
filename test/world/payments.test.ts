/** What Stripe says of payments in other currencies than the gateway's, each test by the public project that lost money by it. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ADMIN_TOKEN, type App } from "../support/app.ts";
import { brokenInvariants } from "../support/invariants.ts";
import { StripeServer } from "../support/stripe.ts";
import { ownGateway } from "../support/world.ts";

let app: App;
let stripe: StripeServer;

beforeAll(async () => {
  stripe = await StripeServer.start();
  app = await ownGateway({ stripe: stripe.settings });
});
afterEach(async () => expect(await brokenInvariants(app.sql)).toEqual([]));
afterAll(async () => {
  await app.close();
  await stripe.close();
});

const deliver = async (payload: string): Promise<void> => expect(await stripe.deliver(app.url, payload)).toBe(200);

/** How often an operator was alerted. */
async function alerts(): Promise<number> {
  const { text } = await app.call("/metrics", undefined, { admin: ADMIN_TOKEN });
  return Number(/^limber_undecided_payments_total (\d+)$/m.exec(text)?.[1]);
}

/** An organization with a payment of 20 dollars, not yet paid. */
async function pending() {
  const { key } = await app.caller(0);
  const id: string = (await app.call("/v1/billing/topup", { amount_usd: 20 }, { key })).body.payment_id;
  const shown = async () => {
    const { status, refunded_usd } = (await app.call("/v1/billing/payments", undefined, { key })).body.data[0];
    const { balance_usd } = (await app.call("/v1/billing/balance", undefined, { key })).body;
    return [status, refunded_usd, balance_usd];
  };
  return { key, id, shown };
}

/** The same, paid; `say` delivers an event about what was paid. */
async function paid() {
  const payment = await pending();
  await deliver(stripe.pay(payment.id));
  const { payment_intent } = stripe.sessionOf(payment.id);
  const say = (type: string, object: object) => deliver(stripe.event(type, { payment_intent, ...object }));
  return { ...payment, say, intent: payment_intent as string };
}

let made = 0;
const dispute = (more: object) => ({ id: `dp_w${++made}`, object: "dispute", status: "needs_response", ...more });
const refund = (more: object) => ({ id: `re_w${++made}`, object: "refund", status: "succeeded", ...more });

describe("a dispute in the payer's currency", () => {
  it("takes the entire payment, and returns it when won (gumroad, spiralclass)", async () => {
    const { say, shown } = await paid();
    const yen = dispute({ amount: 3100, currency: "jpy" });
    await say("charge.dispute.created", yen);
    expect(await shown()).toEqual(["refunded", 20, 0]);
    await say("charge.dispute.closed", { ...yen, status: "won" });
    expect(await shown()).toEqual(["succeeded", 0, 20]);
  });

  it("after a partial refund takes only the remainder, and all of it if the refund fails", async () => {
    const { id, say, shown } = await paid();
    const back = stripe.refund(id, 500);
    await deliver(back.event);
    const before = await alerts();
    const whole = dispute({ amount: 2000, currency: "usd" });
    await say("charge.dispute.created", whole);
    expect(await shown()).toEqual(["refunded", 20, 0]);
    expect(await alerts()).toBe(before + 1);
    await deliver(stripe.failRefund(back.id));
    expect(await shown()).toEqual(["refunded", 20, 0]);
    await say("charge.dispute.closed", { ...whole, status: "won" });
    expect(await shown()).toEqual(["succeeded", 0, 20]);
  });
});

describe("a refund in the payer's currency", () => {
  it.each([
    ["yen, which have no cents (stripe-java)", 3100, 775, "jpy", 5],
    ["dinars, which have a thousand parts", 6_140, 3_070, "kwd", 10],
    ["euros, to the micro-dollar", 1834, 611, "eur", 6.663032],
  ])("takes its share of the charge: %s", async (_, whole, part, currency, usd) => {
    const { id, say, shown } = await paid();
    const charge = stripe.noteCharge(id, whole, currency);
    await say("refund.created", refund({ amount: part, currency, charge }));
    expect(await shown()).toEqual(["succeeded", usd, expect.closeTo(20 - usd, 6)]);
  });

  it("is found by the payment if it names no charge, and by the amount that the payer saw", async () => {
    const { id, say, shown } = await paid();
    stripe.noteCharge(id, 1000, "eur");
    await say("refund.created", refund({ amount: 500, currency: "eur" }));
    expect(await shown()).toEqual(["succeeded", 10, 10]);
  });

  it("with an unknown share takes nothing and alerts an operator (Smartstore)", async () => {
    const { id, say, shown } = await paid();
    const before = await alerts();
    await say("refund.created", refund({ amount: 500, currency: "eur" }));
    await say("refund.created", refund({ amount: 500, currency: "eur", charge: "ch_gone" }));
    const charge = stripe.noteCharge(id, 3100, "jpy");
    await say("refund.created", refund({ amount: 500, currency: "eur", charge }));
    await say("refund.created", refund({ amount: 4000, currency: "jpy", charge }));
    expect(await shown()).toEqual(["succeeded", 0, 20]);
    expect(await alerts()).toBe(before + 4);
  });

  it("never takes more than was paid, for any number of refunds", async () => {
    const { say, shown } = await paid();
    for (const amount of [1500, 1500, 9_000_000]) await say("refund.created", refund({ amount, currency: "usd" }));
    await say("charge.dispute.created", dispute({ amount: 1, currency: "jpy" }));
    expect(await shown()).toEqual(["refunded", 20, 0]);
  });
});

describe("a reversal as older API versions and other servers write it", () => {
  it("takes the payment of its charge if it names no payment intent (stripe-java, dj-stripe)", async () => {
    const { id, say, shown } = await paid();
    const charge = stripe.noteCharge(id, 2000, "usd");
    const { event, id: name } = stripe.refund(id, 500);
    const { object } = JSON.parse(event).data;
    await deliver(stripe.event("refund.created", { ...object, id: name, payment_intent: null, charge }));
    expect(await shown()).toEqual(["succeeded", 5, 15]);
    await deliver(
      stripe.event("charge.dispute.created", { ...dispute({ amount: 2000, currency: "usd" }), charge: "ch_other" }),
    );
    expect(await shown()).toEqual(["succeeded", 5, 15]);
    await say("refund.created", refund({ amount: 100, currency: "USD" }));
    expect(await shown()).toEqual(["succeeded", 6, 14]);
  });

  it("is refused with instructions if it is a thin event, which has no amounts", async () => {
    const thin = {
      id: "evt_1",
      object: "v2.core.event",
      type: "v1.charge.dispute.created",
      created: "2026-01-01T00:00:00Z",
    };
    const payload = JSON.stringify({
      ...thin,
      related_object: { id: "dp_1", type: "dispute", url: "/v1/disputes/dp_1" },
    });
    const headers = { "content-type": "application/json", "stripe-signature": stripe.sign(payload) };
    const answer = await fetch(`${app.url}/v1/billing/webhook`, { method: "POST", headers, body: payload });
    expect(answer.status).toBe(400);
    expect(await answer.text()).toContain("payload style of the processor's event destination to snapshot");
  });
});

describe("a checkout in the payer's currency", () => {
  const completed = (id: string, more: object) =>
    stripe.event("checkout.session.completed", {
      ...stripe.sessionOf(id),
      status: "complete",
      payment_status: "paid",
      payment_intent: `pi_w${++made}`,
      currency: "eur",
      amount_subtotal: 1834,
      amount_total: 1834,
      ...more,
    });

  it("is credited by the dollars that an older endpoint adds (langwatch, dub)", async () => {
    const { id, shown } = await pending();
    const conversion = { source_currency: "usd", amount_subtotal: 2000, amount_total: 2000, fx_rate: "1.0905" };
    await deliver(completed(id, { currency_conversion: conversion }));
    expect(await shown()).toEqual(["succeeded", 0, 20]);
  });

  it("is queried if the message has no dollars, and credited by the response", async () => {
    const { id, shown } = await pending();
    const event = completed(id, {});
    stripe.pay(id);
    await deliver(event);
    expect(await shown()).toEqual(["succeeded", 0, 20]);
  });

  it("that remains unclear, or was paid differently, alerts an operator and credits nothing", async () => {
    const { id, shown } = await pending();
    const before = await alerts();
    stripe.pay(id);
    Object.assign(stripe.sessionOf(id), { currency: "eur", amount_subtotal: 2000 });
    await deliver(completed(id, {}));
    expect(await alerts()).toBe(before + 1);
    await deliver(completed(id, { currency: "usd" }));
    expect(await alerts()).toBe(before + 2);
    expect(await shown()).toEqual(["pending", 0, 0]);
  });

  it("with a discount is not credited, and alerts an operator", async () => {
    const { id, shown } = await pending();
    const before = await alerts();
    stripe.pay(id);
    Object.assign(stripe.sessionOf(id), { amount_total: 1000 });
    await deliver(completed(id, { currency: "usd", amount_subtotal: 2000, amount_total: 1000 }));
    expect([await shown(), await alerts()]).toEqual([["pending", 0, 0], before + 1]);
    await deliver(completed(id, { currency: "USD", amount_subtotal: 2000, amount_total: 2380 })); // With tax.
    expect(await shown()).toEqual(["succeeded", 0, 20]);
  });

  it("of another shop with the same account is ignored", async () => {
    const { id } = await pending();
    const before = [await alerts(), stripe.requests.length];
    await deliver(completed(id, { client_reference_id: "an order of another shop" }));
    await deliver(completed(id, { client_reference_id: "pay_01UNKNOWN" }));
    expect([await alerts(), stripe.requests.length]).toEqual(before);
  });
});
