/** A payment whose message never arrives: the payer asks, or the gateway does by itself, and the message comes late after all. */
import { fromBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, it } from "vitest";
import { EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import { tx } from "../../../src/store/database/tx.ts";
import { eventually } from "../../support/eventually.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { honestSteps } from "../../support/model.ts";
import { Pair } from "../../support/pair.ts";
import { StripeServer } from "../../support/stripe.ts";

let stripe: StripeServer;
let pair: Pair;
beforeAll(async () => {
  stripe = await StripeServer.start();
  const { secretKey, webhookSecret, apiBase } = stripe.settings;
  const env = { STRIPE_SECRET_KEY: secretKey, STRIPE_WEBHOOK_SECRET: webhookSecret, STRIPE_API_BASE: apiBase };
  pair = await Pair.open({ env });
});
afterAll(async () => {
  await pair?.close();
  await stripe.close();
});

const act = (place: number, key: string) =>
  pair.call(
    place,
    "/v1/act",
    { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0] }] },
    { key },
  );

it("a lost payment is credited once by the first query on any gateway, and its late webhook changes nothing", async () => {
  const { org, key } = await pair.caller(0);
  const { payment_id: id } = await pair.well(0, "/v1/billing/topup", { amount_usd: 25 }, { key });
  expect((await act(0, key)).body.error.code).toBe("insufficient_credits");

  // The payer has paid, and the message is lost on its way: nobody knows.
  const lost = stripe.pay(id);
  expect((await act(0, key)).status).toBe(402);
  const listed = async (place: number) => (await pair.well(place, "/v1/billing/payments", undefined, { key })).data[0];
  expect(await listed(1)).toMatchObject({ id, status: "pending" });

  // The processor is away when he asks, then it answers; he asks both gateways at once, because he is nervous.
  stripe.trouble = "401";
  expect((await pair.call(1, `/v1/billing/payments/${id}/reconcile`, {}, { key })).status).toBe(503);
  stripe.trouble = "none";
  const asked = await Promise.all(
    [0, 1, 0, 1, 0, 1].map((place) => pair.call(place, `/v1/billing/payments/${id}/reconcile`, {}, { key })),
  );
  expect(asked.map(({ status }) => status)).toEqual(Array(6).fill(200));
  expect(await listed(0)).toMatchObject({ id, status: "succeeded", amount_usd: 25 });

  // The processor tries again for days.
  for (const place of [1, 0, 1, 1]) expect(await stripe.deliver(pair.urlOf(place) ?? "", lost)).toBe(200);
  const balance = async () => (await pair.well(0, "/v1/billing/balance", undefined, { key })).balance_usd;
  expect(await balance()).toBe(25);

  // The credit is there for calls, at both.
  pair.model.script.act = (call, answer) => answer(honestSteps(call, 2));
  expect([(await act(0, key)).status, (await act(1, key)).status]).toEqual([200, 200]);
  const told = await pair.sql`select payload from outbox where org_id = ${org} and name like 'payment.%'`;
  expect(told.map(({ payload }) => fromBinary(EventSchema, payload).data.case)).toEqual(["paymentSucceeded"]);
  expect(await brokenInvariants(pair.sql)).toEqual([]);
});

it("the gateway finds a lost payment without a query, and ends one that was never paid", async () => {
  const { key } = await pair.caller(0);
  const paid: string = (await pair.well(0, "/v1/billing/topup", { amount_usd: 30 }, { key })).payment_id;
  const unpaid: string = (await pair.well(0, "/v1/billing/topup", { amount_usd: 40 }, { key })).payment_id;
  stripe.pay(paid);
  stripe.expire(unpaid);
  await pair.sql`update payment set created = created - interval '2 hours' where id in ${pair.sql([paid, unpaid])}`;

  // A gateway looks when it starts, and every hour from then on.
  await pair.kill(1);
  await pair.start(1);
  const listed = async () => (await pair.well(1, "/v1/billing/payments", undefined, { key })).data;
  await expect.poll(listed).toMatchObject([
    { id: unpaid, status: "expired" },
    { id: paid, status: "succeeded" },
  ]);
  expect((await pair.well(1, "/v1/billing/balance", undefined, { key })).granted_usd).toBe(30);
});

it("a payment survives a gateway kill between opening the checkout and recording it", async () => {
  const { key } = await pair.caller(0);
  const body = { amount_usd: 15, idempotency_key: "nervous" };
  stripe.trouble = "hang up";
  const asking = pair.call(1, "/v1/billing/topup", body, { key }).catch(() => undefined);
  const opened = stripe.sessions.size;
  await expect.poll(() => stripe.sessions.size).toBe(opened + 1);
  await pair.kill(1);
  await asking;
  stripe.trouble = "none";
  await pair.start(1);
  const again = await pair.call(0, "/v1/billing/topup", body, { key });
  expect([again.status, stripe.sessions.size]).toEqual([201, opened + 1]);
  expect(await stripe.deliver(pair.urlOf(1) ?? "", stripe.pay(again.body.payment_id))).toBe(200);
  expect((await pair.well(0, "/v1/billing/balance", undefined, { key })).balance_usd).toBe(15);
});

/** Holds a payment's row until `release` is called, as a session does that stands still. */
async function hold(id: string): Promise<{ release(): void; ended: Promise<unknown> }> {
  const [held, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const ended = tx(pair.sql, async (tx) => {
    await tx`select 1 from payment where id = ${id} for update`;
    held.resolve();
    await release.promise;
  }).catch(() => {});
  await held.promise;
  return { release: release.resolve, ended };
}

const waiting = async (): Promise<void> => {
  const [row] = await pair.sql`
    select count(*) as count from pg_stat_activity where wait_event_type = 'Lock' and query like '%from payment%for update%'`;
  expect(row!.count).toBe(1);
};

it("a payment query returns 503 while another session locks the payment, and credits it afterwards", async () => {
  const { key } = await pair.caller(0);
  const { payment_id: id } = await pair.well(0, "/v1/billing/topup", { amount_usd: 15 }, { key });
  stripe.pay(id);
  const { release, ended } = await hold(id);
  const { status, body } = await pair.call(0, `/v1/billing/payments/${id}/reconcile`, {}, { key });
  expect([status, body.error.code]).toEqual([503, "store_unavailable"]);
  release();
  await ended;
  expect((await pair.well(1, `/v1/billing/payments/${id}/reconcile`, {}, { key })).status).toBe("succeeded");
  expect(await brokenInvariants(pair.sql)).toEqual([]);
});

it("a payment query is answered, and credited once, if the database is killed while the credit is being written", async () => {
  const { key } = await pair.caller(0);
  const { payment_id: id } = await pair.well(0, "/v1/billing/topup", { amount_usd: 20 }, { key });
  stripe.pay(id);
  const { release, ended } = await hold(id);
  const asked = pair.call(0, `/v1/billing/payments/${id}/reconcile`, {}, { key });
  await eventually(waiting);
  pair.killPostgres();
  expect((await asked).status).toBe(503);
  release();
  await ended;
  const last = await eventually(async () => {
    const answer = await pair.call(0, `/v1/billing/payments/${id}/reconcile`, {}, { key });
    expect(answer.status).toBe(200);
    return answer.body;
  });
  expect(last.status).toBe("succeeded");
  await eventually(async () => {
    const answer = await pair.call(1, "/v1/billing/balance", undefined, { key });
    expect([answer.status, answer.body.balance_usd]).toEqual([200, 20]);
  });
  expect(await brokenInvariants(pair.sql)).toEqual([]);
});
