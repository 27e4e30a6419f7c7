/** What replicas say to each other of running loops: only while somebody watches, and whatever of it is lost. */
import { create, toBinary } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { LoopsToldSchema, LoopTalkSchema } from "../../../../gen/limber/replica/v1/loops_pb.ts";
import { RunningLoopSchema } from "../../../../gen/limber/v1/loop_pb.ts";
import { steadyNow } from "../../../../src/clock.ts";
import { LiveLoops } from "../../../../src/inference/control-loop/live-loops.ts";
import type { Carried } from "../../../../src/inference/control-loop/loop-registry.ts";
import { setAmbient } from "../../../support/clocks.ts";
import { ManualClock, settle } from "../../../support/manual-clock.ts";

let clock: ManualClock;
let restore: () => void;
beforeEach(() => {
  clock = new ManualClock();
  restore = setAmbient({ clock });
});
afterEach(() => restore());

const ORG = "org_1";
const SIGNAL = new AbortController().signal;

/** Replicas that hear each other, as far as `passes` lets words through. */
function net(...names: string[]) {
  const state = { words: 0, passes: (_: number): boolean => true };
  const all = names.map((name) => {
    const loops = new Map<string, { org: string; chunks: number }>();
    const live: LiveLoops = new LiveLoops({
      replica: name,
      loops: {
        each(visit) {
          for (const [id, { org: orgId, chunks }] of loops) {
            const shown = () => create(RunningLoopSchema, { id, orgId, chunks, sessionId: "s".repeat(100) });
            // The view asks for no more of a loop.
            visit({ mover: { key: { orgId } }, shown } as unknown as Carried);
          }
        },
      },
      sender: {
        mostBytes: 2_000,
        say: async (word) => {
          if (state.passes(state.words++)) for (const other of all) if (other.live !== live) other.live.hear(word);
        },
      },
      others: async () => names.filter((each) => each !== name),
    });
    return { live, loops };
  });
  return { state, all };
}

/** Lets a second pass, with all that it brings about. */
async function second(times = 1): Promise<void> {
  for (let i = 0; i < times; i++) {
    await clock.advance(1_000);
    for (let turn = 0; turn < 5; turn++) await settle();
  }
}
const idsOf = ({ loops }: { loops: ReadonlyMap<string, unknown> }): string[] => [...loops.keys()].sort();

describe("the loops of another replica", () => {
  it("are listed at once in as many messages as necessary, with those that begin and without those that end", async () => {
    const { all } = net("a", "b");
    const [a, b] = all as [(typeof all)[0], (typeof all)[0]];
    for (let i = 0; i < 50; i++) b.loops.set(`req_${100 + i}`, { org: ORG, chunks: 1 });
    b.loops.set("req_of_others", { org: "org_2", chunks: 1 });
    a.loops.set("req_1", { org: ORG, chunks: 1 });
    const watch = a.live.watch(ORG);
    await settle();
    expect(await watch.settled(1_000, SIGNAL)).toEqual({ replicas: 2, silent: 0 });
    expect(watch.loops.size).toBe(51);
    b.loops.delete("req_100");
    b.loops.set("req_200", { org: ORG, chunks: 1 });
    await second();
    expect([watch.loops.has("req_100"), watch.loops.has("req_200"), watch.loops.size]).toEqual([false, true, 51]);
    const version = watch.loops.get("req_101")?.version;
    b.loops.set("req_101", { org: ORG, chunks: 2 });
    await second();
    expect(watch.loops.get("req_101")?.loop.chunks).toBe(2);
    expect(watch.loops.get("req_101")?.version).toBeGreaterThan(version ?? Number.POSITIVE_INFINITY);
    expect(watch.loops.get("req_102")?.version).toBe(version);
    watch.close();
  });

  it("remain if single messages are lost, and disappear when their replica is silent", async () => {
    const { all, state } = net("a", "b");
    const [a, b] = all as [(typeof all)[0], (typeof all)[0]];
    for (let i = 0; i < 20; i++) b.loops.set(`req_${100 + i}`, { org: ORG, chunks: 1 });
    const watch = a.live.watch(ORG);
    await second();
    expect(watch.loops.size).toBe(20);
    state.passes = (word) => word % 4 !== 0;
    for (let i = 0; i < 10; i++) {
      await second();
      expect(watch.loops.size).toBe(20);
    }
    state.passes = () => false;
    await second(4);
    expect(watch.loops.size).toBe(0);
    state.passes = () => true;
    await second(2);
    expect(watch.loops.size).toBe(20);
    watch.close();
  });

  it("are reported missing by replica name if it does not answer within the given time", async () => {
    const { all, state } = net("a", "b", "c");
    state.passes = () => false;
    const watch = all[0]!.live.watch(ORG);
    const settled = watch.settled(1_000, SIGNAL);
    await settle();
    await second();
    expect(await settled).toEqual({ replicas: 1, silent: 2 });
    watch.close();
  });

  it("are listed up to a bound", async () => {
    const { all } = net("a", "b");
    const [a, b] = all as [(typeof all)[0], (typeof all)[0]];
    for (let i = 0; i < 2_500; i++) b.loops.set(`req_${10_000 + i}`, { org: ORG, chunks: 1 });
    const watch = a.live.watch(ORG);
    await second(2);
    expect(watch.loops.size).toBe(2_000);
    watch.close();
  });
});

