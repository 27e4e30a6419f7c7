/** Every movement of a balance is in a list: calls in usage, all else in payments. */
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { closeMonths } from "../../../src/store/billing/statements.ts";
import type { Model } from "../../support/model.ts";
import { openModel } from "../../support/world.ts";
import { app, balance, begin, deliver, end, endEach, open, payments, stripe } from "./paying.ts";

let model: Model;

beforeAll(async () => {
  await begin();
  model = await openModel();
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
});
afterEach(endEach);
afterAll(async () => {
  await end();
});

const inTwoMonths = (): number => Date.UTC(new Date().getUTCFullYear(), new Date().getUTCMonth() + 2, 2);
const act = (key: string) =>
  app.call(
    "/v1/act",
    { model: "acme/base", action_space: "base_twist_2d", horizon: 10, observations: [{ proprio: [0] }] },
    { key },
  );

const paymentIn = (all: { id: string; kind: string }[]): string => all.find(({ kind }) => kind === "payment")!.id;

/** What the lists say that there is, in micro-dollars. */
async function listed(key: string): Promise<number> {
  const micro = (usd: number): number => Math.round(usd * 1e6);
  let sum = 0;
  for (const { status, amount_usd, refunded_usd, owed_usd } of await payments(key))
    if (status === "succeeded" || status === "refunded")
      sum += micro(amount_usd) - micro(refunded_usd) + micro(owed_usd);
  const { body } = await app.call("/v1/usage?limit=500", undefined, { key });
  for (const { cost_usd } of body.data) sum -= micro(cost_usd);
  return sum;
}

it("the lists add up to the balance after credits, payments, refunds, calls and availability fees", async () => {
  const { org, key } = await app.caller(3);
  const steps: (() => Promise<unknown>)[] = [
    async () => deliver(stripe.pay(await open(key, 20))),
    () => act(key),
    async () => deliver(stripe.refund(paymentIn(await payments(key)), 500).event),
    () => app.admin(`/v1/orgs/${org}/commitment`, { min_monthly_usd: 30 }),
    // The first month takes all that there is, and the rest when there is credit.
    () => closeMonths(app.sql, org, inTwoMonths()),
    () => app.admin(`/v1/orgs/${org}/credits`, { amount_usd: 100, reason: "a good robot" }),
    () => closeMonths(app.sql, org, inTwoMonths()),
    () => act(key),
  ];
  for (const step of steps) {
    await step();
    expect(await listed(key)).toBe(Math.round((await balance(key)).balance_usd * 1e6));
  }
  const all = await payments(key);
  expect(all.filter(({ kind }: { kind: string }) => kind === "availability_fee")).not.toHaveLength(0);
  expect(all.find(({ kind }: { kind: string }) => kind === "availability_fee")).toMatchObject({
    id: expect.stringMatching(/^fee_\d{4}-\d{2}_\d$/),
    status: "succeeded",
    note: expect.stringContaining("unused commitment"),
  });
  expect(all).toContainEqual(
    expect.objectContaining({ kind: "credit", amount_usd: 100, processor: "operator", note: "a good robot" }),
  );

  const paged: string[] = [];
  for (let cursor = ""; ; ) {
    const { body } = await app.call(`/v1/billing/payments?limit=1${cursor && `&cursor=${cursor}`}`, undefined, { key });
    paged.push(...body.data.map(({ id }: { id: string }) => id));
    if (!body.has_more) break;
    cursor = body.next_cursor;
  }
  expect(paged).toEqual(all.map(({ id }: { id: string }) => id));
});

it("shows only the organization's own movements", async () => {
  const { key } = await app.caller(0);
  const other = await app.caller(7);
  const [credit] = await payments(other.key);
  expect(await payments(key)).toEqual([]);
  const { body } = await app.call(`/v1/billing/payments?cursor=${credit.id}`, undefined, { key });
  expect(body.data).toEqual([]);
});
