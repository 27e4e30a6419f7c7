/** How long the payment processor is waited for. */
import { afterEach, expect, it } from "vitest";
import { replaceAmbient } from "../../src/ambient.ts";
import { stripeProcessor } from "../../src/payments.ts";
import { Reason } from "../../src/refusal.ts";
import { eventually } from "../support/eventually.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { StripeServer } from "../support/stripe.ts";

const undo: (() => unknown)[] = [];
afterEach(async () => {
  for (const last of undo.splice(0).reverse()) await last();
});

it("a processor that never answers is unavailable after 20 seconds, whatever it is asked, and nothing stays behind", async () => {
  const clock = new ManualClock();
  undo.push(replaceAmbient({ clock }));
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