describe("without a watcher,", () => {
  it("replicas send nothing and run no timer, soon after the last watcher leaves", async () => {
    const { all, state } = net("a", "b");
    for (const { loops } of all) loops.set(`req_${loops.size}`, { org: ORG, chunks: 1 });
    expect([clock.pending, state.words]).toEqual([0, 0]);
    const [one, two] = [all[0]!.live.watch(ORG), all[1]!.live.watch(ORG)];
    await second(3);
    one.close();
    one.close();
    await second(5);
    expect(idsOf(two)).toHaveLength(1);
    two.close();
    await second(10);
    const { words } = state;
    await second(5);
    expect([state.words, clock.pending]).toEqual([words, 0]);
    expect(all.map(({ live }) => live.isActive)).toEqual([false, false]);
  });

  it("a watcher that leaves during its wait gets the reason", async () => {
    const { all } = net("a");
    const leaving = new AbortController();
    const watch = all[0]!.live.watch(ORG);
    const next = watch.next(leaving.signal);
    leaving.abort(new Error("gone"));
    await expect(next).rejects.toThrow("gone");
    await expect(watch.next(leaving.signal)).rejects.toThrow("gone");
    watch.close();
  });
});

describe("an invalid gossip message about loops", () => {
  it("changes nothing: nonsense, the replica's own, one without a name, one with an invalid loop", async () => {
    const { all } = net("a", "b");
    const [a, b] = all as [(typeof all)[0], (typeof all)[0]];
    b.loops.set("req_1", { org: ORG, chunks: 1 });
    const watch = a.live.watch(ORG);
    await second();
    const told = (replica: string, loops: Uint8Array[]): Uint8Array => {
      const value = create(LoopsToldSchema, { orgId: ORG, round: 1_000, part: 0, parts: 2, loops });
      return toBinary(LoopTalkSchema, create(LoopTalkSchema, { replica, message: { case: "told", value } }));
    };
    expect(a.live.hear(Buffer.from("nonsense"))).toBe(false);
    expect(a.live.hear(told("a", []))).toBe(false);
    expect(a.live.hear(told("", []))).toBe(false);
    expect(a.live.hear(told("c", [Buffer.alloc(9, 255)]))).toBe(true);
    expect(idsOf(watch)).toEqual(["req_1"]);
    expect(steadyNow()).toBe(1_000);
    watch.close();
  });
});
