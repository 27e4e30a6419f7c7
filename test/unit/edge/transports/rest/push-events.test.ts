/** How what comes is told as events: in order, no faster than it is read, and with one end. */
import { describe, expect, it } from "vitest";
import { Cancel } from "../../../../../src/cancellation.ts";
import { pushEvents } from "../../../../../src/edge/transports/rest/push-events.ts";
import type { EventWriter, ServerEvent } from "../../../../../src/edge/transports/rest/sse.ts";
import type { Flow, Taker } from "../../../../../src/flow.ts";

/** A flow whose items come when they are given. */
function given() {
  const seen = { asked: 0, left: 0 };
  let taker: Taker<number> | undefined;
  const flow: Flow<number> = {
    next(who) {
      seen.asked += 1;
      taker = who;
    },
    leave() {
      seen.left += 1;
    },
  };
  return { flow, seen, taker: () => taker! };
}

/** Tells of a flow; `full` writes have no room until `drain`. */
function telling(flow: Flow<number>, { full = false } = {}) {
  const told: string[] = [];
  const signal = new Cancel();
  let drain = (): void => undefined;
  const writer: EventWriter = {
    write({ event, data }: ServerEvent) {
      told.push(`${event} ${data}`);
      return full ? new Promise((resolve) => (drain = resolve)) : undefined;
    },
    end: () => void told.push("end"),
  };
  const done = pushEvents(flow, {
    signal,
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
  return { told, signal, done, drain: () => drain() };
}

describe("telling", () => {
  it("begins with the first item, tells each in order, and ends once", async () => {
    const { flow, taker } = given();
    const { told, done } = telling(flow);
    expect(told).toEqual([]);
    for (const item of [1, 2]) taker().item(item);
    taker().over();
    await done;
    expect(told).toEqual(["begin", "item 1", "item 2", "end"]);
  });

  it("asks for nothing more before there is room", async () => {
    const { flow, seen, taker } = given();
    const { drain } = telling(flow, { full: true });
    taker().item(1);
    await new Promise(setImmediate);
    expect(seen.asked).toBe(1);
    drain();
    await new Promise(setImmediate);
    expect(seen.asked).toBe(2);
  });

  it("tells of very many that are there already without standing on its own shoulders", async () => {
    let left = 200_000;
    const flow: Flow<number> = {
      next: (taker) => (left-- > 0 ? taker.item(left) : taker.over()),
      leave: () => undefined,
    };
    const { told, done } = telling(flow);
    await done;
    expect(told.length).toBe(200_002);
  });

  it("begins nothing where a failure comes first", async () => {
    const { flow, taker } = given();
    const { told, done } = telling(flow);
    taker().failed("refused");
    await expect(done).rejects.toBe("refused");
    expect(told).toEqual([]);
  });

  it("says why it ends where a failure comes later", async () => {
    const { flow, taker } = given();
    const { told, done } = telling(flow);
    taker().item(1);
    taker().failed("broken");
    await expect(done).rejects.toBe("broken");
    expect(told).toEqual(["begin", "item 1", "error broken", "end"]);
  });

  it("leaves what it waits for, or has no room for, when it is called off, and hears no more of it", async () => {
    for (const full of [false, true]) {
      const { flow, seen, taker } = given();
      const { told, done, signal, drain } = telling(flow, { full });
      taker().item(1);
      signal.abort("left");
      taker().item(2);
      drain();
      await expect(done).rejects.toBe("left");
      expect(told).toEqual(["begin", "item 1", "error left", "end"]);
      expect([seen.asked, seen.left]).toEqual([full ? 1 : 2, 1]);
    }
  });

  it("ends what comes as something that cannot be told", async () => {
    const { flow, seen, taker } = given();
    const { told, done } = telling(flow);
    taker().item(1);
    taker().item(-1);
    await expect(done).rejects.toThrow("no such event");
    expect(told.at(-1)).toBe("end");
    expect(seen.left).toBe(1);
  });
});
