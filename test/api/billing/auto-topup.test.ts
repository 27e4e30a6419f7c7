/** Automatic top-up: the rule, the stored payment method, and one charge at a time by two gateways, whatever the processor does. */
import { fromBinary } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { EventSchema, type TopupFailed } from "../../../gen/limber/v1/event_pb.ts";
import { beginDue } from "../../../src/store/billing/auto-topup.ts";
import { tx } from "../../../src/store/database/tx.ts";
import { ADMIN_TOKEN, type Answer, type App, type Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { StripeServer } from "../../support/stripe.ts";
import { ownGateway } from "../../support/world.ts";

const RULE = "/v1/billing/auto-topup";
const METHOD = "/v1/billing/payment-method";

let one: App;
let two: App;
let stripe: StripeServer;
beforeAll(async () => {
  stripe = await StripeServer.start();
  const options = { stripe: stripe.settings, roles: new Set(["api", "worker"] as const) };
  one = await ownGateway(options);
  two = await ownGateway({ ...options, database: one.database });
}, 60_000);
afterEach(async () => {
  stripe.trouble = "none";
  stripe.lie = undefined;
  stripe.isSlowBank = false;
  expect(await brokenInvariants(one.sql)).toEqual([]);
});
afterAll(async () => {
  await stripe.close();
});

const patch = (key: string, body: object, app = one): Promise<Answer> => app.call(RULE, body, { key, method: "PATCH" });
const balance = async (key: string): Promise<number> =>
  (await one.call("/v1/billing/balance", undefined, { key })).body.balance_usd;
const payments = async (key: string): Promise<Answer["body"][]> =>
  (await one.call("/v1/billing/payments", undefined, { key })).body.data.filter(
    (each: Answer["body"]) => each.automatic,
  );
const statuses = async (key: string): Promise<string[]> => (await payments(key)).map(({ status }) => status);
const failures = async (org: string): Promise<TopupFailed[]> =>
  (await one.sql`select payload from outbox where org_id = ${org} and name = 'topup.failed' order by position`).map(
    ({ payload }) => fromBinary(EventSchema, payload).data.value as TopupFailed,
  );
/** Has both gateways look again now, as if the waits of an organisation were over. */
async function again(org: string): Promise<void> {
  await one.sql`update auto_topup set next_try = now() where org_id = ${org}`;
  await one.sql`update payment set asked_at = created - interval '2 hours' where org_id = ${org} and automatic and status = 'pending'`;
  await one.sql`select pg_notify('topup_due', ${org})`;
}
/** Looks again until something holds. */
const untilAgain = (org: string, holds: () => Promise<void>): Promise<void> =>
  eventually(async () => {
    await again(org);
    await holds();
  });

/** An organisation with a stored card. */
async function withCard(usd: number, card: Parameters<StripeServer["storeCard"]>[1] = {}): Promise<Caller> {
  const caller = await one.caller(usd);
  const { status, body } = await one.call(METHOD, {}, { key: caller.key });
  expect([status, body.setup_url]).toEqual([201, stripe.pageOf(caller.org).url]);
  expect(await stripe.deliver(one.url, stripe.storeCard(caller.org, card))).toBe(200);
  return caller;
}
const ON = { enabled: true, threshold_usd: 5, amount_usd: 20, monthly_ceiling_usd: 100 };

describe("the rule", () => {
  it("is off by default and needs a stored payment method, a threshold, an amount and a ceiling", async () => {
    const { key, org } = await one.caller(50);
    expect((await one.call(RULE, undefined, { key })).body).toMatchObject({ enabled: false, payment_method: null });
    const refusals: [object, number, string][] = [
      [ON, 409, "payment_method_missing"],
      [{ enabled: true }, 422, "validation_failed"],
      [{ amount_usd: 4.99 }, 422, "validation_failed"],
      [{ threshold_usd: 5.001 }, 422, "validation_failed"],
      [{ monthly_ceiling_usd: 1e300 }, 422, "validation_failed"],
      [{ amount_usd: 50, monthly_ceiling_usd: 49 }, 422, "validation_failed"],
    ];
    for (const [body, status, code] of refusals) {
      const answer = await patch(key, body);
      expect([body, answer.status, answer.body.error.code]).toEqual([body, status, code]);
    }
    await one.call(METHOD, {}, { key });
    // The message about the page was lost: turning it on asks.
    stripe.storeCard(org, { last4: "0005" });
    const { status, body } = await patch(key, ON);
    expect([status, body]).toMatchObject([
      200,
      { ...ON, charged_this_month_usd: 0, declines: 0, payment_method: { kind: "card", brand: "visa", last4: "0005" } },
    ]);
    expect((await patch(key, { enabled: false })).body).toMatchObject({ enabled: false, threshold_usd: 5 });
    const acts =
      await one.sql`select action from audit where org_id = ${org} and action like any(array['auto%', 'payment%']) order by seq`;
    expect(acts.map(({ action }) => action)).toEqual([
      "payment_method.requested",
      "payment_method.stored",
      "auto_topup.changed",
      "auto_topup.changed",
    ]);
  });

  it("turns off when the payment method is deleted, also at the processor", async () => {
    const { key, org } = await withCard(50);
    expect((await patch(key, ON)).status).toBe(200);
    const { status, body } = await one.call(METHOD, undefined, { key, method: "DELETE" });
    expect([status, body]).toMatchObject([200, { enabled: false, payment_method: null }]);
    expect(stripe.cardsOf(org).map(({ attached }) => attached)).toEqual([false]);
    expect((await patch(key, { enabled: true })).body.error.code).toBe("payment_method_missing");
  });

  it("stores only the payment method from the organization's newest page", async () => {
    const { key, org } = await one.caller(50);
    await one.call(METHOD, {}, { key });
    const first = stripe.storeCard(org, { last4: "1111" });
    await one.call(METHOD, {}, { key });
    const open = stripe.event("checkout.session.completed", { ...stripe.pageOf(org), status: "complete" });
    for (const payload of [
      first,
      open,
      stripe.event("checkout.session.completed", { ...stripe.pageOf(org), id: "cs_x" }),
    ])
      expect(await stripe.deliver(one.url, payload)).toBe(200);
    expect((await one.call(RULE, undefined, { key })).body.payment_method).toBe(null);
    expect(await stripe.deliver(one.url, stripe.storeCard(org, { last4: "2222" }))).toBe(200);
    expect((await one.call(RULE, undefined, { key })).body.payment_method.last4).toBe("2222");
  });
});

describe("a balance below the threshold", () => {
  it("is charged once by two gateways, for each of many organizations at once", async () => {
    const callers = await Promise.all(Array.from({ length: 5 }, () => withCard(1)));
    await Promise.all(callers.map(({ key }, at) => patch(key, ON, at % 2 ? one : two)));
    for (const { key, org } of callers) {
      await eventually(async () => expect(await balance(key)).toBe(21));
      // Above the threshold there is nothing to do, however often is looked.
      await again(org);
      expect(await payments(key)).toMatchObject([{ status: "succeeded", amount_usd: 20, automatic: true }]);
      expect(stripe.chargesOf(org)).toHaveLength(1);
      expect(stripe.chargesOf(org)[0]).toMatchObject({
        amount: 2000,
        metadata: { payment_id: (await payments(key))[0].id },
      });
    }
  });

  it("is charged repeatedly up to the monthly ceiling, which is reported once", async () => {
    const { key, org } = await withCard(1);
    await patch(key, { ...ON, threshold_usd: 1000, monthly_ceiling_usd: 50 });
    await untilAgain(org, async () =>
      expect(await failures(org)).toMatchObject([{ reason: "ceiling_reached", amountUsd: 20 }]),
    );
    for (let looks = 0; looks < 3; looks++) await again(org);
    await untilAgain(org, async () => expect(await statuses(key)).toEqual(["succeeded", "succeeded"]));
    expect([await balance(key), (await failures(org)).length, stripe.chargesOf(org).length]).toEqual([41, 1, 2]);
    expect((await one.call(RULE, undefined, { key })).body).toMatchObject({
      enabled: true,
      charged_this_month_usd: 40,
    });
    // A higher ceiling is tried at once.
    await patch(key, { monthly_ceiling_usd: 60 });
    await eventually(async () => expect(await balance(key)).toBe(61));
  });

  it("is reported when the card is declined, and turned off after three declines in a row", async () => {
    const { key, org } = await withCard(1, { decline: { code: "card_declined", decline_code: "insufficient_funds" } });
    await patch(key, ON);
    await untilAgain(org, async () => expect(await failures(org)).toHaveLength(3));
    expect(await failures(org)).toMatchObject([
      { reason: "insufficient_funds", declines: 1, turnedOff: false },
      { reason: "insufficient_funds", declines: 2, turnedOff: false },
      { reason: "insufficient_funds", declines: 3, turnedOff: true },
    ]);
    await again(org);
    expect([await statuses(key), await balance(key)]).toEqual([["failed", "failed", "failed"], 1]);
    expect((await one.call(RULE, undefined, { key })).body).toMatchObject({ enabled: false, declines: 3 });
    // The card works again: turning it on takes back the declines.
    for (const card of stripe.cardsOf(org)) card.decline = undefined;
    expect((await patch(key, { enabled: true })).body).toMatchObject({ declines: 0 });
    await eventually(async () => expect(await balance(key)).toBe(21));
  });

  it("is no longer charged once the rule or the organization is disabled", async () => {
    const { key, org } = await withCard(50);
    await patch(key, ON);
    await one.sql`update org set status = 'suspended' where id = ${org}`;
    await one.sql`update account set available_micro = available_micro where org_id = ${org}`;
    await one.sql`update auto_topup set threshold_micro = 900000000 where org_id = ${org}`;
    expect(await tx(one.sql, beginDue)).toBeUndefined();
    await tx(one.sql, async (tx) => {
      await tx`update org set status = 'active' where id = ${org}`;
      await tx`update auto_topup set enabled = false, next_try = '2000-01-01' where org_id = ${org}`;
    });
    expect(await tx(one.sql, beginDue)).toBeUndefined();
    expect(stripe.chargesOf(org)).toEqual([]);
  });
});

describe("what became of a charge", () => {
  /** An organisation whose charge was begun by a gateway that died before it could ask, and is not asked for yet. */
  async function begun(card: Parameters<StripeServer["storeCard"]>[1] = {}): Promise<Caller & { id: string }> {
    const caller = await withCard(50, card);
    expect((await patch(caller.key, { ...ON, monthly_ceiling_usd: 40 })).status).toBe(200);
    const id = await tx(one.sql, async (tx) => {
      await tx`update auto_topup set threshold_micro = 900000000, next_try = '2000-01-01' where org_id = ${caller.org}`;
      const made = await beginDue(tx);
      // Neither gateway asks by itself: as if one had just done so.
      await tx`update payment set asked_at = now() + interval '1 day' where id = ${made?.paymentId ?? ""}`;
      await tx`update auto_topup set threshold_micro = 1 where org_id = ${caller.org}`;
      expect(made?.orgId).toBe(caller.org);
      return made?.paymentId ?? "";
    });
    return { ...caller, id };
  }

  it("is queried once by another gateway after the first one died", async () => {
    const { key, org, id } = await begun();
    expect(stripe.chargesOf(org)).toEqual([]);
    await untilAgain(org, async () => expect(await payments(key)).toMatchObject([{ id, status: "succeeded" }]));
    expect([await balance(key), stripe.chargesOf(org).length]).toEqual([70, 1]);
  });

  it("is requested again under the same key after a lost response, and charged once", async () => {
    const { key, org } = await begun();
    stripe.trouble = "hang up";
    await untilAgain(org, async () => expect(stripe.chargesOf(org)).toHaveLength(1));
    expect(await statuses(key)).toEqual(["pending"]);
    expect((await one.call(RULE, undefined, { key })).body.pending_payment_id).toMatch(/^pay_/);
    stripe.trouble = "none";
    await untilAgain(org, async () => expect(await statuses(key)).toEqual(["succeeded"]));
    expect([await balance(key), stripe.chargesOf(org).length]).toEqual([70, 1]);
  });

  it("is looked up after the processor dropped the key, and not charged again", async () => {
    const [lost, never] = [await begun(), await begun()];
    stripe.trouble = "hang up";
    await untilAgain(lost.org, async () => expect(stripe.chargesOf(lost.org)).toHaveLength(1));
    stripe.trouble = "none";
    await one.sql`update payment set expires_at = now() - interval '1 second' where id in ${one.sql([lost.id, never.id])}`;
    await untilAgain(lost.org, async () => expect(await statuses(lost.key)).toEqual(["succeeded"]));
    await untilAgain(never.org, async () => expect(await statuses(never.key)).toEqual(["expired"]));
    expect([await balance(lost.key), await balance(never.key)]).toEqual([70, 50]);
    expect([stripe.chargesOf(lost.org).length, stripe.chargesOf(never.org).length]).toEqual([1, 0]);
  });

  it("stays pending if amount, payer, currency or payment differ", async () => {
    const { key, org, id } = await begun();
    const lies: ((intent: Record<string, unknown>) => Record<string, unknown>)[] = [
      (intent) => ({ ...intent, amount: 100_000, amount_received: 100_000 }),
      (intent) => ({ ...intent, amount_received: 1 }),
      (intent) => ({ ...intent, customer: "cus_other" }),
      (intent) => ({ ...intent, customer: null }),
      (intent) => ({ ...intent, currency: "jpy" }),
      (intent) => ({ ...intent, metadata: {} }),
      (intent) => ({ ...intent, metadata: { ...(intent.metadata as object), payment_id: "pay_other" } }),
    ];
    for (const lie of lies) {
      stripe.lie = lie;
      await again(org);
      const asked = stripe.requests.length;
      await untilAgain(org, async () => expect(stripe.requests.length).toBeGreaterThan(asked));
      const truth = stripe.chargesOf(org)[0] ?? {};
      expect(await stripe.deliver(one.url, stripe.event("payment_intent.succeeded", lie(truth)))).toBe(200);
      expect([await statuses(key), await balance(key)]).toEqual([["pending"], 50]);
    }
    stripe.lie = undefined;
    await untilAgain(org, async () => expect(await payments(key)).toMatchObject([{ id, status: "succeeded" }]));
    expect([await balance(key), stripe.chargesOf(org).length]).toEqual([70, 1]);
  });

  it("is credited once for any number of late and reordered webhooks", async () => {
    const { key, org } = await begun();
    stripe.isSlowBank = true;
    await untilAgain(org, async () => expect(stripe.chargesOf(org)).toHaveLength(1));
    await eventually(async () => expect(await statuses(key)).toEqual(["pending"]));
    const intent = stripe.chargesOf(org)[0] ?? {};
    const failed = stripe.event("payment_intent.payment_failed", { ...intent, status: "requires_payment_method" });
    Object.assign(intent, { status: "succeeded", amount_received: intent.amount });
    const paid = stripe.event("payment_intent.succeeded", intent);
    const deliveries = [paid, paid, failed, paid, failed].map((each, at) =>
      stripe.deliver((at % 2 ? one : two).url, each),
    );
    expect(await Promise.all(deliveries)).toEqual([200, 200, 200, 200, 200]);
    expect(await stripe.deliver(one.url, failed)).toBe(200);
    expect([await statuses(key), await balance(key)]).toEqual([["succeeded"], 70]);
  });

  it("is reversed by a refund whose webhook arrives before the charge's", async () => {
    const { key, org, id } = await begun();
    stripe.trouble = "hang up";
    await untilAgain(org, async () => expect(stripe.chargesOf(org)).toHaveLength(1));
    stripe.trouble = "none";
    const refund = { id: "re_overtook", object: "refund", amount: 500, status: "succeeded" };
    const intent = stripe.chargesOf(org)[0]?.id;
    stripe.noteRefund({ ...refund, payment_intent: intent });
    expect(await stripe.deliver(one.url, stripe.event("refund.created", { ...refund, payment_intent: intent }))).toBe(
      200,
    );
    expect(await payments(key)).toMatchObject([{ id, status: "succeeded", refunded_usd: 5 }]);
    expect(await balance(key)).toBe(65);
  });
});

describe("an organisation that is deleted", () => {
  const deleted = async (org: string): Promise<void> => {
    const answer = await one.call(`/v1/orgs/${org}?confirm=${org}&force=true`, undefined, {
      admin: ADMIN_TOKEN,
      method: "DELETE",
    });
    expect([answer.status, answer.text]).toEqual([200, expect.anything()]);
  };
  /** Has both gateways ask again now, as if the waits were over. */
  const askAgain = async (): Promise<void> => {
    await one.sql`update method_to_forget set asked_at = null`;
    await one.sql`select pg_notify('topup_due', '')`;
  };
  const left = async (): Promise<number> => (await one.sql`select from method_to_forget`).count;

  it("has its card deleted at the processor, even after the processor's outage", async () => {
    const { org } = await withCard(10);
    const [card] = stripe.cardsOf(org);
    expect(card?.attached).toBe(true);
    for (const trouble of ["500", "401", "hang up"] as const) {
      stripe.trouble = trouble;
      if (trouble === "500") await deleted(org);
      else await askAgain();
      await eventually(async () => {
        const [row] = await one.sql`select asked_at from method_to_forget`;
        expect(row?.askedAt).toBeTruthy();
      });
    }
    stripe.trouble = "none";
    await eventually(async () => {
      await askAgain();
      expect([card?.attached, await left()]).toEqual([false, 0]);
    });
  }, 60_000);

  it("has a card deleted that was entered later on an open page", async () => {
    const { org, key } = await one.caller(10);
    expect((await one.call(METHOD, {}, { key })).status).toBe(201);
    await deleted(org);
    expect(await left()).toBe(1);
    expect(await stripe.deliver(one.url, stripe.storeCard(org))).toBe(200);
    const [card] = stripe.cardsOf(org);
    await eventually(async () => expect([card?.attached, await left()]).toEqual([false, 0]));
  }, 60_000);
});
