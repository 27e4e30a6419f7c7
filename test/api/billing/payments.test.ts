/** GET /v1/billing, POST /v1/billing/topup, GET /v1/billing/payments, and what becomes of payments. */
import { fromBinary } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import { brokenInvariants } from "../../../src/store/money/invariants.ts";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { addEnding } from "../../support/money.ts";
import { StripeServer } from "../../support/stripe.ts";

let app: App;
let poor: App;
let stripe: StripeServer;
beforeAll(async () => {
  stripe = await StripeServer.start();
  [app, poor] = await Promise.all([openApp({ stripe: stripe.settings, publicUrl: "https://api.test" }), openApp()]);
});
afterEach(async () => {
  stripe.trouble = "none";
  expect(await brokenInvariants(app.sql)).toEqual([]);
});
afterAll(async () => {
  await Promise.all([app.close(), poor.close()]);
  await stripe.close();
});

const topUp = (key: string, body: object = { amount_usd: 20 }, headers: Record<string, string> = {}) =>
  app.call("/v1/billing/topup", body, { key, headers });
const reconcile = (key: string, id: string) => app.call(`/v1/billing/payments/${id}/reconcile`, {}, { key });
const payments = async (key: string) => (await app.call("/v1/billing/payments", undefined, { key })).body.data;
const balance = async (key: string) => (await app.call("/v1/billing/balance", undefined, { key })).body;
const open = async (key: string, amount_usd = 20): Promise<string> =>
  (await topUp(key, { amount_usd })).body.payment_id;
const deliver = (payload: string, signature?: string) => stripe.deliver(app.url, payload, signature);
const audited = async (org: string): Promise<string[]> =>
  (await app.sql`select action from audit where org_id = ${org} and action like 'payment.%' order by seq`).map(
    ({ action }) => action,
  );
const events = async (org: string) =>
  (await app.sql`select payload from outbox where org_id = ${org} and name like 'payment.%' order by position`).map(
    ({ payload }) => fromBinary(EventSchema, payload).data.case,
  );

/** An organisation whose payment was paid. */
async function paid(amount = 20): Promise<Caller & { id: string }> {
  const caller = await app.caller(0);
  const id = await open(caller.key, amount);
  expect(await deliver(stripe.pay(id))).toBe(200);
  return { ...caller, id };
}

describe("GET /v1/billing", () => {
  it("says to anybody whether there is self-serve billing, and its limits", async () => {
    const { status, body } = await app.call("/v1/billing");
    expect([status, body]).toEqual([
      200,
      { enabled: true, currency: "usd", min_usd: 5, max_usd: 10000, processor: "stripe" },
    ]);
    expect((await poor.call("/v1/billing")).body).toMatchObject({ enabled: false, processor: null });
  });
});

