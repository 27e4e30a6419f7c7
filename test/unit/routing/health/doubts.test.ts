/** What a caller's own input may have caused counts with another organisation's failure, or with the gateway's own question. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { AttemptFailure } from "../../../../src/contracts/contract.ts";
import type { Report } from "../../../../src/routing/health/cell.ts";
import { HealthTracker } from "../../../../src/routing/health/health.ts";
import { buildSnapshot } from "../../../../src/routing/snapshot/build.ts";
import { offering, supplyOf } from "../../../support/supply.ts";

const ERROR = AttemptFailure.UPSTREAM_ERROR;

/** One offering, and what was asked because of it. */
function board() {
  const health = new HealthTracker(buildSnapshot(supplyOf([offering("a")])), () => 0);
  health.mayBeInput = (_, failure) => failure === ERROR;
  const asked: string[] = [];
  health.onDoubted = ({ id }) => asked.push(id);
  const fail = (orgId: string | undefined, at = 1000, facts: Partial<Report> = {}): void =>
    health.report("a", { outcome: ERROR, latencyMs: 20, units: 0, cold: false, at, ...facts }, orgId);
  const serve = (at = 1000, orgId = "org_good"): void =>
    health.report("a", { outcome: "ok", latencyMs: 20, units: 16, cold: false, at }, orgId);
  const times = (count: number, run: (i: number) => void): void => void Array.from({ length: count }, (_, i) => run(i));
  const state = (): string => health.figureOf("a", 1000)!.breaker.state;
  const answer = (verdict: "succeeded" | "failed" | "released", at = 1000): void => {
    expect(health.beginDoubt("a", at)).toBe(true);
    health.endDoubt("a", verdict, ERROR, at);
  };
  const failures = (): number => health.tell("a", 1000)!.tally.failures;
  return { health, asked, fail, serve, times, state, answer, failures };
}

describe("suspected failures of one organization", () => {
  test("alone never open a breaker, and count in no figure", () => {
    const { health, fail, times, state, failures } = board();
    times(500, (i) => fail("org_a", 1000 + i * 10));
    expect([state(), failures(), health.view.success[0]]).toEqual(["closed", 0, 1]);
    expect(health.figureOf("a", 1000)?.lastFailure).toBeUndefined();
  });

  test("cause a health check when they would have opened the breaker, one at a time", () => {
    const { health, asked, fail, times } = board();
    times(4, () => fail("org_a"));
    expect(asked).toEqual([]);
    fail("org_a");
    expect(asked).toEqual(["a"]);
    expect([health.beginDoubt("a", 1000), health.beginDoubt("a", 1000)]).toEqual([true, false]);
    times(50, () => fail("org_a"));
    expect(asked).toEqual(["a"]);
  });

  test("count if the offering also fails known-good input: the breaker opens, and figures include them", () => {
    const { health, fail, times, state, answer, failures } = board();
    times(5, () => fail("org_a"));
    answer("failed");
    expect([state(), failures()]).toEqual(["open", 5]);
    expect(health.view.success[0]).toBeLessThan(0.6);
    expect(health.figureOf("a", 1000)?.lastFailure).toBe(ERROR);
  });

  test("are dropped if the offering answers, and it is not checked again at once", () => {
    const { asked, fail, times, state, answer, failures } = board();
    times(5, () => fail("org_a"));
    answer("succeeded");
    times(50, () => fail("org_a", 5900));
    expect([state(), failures(), asked.length]).toEqual(["closed", 0, 1]);
    fail("org_a", 6000);
    expect(asked.length).toBe(2);
  });

  test("remain if the check could not be made, which is repeated a second later", () => {
    const { asked, fail, times, state, answer } = board();
    times(5, () => fail("org_a"));
    answer("released");
    fail("org_a", 1999);
    expect([state(), asked.length]).toEqual(["closed", 1]);
    fail("org_a", 2000);
    expect(asked.length).toBe(2);
    answer("failed", 2000);
    expect(state()).toBe("open");
  });

  test("are dropped if a call is served during the check", () => {
    const { health, fail, serve, times, state } = board();
    times(5, () => fail("org_a"));
    health.beginDoubt("a", 1000);
    serve();
    health.endDoubt("a", "failed", ERROR, 1000);
    expect(state()).toBe("closed");
  });

  test("cause no check while the offering serves others well", () => {
    const { asked, fail, serve, times } = board();
    times(50, () => {
      fail("org_a");
      serve();
      serve();
    });
    expect(asked).toEqual([]);
  });
});

