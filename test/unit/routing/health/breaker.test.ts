import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { AttemptFailure } from "../../../../src/contracts/contract.ts";
import {
  type Breaker,
  type BreakerEvent,
  blamesProvider,
  CLOSED,
  reduce,
  restsUntil,
} from "../../../../src/routing/health/breaker.ts";

const noJitter = () => 0;
const reached = (events: readonly BreakerEvent[], start: Breaker = CLOSED): Breaker =>
  events.reduce((breaker, event) => reduce(breaker, event, noJitter), start);
const failed = (at: number): BreakerEvent => ({ kind: "failed", at });
const succeeded = (at: number): BreakerEvent => ({ kind: "succeeded", at });
const released = (at: number): BreakerEvent => ({ kind: "released", at });
const probing = (at: number): BreakerEvent => ({ kind: "probing", at, budgetMs: 1000 });
const times = (count: number, event: (at: number) => BreakerEvent, from = 0, every = 1): BreakerEvent[] =>
  Array.from({ length: count }, (_, i) => event(from + i * every));

describe("a closed breaker", () => {
  test("opens at the fifth failure in a row, not at the fourth", () => {
    expect(reached(times(4, failed)).state).toBe("closed");
    expect(reached(times(5, failed)).state).toBe("open");
  });

  test("restarts its count after a success", () => {
    expect(reached([...times(4, failed), succeeded(4), ...times(4, failed, 5)]).state).toBe("closed");
  });

  test("opens when half of ten calls within 30 seconds fail, in any order", () => {
    const alternating = Array.from({ length: 10 }, (_, i) => (i % 2 ? failed(i * 2500) : succeeded(i * 2500)));
    expect(reached(alternating.slice(0, 9)).state).toBe("closed");
    expect(reached(alternating).state).toBe("open");
  });

  test("stays closed for fewer than half, and for failures older than 30 seconds", () => {
    const third = Array.from({ length: 30 }, (_, i) => (i % 3 ? succeeded(i * 100) : failed(i * 100)));
    expect(reached(third).state).toBe("closed");
    const old = [
      ...times(4, failed),
      succeeded(4),
      ...times(4, failed, 5),
      succeeded(10),
      failed(40_000),
      succeeded(40_001),
    ];
    expect(reached(old).state).toBe("closed");
  });

  test("ignores calls without a verdict", () => {
    expect(reached([...times(4, failed), ...times(100, released, 10), failed(200)]).state).toBe("open");
    expect(reached(times(100, released))).toEqual(CLOSED);
  });

  test("admits every call", () => {
    expect(restsUntil(reached(times(4, failed)))).toBe(0);
  });
});

describe("open", () => {
  const open = reached(times(5, failed, 1000, 0));

  test("stays open for ten seconds, which reports of older calls do not change", () => {
    expect(restsUntil(open)).toBe(11_000);
    expect(reached([succeeded(2000), failed(3000), released(4000)], open)).toEqual(open);
  });

  test("randomizes its cooldown, so that not all replicas probe at once", () => {
    const jittered = times(5, failed).reduce((breaker, event) => reduce(breaker, event, () => 0.5), CLOSED);
    expect(restsUntil(jittered)).toBe(4 + 11_000);
  });

  test("is not half-opened by an early probe", () => {
    expect(reached([probing(10_999)], open).state).toBe("open");
    expect(reached([probing(11_000)], open).state).toBe("half_open");
  });

  test("doubles its cooldown with every failed probe, to five minutes at most", () => {
    let breaker = open;
    const cooldowns: number[] = [];
    for (let i = 0; i < 7; i++) {
      const at = breaker.retryAt;
      breaker = reached([probing(at), failed(at)], breaker);
      cooldowns.push(breaker.retryAt - at);
    }
    expect(cooldowns).toEqual([20_000, 40_000, 80_000, 160_000, 300_000, 300_000, 300_000]);
  });
});