describe("POST /v1/billing/topup", () => {
  it("201 with a checkout, opened at the processor with the amount in cents and our names", async () => {
    const { org, key } = await app.caller(0);
    const { status, body } = await topUp(key, {
      amount_usd: 12.34,
      success_url: "https://robots.test/paid?s={CHECKOUT_SESSION_ID}",
    });
    expect(status).toBe(201);
    const session = stripe.sessionOf(body.payment_id);
    const expires_at = session.expires_at;
    expect(body).toEqual({
      payment_id: expect.stringMatching(/^pay_/),
      checkout_url: session.url,
      amount_usd: 12.34,
      fee_usd: 0,
      status: "pending",
      expires_at,
    });
    const request = stripe.requests.at(-1);
    expect(request).toMatchObject({ method: "POST", path: "/v1/checkout/sessions", idempotencyKey: body.payment_id });
    expect(request?.version).toMatch(/^\d{4}-\d{2}-\d{2}/);
    expect(request?.params).toMatchObject({
      mode: "payment",
      client_reference_id: body.payment_id,
      "line_items[0][price_data][currency]": "usd",
      "line_items[0][price_data][unit_amount]": "1234",
      "line_items[0][quantity]": "1",
      "metadata[org_id]": org,
      "payment_intent_data[metadata][payment_id]": body.payment_id,
      success_url: "https://robots.test/paid?s={CHECKOUT_SESSION_ID}",
      cancel_url: "https://robots.test/paid?s={CHECKOUT_SESSION_ID}",
    });
    expect(await payments(key)).toMatchObject([
      { id: body.payment_id, status: "pending", checkout_url: session.url, completed_at: null },
    ]);
    expect(await audited(org)).toEqual(["payment.requested"]);
    expect((await balance(key)).balance_usd).toBe(0);
  });

  it("sends payers home who were given no other address", async () => {
    const { key } = await app.caller(0);
    const id = await open(key);
    expect(stripe.sessionOf(id)).toMatchObject({
      success_url: "https://api.test/v1/billing",
      cancel_url: "https://api.test/v1/billing",
    });
  });

  it("opens one checkout for one idempotency key, in the body or in the header, also when asked many times at once", async () => {
    const { key } = await app.caller(0);
    const before = stripe.sessions.size;
    const body = { amount_usd: 7, idempotency_key: "once" };
    const answers = await Promise.all([
      ...Array.from({ length: 8 }, () => topUp(key, body)),
      topUp(key, { amount_usd: 7 }, { "idempotency-key": "once" }),
    ]);
    expect(answers.map(({ status }) => status)).toEqual(Array(9).fill(201));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    expect(stripe.sessions.size - before).toBe(1);
    const other = await topUp(key, { ...body, amount_usd: 8 });
    expect([other.status, other.body.error.code]).toEqual([409, "idempotency_conflict"]);
    expect(await payments(key)).toHaveLength(1);
  });

  it("503 while the processor fails; the same key finds the checkout afterwards, even one whose answer was lost", async () => {
    const { key } = await app.caller(0);
    const body = { amount_usd: 9, idempotency_key: "lost" };
    const before = stripe.sessions.size;
    stripe.trouble = "hang up";
    const lost = await topUp(key, body);
    expect([lost.status, lost.body.error.code, lost.headers.get("retry-after")]).toEqual([
      503,
      "processor_unavailable",
      "5",
    ]);
    stripe.trouble = "401";
    const refused = await topUp(key, body);
    expect([refused.status, refused.text.includes("sk_test")]).toEqual([503, false]);
    stripe.trouble = "none";
    const { status, body: answer } = await topUp(key, body);
    expect([status, stripe.sessions.size - before]).toEqual([201, 1]);
    expect(answer.checkout_url).toBe(stripe.sessionOf(answer.payment_id).url);
  });

  it("501 where no processor is set up, for every call that needs one", async () => {
    const { key } = await poor.caller(0);
    for (const path of ["/v1/billing/topup", "/v1/billing/webhook"]) {
      const { status, body } = await poor.call(path, { amount_usd: 20 }, { key });
      expect([path, status, body.error.code]).toEqual([path, 501, "billing_unavailable"]);
    }
    expect((await poor.call("/v1/billing/payments", undefined, { key })).body.data).toEqual([]);
  });

  it.each([
    ["negative", { amount_usd: -5 }],
    ["zero", { amount_usd: 0 }],
    ["too small", { amount_usd: 4.99 }],
    ["too large", { amount_usd: 10000.01 }],
    ["huge", { amount_usd: 1e300 }],
    ["finer than a cent", { amount_usd: 5.001 }],
    ["finer than a micro-dollar", { amount_usd: 5.0000001 }],
    ["NaN", '{"amount_usd":NaN}'],
    ["infinite", { amount_usd: "Infinity" }],
    ["text", { amount_usd: "20" }],
    ["null", { amount_usd: null }],
    ["absent", {}],
    ["misspelt", { amount_usd: 20, sucess_url: "https://a.test" }],
  ])("4xx for an amount that is %s, and no payment", async (_, body) => {
    const { key } = await app.caller(0);
    const { status } = await app.call("/v1/billing/topup", body, { key });
    expect([400, 422]).toContain(status);
    expect(await payments(key)).toEqual([]);
  });

  it.each([
    "http://robots.test/paid",
    "javascript:alert(1)",
    "data:text/html,hi",
    "//robots.test",
    "/paid",
    "https:robots.test",
    "https://",
    "https://user:secret@robots.test/",
    "https://robots.test/a b",
    "https://robots.test/\u0000",
    "https://robots.test/\nx",
    "http://localhost.evil.test/",
    `https://robots.test/${"a".repeat(2048)}`,
    "",
  ])("422 for the address %j", async (url) => {
    const { key } = await app.caller(0);
    for (const field of ["success_url", "cancel_url"]) {
      const { status, body } = await topUp(key, { amount_usd: 20, [field]: url });
      expect([status, body.error.param ?? field]).toEqual([url.includes("\u0000") ? status : 422, field]);
      expect([400, 422]).toContain(status);
    }
  });

  it("takes an address of loopback, for development", async () => {
    const { key } = await app.caller(0);
    expect((await topUp(key, { amount_usd: 20, success_url: "http://localhost:3000/paid" })).status).toBe(201);
  });

  it("is for who may pay; reading is for who may read bills", async () => {
    const { org } = await app.caller(0);
    for (const [role, write, read] of [
      ["owner", 201, 200],
      ["billing", 201, 200],
      ["admin", 403, 200],
      ["developer", 403, 403],
      ["viewer", 403, 403],
    ] as const) {
      const key = await app.key(org, { role });
      expect([role, (await topUp(key)).status]).toEqual([role, write]);
      expect([role, (await app.call("/v1/billing/payments", undefined, { key })).status]).toEqual([role, read]);
    }
  });
});

