/** Answers that come in parts. */
import { describe, expect, test } from "vitest";
import type { Signal } from "../../../../src/cancellation.ts";
import { AttemptFailure, UpstreamFailure } from "../../../../src/contracts/contract.ts";
import { Reason } from "../../../../src/errors.ts";
import { type AttemptOptions, attemptStream } from "../../../../src/routing/attempt/attempt.ts";
import type { PlanStep } from "../../../../src/routing/plan/plan.ts";
import { gateway, refusalOf } from "../../../support/attempts.ts";
import { type ManualClock, settle } from "../../../support/manual-clock.ts";
import { offering } from "../../../support/supply.ts";

describe("a streamed attempt", () => {
  /** A stream of these elements; a number waits so many milliseconds, a failure breaks it. */
  function streams(clock: ManualClock, script: Record<string, readonly (string | number | AttemptFailure | Error)[]>) {
    const closed: string[] = [];
    const signals: Record<string, Signal> = {};
    async function* play(id: string): AsyncGenerator<string> {
      try {
        for (const part of script[id]!) {
          if (typeof part === "string") yield part;
          else if (part instanceof Error) throw part;
          else await new Promise<void>((resolve) => clock.after(part, resolve));
        }
      } finally {
        closed.push(id);
      }
    }
    return {
      closed,
      signals,
      open: (step: PlanStep, { signal }: AttemptOptions): AsyncIterable<string> => {
        signals[step.offering.id] = signal;
        return play(step.offering.id);
      },
      unitsOf: () => 1,
    };
  }
  const broken = (failure: AttemptFailure) => new UpstreamFailure(failure, "secret upstream text");
  const read = async (rest: AsyncIterable<string>): Promise<string[]> => {
    const all: string[] = [];
    for await (const element of rest) all.push(element);
    return all;
  };

  test("delivers every element in order, and records the end", async () => {
    const { world, plan, clock } = gateway([offering("a")]);
    const { first, rest, tries } = await attemptStream(plan(), world, streams(clock, { a: ["0", "1", "2"] }));
    expect(tries[0]!.status).toBe("running");
    expect([first, ...(await read(rest))]).toEqual(["0", "1", "2"]);
    expect(tries[0]!.status).toBe("ok");
    expect(clock.pending).toBe(0);
  });

  test("fails over silently before the first element", async () => {
    const { world, plan, clock } = gateway([offering("a"), offering("b"), offering("c")]);
    const upstream = streams(clock, { a: [broken(AttemptFailure.UPSTREAM_ERROR)], b: [], c: ["0"] });
    const { first, step, tries, rest } = await attemptStream(plan(), world, upstream);
    expect([first, step.offering.id]).toEqual(["0", "c"]);
    expect(tries.map((each) => each.reason)).toEqual([
      AttemptFailure.UPSTREAM_ERROR,
      AttemptFailure.EMPTY_ANSWER,
      undefined,
    ]);
    expect(await read(rest)).toEqual([]);
  });

  test("ends with an error after the first element, and never fails over", async () => {
    const { world, plan, clock } = gateway([offering("a"), offering("b")]);
    const upstream = streams(clock, { a: ["0", broken(AttemptFailure.CONNECTION_LOST)], b: ["0"] });
    const { rest } = await attemptStream(plan(), world, upstream);
    const refusal = await refusalOf(read(rest));
    expect(refusal.reason).toBe(Reason.ALL_ATTEMPTS_FAILED);
    expect(refusal.route?.attempts.map((each) => [each.offeringId, each.reason])).toEqual([
      ["a", AttemptFailure.CONNECTION_LOST],
    ]);
    expect(Object.keys(upstream.signals)).toEqual(["a"]);
    expect(clock.pending).toBe(0);
  });

  test("that stalls is cut off at the attempt's budget", async () => {
    const { world, plan, clock } = gateway([offering("a", { timeoutMs: 500 }), offering("b")]);
    const upstream = streams(clock, { a: ["0", 10_000, "1"] });
    const { rest } = await attemptStream(plan(), world, upstream);
    const refusal = refusalOf(read(rest));
    await clock.advance(500);
    expect((await refusal).route?.attempts[0]?.reason).toBe(AttemptFailure.TIMEOUT);
    expect(upstream.signals.a!.aborted).toBe(true);
  });

  test("that is slow but moving is cut off at the deadline", async () => {
    const { world, plan, clock } = gateway([offering("a")], { deadlineMs: 250 });
    const { rest } = await attemptStream(plan(), world, streams(clock, { a: ["0", 100, "1", 100, "2", 100, "3"] }));
    const refusal = refusalOf(read(rest));
    await clock.advance(250);
    expect((await refusal).reason).toBe(Reason.DEADLINE_EXCEEDED);
  });

  test("cancels the upstream if the reader stops early", async () => {
    const { world, plan, clock, health } = gateway([offering("a")]);
    const upstream = streams(clock, { a: ["0", "1", "2"] });
    const { rest } = await attemptStream(plan(), world, upstream);
    for await (const element of rest) if (element === "1") break;
    await settle();
    expect(upstream.signals.a!.aborted).toBe(true);
    expect(upstream.closed).toEqual(["a"]);
    expect([...health.figures(0)][0]!.breaker.consecutive).toBe(0);
    expect(clock.pending).toBe(0);
  });

  test("cancels the upstream if the caller leaves before the next read", async () => {
    const { world, plan, clock, caller } = gateway([offering("a")]);
    const upstream = streams(clock, { a: ["0", "1"] });
    const { rest } = await attemptStream(plan(), world, upstream);
    caller.abort();
    expect(upstream.signals.a!.aborted).toBe(true);
    expect((await refusalOf(read(rest))).reason).toBe(Reason.CLIENT_CLOSED_REQUEST);
    expect(clock.pending).toBe(0);
  });

  test("cancels the upstream if the caller leaves at the first element", async () => {
    const { world, plan, clock, caller } = gateway([offering("a")]);
    const upstream = streams(clock, { a: ["0", "1"] });
    const unitsOf = (): number => {
      caller.abort();
      return 1;
    };
    const { rest } = await attemptStream(plan(), world, { ...upstream, unitsOf });
    expect(upstream.signals.a!.aborted).toBe(true);
    expect((await refusalOf(read(rest))).reason).toBe(Reason.CLIENT_CLOSED_REQUEST);
  });

  test("ends if the caller leaves while a frame is awaited", async () => {
    const { world, plan, clock, caller } = gateway([offering("a")]);
    const { rest } = await attemptStream(plan(), world, streams(clock, { a: ["0", 5000, "1"] }));
    const refusal = refusalOf(read(rest));
    await settle();
    caller.abort();
    expect((await refusal).reason).toBe(Reason.CLIENT_CLOSED_REQUEST);
  });

  test("that loses a hedge is closed even if its first element comes later", async () => {
    const { world, plan, clock } = gateway([offering("a"), offering("b")], { hedge: { afterMs: 10 } });
    const upstream = streams(clock, { a: [100, "slow"], b: ["quick"] });
    const outcome = attemptStream(plan(), world, upstream);
    await clock.advance(10);
    const { first, rest } = await outcome;
    expect(first).toBe("quick");
    expect(await read(rest)).toEqual([]);
    await clock.advance(100);
    expect(upstream.closed.sort()).toEqual(["a", "b"]);
  });
});
