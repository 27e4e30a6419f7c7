/** Two houses on one database. */
import { beforeAll, expect, it } from "vitest";
import { setKeyDisabled } from "../../src/store/account/keys.ts";
import type { App } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { brokenInvariants } from "../support/invariants.ts";
import type { Model } from "../support/model.ts";
import { openModel, ownGateway } from "../support/world.ts";

let one: App;
let two: App;
let model: Model;

beforeAll(async () => {
  [one, model] = await Promise.all([ownGateway(), openModel()]);
  two = await ownGateway({ database: one.database });
  await one.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
});

const act = (app: App, key: string, more: object = {}, headers: Record<string, string> = {}) =>
  app.call(
    "/v1/act",
    { model: "acme/base", action_space: "base_twist_2d", horizon: 10, observations: [{ proprio: [0] }], ...more },
    { key, headers },
  );

it("two replicas share a balance for forty calls: exactly forty are answered", async () => {
  const rate_limit = { requests: 6000, window_s: 60, concurrency: 200 };
  const { key } = await one.caller(0.04, { role: "owner", rate_limit });
  const calls = Array.from({ length: 120 }, (_, i) => act(i % 2 === 0 ? one : two, key));
  const answers = await Promise.all(calls);
  expect(answers.filter(({ status }) => status === 200).length).toBe(40);
  for (const { status, body } of answers)
    if (status !== 200) expect([status, body.error.code]).toEqual([402, "insufficient_credits"]);
  for (const app of [one, two]) {
    await expect
      .poll(async () => (await app.call("/v1/billing/balance", undefined, { key })).body)
      .toMatchObject({ granted_usd: 0.04, spent_usd: 0.04, balance_usd: 0, held_usd: 0, available_usd: 0 });
  }
  expect(await brokenInvariants(one.sql)).toEqual([]);
});

it("two replicas serve the last call of a balance that the other one has leased", async () => {
  const { key } = await one.caller(0.02);
  for (let i = 0; i < 10; i++) expect((await act(one, key)).status).toBe(200);
  for (let i = 0; i < 10; i++) expect((await act(two, key)).status).toBe(200);
  expect([(await act(one, key)).status, (await act(two, key)).status]).toEqual([402, 402]);
  expect(await brokenInvariants(one.sql)).toEqual([]);
});

it("two replicas answer an idempotency key once", async () => {
  const { key } = await one.caller(1);
  const headers = { "idempotency-key": "once" };
  const first = await act(one, key, {}, headers);
  const again = await act(two, key, {}, headers);
  expect([again.status, again.body.id]).toEqual([200, first.body.id]);
  expect((await act(two, key, { horizon: 3 }, headers)).body.error.code).toBe("idempotency_conflict");
});

it("two replicas notify each other of new supply, credit and disabled keys", async () => {
  const { org, key } = await one.caller(0);
  expect((await act(two, key)).status).toBe(402);
  await one.admin(`/v1/orgs/${org}/credits`, { amount_usd: 1 });
  expect((await act(two, key)).status).toBe(200);
  await one.supply({ provider: "late", model: "late/base", endpoint: model.endpoint });
  await expect.poll(async () => (await act(two, key, { model: "late/base" })).status).toBe(200);
  const [row] = await one.sql`select id from key where org_id = ${org}`;
  await setKeyDisabled(one.sql, row?.id, true);
  await expect.poll(async () => (await act(two, key)).body.error?.code).toBe("key_disabled");
});

it("a replica continues without the other, whose leased credit returns", async () => {
  const third = await ownGateway({ database: one.database });
  const { key } = await one.caller(0.003);
  expect((await act(third, key)).status).toBe(200);
  await third.close();
  expect([(await act(one, key)).status, (await act(one, key)).status, (await act(one, key)).status]).toEqual([
    200, 200, 402,
  ]);
  expect(await brokenInvariants(one.sql)).toEqual([]);
});

it("a replica started during a database outage is not ready, names no model unknown, and serves afterwards", async () => {
  const { key } = await one.caller(1);
  await one.sql`alter table offering rename to offering_away`;
  const late = await ownGateway({ database: one.database });
  const refused = await act(late, key);
  const { status: ready } = await late.call("/ready");
  await one.sql`alter table offering_away rename to offering`;
  expect([refused.status, refused.body.error.code, ready]).toEqual([503, "not_ready", 503]);
  expect(refused.headers.get("retry-after")).toBe("1");
  await eventually(async () => expect((await act(late, key)).status).toBe(200));
  await late.close();
});
