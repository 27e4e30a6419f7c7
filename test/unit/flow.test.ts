/** Items that are handed on without promises, and the two ways between them and iteration. */
import { expect, it } from "vitest";
import { type Flow, flowOf, Items, type Taker } from "../../src/flow.ts";

/** Counts to `last`, and notes when it is left. */
function counting(last: number) {
  let at = 0;
  const seen = { left: false };
  const flow: Flow<number> = {
    next: (taker) => (at === last ? taker.over() : taker.item(++at)),
    leave: () => {
      seen.left = true;
    },
  };
  return { flow, seen };
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const read: T[] = [];
  for await (const item of items) read.push(item);
  return read;
}

it("a flow that is iterated gives every item in order and then its end, again and again", async () => {
  const items = new Items(counting(3).flow);
  expect(await all(items)).toEqual([1, 2, 3]);
  expect(await items.next()).toEqual({ done: true, value: undefined });
});

it("a flow whose reader stops is left, and is not asked again", async () => {
  const { flow, seen } = counting(3);
  const items = new Items(flow);
  for await (const item of items) if (item === 2) break;
  expect(seen.left).toBe(true);
  expect(await items.next()).toEqual({ done: true, value: undefined });
});

it("a reader who waits when the flow is left is told of the end", async () => {
  const items = new Items<number>({ next: () => undefined, leave: () => undefined });
  const waits = items.next();
  await items.return();
  expect(await waits).toEqual({ done: true, value: undefined });
});

it("a failure of a flow is thrown, once", async () => {
  const items = new Items<number>({ next: (taker) => taker.failed(new Error("broken")), leave: () => undefined });
  await expect(items.next()).rejects.toThrow("broken");
  expect(await items.next()).toEqual({ done: true, value: undefined });
});

it("what was made of a flow is that flow again", () => {
  const { flow } = counting(1);
  expect(flowOf(new Items(flow))).toBe(flow);
});

/** What a taker is told, in its order. */
function listener() {
  const told: unknown[] = [];
  const taker: Taker<number> = {
    item: (item) => told.push(item),
    over: () => told.push("over"),
    failed: (thrown) => told.push(thrown),
  };
  return { told, taker };
}

const turn = (): Promise<void> => new Promise(setImmediate);

it("what is iterated flows: its items, its end, and its failure", async () => {
  const broken = new Error("broken");
  const flow = flowOf(
    (async function* () {
      yield 1;
      throw broken;
    })(),
  );
  const { told, taker } = listener();
  for (let i = 0; i < 3; i++) {
    flow.next(taker);
    await turn();
  }
  expect(told).toEqual([1, broken, "over"]);
});

it("who has left what is iterated hears of nothing more, and it is closed", async () => {
  let closed = false;
  const flow = flowOf(
    (async function* () {
      try {
        yield 1;
        yield 2;
      } finally {
        closed = true;
      }
    })(),
  );
  const { told, taker } = listener();
  flow.next(taker);
  await turn();
  flow.next(taker);
  flow.leave();
  await turn();
  expect([told, closed]).toEqual([[1], true]);
});
