/** A short season of providers and callers; `npm run chaos:suppliers` is the whole: 10,000 calls. */
import { expect, it } from "vitest";
import { tradeThrough } from "./suppliers/season.ts";

it("in 600 calls of six organisations at eight providers nobody reaches what it did not admit, no caller's input opens a breaker, every refusal says what to change, and statements are what was charged", async () => {
  const { wrong } = await tradeThrough({ calls: 600, seed: Number(process.env.SUPPLIERS_SEED ?? 7) });
  expect(wrong).toEqual([]);
}, 120_000);
