/** A small season; `npm run chaos season` is the whole: 200 items, 50 episodes of every scenario in each of its action spaces. */
import { expect, it } from "vitest";
import { CASES, liveThrough } from "../slow/chaos/season/season.ts";

it("a batch and an evaluation whose worker dies end with exact counts, costs and intervals, and every subscriber receives the same", async () => {
  const cases = [CASES.findIndex(({ id }) => id === "base-nav")];
  const { wrong, kills } = await liveThrough({ items: 200, episodes: 4, cases });
  expect(wrong).toEqual([]);
  expect(kills).toBe(2);
}, 300_000);
