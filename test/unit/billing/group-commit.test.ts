import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { CommitBatch, CommitOutcome, LedgerPort } from "../../../src/billing/group-commit.ts";
import { GroupCommitter } from "../../../src/billing/group-commit.ts";
import type { Clock } from "../../../src/clock.ts";
import { Reason } from "../../../src/errors.ts";
import { setAmbient } from "../../support/clocks.ts";
import { ManualClock, settle } from "../../support/manual-clock.ts";
import { runs } from "../../support/runs.ts";

/** A ledger that answers a batch when it is told to. */
class SlowLedger implements LedgerPort<string, string> {
  /** Every batch that reached it, those that it was sent again included. */
  readonly batches: CommitBatch<string, string>[] = [];
  #answer: { resolve(outcome: CommitOutcome): void; reject(cause: unknown): void } | undefined;

  open = async (): Promise<string> => "leaser/2";
  recall = async (): Promise<void> => {};
  recover = async (): Promise<void> => {};
  listen = (): (() => void) => () => {};

  commit = (_: string, batch: CommitBatch<string, string>): Promise<CommitOutcome> => {
    this.batches.push(batch);
    return new Promise((resolve, reject) => {
      this.#answer = { resolve, reject };
    });
  };

  get waits(): boolean {
    return this.#answer !== undefined;
  }

  /** How many works each batch carried. */
  get sizes(): number[] {
    return this.batches.map(({ intents, settlements, moves }) => intents.length + settlements.length + moves.length);
  }

  /** Ends the batch under way and lets whoever waited for it run. */
  async done(): Promise<void> {
    const answer = this.#answer;
    this.#answer = undefined;
    answer?.resolve({ kind: "done", takes: [], recalled: [] });
    await settle();
    await settle();
  }

  /** Answers that the credit leaser was fenced. */
  async fence(): Promise<void> {
    this.#answer?.resolve({ kind: "fenced" });
    this.#answer = undefined;
    await settle();
  }

  /** Leaves it unknown whether the batch under way was committed. */
  async lose(): Promise<void> {
    const answer = this.#answer;
    this.#answer = undefined;
    answer?.reject(new Error("the connection was lost"));
    await settle();
  }
}

let clock: ManualClock;
let restore: () => void;

beforeEach(() => {
  clock = new ManualClock();
  restore = setAmbient({ clock });
});

afterEach(() => restore());

function open() {
  const ledger = new SlowLedger();
  const logged: string[] = [];
  const log = {
    warn: (text: string) => void logged.push(`warn: ${text}`),
    error: (text: string) => void logged.push(`error: ${text}`),
  };
  const committer = new GroupCommitter(ledger, "leaser/1", { recalled: () => {}, fenced: () => {}, log });
  return { ledger, committer, logged };
}

const names = (count: number): string[] => Array.from({ length: count }, (_, i) => `call ${i}`);

describe("callers of the group committer", () => {
  it("need no timer: the next batch starts when the last running caller returns", async () => {
    const { ledger, committer } = open();
    for (const name of names(64)) committer.intend(name);
    await settle();
    for (let round = 1; round <= 3; round++) {
      expect(ledger.sizes).toEqual(Array.from({ length: round }, () => 64));
      await ledger.done();
      for (const name of names(63)) committer.intend(name);
      await settle();
      expect(ledger.waits).toBe(false);
      committer.intend("the last");
      await settle();
      await settle();
      expect(ledger.waits).toBe(true);
    }
  });

  it("wait a few milliseconds at most for a caller that has left", async () => {
    const { ledger, committer } = open();
    for (const name of names(64)) committer.intend(name);
    await settle();
    await ledger.done();
    for (const name of names(63)) committer.intend(name);
    await clock.advance(5);
    expect(ledger.sizes).toEqual([64, 63]);
  });

  it("include those that arrived while the others were running", async () => {
    const { ledger, committer } = open();
    for (const name of names(32)) committer.intend(name);
    await settle();
    committer.intend("a stranger");
    await ledger.done();
    for (const name of names(32)) committer.intend(name);
    await settle();
    expect(ledger.waits).toBe(false);
    await clock.advance(5);
    expect(ledger.sizes).toEqual([32, 33]);
  });

  it("share a batch for all records of one turn", async () => {
    const { ledger, committer } = open();
    for (const name of names(4)) committer.intend(name);
    await settle();
    await ledger.done();
    for (const name of names(3)) committer.intend(name);
    await settle();
    for (const name of names(4)) committer.intend(name);
    await settle();
    await settle();
    expect(ledger.sizes).toEqual([4, 7]);
  });
});

