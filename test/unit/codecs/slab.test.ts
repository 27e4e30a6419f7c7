/** Room for messages that leave in a moment. */

import { expect, it } from "vitest";
import { givenBack, roomFor, taken } from "../../../src/codecs/slab.ts";

it("small messages share one block without overlap", () => {
  const first = taken(roomFor(100), roomFor(100).end - 100);
  const second = taken(roomFor(100), roomFor(100).end - 100);
  expect(first.buffer).toBe(second.buffer);
  expect(second.byteOffset + second.length).toBeLessThanOrEqual(first.byteOffset);
});

it("a large message has its own block, which the next one gets only after its return", () => {
  const first = roomFor(100_000);
  const second = roomFor(100_000);
  expect(second.block).not.toBe(first.block);
  givenBack(first);
  const third = roomFor(50_000);
  expect([third.block, third.end]).toEqual([first.block, 50_000]);
  expect(roomFor(50_000).block).not.toBe(first.block);
});

it("the block of small messages is never returned, and a very large block is not kept", () => {
  const small = roomFor(10);
  givenBack(small);
  expect(roomFor(100_000).block).not.toBe(small.block);
  const large = roomFor(2 << 20);
  givenBack(large);
  expect(roomFor(1 << 20).block).not.toBe(large.block);
});
