import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { distance } from "../../../src/reference/act/chain.ts";
import { plan } from "../../../src/reference/act/plan.ts";
import type { ActOutput } from "../../../src/reference/act/types.ts";
import { decodeImage, type RgbFrame } from "../../../src/reference/image.ts";
import { LaggingHand } from "../../support/plants.ts";
import { between, overheadView, seeded, type TableThing } from "../../support/scenes.ts";
import { expectOnlyTheModelToSucceed, model, type Observation, type Random, rowsOf } from "./reference-closed-loop.ts";

describe("ee_delta_6d_grip", () => {
  const someHand = (random: Random): LaggingHand =>
    new LaggingHand([between(random, 0.35, 0.65), between(random, -0.25, 0.25), between(random, 0.15, 0.4)]);

  /** A green cube, which is to be reached, a green ball, a red cube, and the last thing on a far corner. */
  function someTable(random: Random): TableThing[] {
    const corners = [-1, 1].flatMap((a) => [-1, 1].map((b) => [0.5 + 0.1 * a, 0.15 * b] as const));
    const turn = Math.floor(random() * 4);
    const kinds = [
      ["green", "square"],
      ["green", "circle"],
      ["red", "square"],
      ["blue", "triangle"],
    ] as const;
    return kinds.map(([paint, shape], i) => {
      const [x, y] = corners[(i + turn) % 4]!;
      return { paint, shape, x: x + between(random, -0.03, 0.03), y: y + between(random, -0.05, 0.05), size: 0.03 };
    });
  }

  const instruction = "reach the green cube";

  it("brings the hand within 15 mm of a goal in proprio", () => {
    expectOnlyTheModelToSucceed((actor, random) => {
      const hand = someHand(random);
      const goal = someHand(random).place;
      for (let chunk = 0; chunk < 8; chunk++) {
        const proprio = [...hand.place, ...goal];
        for (const row of rowsOf(actor("ee_delta_6d_grip", { proprio }, random))) hand.shift(row);
      }
      return distance(hand.place, goal) < 0.015;
    });
  });

  it("brings the hand within 15 mm of the named object that a fixed overhead camera shows", () => {
    expectOnlyTheModelToSucceed((actor, random) => {
      const hand = someHand(random);
      const things = someTable(random);
      const frames = [overheadView(Math.floor(random() * 99), things, [0.5, 0], 0.64)];
      for (let chunk = 0; chunk < 8; chunk++) {
        const observation = { proprio: [...hand.place], frames, instruction };
        for (const row of rowsOf(actor("ee_delta_6d_grip", observation, random))) hand.shift(row);
      }
      return distance(hand.place, [things[0]!.x, things[0]!.y, 0.03]) < 0.015;
    });
  });

  it.each([0.45, 0.64, 0.9])(
    "centers the hand within 15 mm above the named object when its own camera's view is %f m wide",
    (width) => {
      expectOnlyTheModelToSucceed((actor, random) => {
        const things = someTable(random);
        const hand = new LaggingHand([
          things[0]!.x + between(random, -0.1, 0.1),
          things[0]!.y + between(random, -0.1, 0.1),
          0.3,
        ]);
        for (let chunk = 0; chunk < 8; chunk++) {
          const observation: Observation = {
            proprio: [],
            instruction,
            // A getter, because only who looks should pay for the picture.
            get frames() {
              return [overheadView(chunk, things, [hand.place[0], hand.place[1]], width)];
            },
          };
          for (const row of rowsOf(actor("ee_delta_6d_grip", observation, random))) hand.shift(row);
        }
        return distance(hand.place, [things[0]!.x, things[0]!.y, 0.3]) < 0.015;
      });
    },
  );

  const see = (things: TableThing[], words: string, proprio: number[] = []): ActOutput =>
    model(
      "ee_delta_6d_grip",
      { proprio, frames: [overheadView(1, things, [0.5, 0], 0.64)], instruction: words },
      seeded(1),
    );

  it("depends on the image and the words: another place or another object changes the chunk", () => {
    const things = someTable(seeded(1));
    const once = see(things, instruction).steps;
    expect(see(things, "reach the red cube").steps).not.toEqual(once);
    expect(
      see(
        things.map((thing) => ({ ...thing, y: -thing.y })),
        instruction,
      ).steps,
    ).not.toEqual(once);
  });

  it("turns left or right by the cube that is named in a real camera frame", async () => {
    const file = new URL("../../../../shared/frames/bridge_stack_cubes.png", import.meta.url);
    const drawn: TableThing[] = [
      { paint: "green", shape: "square", x: 0.5, y: 0.15, size: 0.03 },
      { paint: "yellow", shape: "square", x: 0.55, y: -0.15, size: 0.03 },
    ];
    const frame = existsSync(file)
      ? { camera: "front", image: await decodeImage(readFileSync(file)) }
      : overheadView(1, drawn, [0.5, 0], 0.64);
    const aside = (words: string): number =>
      model("ee_delta_6d_grip", { proprio: [], frames: [frame], instruction: words }, seeded(1)).steps[1]!;
    expect(aside("reach the green cube")).toBeGreaterThan(0.005);
    expect(aside("reach the yellow cube")).toBeLessThan(-0.005);
  });

  it("prefers a goal in proprioception over the image", () => {
    const things = someTable(seeded(1));
    const hand = [0.4, 0.1, 0.2];
    const blind = model("ee_delta_6d_grip", { proprio: [...hand, 0.6, 0.1, 0.2] }, seeded(1));
    expect(see(things, instruction, [...hand, 0.6, 0.1, 0.2])).toEqual(blind);
    expect([...blind.steps.subarray(0, 7)]).toEqual([expect.closeTo(0.02, 6), 0, 0, 0, 0, 0, 1]);
  });

  it("refuses without a frame, a color word, a matching object, or a distinguishable overhead camera", () => {
    const frame = overheadView(1, someTable(seeded(1)), [0.5, 0], 0.64);
    const ask = (frames: RgbFrame[], words?: string) => () =>
      plan({
        actionSpace: "ee_delta_6d_grip",
        horizon: 1,
        proprio: [],
        frames,
        ...(words !== undefined && { instruction: words }),
      });
    expect(ask([], instruction)).toThrow(/camera frame/);
    expect(ask([frame])).toThrow(/names no color/);
    expect(ask([frame], "reach the cube")).toThrow(/names no color/);
    expect(ask([frame], "reach the purple cube")).toThrow(/purple cube/);
    const others = [
      { ...frame, camera: "front" },
      { ...frame, camera: "wrist" },
    ];
    expect(ask(others, instruction)).toThrow(/"overhead"/);
    expect(ask([...others, frame], instruction)).not.toThrow();
  });
});