describe("a pause before a batch ends at once", () => {
  async function resting() {
    const { ledger, committer } = open();
    for (const name of names(20)) committer.intend(name);
    await settle();
    await ledger.done();
    committer.intend("waits");
    await settle();
    expect(ledger.waits).toBe(false);
    return { ledger, committer };
  }

  it("when a call waits for credit", async () => {
    const { ledger, committer } = await resting();
    const credit = { lease: "lease_1", org: "org_1", key: "key_1", day: "2026-01-01", need: 1, asked: 1, want: 1 };
    void committer.move({ kind: "take", entry: "entry_1", ...credit });
    await settle();
    await settle();
    expect(ledger.sizes).toEqual([20, 2]);
  });

  it("when the group committer closes", async () => {
    const { ledger, committer } = await resting();
    const closed = committer.close();
    await settle();
    await settle();
    expect(ledger.sizes).toEqual([20, 1]);
    await ledger.done();
    await closed;
    expect(clock.pending).toBe(0);
  });

  it("when a batch is full", async () => {
    const { ledger, committer } = await resting();
    for (const name of names(511)) committer.intend(name);
    await settle();
    await settle();
    expect(ledger.sizes).toEqual([20, 512]);
  });
});

describe("unawaited settlements", () => {
  /** A pump with calls under way, whose promises are in the journal. */
  async function promised(calls: number) {
    const { ledger, committer } = open();
    const intents = names(calls).map((name) => committer.intend(name));
    await settle();
    for (let left = calls; left > 0; left -= 512) await ledger.done();
    await clock.advance(5);
    const end = (index: number, presses = false): Promise<void> =>
      committer.settle("lease_1", `end ${index}`, intents[index], presses).promise;
    return { ledger, committer, end };
  }

  it("are collected until the next batch of intents, and the journal keeps their intents meanwhile", async () => {
    const { ledger, committer, end } = await promised(2);
    void end(0);
    void end(1);
    committer.intend("next");
    await clock.advance(5);
    expect(ledger.batches.at(-1)).toMatchObject({ intents: ["next"], settlements: [], over: [] });
    await ledger.done();
    await clock.advance(20);
    expect(ledger.sizes).toEqual([2, 1, 2]);
    expect(ledger.batches.at(-1)).toMatchObject({ intents: [], over: [1] });
  });

  it("are written when the first has waited twenty milliseconds, alone if nothing else is written", async () => {
    const { ledger, end } = await promised(2);
    void end(0);
    await clock.advance(19);
    void end(1);
    expect(ledger.sizes).toEqual([2]);
    await clock.advance(1);
    await settle();
    expect(ledger.sizes).toEqual([2, 2]);
    await ledger.done();
    expect(clock.pending).toBe(0);
  });

  it("are written when there are 512 of them", async () => {
    const { ledger, end } = await promised(512);
    for (let i = 0; i < 511; i++) void end(i);
    await settle();
    expect(ledger.sizes).toEqual([512]);
    void end(511);
    await settle();
    await settle();
    expect(ledger.sizes).toEqual([512, 512]);
  });

  it("are written, 512 at most at a time, before any later request", async () => {
    const { ledger, committer, end } = await promised(600);
    for (let i = 0; i < 600; i++) void end(i);
    void committer.move({ kind: "end", entry: "entry_1", lease: "lease_1", org: "org_1" });
    for (let i = 0; i < 5; i++) {
      await clock.advance(5);
      await ledger.done();
    }
    expect(ledger.batches.map(({ settlements }) => settlements.length)).toEqual([0, 0, 512, 88]);
    expect(ledger.batches.map(({ moves }) => moves.length)).toEqual([0, 0, 0, 1]);
  });

  const reasons: [string, (made: Awaited<ReturnType<typeof promised>>) => unknown][] = [
    ["a balance is asked for", ({ committer }) => committer.caughtUp()],
    ["an answer waits for another's end", ({ end }) => end(1, true)],
    [
      "their lease ends",
      ({ committer }) => committer.move({ kind: "end", entry: "entry_1", lease: "lease_1", org: "org_1" }),
    ],
    ["the pump closes", ({ committer }) => committer.close()],
  ];
  it.each(reasons)("are written at once when %s", async (_, happens) => {
    const made = await promised(2);
    let written = false;
    void made.end(0).then(() => {
      written = true;
    });
    void happens(made);
    await settle();
    await settle();
    expect(made.ledger.batches.at(-1)!.settlements[0]).toEqual({ lease: "lease_1", record: "end 0" });
    await made.ledger.done();
    expect(written).toBe(true);
    expect(clock.pending).toBe(0);
  });

  it("are refused with all else if the credit leaser was fenced", async () => {
    const { ledger, committer, end } = await promised(1);
    const lost = end(0).catch((cause: unknown) => cause);
    committer.intend("next");
    await clock.advance(5);
    await ledger.fence();
    expect(await lost).toMatchObject({ message: expect.stringContaining("nothing was charged") });
    await committer.close();
    expect(ledger.sizes).toEqual([1, 1]);
    expect(clock.pending).toBe(0);
  });
});