describe("GET /v1/billing/payments", () => {
  it("lists an organisation's own payments, newest first, in pages", async () => {
    const { key } = await app.caller(0);
    await open((await app.caller(0)).key);
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) ids.unshift(await open(key, 5 + i));
    const seen: string[] = [];
    for (let cursor = ""; ; ) {
      const { body } = await app.call(`/v1/billing/payments?limit=2${cursor && `&cursor=${cursor}`}`, undefined, {
        key,
      });
      seen.push(...body.data.map(({ id }: { id: string }) => id));
      if (!body.has_more) break;
      cursor = body.next_cursor;
    }
    expect(seen).toEqual(ids);
  });

  it.each(["limit=0", "limit=501", "limit=x", "nonsense=1"])("422 for ?%s", async (query) => {
    const { key } = await app.caller(0);
    expect((await app.call(`/v1/billing/payments?${query}`, undefined, { key })).status).toBe(422);
  });
});

describe("a payment", () => {
  it("is credited once when it is paid, however often and by whomever that is heard", async () => {
    const { org, key } = await app.caller(0);
    const id = await open(key);
    const event = stripe.pay(id);
    const heard = await Promise.all([
      deliver(event),
      deliver(event),
      reconcile(key, id).then(({ status }) => status),
      deliver(stripe.event("checkout.session.completed", stripe.sessionOf(id))),
      reconcile(key, id).then(({ status }) => status),
    ]);
    expect(heard).toEqual([200, 200, 200, 200, 200]);
    expect(await balance(key)).toMatchObject({ granted_usd: 20, balance_usd: 20 });
    expect(await payments(key)).toMatchObject([
      { id, status: "succeeded", refunded_usd: 0, completed_at: expect.any(Number) },
    ]);
    expect((await payments(key))[0]).not.toHaveProperty("checkout_url");
    expect(await events(org)).toEqual(["paymentSucceeded"]);
    expect(await audited(org)).toEqual(["payment.requested", "payment.succeeded"]);
  });

  it("waits for the bank where the bank takes its time, and is credited when it has the money", async () => {
    const { key } = await app.caller(0);
    const id = await open(key);
    const first = stripe.pay(id, { later: true });
    expect(await deliver(first)).toBe(200);
    expect(await payments(key)).toMatchObject([{ status: "pending" }]);
    expect(await deliver(stripe.settle(id, true))).toBe(200);
    expect(await deliver(first)).toBe(200);
    expect(await payments(key)).toMatchObject([{ status: "succeeded" }]);
    expect((await balance(key)).balance_usd).toBe(20);
  });

  it.each(["failed", "expired"] as const)("that %s is not credited, and told of once", async (status) => {
    const { org, key } = await app.caller(0);
    const id = await open(key);
    if (status === "failed") stripe.pay(id, { later: true });
    const event = status === "failed" ? stripe.settle(id, false) : stripe.expire(id);
    expect([await deliver(event), await deliver(event)]).toEqual([200, 200]);
    expect(await payments(key)).toMatchObject([{ id, status }]);
    expect((await balance(key)).balance_usd).toBe(0);
    expect(await events(org)).toEqual(["paymentFailed"]);
  });

  it("is paid whatever is said before it and after it", async () => {
    const { key } = await app.caller(0);
    const id = await open(key);
    const waiting = stripe.pay(id, { later: true });
    const failed = stripe.settle(id, false);
    const succeeded = stripe.settle(id, true);
    for (const event of [
      failed,
      succeeded,
      waiting,
      failed,
      stripe.event("checkout.session.expired", {
        ...stripe.sessionOf(id),
        payment_status: "unpaid",
        status: "expired",
      }),
    ])
      expect(await deliver(event)).toBe(200);
    expect(await payments(key)).toMatchObject([{ status: "succeeded" }]);
    expect((await balance(key)).balance_usd).toBe(20);
  });
});

