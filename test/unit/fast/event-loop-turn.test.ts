/** What one turn of the event loop begins. */
import { expect, it } from "vitest";
import { countRequest, lookBetweenRequests } from "../../../src/fast/event-loop-turn.ts";

it("looks around between every few requests of a turn, until that is ended", async () => {
  let looks = 0;
  const end = lookBetweenRequests(() => looks++);
  // Of a turn of its own: what ran before has begun another.
  await new Promise((resolve) => setImmediate(resolve));
  for (let i = 0; i < 8; i++) countRequest();
  expect(looks).toBe(0);
  for (let i = 0; i < 25; i++) countRequest();
  expect(looks).toBe(4);
  end();
  for (let i = 0; i < 100; i++) countRequest();
  expect(looks).toBe(4);
});