describe("a half-open breaker", () => {
  const open = reached(times(5, failed, 1000, 0));
  const half = reached([probing(11_000)], open);

  test("admits one probe until that ends or times out", () => {
    expect(restsUntil(half)).toBe(12_000);
    expect(restsUntil(reached([released(11_500)], half))).toBe(0);
  });

  test("closes after two successes, and drops its history", () => {
    const once = reached([succeeded(11_100)], half);
    expect([once.state, restsUntil(once)]).toEqual(["half_open", 0]);
    expect(reached([probing(11_200), succeeded(11_300)], once)).toEqual(CLOSED);
  });

  test("opens again at the first failure", () => {
    expect(reached([succeeded(11_100), probing(11_200), failed(11_300)], half)).toMatchObject({
      state: "open",
      retryAt: 31_300,
    });
  });

  test("keeps its probe slot despite another replica's reports", () => {
    const heard: BreakerEvent = { kind: "heard", at: 11_100, calls: 1, failures: 0, consecutive: 0 };
    expect(restsUntil(reached([heard], half))).toBe(12_000);
  });

  test("closes early after two answered health checks, and does not stay open longer after failed ones", () => {
    const own = (kind: "succeeded" | "failed" | "released", at: number): BreakerEvent => ({ kind, at, own: true });
    expect(reached([own("failed", 2100), own("released", 2200)], open)).toEqual(open);
    expect(reached([own("succeeded", 2100), own("failed", 2200), own("succeeded", 2300)], open)).toMatchObject({
      state: "open",
      retryAt: open.retryAt,
    });
    expect(reached([own("succeeded", 2100), succeeded(2200)], open).state).toBe("open");
    const back = reached([own("succeeded", 2100), own("succeeded", 2300)], open);
    expect(back).toEqual({ ...CLOSED, trips: 1, trialUntil: 302_300 });
    expect(reached([failed(2400)], back)).toMatchObject({ state: "open", retryAt: 22_400, trips: 2 });
    expect(reached([succeeded(2400)], back)).toMatchObject({ state: "closed", trips: 0 });
    expect(reached([succeeded(2400), failed(2500)], back).state).toBe("closed");
    // Nobody called it for long: its past is forgotten.
    expect(reached(times(4, failed, 302_300), back).state).toBe("closed");
    expect(reached(times(5, failed, 302_300), back)).toMatchObject({ state: "open", trips: 1 });
  });

  test("is not changed by calls if an operator set it", () => {
    const forced = reached([{ kind: "forced", at: 0, state: "forced_open" }], half);
    expect(reached([succeeded(1), probing(1), succeeded(2)], forced).state).toBe("forced_open");
    expect(restsUntil(forced)).toBe(Number.POSITIVE_INFINITY);
    const kept = reached([{ kind: "forced", at: 0, state: "forced_closed" }, ...times(50, failed)]);
    expect(restsUntil(kept)).toBe(0);
    expect(reached([{ kind: "forced", at: 0, state: "closed" }], forced)).toEqual(CLOSED);
  });
});

test("a breaker does not count the caller's errors, forbidden calls and full providers as failures", () => {
  const innocent = Object.values(AttemptFailure).filter((failure) => !blamesProvider(failure));
  expect(innocent).toEqual([AttemptFailure.UPSTREAM_BUSY, AttemptFailure.INPUT_REJECTED, AttemptFailure.UNSAFE_ACTION]);
});

test("a breaker of a provider that works again closes after any history", () => {
  const event = fc.tuple(
    fc.constantFrom("failed", "succeeded", "released", "probing"),
    fc.integer({ min: 0, max: 20_000 }),
  );
  fc.assert(
    fc.property(fc.array(event, { maxLength: 60 }), (history) => {
      let at = 0;
      let breaker = CLOSED;
      for (const [kind, wait] of history) {
        at += wait;
        breaker = reduce(breaker, kind === "probing" ? probing(at) : ({ kind, at } as BreakerEvent), noJitter);
      }
      for (let i = 0; i < 2; i++) {
        at = Math.max(at, restsUntil(breaker));
        breaker = reached([probing(at), succeeded(at)], breaker);
      }
      expect(breaker.state).toBe("closed");
    }),
  );
});

describe("a breaker's reports from other replicas", () => {
  const heard = (at: number, consecutive: number, calls = consecutive, failures = consecutive): BreakerEvent => ({
    kind: "heard",
    at,
    calls,
    failures,
    consecutive,
  });

  test("never open it, however many failures they contain", () => {
    expect(reached(times(100, (at) => heard(at, 50))).state).toBe("closed");
  });

  test("shorten the count: failures in a row elsewhere count after one of its own", () => {
    expect(reached([heard(0, 3), failed(1)]).state).toBe("closed");
    expect(reached([heard(0, 4), failed(1)]).state).toBe("open");
    expect(reached([heard(0, 3), failed(1), failed(2)]).state).toBe("open");
  });

  test("count in the share that opens it", () => {
    expect(reached([heard(0, 0, 9, 4), failed(1)]).state).toBe("open");
    expect(reached([heard(0, 0, 9, 3), failed(1)]).state).toBe("closed");
  });

  test("expire after 30 seconds, and when a call of its own succeeds", () => {
    expect(reached([heard(0, 4), failed(30_000)]).state).toBe("closed");
    expect(reached([heard(0, 4, 0, 0), succeeded(1), failed(2)]).state).toBe("closed");
  });

  test("of a million calls at once do not outweigh its own calls", () => {
    expect(reached([heard(0, 0, 1e6, 0), ...times(4, failed, 1)]).state).toBe("closed");
    expect(reached([heard(0, 0, 1e6, 0), ...times(5, failed, 1)]).state).toBe("open");
  });
});
