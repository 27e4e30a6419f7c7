/** The events `balance.low`, `balance.exhausted` and `budget.threshold`. */
import { fromBinary } from "@bufbuild/protobuf";
import { beforeAll, describe, expect, it } from "vitest";
import { type BudgetThreshold, EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import type { App } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let one: App;
let two: App;
let model: Model;
beforeAll(async () => {
  [one, model] = await Promise.all([ownGateway(), openModel()]);
  await one.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint, price_per_action_step: 0.001 });
  two = await ownGateway({ database: one.database }); // which knows of the supply from its start
});

/** One call of a cent. */
const act = async (app: App, key: string): Promise<number> => {
  const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 10, observations: [{ proprio: [0] }] };
  return (await app.call("/v1/act", body, { key })).status;
};

const told = async (org: string) =>
  (await one.sql`select payload from outbox where org_id = ${org} and name like 'balance.%' order by position`).map(
    ({ payload }) => fromBinary(EventSchema, payload).data,
  );
const names = async (org: string) => (await told(org)).map((data) => data.case).sort();

const shares = async (org: string): Promise<BudgetThreshold[]> =>
  (await one.sql`select payload from outbox where org_id = ${org} and name = 'budget.threshold' order by position`).map(
    ({ payload }) => fromBinary(EventSchema, payload).data.value as BudgetThreshold,
  );
const percents = async (org: string) => (await shares(org)).map(({ percent }) => percent);

describe("balance.low and balance.exhausted", () => {
  it("are emitted once per crossing by one gateway, and again after credit was added", async () => {
    const { org, key } = await one.caller(1);
    for (let calls = 0; calls < 80; calls++) expect(await act(calls % 2 ? one : two, key)).toBe(200);
    expect(await names(org)).toEqual([]);
    let served = 80;
    while ((await act(served % 2 ? one : two, key)) === 200) served++;
    expect(served).toBe(100);
    for (let i = 0; i < 10; i++) expect(await act(i % 2 ? one : two, key)).toBe(402);
    await expect.poll(() => names(org)).toEqual(["balanceExhausted", "balanceLow"]);
    expect((await told(org)).map((data) => data.case)).toEqual(["balanceLow", "balanceExhausted"]);
    const low = (await told(org)).find((data) => data.case === "balanceLow");
    expect(low?.value).toMatchObject({ thresholdUsd: 0.1 });
    const left = low?.case === "balanceLow" ? low.value.balanceUsd : undefined;
    expect(left).toBeLessThan(0.1);

    await one.admin(`/v1/orgs/${org}/credits`, { amount_usd: 0.05 });
    for (let calls = 0; calls < 5; calls++) expect(await act(one, key)).toBe(200);
    for (let i = 0; i < 5; i++) expect(await act(i % 2 ? one : two, key)).toBe(402);
    await expect.poll(() => names(org)).toEqual(["balanceExhausted", "balanceExhausted", "balanceLow", "balanceLow"]);
  });

  it("are not emitted for a sufficient balance or an exhausted key budget", async () => {
    const { org } = await one.caller(1);
    const key = await one.key(org, { role: "owner", budget: { limit_usd: 0.05 } });
    for (let calls = 0; calls < 5; calls++) expect(await act(one, key)).toBe(200);
    expect(await act(one, key)).toBe(402);
    const other = await one.caller(0);
    expect(await act(one, other.key)).toBe(402);
    await expect.poll(() => names(other.org)).toEqual(["balanceExhausted"]);
    expect(await names(org)).toEqual([]);
  });
});

describe("budget.threshold", () => {
  it("is emitted once at 80 and once at 100 percent of a key's budget, by one gateway", async () => {
    const { org, key: owner } = await one.caller(10);
    const key = await one.key(org, { role: "owner", budget: { limit_usd: 0.5, interval: "daily" } });
    const { id } = (await one.call("/v1/key", undefined, { key })).body;
    for (let calls = 0; calls < 35; calls++) expect(await act(calls % 2 ? one : two, key)).toBe(200);
    expect(await percents(org)).toEqual([]);
    let served = 35;
    while ((await act(served % 2 ? one : two, key)) === 200) served++;
    expect(served).toBe(50);
    for (let i = 0; i < 6; i++) expect(await act(i % 2 ? one : two, key)).toBe(402);
    await expect.poll(() => percents(org)).toEqual([80, 100]);
    const [first, last] = await shares(org);
    expect(first).toMatchObject({ scope: "key", subject: id, limitUsd: 0.5 });
    expect(first?.resetsAt).toBeGreaterThan(Date.now() / 1000);
    expect(last?.usedUsd).toBeLessThanOrEqual(0.5);

    // More budget is another budget.
    const more = { budget: { limit_usd: 0.6, interval: "daily" } };
    expect((await one.call(`/v1/orgs/${org}/keys/${id}`, more, { key: owner, method: "PATCH" })).status).toBe(200);
    await expect
      .poll(async () => {
        await act(one, key);
        return percents(org);
      })
      .toEqual([80, 100, 80, 100]);
  });

  it("is emitted for a workspace budget that all its keys share", async () => {
    const { org, key: owner } = await one.caller(10);
    const body = { name: "lab", budget: { limit_usd: 0.2, interval: "monthly" } };
    const workspace = (await one.call(`/v1/orgs/${org}/workspaces`, body, { key: owner })).body.id;
    const keys = await Promise.all([1, 2].map(() => one.key(org, { role: "developer", workspace_id: workspace })));
    let served = 0;
    while ((await act(served % 2 ? one : two, keys[served % 2] ?? "")) === 200) served++;
    expect(served).toBe(20);
    await expect.poll(() => percents(org)).toEqual([80, 100]);
    expect((await shares(org))[0]).toMatchObject({ scope: "workspace", subject: workspace, limitUsd: 0.2 });
  });

  it("is emitted for a call that the remaining budget does not cover, and for no sufficient budget", async () => {
    const { org } = await one.caller(10);
    const small = await one.key(org, { role: "developer", budget: { limit_usd: 0.005 } });
    const large = await one.key(org, { role: "developer", budget: { limit_usd: 5 } });
    expect(await act(one, large)).toBe(200);
    expect(await act(one, small)).toBe(402);
    await expect.poll(() => percents(org)).toEqual([80, 100]);
    expect((await shares(org)).map(({ usedUsd, resetsAt }) => [usedUsd, resetsAt])).toEqual([
      [0, undefined],
      [0, undefined],
    ]);
  });
});
