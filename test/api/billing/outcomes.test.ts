/** What becomes of payments: paid, failed, reconciled, and money that goes back. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { brokenInvariants } from "../../support/invariants.ts";
import { addEnding } from "../../support/money.ts";
import {
  app,
  audited,
  balance,
  begin,
  deliver,
  end,
  endEach,
  events,
  open,
  paid,
  payments,
  reconcile,
  stripe,
} from "./paying.ts";

beforeAll(begin);
afterEach(endEach);
afterAll(end);

describe("a payment", () => {
  it("is credited once for any number of webhooks on any replica", async () => {
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

  it("waits for a slow bank transfer and is credited when it arrives", async () => {
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

  it.each(["failed", "expired"] as const)("that %s is not credited, and is reported once", async (status) => {
    const { org, key } = await app.caller(0);
    const id = await open(key);
    if (status === "failed") stripe.pay(id, { later: true });
    const event = status === "failed" ? stripe.settle(id, false) : stripe.expire(id);
    expect([await deliver(event), await deliver(event)]).toEqual([200, 200]);
    expect(await payments(key)).toMatchObject([{ id, status }]);
    expect((await balance(key)).balance_usd).toBe(0);
    expect(await events(org)).toEqual(["paymentFailed"]);
  });

  it("stays paid whatever webhooks arrive before and after it", async () => {
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
  it("returns 200 with the payment's state for each outcome", async () => {
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

  it("returns 404 for foreign and unknown payments", async () => {
    const { key } = await app.caller(0);
    const other = await open((await app.caller(0)).key);
    const asked = stripe.requests.length;
    for (const id of [other, "pay_01UNKNOWN", "cs_test_1", "%27%20or%201=1", "..%2F..%2Fcharges"]) {
      const { status, body } = await reconcile(key, id);
      expect([id, status, body.error.code]).toEqual([id, 404, "not_found"]);
    }
    expect(stripe.requests.length).toBe(asked);
  });

  it("returns 503 while the processor is unavailable and changes nothing", async () => {
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
  it("is deducted part by part, once each, in any order of webhooks", async () => {
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

  it("is matched by the charge alone", async () => {
    const { key, id } = await paid();
    stripe.refund(id, 700);
    expect(await deliver(stripe.chargeRefunded(id))).toBe(200);
    expect((await balance(key)).balance_usd).toBe(13);
  });

  it("may be reported before the payment itself", async () => {
    const { key } = await app.caller(0);
    const id = await open(key);
    const success = stripe.pay(id);
    expect(await deliver(stripe.refund(id, 500).event)).toBe(200);
    expect(await deliver(success)).toBe(200);
    expect(await payments(key)).toMatchObject([{ status: "succeeded", refunded_usd: 5 }]);
    expect((await balance(key)).balance_usd).toBe(15);
  });

  it("is restored when the refund fails, even if that is reported first", async () => {
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

  it("is deducted while a dispute is open or lost, and restored when it is won", async () => {
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

  it("above the balance becomes due, never negative, and is taken from the next credit first", async () => {
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
