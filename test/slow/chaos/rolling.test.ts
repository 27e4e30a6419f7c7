/** One rolling restart; `npm run chaos rolling` is the whole. */
import { describe, expect, it } from "vitest";
import { IS_LONG } from "../../support/runs.ts";
import { HAPROXY } from "./rolling/haproxy.ts";
import { roll } from "./rolling/roll.ts";

describe.runIf(HAPROXY !== undefined)("behind Debian's haproxy", () => {
  it.each(IS_LONG ? (["tcp", "http"] as const) : (["tcp"] as const))(
    "rolling restarts of gateways fail no call and lose no control loop, in mode %s",
    async (mode) => {
      const count = IS_LONG ? 3 : 1;
      const { wrong, failed, moved, resumed, restarts } = await roll({ mode, restarts: count, delayS: 1 });
      expect(wrong).toEqual([]);
      expect({ restarts, failed, lost: moved - resumed }).toEqual({ restarts: count, failed: 0, lost: 0 });
      // Each of the four robots is on one of the three gateways; after three restarts all have moved.
      expect(moved).toBeGreaterThanOrEqual(IS_LONG ? 4 : 1);
    },
    300_000,
  );
});