describe("POST /v1/billing/payments/{id}/reconcile", () => {
  it("200 with what became of it, for each way it can go", async () => {
    const { key } = await app.caller(0);
    const id = await open(key);
    expect((await reconcile(key, id)).body).toMatchObject({ id, status: "pending" });
    stripe.pay(id);
    expect((await reconcile(key, id)).body).toMatchObject({ id, status: "succeeded" });
    stripe.refund(id, 500);
    expect((await reconcile(key, id)).body).toMatchObject({ id, status: "succeeded", refunded_usd: 5 });
    const late = await open(key);
    stripe.expire(late);
    expect((await reconcile(key, late)).body).toMatchObject({ id: late, status: "expired" });
    expect((await balance(key)).balance_usd).toBe(15);
  });

  it("404 for a payment that is not ours, whether it exists or not", async () => {
    const { key } = await app.caller(0);
    const other = await open((await app.caller(0)).key);
    const asked = stripe.requests.length;
    for (const id of [other, "pay_01UNKNOWN", "cs_test_1", "%27%20or%201=1", "..%2F..%2Fcharges"]) {
      const { status, body } = await reconcile(key, id);
      expect([id, status, body.error.code]).toEqual([id, 404, "not_found"]);
    }
    expect(stripe.requests.length).toBe(asked);
  });

  it("503 while the processor is away; nothing is changed", async () => {
    const { key } = await app.caller(0);
    const id = await open(key);
    stripe.pay(id);
    stripe.trouble = "401";
    const { status, body } = await reconcile(key, id);
    expect([status, body.error.code]).toEqual([503, "processor_unavailable"]);
    expect(await payments(key)).toMatchObject([{ status: "pending" }]);
  });
});

