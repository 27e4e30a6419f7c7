/** A few rolling restarts; `npm run chaos:rolling` is the whole. */
import { describe, expect, it } from "vitest";
import { HAPROXY } from "./rolling/haproxy.ts";
import { roll } from "./rolling/roll.ts";

describe.runIf(HAPROXY !== undefined)("behind Debian's haproxy", () => {
  it.each(["tcp", "http"] as const)(
    "a rolling restart of three gateways fails no call and loses no control loop, in mode %s",
    async (mode) => {
      const { wrong, failed, moved, resumed, restarts } = await roll({ mode, restarts: 3, delayS: 1 });
      expect(wrong).toEqual([]);
      expect({ restarts, failed, lost: moved - resumed }).toEqual({ restarts: 3, failed: 0, lost: 0 });
      // Each of the four robots was on one of the three.
      expect(moved).toBeGreaterThanOrEqual(4);
    },
    300_000,
  );
});
