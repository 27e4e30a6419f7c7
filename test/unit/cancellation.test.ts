import { describe, expect, it } from "vitest";
import { Cancel, nativeOf, untilAbort } from "../../src/cancellation.ts";

describe("cancellation", () => {
  it("notifies every listener once, in the order of registration, with the first reason", () => {
    const cancel = new Cancel();
    const heard: string[] = [];
    const [a, b, c] = ["a", "b", "c"].map((name) => () => void heard.push(`${name} ${cancel.reason}`));
    const object = { handleEvent: () => void heard.push("object") };
    for (const run of [a!, b!, c!, object, b!, object, a!]) cancel.addEventListener("abort", run);
    cancel.abort("first");
    cancel.abort("second");
    expect(heard).toEqual(["a first", "b first", "c first", "object"]);
    expect(cancel.aborted).toBe(true);
    expect(() => cancel.throwIfAborted()).toThrow("first");
  });

  it("does not notify listeners that were removed or added too late", () => {
    const cancel = new Cancel();
    const heard: string[] = [];
    const [a, b, c] = ["a", "b", "c"].map((name) => () => void heard.push(name));
    for (const run of [a!, b!]) cancel.addEventListener("abort", run);
    for (const run of [a!, b!]) cancel.removeEventListener("abort", run);
    cancel.throwIfAborted();
    cancel.abort("now");
    cancel.addEventListener("abort", c!);
    expect(heard).toEqual([]);
  });

  it("is an AbortSignal for libraries that require one", () => {
    const cancel = new Cancel();
    const native = nativeOf(cancel);
    expect(native.aborted).toBe(false);
    cancel.abort("over");
    expect([native.aborted, native.reason]).toEqual([true, "over"]);
    expect(nativeOf(cancel).reason).toBe("over");
    expect(nativeOf(native)).toBe(native);
  });
});

describe("items until cancellation", () => {
  /** Counts for ever, or stands still after `still`; says how often it was left. */
  function counting(still = Number.POSITIVE_INFINITY) {
    const seen = { left: 0 };
    let at = 0;
    const items: AsyncIterableIterator<number> = {
      [Symbol.asyncIterator]: () => items,
      next: () => (at === still ? new Promise(() => {}) : Promise.resolve({ done: false, value: ++at })),
      async return() {
        seen.left += 1;
        return { done: true, value: undefined };
      },
    };
    return { items, seen };
  }

  it("end with the reason for a waiting reader, and the source is closed once", async () => {
    const { items, seen } = counting(1);
    const cancel = new Cancel();
    const until = untilAbort(items, cancel);
    expect(await until.next()).toEqual({ done: false, value: 1 });
    const waits = until.next();
    cancel.abort("now");
    await expect(waits).rejects.toBe("now");
    expect(await until.next()).toEqual({ done: true, value: undefined });
    await until.return();
    expect(seen.left).toBe(1);
  });

  it("end with the reason at the next read of a reader that does not wait", async () => {
    const { items, seen } = counting();
    const cancel = new Cancel();
    const until = untilAbort(items, cancel);
    await until.next();
    cancel.abort("now");
    expect(seen.left).toBe(0);
    await expect(until.next()).rejects.toBe("now");
    expect(seen.left).toBe(1);
  });

  it("are closed by a reader that stops", async () => {
    const { items, seen } = counting();
    for await (const item of untilAbort(items, new Cancel())) if (item === 3) break;
    expect(seen.left).toBe(1);
  });
});
