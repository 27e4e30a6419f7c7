/** What the log keeps of plans: the order, the drops by reason, and the first of them. */

import { beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { robot } from "../../support/loop-client.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
let caller: Caller;
const ids: Record<string, string> = {};

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), openModel()]);
  for (const [provider, price] of [
    ["dear", 0.001],
    ["cheap", 0.0001],
    ["middle", 0.0002],
    ["far", 0.0001],
  ] as const) {
    const more = { price_per_action_step: price, ...(provider === "far" && { region: "moon" }) };
    ids[provider] = await app.supply({ provider, model: "acme/base", endpoint: model.endpoint, ...more });
  }
  caller = await app.caller(10);
});

const BODY = {
  model: "acme/base",
  action_space: "base_twist_2d",
  horizon: 2,
  observations: [{ proprio: [0.5] }],
  provider: { sort: "price", ignore: ["far"], max_price_per_action_step: 0.0005 },
};
const act = (provider: object = {}, more: object = {}) =>
  app.call("/v1/act", { ...BODY, ...more, provider: { ...BODY.provider, ...provider } }, { key: caller.key });
const requestOf = ({ headers }: { headers: Headers }): string => headers.get("x-request-id")!;
/** The plan on record; its digest is written after the call. */
const planOf = (id: string) =>
  eventually(async () => {
    const { body } = await app.call(`/v1/logs/${id}`, undefined, { key: caller.key });
    expect(body.plan).toBeDefined();
    return body.plan;
  });
const named = (provider: string, more: object = {}) => ({
  offering_id: ids[provider],
  model: "acme/base",
  provider,
  ...more,
});

describe("a record of the log", () => {
  it("has the plan's order, the number of drops per reason, and the first ones", async () => {
    const answer = await act();
    expect(answer.status).toBe(200);
    expect(await planOf(requestOf(answer))).toEqual({
      considered: 4,
      ranks: [named("cheap"), named("middle")],
      drops: { in_ignore: 1, max_price_per_action_step: 1 },
      dropped: [named("far", { reason: "in_ignore" }), named("dear", { reason: "max_price_per_action_step" })],
    });
    const { body } = await app.call("/v1/logs", undefined, { key: caller.key });
    expect(body.data[0].plan).toBeUndefined();
  });

  it("has them for a call without a route and for a failed call", async () => {
    const refused = await act({ only: ["far"], ignore: [], region: ["mars"] });
    expect(refused.body.error.code).toBe("no_route_available");
    const plan = await planOf(requestOf(refused));
    expect([plan.considered, plan.ranks ?? []]).toEqual([4, []]);
    expect(plan.drops).toEqual({ not_in_only: 3, region: 1 });
    expect(plan.dropped[0]).toEqual(named("far", { reason: "region" }));
    const poor = await app.caller(0);
    const unpaid = await app.call("/v1/act", BODY, { key: poor.key });
    expect(unpaid.status).toBe(402);
    await eventually(async () => {
      const { body } = await app.call(`/v1/logs/${requestOf(unpaid)}`, undefined, { key: poor.key });
      expect(body.plan?.ranks).toEqual([named("cheap"), named("middle")]);
    });
  });

  it("has each call's own order if similar calls are planned differently", async () => {
    const orders = new Set<string>();
    for (const seed of [1, 2, 3, 4, 5, 6, 7, 8]) {
      const body = { ...BODY, provider: {}, seed };
      const preview = await app.call("/v1/routes/preview", body, { key: caller.key });
      const order = preview.body.plan.map(({ offering_id }: { offering_id: string }) => offering_id);
      const plan = await planOf(requestOf(await app.call("/v1/act", body, { key: caller.key })));
      const kept = plan.ranks.map(({ offering_id }: { offering_id: string }) => offering_id);
      expect(kept.toSorted()).toEqual(order.toSorted());
      orders.add(kept.join());
    }
    expect(orders.size).toBeGreaterThan(1);
    const [row] = await app.sql`select count(*)::int as count from plan_digest`;
    expect(row?.count).toBeLessThan(8);
  });

  it("of a control loop has the loop's plan", async () => {
    const loop = robot(app, caller.key, {
      model: "acme/base",
      actionSpace: "base_twist_2d",
      horizon: 2,
      provider: { sort: 1, ignore: ["far"] },
    });
    const { id } = await loop.expect("opened");
    loop.observe(1);
    await loop.expect("chunk");
    loop.say({ case: "close", value: {} });
    await loop.rest();
    const record = await eventually(async () => {
      const { body } = await app.call("/v1/logs?kind=act", undefined, { key: caller.key });
      const stretch = body.data.find(({ stream_id }: { stream_id?: string }) => stream_id === id);
      expect(stretch).toBeDefined();
      return stretch;
    });
    const plan = await planOf(record.id);
    expect([plan.considered, plan.drops, plan.ranks.length]).toEqual([4, { in_ignore: 1 }, 3]);
  });
});
