/** Two gateways, each a process of its own, on one PostgreSQL. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Answer } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { honestSteps } from "../../support/model.ts";
import { BOUNDLESS, Pair } from "../../support/pair.ts";

const CALLS = 500;
const CALLERS = 64;
/** Two steps at 100 micro-dollars. */
const PRICE_USD = 0.0002;
const BUDGET_USD = CALLS * PRICE_USD;

let pair: Pair;
beforeAll(async () => {
  pair = await Pair.open();
});
afterAll(() => pair?.close());

const act = (place: number, key: string, headers: Record<string, string> = {}, horizon = 2): Promise<Answer> =>
  pair.call(
    place,
    "/v1/act",
    { model: "acme/base", action_space: "base_twist_2d", horizon, observations: [{ proprio: [0.5] }] },
    { key, headers },
  );

/** Calls from so many callers at both gateways until each of them was refused; answers all that they were told. */
async function callUntilRefused(key: string, callers = CALLERS): Promise<Answer[]> {
  const told: Answer[] = [];
  const caller = async (number: number): Promise<void> => {
    for (let calls = number; ; calls++) {
      const answer = await act(calls % 2, key);
      told.push(answer);
      if (answer.status !== 200) return;
    }
  };
  await Promise.all(Array.from({ length: callers }, (_, number) => caller(number)));
  return told;
}

const refusalsOf = (told: readonly Answer[]): unknown[] => [
  ...new Set(told.flatMap(({ status, body }) => (status === 200 ? [] : [`${status} ${body.error.code}`]))),
];

const balanceAt = async (place: number, key: string) =>
  (await pair.call(place, "/v1/billing/balance", undefined, { key })).body;

describe(`${CALLERS} callers at both, with credit for exactly ${CALLS} calls`, () => {
  it("in the balance: exactly as many are answered, the others get 402, and nothing is left or held", async () => {
    const { key } = await pair.caller(BUDGET_USD);
    const told = await callUntilRefused(key);
    expect(told.filter(({ status }) => status === 200).length).toBe(CALLS);
    expect(refusalsOf(told)).toEqual(["402 insufficient_credits"]);
    for (const place of [0, 1]) {
      await expect
        .poll(() => balanceAt(place, key))
        .toMatchObject({ spent_usd: BUDGET_USD, balance_usd: 0, held_usd: 0, available_usd: 0 });
    }
    expect(await brokenInvariants(pair.sql)).toEqual([]);
  });

  it("in their key's budget: exactly as many are answered, and the balance keeps the remainder", async () => {
    const budget = { limit_usd: BUDGET_USD, interval: "monthly" };
    const { key } = await pair.caller(1, { role: "owner", budget });
    const told = await callUntilRefused(key);
    expect(told.filter(({ status }) => status === 200).length).toBe(CALLS);
    expect(refusalsOf(told)).toEqual(["402 key_budget_exhausted"]);
    for (const place of [0, 1])
      await expect.poll(() => balanceAt(place, key)).toMatchObject({ spent_usd: BUDGET_USD, held_usd: 0 });
    const { body } = await pair.call(0, "/v1/key", undefined, { key });
    expect(body.budget).toMatchObject({ limit_usd: BUDGET_USD, spent_usd: BUDGET_USD, remaining_usd: 0 });
    expect(await brokenInvariants(pair.sql)).toEqual([]);
  });
});

describe(`${CALLERS} callers with four keys of one workspace, whose budget covers exactly ${CALLS} calls`, () => {
  it("at two gateways: exactly as many are answered, the others get 402, and the balance keeps the remainder", async () => {
    const { org, key: owner } = await pair.caller(1);
    const budget = { limit_usd: BUDGET_USD, interval: "monthly" };
    const shared = { name: "shared", slug: "shared", budget };
    const { id } = await pair.well(0, `/v1/orgs/${org}/workspaces`, shared, { key: owner });
    const keys: string[] = [];
    for (let i = 0; i < 4; i++) {
      const wanted = { workspace_id: id, rate_limit: BOUNDLESS };
      keys.push((await pair.admin(`/v1/orgs/${org}/keys`, wanted)).key);
    }
    const told = (await Promise.all(keys.map((key) => callUntilRefused(key, CALLERS / keys.length)))).flat();
    expect(told.filter(({ status }) => status === 200).length).toBe(CALLS);
    expect(refusalsOf(told)).toEqual(["402 workspace_budget_exhausted"]);
    for (const place of [0, 1])
      await expect.poll(() => balanceAt(place, owner)).toMatchObject({ spent_usd: BUDGET_USD, held_usd: 0 });
    expect(await brokenInvariants(pair.sql)).toEqual([]);
  });
});

describe("an idempotency key in 100 identical calls over two gateways", () => {
  it("runs the model once; the other calls are refused, and their retries get that answer", async () => {
    const { key } = await pair.caller(1);
    const before = pair.model.acts.length;
    const go = Promise.withResolvers<void>();
    pair.model.script.act = (call, answer) => void go.promise.then(() => answer(honestSteps(call, 2)));
    const headers = { "idempotency-key": "the-one" };
    let refused = 0;
    const calls = Array.from({ length: 100 }, async (_, i) => {
      const first = await act(i % 2, key, headers);
      if (first.status === 200) return { first, last: first };
      refused++;
      await go.promise;
      let last = first;
      await eventually(async () => {
        last = await act((i + 1) % 2, key, headers);
        expect(last.status).toBe(200);
      });
      return { first, last };
    });
    await eventually(() => expect(refused).toBe(99));
    go.resolve();
    const told = await Promise.all(calls);
    pair.model.script.act = undefined;

    for (const { first } of told.filter(({ first }) => first.status !== 200)) {
      expect([first.status, first.body.error.code]).toEqual([409, "idempotency_in_progress"]);
      expect(Number(first.headers.get("retry-after"))).toBeGreaterThan(0);
    }
    expect(new Set(told.map(({ last }) => last.body.id)).size).toBe(1);
    expect(pair.model.acts.length - before).toBe(1);
    await expect.poll(() => balanceAt(0, key)).toMatchObject({ spent_usd: PRICE_USD, held_usd: 0 });
    const changed = await act(0, key, headers, 3);
    expect([changed.status, changed.body.error.code]).toEqual([409, "idempotency_conflict"]);
  });

  it("runs again for one call if its gateway is killed mid-call, and charges once", async () => {
    const { org, key } = await pair.caller(1);
    const before = pair.model.acts.length;
    pair.model.script.act = () => {};
    const headers = { "idempotency-key": "survives" };
    const lost = act(1, key, headers).catch(() => undefined);
    await eventually(() => expect(pair.model.acts.length).toBe(before + 1));
    expect((await act(0, key, headers)).body.error.code).toBe("idempotency_in_progress");
    await pair.kill(1);
    await lost;
    pair.model.script.act = undefined;
    expect((await act(0, key, headers)).body.error.code).toBe("idempotency_in_progress");
    // The dead one's time is over, and the other finds it.
    await pair.sql`update leaser set alive_until = now() where id = (select leaser_id from idempotency where org_id = ${org})`;
    let answer: Answer | undefined;
    await eventually(async () => {
      answer = await act(0, key, headers);
      expect(answer.status).toBe(200);
    });
    await pair.start(1);
    expect((await act(1, key, headers)).body.id).toBe(answer?.body.id);
    const rows = await pair.sql`select status from request where org_id = ${org} order by request_id`;
    expect(rows.map(({ status }) => status)).toEqual(["unmetered", "settled"]);
    expect(await brokenInvariants(pair.sql)).toEqual([]);
  });
});
