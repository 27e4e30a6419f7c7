import { describe, expect, it } from "vitest";
import { Cancel, nativeOf } from "../../src/cancellation.ts";

describe("calling work off", () => {
  it("tells everyone who listens once, with the first reason, in the order in which they came", () => {
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

  it("tells nobody who left, nor who came too late", () => {
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

  it("reaches libraries that insist on the platform's kind", () => {
    const cancel = new Cancel();
    const native = nativeOf(cancel);
    expect(native.aborted).toBe(false);
    cancel.abort("over");
    expect([native.aborted, native.reason]).toEqual([true, "over"]);
    expect(nativeOf(cancel).reason).toBe("over");
    expect(nativeOf(native)).toBe(native);
  });
});