describe("money that goes back", () => {
  it("is taken from the balance, part by part, once each, whatever order it is told in", async () => {
    const { org, key, id } = await paid();
    const first = stripe.refund(id, 500);
    const second = stripe.refund(id, 1500);
    for (const event of [second.event, first.event, stripe.chargeRefunded(id), first.event])
      expect(await deliver(event)).toBe(200);
    expect(await payments(key)).toMatchObject([{ status: "refunded", refunded_usd: 20, owed_usd: 0 }]);
    expect(await balance(key)).toMatchObject({ granted_usd: 0, balance_usd: 0, owed_usd: 0 });
    expect(await audited(org)).toEqual([
      "payment.requested",
      "payment.succeeded",
      "payment.reversed",
      "payment.reversed",
    ]);
  });

  it("is found by what is said of the charge alone", async () => {
    const { key, id } = await paid();
    stripe.refund(id, 700);
    expect(await deliver(stripe.chargeRefunded(id))).toBe(200);
    expect((await balance(key)).balance_usd).toBe(13);
  });

  it("may be told of before the payment itself was", async () => {
    const { key } = await app.caller(0);
    const id = await open(key);
    const success = stripe.pay(id);
    expect(await deliver(stripe.refund(id, 500).event)).toBe(200);
    expect(await deliver(success)).toBe(200);
    expect(await payments(key)).toMatchObject([{ status: "succeeded", refunded_usd: 5 }]);
    expect((await balance(key)).balance_usd).toBe(15);
  });

  it("comes back when the refund fails, also when that is told first", async () => {
    for (const order of ["right", "wrong"] as const) {
      const { key, id } = await paid();
      const { id: refund, event: taken } = stripe.refund(id, 2000);
      const failed = stripe.failRefund(refund);
      for (const event of order === "right" ? [taken, failed, taken] : [failed, taken, failed])
        expect(await deliver(event)).toBe(200);
      expect(await payments(key)).toMatchObject([{ status: "succeeded", refunded_usd: 0 }]);
      expect((await balance(key)).balance_usd).toBe(20);
    }
  });

  it("by a dispute is gone while it is open and when it is lost, and comes back when it is won", async () => {
    for (const end of ["won", "lost"] as const) {
      const { key, id } = await paid();
      const { id: dispute, event } = stripe.dispute(id);
      expect([await deliver(event), await deliver(event)]).toEqual([200, 200]);
      expect((await balance(key)).balance_usd).toBe(0);
      expect(await deliver(stripe.closeDispute(dispute, end))).toBe(200);
      expect((await balance(key)).balance_usd).toBe(end === "won" ? 20 : 0);
      expect(await payments(key)).toMatchObject([{ status: end === "won" ? "succeeded" : "refunded" }]);
    }
  });

  it("beyond what is left is owed, never below zero, and taken from the next credit first", async () => {
    const { org, key, id } = await paid();
    // What was spent meanwhile.
    await app.sql`update account set available_micro = available_micro - 15000000 where org_id = ${org}`;
    await addEnding(app.sql, { orgId: org, keyId: `key_${org}`, costMicro: 15_000_000, lease: "available" });
    await app.sql`update account set requests = 1 where org_id = ${org}`;
    await app.sql`insert into key_day (key_id, day, org_id, taken_micro) values (${`key_${org}`}, now(), ${org}, 15000000)`;
    const { event, id: refund } = stripe.refund(id, 2000);
    expect(await deliver(event)).toBe(200);
    expect(await balance(key)).toMatchObject({
      granted_usd: 15,
      spent_usd: 15,
      balance_usd: 0,
      available_usd: 0,
      owed_usd: 15,
    });
    expect(await payments(key)).toMatchObject([{ status: "refunded", refunded_usd: 20, owed_usd: 15 }]);
    expect(await brokenInvariants(app.sql)).toEqual([]);
    await app.admin(`/v1/orgs/${org}/credits`, { amount_usd: 10 });
    expect(await balance(key)).toMatchObject({ granted_usd: 15, balance_usd: 0, owed_usd: 5 });
    await app.admin(`/v1/orgs/${org}/credits`, { amount_usd: 10 });
    expect(await balance(key)).toMatchObject({ granted_usd: 20, balance_usd: 5, owed_usd: 0 });
    expect(await brokenInvariants(app.sql)).toEqual([]);
    expect(await deliver(stripe.failRefund(refund))).toBe(200);
    expect(await balance(key)).toMatchObject({ granted_usd: 40, balance_usd: 25, owed_usd: 0 });
  });
});
