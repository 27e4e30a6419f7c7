/** A short season of providers and callers; `npm run chaos suppliers` is the whole: 10,000 calls. */
import { expect, it } from "vitest";
import { runs } from "../../support/runs.ts";
import { tradeThrough } from "./suppliers/season.ts";

it("calls reach only offerings that their organization admits, no caller's input opens a breaker, every refusal names a change, and statements equal the charges", async () => {
  const { wrong } = await tradeThrough({ calls: runs(200), seed: Number(process.env.SUPPLIERS_SEED ?? 7) });
  expect(wrong).toEqual([]);
}, 120_000);
