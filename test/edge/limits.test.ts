/** Rate limits that replicas share: never more together than one alone would let in. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type ConcurrencySlot, type Limit, RateLimits } from "../../src/edge/gate/rate-limits.ts";
import { Refusal } from "../../src/errors.ts";
import { takeRates } from "../../src/store/account/rates.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

let database: FreshDatabase;

beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database.close());

/** A replica's limits, and how often it asked the database. */
function replica(name: string) {
  let asked = 0;
  const limits = new RateLimits((asks) => {
    asked++;
    return takeRates(database.sql, name, asks);
  });
  return { limits, asked: () => asked, [Symbol.asyncDispose]: () => limits.close() };
}

const limit = (more: Partial<Limit>): Limit => ({
  requests: 1,
  windowS: 3600,
  burst: 1,
  concurrency: 1000,
  streams: 1000,
  ...more,
});

async function entered(
  calls: (() => Promise<ConcurrencySlot>)[],
): Promise<{ inside: ConcurrencySlot[]; refused: Refusal[] }> {
  const results = await Promise.allSettled(calls.map(async (call) => call()));
  const inside = results.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  const refused = results.flatMap((result) => (result.status === "rejected" ? [result.reason as Refusal] : []));
  for (const refusal of refused) expect(refusal).toBeInstanceOf(Refusal);
  return { inside, refused };
}

describe("two replicas", () => {
  it("admit exactly a key's burst together", async () => {
    await using one = replica("burst-1");
    await using two = replica("burst-2");
    const hundred = limit({ burst: 100 });
    const { inside, refused } = await entered(
      Array.from({ length: 1000 }, (_, i) => () => (i % 2 ? one : two).limits.enter("key_a", hundred)),
    );
    // A few may lie unused with the other replica for a moment, but none is given twice.
    expect(inside.length).toBeLessThanOrEqual(100);
    expect(inside.length).toBeGreaterThanOrEqual(70);
    expect(refused.every(({ retryAfter }) => (retryAfter ?? 0) >= 1)).toBe(true);
  });

  it("return unused reservations to each other", async () => {
    const one = replica("back-1");
    await using two = replica("back-2");
    const ten = limit({ burst: 40 });
    expect((await entered([() => one.limits.enter("key_b", ten)])).inside.length).toBe(1);
    await one.limits.close();
    expect((await entered(Array.from({ length: 60 }, () => () => two.limits.enter("key_b", ten)))).inside.length).toBe(
      39,
    );
  });

  it("run no more calls and streams than the key's concurrency, counted separately", async () => {
    await using one = replica("slots-1");
    await using two = replica("slots-2");
    const few = limit({ requests: 1_000_000, burst: 1_000_000, concurrency: 8, streams: 2 });
    const ask = (pool: "calls" | "streams", many: number) =>
      entered(Array.from({ length: many }, (_, i) => () => (i % 2 ? one : two).limits.enter("key_c", few, pool)));
    const calls = await ask("calls", 40);
    expect(calls.inside.length).toBe(8);
    expect(calls.refused[0]).toMatchObject({
      retryAfter: 1,
      message: expect.stringContaining("8 concurrent requests"),
    });
    const streams = await ask("streams", 10);
    expect(streams.inside.length).toBe(2);
    expect(streams.refused[0]?.message).toContain("2 open streams");
    for (const place of calls.inside) place.leave();
    await one.limits.close();
    await two.limits.close();
    await using three = replica("slots-3");
    expect(
      (await entered(Array.from({ length: 20 }, () => () => three.limits.enter("key_c", few)))).inside.length,
    ).toBe(8);
  });

  it("never let one key's calls reduce another's", async () => {
    await using one = replica("other-1");
    const tight = limit({ burst: 5 });
    await entered(Array.from({ length: 100 }, () => () => one.limits.enter("key_noisy", tight)));
    const { inside } = await entered(Array.from({ length: 5 }, () => () => one.limits.enter("key_quiet", tight)));
    expect(inside.length).toBe(5);
  });
});

describe("a warm key", () => {
  it("needs no query: thousands of calls share a few", async () => {
    await using one = replica("warm");
    const wide = limit({ requests: 600_000, windowS: 60, burst: 60_000 });
    await one.limits.enter("key_d", wide);
    for (let i = 0; i < 20_000; i++) (await one.limits.enter("key_d", wide)).leave();
    expect(one.asked()).toBeLessThan(20);
  });

  it("gets its complete remaining limit", async () => {
    await using one = replica("left-1");
    await using two = replica("left-2");
    const fifty = limit({ requests: 50, windowS: 100_000, burst: 50 });
    const { inside } = await entered(Array.from({ length: 10 }, () => () => one.limits.enter("key_e", fifty)));
    expect(inside.at(-1)?.headers).toEqual([
      "ratelimit-policy",
      '"key";q=50;w=100000',
      "ratelimit",
      expect.stringMatching(/^"key";r=40;t=\d+$/),
      "x-ratelimit-limit",
      "50",
      "x-ratelimit-remaining",
      "40",
      "x-ratelimit-reset",
      expect.stringMatching(/^\d{10}$/),
    ]);
    await one.limits.close();
    expect((await two.limits.left("key_e", fifty)).remaining).toBe(40);
  });
});