describe("suspected failures of two organizations", () => {
  test("count in pairs, and open the breaker without a check", () => {
    const { fail, times, state, failures } = board();
    times(2, () => {
      fail("org_a");
      fail("org_b");
    });
    expect([state(), failures()]).toEqual(["closed", 4]);
    fail("org_a");
    expect(state()).toBe("closed");
    fail("org_b");
    expect([state(), failures()]).toEqual(["open", 6]);
  });

  test("confirm one failure each, not all of another organization's", () => {
    const { fail, times, state, failures } = board();
    times(100, () => fail("org_a"));
    fail("org_b");
    times(100, () => fail("org_a"));
    expect([state(), failures()]).toEqual(["closed", 2]);
  });

  test("do not count together if they are half a minute apart", () => {
    const { fail, times, failures } = board();
    times(5, () => fail("org_a", 1000));
    times(5, () => fail("org_b", 31_000));
    expect(failures()).toBe(0);
  });

  test("count together with those that another replica reports, up to its number", () => {
    const [one, other] = [board(), board()];
    one.times(2, () => one.fail("org_a"));
    const told = one.health.tell("a", 1000)!;
    for (let round = 0; round < 3; round++) other.health.hear("one", "a", told, 1000);
    other.fail("org_a");
    expect(other.failures()).toBe(0);
    other.times(9, () => other.fail("org_b"));
    // Two by its own of org_a, two by those of the other replica.
    expect([other.failures(), other.state()]).toEqual([4, "closed"]);
  });
});

describe("a failure that no input causes", () => {
  test("counts at once: five lost connections of one organization", () => {
    const { fail, times, state } = board();
    times(5, () => fail("org_a", 1000, { outcome: AttemptFailure.CONNECTION_LOST }));
    expect(state()).toBe("open");
  });

  test("counts together with suspected ones", () => {
    const { asked, fail, times, state } = board();
    times(4, () => fail("org_a"));
    fail("org_a", 1000, { outcome: AttemptFailure.UNREACHABLE });
    expect([state(), asked]).toEqual(["closed", []]);
    fail("org_a");
    expect(asked).toEqual(["a"]);
  });

  test("includes a deadline with ample time; a hardly longer than usual one may be caused by the input", () => {
    const hasty = board();
    // 80 ms are usual.
    hasty.times(5, () => hasty.fail("org_a", 1000, { outcome: AttemptFailure.DEADLINE, latencyMs: 200 }));
    expect([hasty.state(), hasty.asked]).toEqual(["closed", ["a"]]);
    const patient = board();
    patient.times(5, () => patient.fail("org_a", 1000, { outcome: AttemptFailure.DEADLINE, latencyMs: 2000 }));
    expect(patient.state()).toBe("open");
  });
});

test("input that the gateway itself found invalid does not count, whichever organization sends it", () => {
  const { fail, times, state, asked } = board();
  for (const orgId of ["org_a", "org_b"]) times(50, () => fail(orgId, 1000, { lacked: true }));
  expect([state(), asked]).toEqual(["closed", []]);
});

test("after an open breaker, one organization's first failure causes a check before the breaker opens again", () => {
  const { health, asked, fail, times, state, answer } = board();
  times(5, () => fail("org_a"));
  answer("failed");
  expect(health.beginProbe("a", 12_000, 500)).toBe(true);
  health.endProbe("a", "succeeded", 12_000);
  expect(health.beginProbe("a", 12_000, 500)).toBe(true);
  health.endProbe("a", "succeeded", 12_000);
  expect(state()).toBe("closed");
  fail("org_a", 12_100);
  expect([state(), asked.length]).toEqual(["closed", 2]);
  answer("failed", 12_200);
  expect(state()).toBe("open");
});

test("a call that probes an open breaker causes a check if its input may be at fault", () => {
  const { health, asked, fail, times, state, answer } = board();
  times(5, () => fail("org_a"));
  answer("failed");
  expect(health.admit("a", 12_000, 500)).toBe(true);
  fail("org_a", 12_000);
  expect([state(), asked.length]).toEqual(["half_open", 2]);
  answer("failed", 12_000);
  expect(state()).toBe("open");
});

test("no breaker opens because of one organization's calls while the offering answers checks", () => {
  const event = fc.tuple(fc.constantFrom("fail", "serve", "lacked"), fc.integer({ min: 0, max: 4_000 }));
  fc.assert(
    fc.property(fc.array(event, { maxLength: 200 }), (history) => {
      const { health, fail, serve, state } = board();
      let at = 1000;
      health.onDoubted = () => {
        if (health.beginDoubt("a", at)) health.endDoubt("a", "succeeded", undefined, at);
      };
      for (const [kind, wait] of history) {
        at += wait;
        if (kind === "serve") serve(at, "org_a");
        else fail("org_a", at, { lacked: kind === "lacked" });
        expect(state()).toBe("closed");
      }
    }),
  );
});
