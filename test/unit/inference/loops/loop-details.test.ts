/** Chunks and pictures of watched loops: only while a client watches, only as much as the budget allows, and never through the database. */
import { create } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { LoopActionSchema } from "../../../../gen/limber/v1/loop_pb.ts";
import { FrameSchema } from "../../../../gen/limber/v1/observation_pb.ts";
import { LoopDetails } from "../../../../src/inference/control-loop/loop-details.ts";
import type { Carried } from "../../../../src/inference/control-loop/loop-registry.ts";
import { redSquare } from "../../../../src/upstream/pictures/test-picture.ts";
import { thumbnailOf } from "../../../../src/upstream/pictures/thumbnail.ts";
import { setAmbient } from "../../../support/clocks.ts";
import { ManualClock, settle } from "../../../support/manual-clock.ts";

let clock: ManualClock;
let restore: () => void;
let picture: Buffer;
beforeEach(async () => {
  clock = new ManualClock();
  restore = setAmbient({ clock });
  picture ??= await redSquare(9, 9, 32);
});
afterEach(() => restore());

const ORG = "org_1";

/** Two replicas; the loops run on the first. */
function pair(mostBytes: number, ids: readonly string[], isPrivate = false) {
  const state = { words: 0, looks: 0, acts: 0 };
  const loops = ids.map((id) => ({
    id,
    mover: { key: { orgId: ORG, workspaceId: undefined }, robotIds: [undefined, "arm"] },
    isPrivate,
    lastAction() {
      state.acts += 1;
      return create(LoopActionSchema, { loopId: id, startStep: state.acts });
    },
    newestFrames() {
      state.looks += 1;
      return [create(FrameSchema, { camera: "front", data: picture })];
    },
  }));
  const all = [loops, []].map((own, i): LoopDetails => {
    const details: LoopDetails = new LoopDetails({
      replica: `r${i}`,
      loops: { each: (visit) => own.forEach((loop) => void visit(loop as unknown as Carried)) },
      sender: {
        mostBytes,
        say: async (word) => {
          state.words += 1;
          for (const other of all) if (other !== details) other.hear(word);
        },
      },
    });
    return details;
  });
  return { state, here: all[0]!, there: all[1]! };
}

async function ticks(times: number): Promise<void> {
  for (let i = 0; i < times; i++) {
    await clock.advance(500);
    for (let turn = 0; turn < 5; turn++) await settle();
  }
}

describe("details of loops", () => {
  it("cost nothing without a watcher, and end soon after the last one", async () => {
    const { state, here, there } = pair(512_000, ["a"]);
    await ticks(4);
    expect([state.words, state.looks, state.acts, here.isActive]).toEqual([0, 0, 0, false]);
    const watch = there.watch(ORG, "action", ["a", "unknown"]);
    await ticks(3);
    expect(watch.of("a")?.detail).toMatchObject({ robotId: "arm", action: { loopId: "a" } });
    expect(watch.of("unknown")).toBeUndefined();
    watch.close();
    await ticks(8);
    const { words, acts } = state;
    await ticks(4);
    expect([state.words, state.acts, here.isActive, there.isActive]).toEqual([words, acts, false, false]);
    expect(state.looks).toBe(0);
  });

  it("bring pictures to other replicas over NATS, and never over the database", async () => {
    for (const [mostBytes, count] of [
      [512_000, 1],
      [5_900, 0],
    ] as const) {
      const { here, there } = pair(mostBytes, ["a"]);
      const watches = [here.watch(ORG, "pictures", ["a"]), there.watch(ORG, "pictures", ["a"])];
      await ticks(4);
      expect(watches[0]!.of("a")?.detail.pictures).toMatchObject([{ loopId: "a", camera: "front" }]);
      expect(watches[1]!.of("a")?.detail.pictures ?? []).toHaveLength(count);
      for (const watch of watches) watch.close();
      await ticks(8);
    }
  });

  it("do not look at a loop whose organization retains no data, nor at one of another organization", async () => {
    const { state, here } = pair(512_000, ["a"], true);
    const watches = [here.watch(ORG, "pictures", ["a"]), here.watch("org_2", "pictures", ["a"])];
    await ticks(2);
    expect(watches[0]!.of("a")?.detail).toMatchObject({ withheld: true, pictures: [] });
    expect(watches[1]!.of("a")).toBeUndefined();
    expect(state.looks).toBe(0);
    for (const watch of watches) watch.close();
    await ticks(8);
  });

  it("pass a small file on unchanged, but scale one whose few bytes hold many pixels, and show no cut or invented one", async () => {
    const bomb = await sharp({ create: { width: 4_000, height: 4_000, channels: 3, background: "red" } })
      .png({ palette: true, compressionLevel: 9 })
      .toBuffer();
    const small = await redSquare(9, 9, 32);
    const shown = async (data: Buffer) => {
      const thumbnail = thumbnailOf(create(FrameSchema, { camera: "front", data }));
      return typeof thumbnail === "function" ? await thumbnail() : thumbnail;
    };
    expect((await shown(small))?.data).toEqual(Uint8Array.from(small));
    expect(bomb.length).toBeLessThanOrEqual(16_384);
    const { width, height } = await sharp((await shown(bomb))!.data).metadata();
    expect([width, height]).toEqual([320, 320]);
    const large = Buffer.concat([bomb.subarray(0, 200), Buffer.alloc(20_000)]);
    for (const broken of [Buffer.alloc(0), Buffer.from("no picture"), large])
      expect(await shown(broken)).toBeUndefined();
  });

  it("show many watchers one computation, and many loops in turns", async () => {
    picture = await redSquare(9, 9, 32);
    const small = picture;
    // Larger than what is passed on as it is.
    picture = Buffer.concat([small, Buffer.alloc(20_000)]);
    const ids = Array.from({ length: 20 }, (_, i) => `loop-${i}`);
    const { state, here } = pair(512_000, ids);
    const watches = Array.from({ length: 5 }, () => here.watch(ORG, "pictures", ids));
    await ticks(1);
    expect(state.looks).toBe(8);
    await ticks(1);
    expect(state.looks).toBeLessThanOrEqual(16);
    picture = small;
    for (const watch of watches) watch.close();
    await ticks(8);
    expect(here.isActive).toBe(false);
  });
});
