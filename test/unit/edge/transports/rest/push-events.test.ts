/** How what comes is told as events: in order, no faster than it is read, and with one end. */

import { describe, expect, it } from "vitest";
import { Cancel } from "../../../../../src/cancellation.ts";
import { type EventWriter, pushEvents, type ServerEvent } from "../../../../../src/edge/transports/rest/events.ts";
import { setClock } from "../../../../support/clocks.ts";
import { ManualClock } from "../../../../support/manual-clock.ts";

const turn = (): Promise<void> => new Promise(setImmediate);

/** Items that come when they are given. */
function given() {
  const seen = { asked: 0, left: 0 };
  let reader: PromiseWithResolvers<IteratorResult<number, undefined>> | undefined;
  const items: AsyncIterableIterator<number, undefined> = {
    [Symbol.asyncIterator]: () => items,
    next() {
      seen.asked += 1;
      reader = Promise.withResolvers();
      return reader.promise;
    },
    async return() {
      seen.left += 1;
      return { done: true, value: undefined };
    },
  };
  /** Each is heard before the next is given. */
  const give = async (item: number): Promise<void> => {
    reader!.resolve({ done: false, value: item });
    await turn();
  };
  const end = (): void => reader!.resolve({ done: true, value: undefined });
  const fail = (thrown: unknown): void => reader!.reject(thrown);
  return { items, seen, give, end, fail };
}

/** Tells of items; `full` writes have no room until `drain`. */
function telling(
  items: AsyncIterable<number>,
  { full = false, nothing }: { full?: boolean; nothing?: () => void } = {},
) {
  const told: string[] = [];
  const signal = new Cancel();
  let drain = (): void => undefined;
  const writer: EventWriter = {
    async write({ event, data }: ServerEvent) {
      told.push(`${event} ${data}`);
      if (full && !signal.aborted) await new Promise<void>((resolve) => (drain = resolve));
    },
    beat: () => void told.push("comment"),
    end: () => void told.push("end"),
  };
  let begin = (): void => undefined;
  const source = (early: () => void): AsyncIterable<number> => {
    begin = early;
    return items;
  };
  const done = pushEvents(source, {
    signal,
    nothing,
    begin: () => {
      told.push("begin");
      return writer;
    },
    eventOf: (item) => {
      if (item < 0) throw new Error("no such event");
      return { event: "item", data: String(item) };
    },
    errorOf: (thrown) => ({ event: "error", data: String(thrown) }),
  });
  done.catch(() => undefined);
  return { told, signal, done, drain: () => drain(), begin: () => begin() };
}

describe("an event stream", () => {
  it("starts with the first item, writes each in order, and ends once", async () => {
    const { items, give, end } = given();
    const { told, done } = telling(items);
    await turn();
    expect(told).toEqual([]);
    for (const item of [1, 2]) await give(item);
    end();
    await done;
    expect(told).toEqual(["begin", "item 1", "item 2", "end"]);
  });

  it("starts and ends without items", async () => {
    const { items, end } = given();
    const { told, done } = telling(items);
    end();
    await done;
    expect(told).toEqual(["begin", "end"]);
  });

  it("starts with a comment if its source waits, and writes one after ten seconds of silence", async () => {
    const { items, give, end } = given();
    const { told, done, begin } = telling(items);
    begin();
    begin();
    await give(1);
    end();
    await done;
    expect(told).toEqual(["begin", "comment", "item 1", "end"]);
    const clock = new ManualClock();
    setClock(clock);
    const slow = given();
    const silent = telling(slow.items);
    await clock.advance(9_999);
    expect(silent.told).toEqual([]);
    await clock.advance(1);
    slow.fail("late");
    await expect(silent.done).rejects.toBe("late");
    expect(silent.told).toEqual(["begin", "comment", "error late", "end"]);
  });

  it("answers without items in its own way if it has one", async () => {
    const { items, end } = given();
    const { told, done } = telling(items, { nothing: () => told.push("nothing") });
    end();
    await done;
    expect(told).toEqual(["nothing"]);
  });

  it("reads no further item while the connection is full", async () => {
    const { items, seen, give } = given();
    const { drain } = telling(items, { full: true });
    await give(1);
    expect(seen.asked).toBe(1);
    drain();
    await turn();
    expect(seen.asked).toBe(2);
  });

  it("does not start if its source fails first", async () => {
    const { items, fail } = given();
    const { told, done } = telling(items);
    fail("refused");
    await expect(done).rejects.toBe("refused");
    expect(told).toEqual([]);
  });

  it("reports the error if its source fails later", async () => {
    const { items, give, fail } = given();
    const { told, done } = telling(items);
    await give(1);
    fail("broken");
    await expect(done).rejects.toBe("broken");
    expect(told).toEqual(["begin", "item 1", "error broken", "end"]);
  });

  it("stops waiting for items and the connection when canceled, and receives nothing afterwards", async () => {
    for (const full of [false, true]) {
      const { items, seen, give } = given();
      const { told, done, signal, drain } = telling(items, { full });
      await give(1);
      signal.abort("left");
      await give(2);
      // A writer that waits for room stops waiting with the signal.
      drain();
      await expect(done).rejects.toBe("left");
      expect(told).toEqual(["begin", "item 1", "error left", "end"]);
      expect([seen.asked, seen.left]).toEqual([full ? 1 : 2, 1]);
    }
  });

  it("ends with an item that cannot be written", async () => {
    const { items, seen, give } = given();
    const { told, done } = telling(items);
    await give(1);
    await give(-1);
    await expect(done).rejects.toThrow("no such event");
    expect(told.at(-1)).toBe("end");
    expect(seen.left).toBe(1);
  });
});
