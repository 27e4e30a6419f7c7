import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { replaceAmbient } from "../../../src/ambient.ts";
import type { Batch, BatchOutcome, LedgerPort } from "../../../src/money/port.ts";
import { Pump } from "../../../src/money/pump.ts";
import { ManualClock, settle } from "../../support/manual-clock.ts";

/** A ledger that answers a batch when it is told to. */
class SlowLedger implements LedgerPort<string, string> {
  /** Every batch that reached it, those that it was sent again included. */
  readonly batches: Batch<string, string>[] = [];
  #answer: { resolve(outcome: BatchOutcome): void; reject(cause: unknown): void } | undefined;

  open = async (): Promise<string> => "till/2";
  recall = async (): Promise<void> => {};
  recover = async (): Promise<void> => {};
  listen = (): (() => void) => () => {};

  commit = (_: string, batch: Batch<string, string>): Promise<BatchOutcome> => {
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
  restore = replaceAmbient({ clock });
});

afterEach(() => restore());

function open() {
  const ledger = new SlowLedger();
  const pump = new Pump(ledger, "till/1", { recalled: () => {}, fenced: () => {} });
  return { ledger, pump };
}

const names = (count: number): string[] => Array.from({ length: count }, (_, i) => `call ${i}`);

describe("callers who go round", () => {
  it("wait for no clock: the next batch leaves when the last of them is back", async () => {
    const { ledger, pump } = open();
    for (const name of names(64)) pump.intend(name);
    await settle();
    for (let round = 1; round <= 3; round++) {
      expect(ledger.sizes).toEqual(Array.from({ length: round }, () => 64));
      await ledger.done();
      for (const name of names(63)) pump.intend(name);
      await settle();
      expect(ledger.waits).toBe(false);
      pump.intend("the last");
      await settle();
      await settle();
      expect(ledger.waits).toBe(true);
    }
  });

  it("wait a few milliseconds and no longer for one who has left", async () => {
    const { ledger, pump } = open();
    for (const name of names(64)) pump.intend(name);
    await settle();
    await ledger.done();
    for (const name of names(63)) pump.intend(name);
    await clock.advance(5);
    expect(ledger.sizes).toEqual([64, 63]);
  });

  it("take those along who came while they were under way", async () => {
    const { ledger, pump } = open();
    for (const name of names(32)) pump.intend(name);
    await settle();
    pump.intend("a stranger");
    await ledger.done();
    for (const name of names(32)) pump.intend(name);
    await settle();
    expect(ledger.waits).toBe(false);
    await clock.advance(5);
    expect(ledger.sizes).toEqual([32, 33]);
  });

  it("bring what they say in one turn into one batch", async () => {
    const { ledger, pump } = open();
    for (const name of names(4)) pump.intend(name);
    await settle();
    await ledger.done();
    for (const name of names(3)) pump.intend(name);
    await settle();
    for (const name of names(4)) pump.intend(name);
    await settle();
    await settle();
    expect(ledger.sizes).toEqual([4, 7]);
  });
});

describe("a rest before a batch ends at once", () => {
  async function resting() {
    const { ledger, pump } = open();
    for (const name of names(20)) pump.intend(name);
    await settle();
    await ledger.done();
    pump.intend("waits");
    await settle();
    expect(ledger.waits).toBe(false);
    return { ledger, pump };
  }

  it("when a call waits for credit", async () => {
    const { ledger, pump } = await resting();
    const credit = { lease: "lease_1", org: "org_1", key: "key_1", day: "2026-01-01", need: 1, asked: 1, want: 1 };
    void pump.move({ kind: "take", entry: "entry_1", ...credit });
    await settle();
    await settle();
    expect(ledger.sizes).toEqual([20, 2]);
  });

  it("when the pump closes", async () => {
    const { ledger, pump } = await resting();
    const closed = pump.close();
    await settle();
    await settle();
    expect(ledger.sizes).toEqual([20, 1]);
    await ledger.done();
    await closed;
    expect(clock.pending).toBe(0);
  });

  it("when a batch is full", async () => {
    const { ledger, pump } = await resting();
    for (const name of names(511)) pump.intend(name);
    await settle();
    await settle();
    expect(ledger.sizes).toEqual([20, 512]);
  });
});

it("writes every work once, in the order in which they came, however callers, answers and losses fall together", async () => {
  /** How many callers come, what becomes of the batch under way, and how much time passes. */
  const step = fc.tuple(fc.integer({ min: 0, max: 200 }), fc.constantFrom("none", "done", "lost"), fc.nat({ max: 7 }));
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 30 }), fc.boolean(), async (steps, goRound) => {
      const { ledger, pump } = open();
      let begun = 0;
      let durable = 0;
      let closing = false;
      const call = (): void => {
        pump.intend(String(begun++)).done.promise.then(() => {
          durable++;
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
      void pump.close().then(() => {
        closed = true;
      });
      for (let turn = 0; !closed && turn < 10_000; turn++) {
        await clock.advance(1);
        await ledger.done();
      }
      const applied = new Map(ledger.batches.map((batch) => [batch.number, batch.intents]));
      expect([...applied.keys()]).toEqual(Array.from(applied.keys(), (_, i) => i + 1));
      expect([...applied.values()].flat()).toEqual(Array.from({ length: begun }, (_, i) => String(i)));
      expect(durable).toBe(begun);
      expect(clock.pending).toBe(0);
    }),
    { numRuns: 60 },
  );
});