describe("records that the ledger refuses", () => {
  it("fail alone, cost few batches, and leave the journal as it would be without them", async () => {
    const most = 300;
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(fc.nat({ max: most - 1 }), { maxLength: 4 }),
        fc.boolean(),
        async (bad, split) => {
          const { ledger, committer, logged } = open();
          const isBad = new Set(bad.map(String));
          const applied: CommitBatch<string, string>[] = [];
          ledger.commit = async (_, batch) => {
            ledger.batches.push(batch);
            if (batch.settlements.some(({ record }) => isBad.has(record)))
              return { kind: "refused", cause: new Error("a duplicate key") };
            applied.push(batch);
            return { kind: "done", takes: [], recalled: [] };
          };
          const all = Array.from({ length: most }, (_, i) => String(i));
          const intents = all.map((name) => committer.intend(name));
          // The intents are in a batch of their own, or in that of their settlements.
          if (split) await settle();
          const failed: string[] = [];
          const ends = all.map((name, i) =>
            committer
              .settle("lease_1", name, intents[i], true)
              .promise.catch(({ reason }) => void failed.push(`${name} ${reason}`)),
          );
          await Promise.all([clock.advance(100), ...ends]);
          await committer.close();
          expect(failed.sort()).toEqual(bad.map((name) => `${name} ${Reason.INTERNAL_ERROR}`).sort());
          expect(ledger.batches.length).toBeLessThanOrEqual(2 + bad.length * 2 * Math.ceil(Math.log2(2 * most)));
          expect(applied.map(({ number }) => number)).toEqual(applied.map((_, i) => i + 1));
          const journal = new Map(applied.map(({ number, intents }) => [number, intents]));
          for (const number of applied.flatMap(({ over }) => over)) journal.delete(number);
          const kept = [...journal.values()].filter((intents) => intents.length > 0);
          expect(kept.flat()).toEqual(expect.arrayContaining([...isBad]));
          for (const intents of kept) expect(intents.some((name) => isBad.has(name))).toBe(true);
          expect(logged).toEqual(
            bad.length > 0 ? ["error: the ledger refused the record of a call, which was not charged"] : [],
          );
        },
      ),
      { numRuns: runs(15) },
    );
  });
});

