/** POST /v1/billing/webhook: messages of the payment processor, and of those who would like to be. */
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { BillingService } from "../../../gen/limber/v1/billing_service_pb.ts";
import type { Answer, App } from "../../support/app.ts";
import { refusalIn } from "../../support/clients.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { StripeServer } from "../../support/stripe.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let stripe: StripeServer;
beforeAll(async () => {
  stripe = await StripeServer.start();
  app = await ownGateway({ stripe: stripe.settings });
});
afterEach(async () => expect(await brokenInvariants(app.sql)).toEqual([]));
afterAll(async () => {
  await stripe.close();
});

const now = (): number => Math.floor(Date.now() / 1000);

const post = (payload: string, signature?: string, type = "application/json; charset=utf-8"): Promise<Answer> =>
  app.call("/v1/billing/webhook", payload, {
    headers: { "content-type": type, ...(signature !== undefined && { "stripe-signature": signature }) },
  });

async function pending(): Promise<{ key: string; id: string }> {
  const { key } = await app.caller(0);
  return { key, id: (await app.call("/v1/billing/topup", { amount_usd: 20 }, { key })).body.payment_id };
}
const statusOf = async (key: string): Promise<string> =>
  (await app.call("/v1/billing/payments", undefined, { key })).body.data[0].status;

describe("200", () => {
  it("accepts signed messages without a key", async () => {
    const { key, id } = await pending();
    const payload = stripe.pay(id);
    const { status, body } = await post(payload, stripe.sign(payload));
    expect([status, body]).toEqual([200, { received: true }]);
    expect(await statusOf(key)).toBe("succeeded");
  });

  it("accepts the oldest allowed message, and several signatures during a rotation", async () => {
    for (const sign of [
      (payload: string) => stripe.sign(payload, { at: now() - 290 }),
      (payload: string) => `${stripe.sign(payload, { secret: "whsec_old" })},${stripe.sign(payload).split(",")[1]}`,
    ]) {
      const { key, id } = await pending();
      const payload = stripe.pay(id);
      expect((await post(payload, sign(payload))).status).toBe(200);
      expect(await statusOf(key)).toBe("succeeded");
    }
  });

  it("ignores other event types, foreign checkouts, and refunds of unknown payments", async () => {
    const { key, id } = await pending();
    const session = stripe.sessionOf(id);
    for (const [type, object] of [
      ["customer.created", { id: "cus_1", object: "customer" }],
      ["something.new", {}],
      ["checkout.session.completed", { ...session, client_reference_id: null, payment_status: "paid" }],
      ["checkout.session.completed", { ...session, client_reference_id: "pay_01UNKNOWN", payment_status: "paid" }],
      [
        "checkout.session.completed",
        { ...session, client_reference_id: "an order of another shop", payment_status: "paid" },
      ],
      [
        "refund.created",
        { id: "re_1", object: "refund", amount: 500, status: "succeeded", payment_intent: "pi_unknown" },
      ],
      ["refund.created", { id: "re_2", object: "refund", amount: 500, status: "succeeded", payment_intent: null }],
      [
        "charge.dispute.created",
        { id: "dp_1", object: "dispute", amount: 5, status: "needs_response", payment_intent: "pi_x" },
      ],
    ] as const) {
      const payload = stripe.event(type, object);
      expect([type, (await post(payload, stripe.sign(payload))).status]).toEqual([type, 200]);
    }
    expect(await statusOf(key)).toBe("pending");
  });

  it("credits no checkout with another name, amount or currency", async () => {
    for (const twist of [
      { id: "cs_test_other" },
      { amount_subtotal: 100 },
      { amount_subtotal: 200_000 },
      { currency: "eur" },
    ]) {
      const { key, id } = await pending();
      const payload = stripe.event("checkout.session.completed", {
        ...stripe.sessionOf(id),
        payment_status: "paid",
        status: "complete",
        payment_intent: "pi_twisted",
        ...twist,
      });
      expect((await post(payload, stripe.sign(payload))).status).toBe(200);
      expect(await statusOf(key)).toBe("pending");
    }
  });
});

describe("400 invalid_signature", () => {
  it.each<[string, (payload: string) => string | undefined]>([
    ["none", () => undefined],
    ["an empty one", () => ""],
    ["no signature at all", () => "nonsense"],
    ["only a time", () => `t=${now()}`],
    ["only a signature", (payload) => stripe.sign(payload).replace(/^t=\d+,/, "")],
    ["another secret's", (payload) => stripe.sign(payload, { secret: "whsec_other" })],
    ["an empty secret's", (payload) => stripe.sign(payload, { secret: "" })],
    ["one that is too old", (payload) => stripe.sign(payload, { at: now() - 310 })],
    [
      "an old one with a new time",
      (payload) => stripe.sign(payload, { at: now() - 400 }).replace(/t=\d+/, `t=${now()}`),
    ],
    ["that of another message", (payload) => stripe.sign(`${payload} `)],
    ["a scheme that proves nothing", (payload) => stripe.sign(payload).replace("v1=", "v2=")],
    ["one cut short", (payload) => stripe.sign(payload).replace(/(v1=[0-9a-f]{10})[0-9a-f]+/, "$1")],
  ])("for %s", async (_, sign) => {
    const { key, id } = await pending();
    const payload = stripe.pay(id);
    const { status, body, text } = await post(payload, sign(payload));
    expect([status, body.error.code, body.error.type]).toEqual([400, "invalid_signature", "validation_error"]);
    expect(text).not.toContain("whsec");
    expect(await statusOf(key)).toBe("pending");
  });

  it("refuses a message changed after signing", async () => {
    const { key, id } = await pending();
    const payload = stripe.pay(id);
    const signature = stripe.sign(payload);
    for (const changed of [payload.replace("2000", "9000"), ` ${payload}`, payload.slice(0, -1), ""])
      expect([400, (await post(changed, signature)).body.error.code]).toEqual([400, "invalid_signature"]);
    expect(await statusOf(key)).toBe("pending");
  });
});

describe("4xx", () => {
  it("refuses signed content that is not an event", async () => {
    for (const payload of ["nonsense", "[", "{"]) {
      const { status, body } = await post(payload, stripe.sign(payload));
      expect([status, body.error.code]).toEqual([400, "malformed_body"]);
    }
    for (const payload of [
      "{}",
      "[]",
      "null",
      '{"type":"checkout.session.completed"}',
      '{"type":"refund.created","data":{"object":null}}',
    ]) {
      const { status } = await post(payload, stripe.sign(payload));
      expect(status, payload).toBeLessThan(500);
    }
  });

  it("refuses a message above 1 MiB, and other content types", async () => {
    const large = JSON.stringify({ filler: "x".repeat(1 << 20) });
    expect((await post(large, stripe.sign(large))).status).toBe(413);
    expect((await post("a=1", stripe.sign("a=1"), "application/x-www-form-urlencoded")).status).toBe(415);
  });
});

it("is the same call over gRPC", async () => {
  const client = createClient(BillingService, createGrpcTransport({ baseUrl: app.url }));
  const { key, id } = await pending();
  const payload = stripe.pay(id);
  const message = { payload: Buffer.from(payload), signature: stripe.sign(payload, { secret: "whsec_other" }) };
  expect(await refusalIn(client.takeProcessorMessage(message))).toMatchObject({ reason: "invalid_signature" });
  expect(await client.takeProcessorMessage({ ...message, signature: stripe.sign(payload) })).toMatchObject({
    received: true,
  });
  expect(await statusOf(key)).toBe("succeeded");
});
