/** Two failovers; `npm run chaos failover` is the whole. */
import { expect, it } from "vitest";
import { failOver } from "./failover/failover.ts";

it("loses no answered call when the primary is killed and its standby promoted, there and back", async () => {
  const { wrong, answered, failovers } = await failOver(2);
  expect(wrong).toEqual([]);
  expect(failovers).toBe(2);
  expect(answered).toBeGreaterThan(200);
}, 240_000);
