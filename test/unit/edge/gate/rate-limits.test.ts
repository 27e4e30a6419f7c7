/** The limits of keys where nobody may wait: what is at hand is taken, and the database is never asked. */
import { beforeEach, expect, it, onTestFinished } from "vitest";
import { type KeyLimit, RateLimits } from "../../../../src/edge/gate/rate-limits.ts";
import { Reason, Refusal } from "../../../../src/errors.ts";
import type { RateAsk } from "../../../../src/store/account/rates.ts";
import { replaceAmbient } from "../../../support/ambient.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

let clock: ManualClock;
beforeEach(() => {
  clock = new ManualClock();
  onTestFinished(replaceAmbient({ clock }));
});

/** A key of so many requests at once, one more in a minute. */
const keyOf = (id: string, { burst = 8, concurrency = 8 } = {}): KeyLimit => ({
  id,
  limit: { requests: 1, windowS: 60, burst, concurrency, streams: 1 },
});

/** Limits over a database that gives each key its burst once, and the places that are asked for, up to its own. */
function openLimits() {
  const left = new Map<string, number>();
  let questions = 0;
  const limits = new RateLimits(async (asks: readonly RateAsk[]) => {
    questions++;
    return asks.map(({ id, tokens, burst, calls, mostCalls, streams, mostStreams }) => {
      const before = left.get(id) ?? burst;
      const given = Math.min(tokens, before);
      left.set(id, before - given);
      return {
        ...{ id, tokens: given, remaining: before - given },
        ...{ calls: Math.min(calls, mostCalls), streams: Math.min(streams, mostStreams) },
      };
    });
  });
  onTestFinished(() => limits.close());
  return {
    limits,
    questions: () => questions,
    /** Has a key known here, with what is left of its tokens at hand, and a place. */
    know: async ({ id, limit }: KeyLimit): Promise<void> => (await limits.enter(id, limit)).leave(),
  };
}

const reasonOf = (run: () => unknown): Reason | undefined => {
  try {
    run();
    return undefined;
  } catch (thrown) {
    expect(thrown).toBeInstanceOf(Refusal);
    return (thrown as Refusal).reason; // as was just seen
  }
};

it("takes what is at hand at once, and gives the place back at the end", async () => {
  const { limits, know } = openLimits();
  const key = keyOf("key");
  await know(key);
  const slot = limits.tryEnter([key]);
  expect(slot?.headers.slice(0, 2)).toEqual(["ratelimit-policy", '"key";q=1;w=60']);
  expect(limits.running).toBe(1);
  slot?.leave();
  slot?.leave();
  expect(limits.running).toBe(0);
});

it("is undefined where the database has to be asked, and asks nothing", async () => {
  const { limits, questions } = openLimits();
  expect(limits.tryEnter([keyOf("key")])).toBeUndefined();
  await new Promise((resolve) => setImmediate(resolve));
  expect([questions(), limits.running]).toEqual([0, 0]);
});

it("refuses who had too much by what the database said last, until there may be more", async () => {
  const { limits, know } = openLimits();
  const key = keyOf("key", { burst: 1 });
  await know(key);
  await expect(limits.enter(key.id, key.limit)).rejects.toMatchObject({ reason: Reason.RATE_LIMIT_EXCEEDED });
  expect(reasonOf(() => limits.tryEnter([key]))).toBe(Reason.RATE_LIMIT_EXCEEDED);
  await clock.advance(60_000);
  expect(limits.tryEnter([key])).toBeUndefined();
});

it("refuses more calls at once than the key may have", async () => {
  const { limits, know } = openLimits();
  const key = keyOf("key", { concurrency: 1 });
  await know(key);
  const slot = limits.tryEnter([key]);
  expect(slot).toBeDefined();
  await expect(limits.enter(key.id, key.limit)).rejects.toMatchObject({ reason: Reason.CONCURRENCY_LIMIT_EXCEEDED });
  expect(reasonOf(() => limits.tryEnter([key]))).toBe(Reason.CONCURRENCY_LIMIT_EXCEEDED);
  slot?.leave();
  expect(limits.tryEnter([key])).toBeDefined();
});

it("takes of a key and of all that it descends from, or of none of them", async () => {
  const { limits, know } = openLimits();
  const [key, parent, stranger] = [keyOf("key", { burst: 2 }), keyOf("parent"), keyOf("stranger")];
  await know(key);
  await know(parent);
  expect(limits.tryEnter([key, stranger])).toBeUndefined();
  expect(limits.running).toBe(0);
  // What the key gave for that is its own again.
  const slot = limits.tryEnter([key, parent]);
  expect(slot).toBeDefined();
  expect(limits.running).toBe(1);
  slot?.leave();
  expect(limits.running).toBe(0);
  expect(limits.tryEnter([key, parent])).toBeUndefined();
});

it("refuses a key whose ancestor had too much", async () => {
  const { limits, know } = openLimits();
  const [key, parent] = [keyOf("key"), keyOf("parent", { burst: 1 })];
  await know(key);
  await know(parent);
  await expect(limits.enter(parent.id, parent.limit)).rejects.toMatchObject({ reason: Reason.RATE_LIMIT_EXCEEDED });
  expect(reasonOf(() => limits.tryEnter([key, parent]))).toBe(Reason.RATE_LIMIT_EXCEEDED);
});
