/** How the payment processor is reached, and how long it is waited for. */
import { afterEach, expect, it } from "vitest";
import { stripeProcessor } from "../../../src/billing/payments.ts";
import { Reason } from "../../../src/errors.ts";
import { setAmbient } from "../../support/clocks.ts";
import { eventually } from "../../support/eventually.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { type StripeForm, StripeServer } from "../../support/stripe.ts";

const undo: (() => unknown)[] = [];
afterEach(async () => {
  for (const last of undo.splice(0).reverse()) await last();
});

it("an unresponsive payment processor is unavailable after 20 seconds for every request, and leaves nothing behind", async () => {
  const clock = new ManualClock();
  undo.push(setAmbient({ clock }));
  const stripe = await StripeServer.start();
  undo.push(() => stripe.close());
  stripe.trouble = "silence";
  const processor = stripeProcessor(stripe.settings);
  const checkout = { paymentId: "pay_1", orgId: "org_1", amountMicro: 5_000_000, expiresAt: 1 };
  const asked = [
    processor.ask("cs_1"),
    processor.find("pi_1"),
    processor.open({ ...checkout, successUrl: "https://a.example", cancelUrl: "https://a.example" }),
  ].map((answer) => answer.then(String, (refusal: unknown) => refusal));
  await eventually(() => expect(stripe.requests).toHaveLength(3));
  expect(clock.pending).toBe(3);
  await clock.advance(20_000);
  for (const refusal of await Promise.all(asked))
    expect(refusal).toMatchObject({ reason: Reason.PROCESSOR_UNAVAILABLE });
  expect(clock.pending).toBe(0);
});

const CHECKOUT = {
  paymentId: "pay_1",
  orgId: "org_1",
  amountMicro: 5_000_000,
  successUrl: "https://a.example/paid",
  cancelUrl: "https://a.example/left",
};

it.each<[string, StripeForm]>([
  ["of Stripe's own form", {}],
  ["at an address of IPv6", { host: "::1" }],
  ["with a path before /v1", { before: "/stripe" }],
  ["without an immediate checkout address", { isLate: true }],
  ["without refunds and disputes", { knowsLittle: true }],
  ["that names a payment's intent by the complete object", { expands: true }],
  ["that closes the connection after each answer without notice", { hangsUp: true }],
])("a server %s opens a checkout once, and reports its outcome", async (_, form) => {
  const stripe = await StripeServer.start(form);
  undo.push(() => stripe.close());
  const processor = stripeProcessor(stripe.settings);
  const checkout = { ...CHECKOUT, expiresAt: Math.floor(Date.now() / 1000) + 3_600 };
  const opened = await processor.open(checkout);
  expect(opened.url).toMatch(/^https:\/\/checkout\.stripe\.com\//);
  expect(await processor.open(checkout)).toEqual(opened);
  expect(stripe.sessions.size).toBe(1);
  expect(await processor.ask(opened.sessionId)).toMatchObject([{ status: "pending", intentId: undefined }]);
  stripe.pay("pay_1");
  stripe.refund("pay_1", 100);
  const [session, ...reversals] = await processor.ask(opened.sessionId);
  expect(session).toMatchObject({
    status: "succeeded",
    amountMicro: 5_000_000,
    intentId: expect.stringMatching(/^pi_/),
  });
  expect(reversals).toHaveLength(form.knowsLittle ? 0 : 1);
  expect(session?.kind === "checkout" && (await processor.find(String(session.intentId)))).toBe(opened.sessionId);
});

it("an address that ends in /v1, as in Stripe's documents, equals the one without it", async () => {
  const stripe = await StripeServer.start();
  undo.push(() => stripe.close());
  const { apiBase, ...keys } = stripe.settings;
  const processor = stripeProcessor({ ...keys, apiBase: `${apiBase}/v1/` });
  await processor.open({ ...CHECKOUT, expiresAt: Math.floor(Date.now() / 1000) + 3_600 });
  expect(stripe.requests).toMatchObject([{ path: "/v1/checkout/sessions" }]);
});

it("a payment server that rejects a request causes that error, with its own text only in the cause", async () => {
  const stripe = await StripeServer.start();
  undo.push(() => stripe.close());
  const processor = stripeProcessor(stripe.settings);
  const expiresAt = Math.floor(Date.now() / 1000) + 3_600;
  const refused = processor.open({ ...CHECKOUT, successUrl: "https://a.example:0/", expiresAt });
  await expect(refused).rejects.toMatchObject({
    reason: Reason.PROCESSOR_UNAVAILABLE,
    message: expect.stringContaining("rejected the gateway's request"),
    cause: { code: "url_invalid" },
  });
});
