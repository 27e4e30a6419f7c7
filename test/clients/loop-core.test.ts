/** The decisions of the TypeScript client's loop as a function of events and time. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type ChunkFacts, LoopCore } from "../../clients/typescript/src/loop/core.ts";

const CHUNK: ChunkFacts = { episode: 1, startStep: 0, validUntilStep: 10, dtMs: 100, rows: 4 };

/** An open loop with steps of 20 ms that has sent its first observation. */
function begun(more: object = {}): LoopCore {
  const core = new LoopCore({ rateHz: 50, ...more });
  core.opened(0, { deadlineMs: 150 });
  core.tick(0);
  return core;
}

describe("a chunk", () => {
  it("is executed by the clock, with its own period between rows, until it expires", () => {
    const core = begun();
    expect(core.chunk(5, CHUNK)).toBe("taken");
    expect([20, 100, 180].map((at) => core.tick(at).row)).toEqual([0, 1, 1]);
    expect(core.tick(200)).toMatchObject({ row: undefined, hold: "expired", step: 10 });
    expect(core.tick(220)).toMatchObject({ hold: "expired" });
  });

  it("ends after its last row, even if it is still valid", () => {
    const core = begun();
    core.chunk(5, { ...CHUNK, validUntilStep: 1000, rows: 2 });
    expect([180, 200].map((at) => core.tick(at).hold)).toEqual(["", "expired"]);
  });

  it.each([
    ["of another episode", { episode: 2 }, "other_episode"],
    ["of a step that was never sent", { startStep: 7 }, "unknown"],
    ["that has expired", { validUntilStep: 0 }, "stale"],
    ["of an observation that is too old", { observationTime: -200 }, "late"],
  ])("%s is not executed", (_, more, fate) => {
    const core = begun();
    expect(core.chunk(5, { ...CHUNK, ...more })).toBe(fate);
    expect(core.tick(20).row).toBeUndefined();
  });

  it("is replaced by a newer chunk, and never by an older one", () => {
    const core = begun();
    core.tick(40);
    expect(core.chunk(45, { ...CHUNK, startStep: 2 })).toBe("taken");
    expect(core.chunk(46, CHUNK)).toBe("older");
    expect(core.tick(60).row).toBe(0);
  });
});

describe("a hold", () => {
  it("drops the current chunk for every reason", () => {
    const core = begun();
    core.chunk(5, CHUNK);
    expect(core.hold(10, { episode: 1, step: 0, reason: "late" })).toBe("taken");
    expect(core.tick(20)).toMatchObject({ row: undefined, hold: "late" });
  });

  it("keeps the chunk with `finish` if only a chunk is missing, but not if the chunk is wrong", () => {
    const core = begun({ finish: true });
    core.chunk(5, CHUNK);
    core.hold(10, { episode: 1, step: 0, reason: "upstream_failed" });
    core.lost(12);
    expect(core.tick(20).row).toBe(0);
    core.hold(25, { episode: 1, step: 1, reason: "out_of_bounds" });
    expect(core.tick(40)).toMatchObject({ row: undefined, hold: "out_of_bounds" });
  });

  it("is ignored if it answers an older step or another episode", () => {
    const core = begun();
    core.tick(40);
    core.chunk(45, { ...CHUNK, startStep: 2 });
    expect(core.hold(46, { episode: 1, step: 1, reason: "late" })).toBe("older");
    expect(core.hold(46, { episode: 9, step: 3, reason: "late" })).toBe("other_episode");
    expect(core.tick(60).row).toBe(0);
  });

  it("ends the loop after three consecutive observations that cannot be used", () => {
    const core = begun();
    for (const _ of [1, 2, 3]) core.hold(5, { episode: 1, step: 0, reason: "invalid_observation" });
    expect(core.over).toBe("observation_rejected");
  });
});

describe("the clock", () => {
  it("ends the loop if it goes back", () => {
    const core = begun();
    core.tick(1000);
    expect(core.tick(900)).toMatchObject({ hold: "clock", row: undefined });
    expect(core.over).toBe("clock");
  });

  it("skips steps after a pause, and sends each step once", () => {
    const core = begun();
    expect([20, 22, 100, 105].map((at) => core.tick(at).send)).toEqual([true, false, true, false]);
    expect(core.step).toBe(5);
  });
});

it("executes no row of an episode after its reset, and none after a stop", () => {
  const core = begun();
  core.chunk(5, CHUNK);
  expect(core.reset(10)).toBe(2);
  expect(core.tick(12)).toMatchObject({ episode: 2, step: 0, send: true, row: undefined });
  expect(core.chunk(14, CHUNK)).toBe("other_episode");
  expect(core.chunk(15, { ...CHUNK, episode: 2 })).toBe("taken");
  core.stop("interrupted");
  expect(core.tick(40)).toMatchObject({ row: undefined, hold: "interrupted" });
  expect(core.chunk(45, { ...CHUNK, episode: 2 })).toBe("over");
});

it("never executes a row outside its chunk's steps, of another episode or after a hold, for arbitrary events", () => {
  const event = fc.oneof(
    { weight: 5, arbitrary: fc.record({ kind: fc.constant("tick" as const), ms: fc.nat(90) }) },
    fc.record({
      kind: fc.constant("chunk" as const),
      back: fc.nat(3),
      valid: fc.nat(12),
      rows: fc.integer({ min: 1, max: 8 }),
      dtMs: fc.constantFrom(10, 20, 33, 100),
      episodeBack: fc.nat(1),
    }),
    fc.record({ kind: fc.constant("hold" as const), reason: fc.constantFrom("late", "out_of_bounds") }),
    fc.record({ kind: fc.constant("lost" as const) }),
    fc.record({ kind: fc.constant("opened" as const) }),
    fc.record({ kind: fc.constant("reset" as const) }),
  );
  fc.assert(
    fc.property(fc.array(event, { maxLength: 80 }), (events) => {
      const core = begun();
      let at = 0;
      let chunk: ChunkFacts | undefined;
      for (const each of events) {
        if (each.kind === "chunk") {
          const startStep = Math.max(0, core.step - each.back);
          const { rows, dtMs } = each;
          const facts = { episode: core.episode - each.episodeBack, startStep, rows, dtMs };
          const came = { ...facts, validUntilStep: startStep + each.valid };
          if (core.chunk(at, came) === "taken") chunk = came;
        } else if (each.kind === "hold") {
          core.hold(at, { episode: core.episode, step: core.step, reason: each.reason });
          chunk = undefined;
        } else if (each.kind === "reset") {
          core.reset(at);
          chunk = undefined;
        } else if (each.kind === "lost") {
          core.lost(at);
          chunk = undefined;
        } else if (each.kind === "opened") core.opened(at, { deadlineMs: 1000 });
        else {
          at += each.ms;
          const { row, step, episode } = core.tick(at);
          if (row === undefined) continue;
          expect(chunk).toBeDefined();
          expect([episode, row >= 0, row < chunk!.rows]).toEqual([chunk!.episode, true, true]);
          expect(step >= chunk!.startStep && step < chunk!.validUntilStep).toBe(true);
        }
      }
    }),
  );
});
