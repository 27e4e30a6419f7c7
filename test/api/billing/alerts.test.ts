/** The events `balance.low` and `balance.exhausted`. */
import { fromBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, it } from "vitest";
import { EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import { type App, openApp } from "../../support/app.ts";
import { type Model, startModel } from "../../support/model.ts";

let one: App;
let two: App;
let model: Model;
beforeAll(async () => {
  [one, model] = await Promise.all([openApp(), startModel()]);
  two = await openApp({ database: one.database });
  await one.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint, price_per_action_step: 0.001 });
});
afterAll(async () => {
  await two.close();
  await one.close();
  await model.close();
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

it("are told once for each crossing, by whichever gateway, and again after credit was added", async () => {
  const { org, key } = await one.caller(1);
  for (let calls = 0; calls < 80; calls++) expect(await act(calls % 2 ? one : two, key)).toBe(200);
  expect(await names(org)).toEqual([]);
  let served = 80;
  while ((await act(served % 2 ? one : two, key)) === 200) served++;
  expect(served).toBe(100);
  for (let i = 0; i < 10; i++) expect(await act(i % 2 ? one : two, key)).toBe(402);
  await expect.poll(() => names(org)).toEqual(["balanceExhausted", "balanceLow"]);
  const low = (await told(org)).find((data) => data.case === "balanceLow");
  expect(low?.value).toMatchObject({ thresholdUsd: 0.1 });
  const left = low?.case === "balanceLow" ? low.value.balanceUsd : undefined;
  expect(left).toBeLessThan(0.1);

  await one.admin(`/v1/orgs/${org}/credits`, { amount_usd: 0.05 });
  for (let calls = 0; calls < 5; calls++) expect(await act(one, key)).toBe(200);
  for (let i = 0; i < 5; i++) expect(await act(i % 2 ? one : two, key)).toBe(402);
  await expect.poll(() => names(org)).toEqual(["balanceExhausted", "balanceExhausted", "balanceLow", "balanceLow"]);
});

it("are not told of a balance that is far from its end, nor of a key that is out of budget", async () => {
  const { org } = await one.caller(1);
  const key = await one.key(org, { role: "owner", budget: { limit_usd: 0.05 } });
  for (let calls = 0; calls < 5; calls++) expect(await act(one, key)).toBe(200);
  expect(await act(one, key)).toBe(402);
  const other = await one.caller(0);
  expect(await act(one, other.key)).toBe(402);
  await expect.poll(() => names(other.org)).toEqual(["balanceExhausted"]);
  expect(await names(org)).toEqual([]);
});
