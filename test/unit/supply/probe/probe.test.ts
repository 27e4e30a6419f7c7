import { afterEach, expect, it } from "vitest";
import { AttemptFailure, Contract, UpstreamFailure } from "../../../../src/contracts/contract.ts";
import { type ProbeDeps, type Probed, probe } from "../../../../src/supply/probe/probe.ts";
import { setAmbient } from "../../../support/clocks.ts";
import { eventually } from "../../../support/eventually.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const clock = new ManualClock();
/** A limit that no other timer has. */
const LIMIT_MS = 5_003;
const restore = setAmbient({ clock });
afterEach(restore);

it("the probe leaves no timer behind, whatever its calls' outcome, and cancels slow calls", async () => {
  const ends = ["answers", "fails", "hangs"] as const;
  for (const end of ends) {
    const health: Probed["wire"]["health"] = (_, { signal }) => {
      if (end === "answers") return Promise.resolve();
      if (end === "fails") return Promise.reject(new UpstreamFailure(AttemptFailure.UNREACHABLE, "nobody there"));
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    };
    const probed = {
      offering: {
        id: "off_1",
        model: "o/n",
        contracts: [Contract.EVALUATE],
        actionSpaces: [],
        coldTimeoutMs: LIMIT_MS,
      },
      target: { endpoint: "test://a" },
      record: { region: "", providerRegions: [] },
      wire: { id: "test", schemes: ["test:"], health, close: async () => {} },
    } as unknown as Probed;
    const report = probe({} as ProbeDeps, probed);
    if (end === "hangs") {
      await eventually(() => expect(clock.pendingOf(LIMIT_MS)).toBe(1));
      await clock.advance(LIMIT_MS);
    }
    const { checks } = (await report).report;
    expect(checks[0]).toMatchObject({ name: "reachable", passed: end === "answers" });
    if (end === "hangs") expect(checks[0]?.detail).toContain(`no answer within ${LIMIT_MS} ms`);
    expect(clock.pendingOf(LIMIT_MS)).toBe(0);
  }
});