describe("a key that descends from another", () => {
  it("uses the buckets and slots of all ancestors, and of none if one refuses", async () => {
    await using one = replica("line-1");
    await using two = replica("line-2");
    const wide = limit({ burst: 100_000 });
    const top = { id: "key_top", limit: limit({ burst: 50, concurrency: 1000 }) };
    const children = ["key_child_1", "key_child_2", "key_child_3"];
    const { inside, refused } = await entered(
      Array.from(
        { length: 300 },
        (_, i) => () => (i % 2 ? one : two).limits.enter(children[i % 3]!, wide, "calls", [top]),
      ),
    );
    expect(inside.length).toBeLessThanOrEqual(50);
    expect(inside.length).toBeGreaterThanOrEqual(30);
    expect(refused[0]?.message).toContain("the limit is 1 requests");
    // Those that were refused took nothing of their own key.
    await one.limits.close();
    await two.limits.close();
    await using three = replica("line-3");
    let left = 0;
    for (const id of children) left += (await three.limits.left(id, wide)).remaining;
    expect(left).toBe(3 * 100_000 - inside.length);
    expect((await three.limits.left(children[0]!, wide, [top])).remaining).toBeLessThanOrEqual(50 - inside.length);
  });

  it("counts its control loop steps against them too", async () => {
    await using one = replica("line-4");
    const wide = limit({ requests: 1_000_000, burst: 100_000 });
    const top = { id: "key_top_2", limit: limit({ burst: 20 }) };
    const [loop] = (await entered([() => one.limits.enter("key_looping", wide, "streams", [top])])).inside;
    const steps = await Promise.allSettled(Array.from({ length: 40 }, () => loop!.waitStep()));
    expect(steps.filter(({ status }) => status === "fulfilled").length).toBe(19);
    loop!.leave();
  });
});

describe("work that nobody waits for", () => {
  it("leaves the last quarter of a key's limits, returns unused tokens, and is not counted as running", async () => {
    await using one = replica("spare");
    const line = [{ id: "key_spare", limit: limit({ burst: 40, concurrency: 20 }) }];
    const { places, againMs } = await one.limits.spare(line, 64);
    expect([places.length, againMs > 0, one.limits.running]).toEqual([15, true, 0]);
    for (const place of places.splice(5)) place.unused();
    for (const place of places) place.leave();
    expect((await one.limits.left("key_spare", line[0]!.limit)).remaining).toBe(35);
    const more = await one.limits.spare(line, 64);
    expect(more.places.length).toBe(15);
    for (const place of more.places) place.leave();
    expect((await one.limits.spare(line, 64)).places.length).toBe(10);
  });

  it("is served in order, and stops waiting once canceled", async () => {
    await using one = replica("turns");
    const line = [{ id: "key_turns", limit: limit({ requests: 40, windowS: 1, burst: 1 }) }];
    const order: number[] = [];
    const never = new AbortController();
    const off = new AbortController();
    const turns = [0, 1, 2].map((i) =>
      one.limits.turn(line, i === 1 ? off.signal : never.signal).then((place) => {
        order.push(i);
        place.leave();
      }),
    );
    off.abort(new Error("called off"));
    expect((await Promise.allSettled(turns)).map(({ status }) => status)).toEqual([
      "fulfilled",
      "rejected",
      "fulfilled",
    ]);
    expect(order).toEqual([0, 2]);
  });
});

describe("steps of a control loop", () => {
  it("count in the key's bucket on any replica, and use no slot", async () => {
    await using one = replica("step-1");
    await using two = replica("step-2");
    const hundred = limit({ burst: 100, streams: 2 });
    const loops = (
      await entered(
        [one, two].map(
          ({ limits }) =>
            () =>
              limits.enter("key_s", hundred, "streams"),
        ),
      )
    ).inside;
    const steps = await Promise.allSettled(Array.from({ length: 400 }, (_, i) => loops[i % 2]!.waitStep()));
    // Two were taken to enter.
    const taken = steps.filter(({ status }) => status === "fulfilled").length;
    expect(taken).toBeLessThanOrEqual(98);
    expect(taken).toBeGreaterThanOrEqual(70);
    for (const place of loops) place.leave();
  });
});

describe("while the database is away", () => {
  it("each replica applies the limits alone, and no call fails", async () => {
    const limits = new RateLimits(() => Promise.reject(new Error("away")));
    const five = limit({ burst: 5 });
    const { inside, refused } = await entered(Array.from({ length: 20 }, () => () => limits.enter("key_f", five)));
    expect([inside.length, refused.length]).toEqual([5, 15]);
    await limits.close();
  });
});

it("calls that arrive during a query are served in the next round", async () => {
  await using one = replica("rounds");
  const wide = limit({ requests: 6000, windowS: 60, burst: 600, concurrency: 64 });
  const first = one.limits.enter("key_g", wide);
  await new Promise(setImmediate);
  const { inside, refused } = await entered([
    () => first,
    ...Array.from({ length: 40 }, () => () => one.limits.enter("key_g", wide)),
  ]);
  expect([inside.length, refused.length]).toEqual([41, 0]);
});