describe("a ledger that does not respond", () => {
  it("is unavailable after three seconds, until it responds", async () => {
    const { ledger, committer, logged } = open();
    committer.intend("call");
    await settle();
    await clock.advance(2_900);
    expect(committer.well).toBe(true);
    await ledger.lose();
    await clock.advance(250);
    expect(committer.well).toBe(false);
    await ledger.lose();
    await clock.advance(100);
    await ledger.done();
    expect(committer.well).toBe(true);
    expect(logged).toEqual(["warn: the ledger could not be written; trying again"]);
    expect(clock.pending).toBe(0);
  });

  it("is not unavailable because this process was stalled", async () => {
    let stalledMs = 0;
    const stalling: Clock = {
      wall: () => clock.wall() + stalledMs,
      steady: () => clock.steady() + stalledMs,
      after: (ms, run) => clock.after(ms, run),
    };
    const undo = setAmbient({ clock: stalling });
    const { ledger, committer } = open();
    committer.intend("call");
    await settle();
    for (let stall = 0; stall < 3; stall++) {
      stalledMs += 10_000;
      await clock.advance(250);
      expect(committer.well).toBe(true);
    }
    await ledger.done();
    undo();
  });
});

it("every intent is written before its call is answered and every settlement once, for any order of callers, answers and losses", async () => {
  /** How many callers come, what becomes of the batch under way, and how much time passes. */
  const step = fc.tuple(fc.integer({ min: 0, max: 200 }), fc.constantFrom("none", "done", "lost"), fc.nat({ max: 7 }));
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 30 }), fc.boolean(), async (steps, goRound) => {
      const { ledger, committer } = open();
      const asked = new Set<string>();
      let begun = 0;
      let durable = 0;
      let ended = 0;
      let closing = false;
      const call = (): void => {
        const name = String(begun++);
        const intent = committer.intend(name);
        const end = (): void => {
          asked.add(name);
          committer.settle("lease_1", name, intent, begun % 7 === 0).promise.then(
            () => ended++,
            () => expect.unreachable(),
          );
        };
        if (begun % 5 === 0) end();
        intent.done.promise.then(() => {
          durable++;
          if (!asked.has(name)) end();
          if (goRound && !closing && begun < 2_000) call();
        });
      };
      for (const [come, fate, ms] of steps) {
        for (let i = 0; i < come; i++) call();
        await clock.advance(ms);
        if (fate === "done") await ledger.done();
        else if (fate === "lost") await ledger.lose();
      }
      closing = true;
      let closed = false;
      void committer.close().then(() => {
        closed = true;
      });
      for (let turn = 0; !closed && turn < 10_000; turn++) {
        await clock.advance(1);
        await ledger.done();
      }
      const applied = [...new Map(ledger.batches.map((batch) => [batch.number, batch])).values()];
      expect(applied.map(({ number }) => number)).toEqual(applied.map((_, i) => i + 1));
      const journal = applied.flatMap(({ intents }) => intents.map(Number));
      expect(journal).toEqual([...journal].sort((a, b) => a - b));
      const written = new Set(applied.flatMap(({ settlements }) => settlements.map(({ record }) => record)));
      expect(written).toEqual(new Set(Array.from({ length: begun }, (_, i) => String(i))));
      // A promise that is not in the journal left in one batch with its end.
      for (const { intents, settlements } of applied) {
        for (const { record } of settlements) expect(intents).not.toContain(record);
      }
      const pages = applied.filter(({ intents }) => intents.length > 0).map(({ number }) => number);
      expect(applied.flatMap(({ over }) => over).sort((a, b) => a - b)).toEqual(pages);
      expect(applied.reduce((sum, { settlements }) => sum + settlements.length, 0)).toBe(begun);
      expect(ended).toBe(begun);
      expect(durable).toBe(begun);
    }),
    { numRuns: runs(15) },
  );
});
