/** Digests of plans: one for alike calls, written apart from them, in a bounded share of the time. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { DataCollection } from "../../../gen/limber/v1/preferences_pb.ts";
import { type NamedDigest, PlanDigests } from "../../../src/inference/plan-digests.ts";
import { planFor } from "../../../src/routing/index.ts";
import { setAmbient } from "../../support/clocks.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { intent, offering, planArgs, prefer, supplyOf } from "../../support/supply.ts";

let clock: ManualClock;
let restore: () => void;
beforeEach(() => {
  clock = new ManualClock();
  restore = setAmbient({ clock });
});
afterEach(() => restore());

const SUPPLY = supplyOf([offering("a"), offering("b"), offering("c", { retainsFrames: true })]);
const args = (more: Parameters<typeof intent>[0] = {}) =>
  planArgs(SUPPLY, { intent: intent({ provider: prefer({ dataCollection: DataCollection.DENY }), ...more }) });

describe("plan digests", () => {
  it("are equal for equal calls in any order, and are written once after the calls", async () => {
    const written: NamedDigest[] = [];
    const digests = new PlanDigests(async (all) => void written.push(...all));
    const ranks = new Set<string>();
    const ids = new Set<string>();
    for (let seed = 0; seed < 50; seed++) {
      const wanted = { ...args({ seed }), seed };
      const logged = digests.of(wanted, planFor(wanted));
      ranks.add(logged?.ranks ?? "none");
      ids.add(logged?.id ?? "none");
    }
    expect([ids.size, [...ranks].sort()]).toEqual([1, ["0 1", "1 0"]]);
    expect(written).toEqual([]);
    await clock.advance(1_000);
    expect(written).toHaveLength(1);
    expect(written[0]?.digest).toMatchObject({ considered: 3, drops: { data_collection: 1 } });
    expect(written[0]?.digest.able.map(({ offering_id }) => offering_id)).toEqual(["a", "b"]);
    await clock.advance(10_000);
    digests.of(args(), undefined);
    await clock.advance(1_000);
    expect(written).toHaveLength(1);
    await digests.close();
  });

  it("that could not be written are written at the next one", async () => {
    let tries = 0;
    const digests = new PlanDigests(() => (++tries === 1 ? Promise.reject(new Error("away")) : Promise.resolve()));
    digests.of(args(), undefined);
    await clock.advance(2_000);
    expect(tries).toBe(1);
    digests.of({ ...args(), now: 10_000 }, undefined);
    await clock.advance(2_000);
    expect(tries).toBe(2);
  });

  it("are equal across sessions, differ between constraints, and do not exist for invalid requests", () => {
    const digests = new PlanDigests(async () => {});
    const id = (more: Parameters<typeof intent>[0]) => digests.of(args(more), undefined)?.id;
    const of = (sessionId: string) => id({ provider: prefer({ ignore: ["a"], sessionId }) });
    expect(of("one")).toBe(of("two"));
    expect(of("one")).not.toBe(id({}));
    expect(id({ model: "acme/nowhere" })).toBeUndefined();
  });
});
