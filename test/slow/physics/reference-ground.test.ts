import { existsSync, readFileSync } from "node:fs";
import fc from "fast-check";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { type Grounding, ground, readPhrases } from "../../../src/reference/ground.ts";
import { blankImage, decodeImage, type RgbFrame } from "../../../src/reference/image.ts";
import { World } from "../../../src/scenarios/engine.ts";
import { takePicture } from "../../../src/scenarios/picture.ts";
import { runs } from "../../support/runs.ts";
import { iou, overheadView, PAINT, type Paint, type SceneShape, tableScene } from "../../support/scenes.ts";

const SHAPES: readonly SceneShape[] = ["square", "circle", "triangle", "rectangle"];
const COMBINATIONS = (Object.keys(PAINT) as Paint[]).flatMap((paint) => SHAPES.map((shape) => [paint, shape] as const));

const EMPTY_TABLE = overheadView(1, [], [0, 0], 1);

/** A real frame by name, or undefined where the shared frames are not at hand. */
async function realFrame(name: string): Promise<RgbFrame | undefined> {
  const path = new URL(`../../../shared/frames/${name}`, import.meta.url);
  return existsSync(path) ? { camera: "front", image: await decodeImage(readFileSync(path)) } : undefined;
}

describe("ground on generated tables", () => {
  it("boxes every color in every shape among distractors with an IoU of at least 0.7", () => {
    for (const [i, [paint, shape]] of [...COMBINATIONS, ...COMBINATIONS].entries()) {
      const { frame, box } = tableScene(i + 1, paint, shape);
      const { boxes, points } = ground(frame, `point at the ${paint} ${shape}`);
      expect(boxes, `scene ${i + 1}: ${paint} ${shape}`).toHaveLength(1);
      expect(iou(boxes[0]!, box), `scene ${i + 1}: ${paint} ${shape}`).toBeGreaterThanOrEqual(0.7);
      expect(isInside(points[0]!, box)).toBe(true);
    }
  });

  it("abstains with a reason if the object is absent, though its color and its shape are both visible", () => {
    for (const [i, [paint, shape]] of COMBINATIONS.entries()) {
      const answer = ground(tableScene(i + 1, paint, shape, false).frame, `the ${paint} ${shape}`);
      expect(answer, `scene ${i + 1}: ${paint} ${shape}`).toEqual({
        points: [],
        boxes: [],
        note: expect.stringContaining(`${paint} ${shape}`),
      });
    }
  });

  it("finds the same place in an image that is too large to search unscaled", () => {
    const { frame, box } = tableScene(5, "blue", "circle");
    const large = blankImage(1603, 1202);
    for (let i = 0; i < large.data.length; i++) {
      const pixel = Math.floor(i / 3);
      const x = Math.min(319, Math.floor((pixel % 1603) / 5));
      const y = Math.min(239, Math.floor(pixel / 1603 / 5));
      large.data[i] = frame.image.data[(y * 320 + x) * 3 + (i % 3)]!;
    }
    expect(iou(ground({ camera: "a", image: large }, "the blue ball").boxes[0]!, box)).toBeGreaterThan(0.7);
  });

  it("abstains without a color word instead of guessing", () => {
    const { frame } = tableScene(1, "green", "square");
    for (const instruction of ["pick up the cube", "", "constructor", "__proto__"]) {
      const answer = ground(frame, instruction);
      expect(answer.boxes).toEqual([]);
      expect(answer.note).toMatch(/names no color/);
    }
  });

  it("returns finite places inside the image for any text and image", () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom("red", "gray", "cubes", "all", "bar", "on", "the", "black", "ζ", "\u0000"), {
          maxLength: 8,
        }),
        fc.integer({ min: 1, max: 40 }),
        fc.integer({ min: 1, max: 40 }),
        fc.integer(),
        (words, width, height, seed) => {
          const image = blankImage(width, height);
          image.data.forEach((_, i) => {
            image.data[i] = Math.imul(i >> 5, seed | 1) & 255;
          });
          const { points, boxes } = ground({ camera: "a", image }, words.join(" "));
          for (const box of boxes) expect(isInside({ x: box.xMin, y: box.yMin }, UNIT)).toBe(true);
          for (const box of boxes) expect(isInside({ x: box.xMax, y: box.yMax }, UNIT)).toBe(true);
          for (const point of points) expect(isInside(point, UNIT)).toBe(true);
        },
      ),
      { numRuns: runs(60) },
    );
  });
});

describe("ground on real frames", () => {
  /** Pixel rectangles that lie within the cubes of the 640 by 480 frame. */
  const GREEN = { xMin: 145 / 640, xMax: 195 / 640, yMin: 220 / 480, yMax: 270 / 480 };
  const YELLOW = { xMin: 442 / 640, xMax: 490 / 640, yMin: 172 / 480, yMax: 222 / 480 };

  it("points to each named cube in the instruction's order", async () => {
    const frame = await realFrame("bridge_stack_cubes.png");
    if (frame === undefined) return generatedPair();
    const answer = ground(frame, "stack the green cube on the yellow cube");
    expect(answer.points.map((point) => point.label)).toEqual(["green cube", "yellow cube"]);
    expect(isInside(answer.points[0]!, GREEN)).toBe(true);
    expect(isInside(answer.points[1]!, YELLOW)).toBe(true);
    for (const [i, box] of [GREEN, YELLOW].entries()) expect(iou(answer.boxes[i]!, box)).toBeGreaterThan(0.7);
    expect(answer.note).toBeUndefined();
  });

  it.each(["red cube", "blue cube", "green ball", "yellow bar", "purple cube"])(
    "finds no %s in the frame",
    async (thing) => {
      const frame = (await realFrame("bridge_stack_cubes.png")) ?? EMPTY_TABLE;
      expect(ground(frame, `the ${thing}`).boxes).toEqual([]);
    },
  );

  it("finds nothing on the empty table", async () => {
    const frame = (await realFrame("bridge_table.png")) ?? EMPTY_TABLE;
    const answer: Grounding = ground(frame, "reach the green cube");
    expect(answer).toEqual({ points: [], boxes: [], note: "Nothing in the picture fits: green cube." });
  });

  function generatedPair(): void {
    const { frame, box } = tableScene(3, "green", "square");
    expect(iou(ground(frame, "stack the green cube").boxes[0]!, box)).toBeGreaterThan(0.7);
  }
});

describe("ground on rendered objects, from a camera beside the table", () => {
  const FORMS = {
    cube: 'type="box" size=".03 .03 .03"',
    ball: 'type="sphere" size=".03"',
    bar: 'type="box" size=".07 .015 .015"',
  } as const;
  const VIEWS = [20, 35, 50, 65, 88].flatMap((up) => [0, 20, 45, 60].map((turn) => [up, turn] as const));

  /** A red thing on a table, as JPEG of a lens that is a little out of focus, and the box of all that is red in the sharp picture. */
  async function seen(form: keyof typeof FORMS, [up, turn]: readonly [number, number], far = 0.6, hand = "") {
    const [rise, run] = [Math.sin((up * Math.PI) / 180), Math.cos((up * Math.PI) / 180)];
    const world =
      await World.of(`<mujoco><size memory="1M"/><worldbody><geom type="plane" size="5 5 .1" rgba=".72 .64 .52 1"/>
      <camera name="c" pos="0 ${-far * run} ${far * rise}" fovy="45" xyaxes="1 0 0 0 ${rise} ${run}"/>${hand}
      <body pos=".02 .03 .03" euler="0 0 ${turn}"><geom ${FORMS[form]} rgba=".78 .13 .1 1"/></body></worldbody></mujoco>`);
    try {
      const { width, height, rgb } = takePicture(world, { name: "c", width: 320, height: 240 });
      const jpeg = await sharp(rgb, { raw: { width, height, channels: 3 } })
        .blur(1.2)
        .jpeg({ quality: 60 })
        .toBuffer();
      return { frame: { camera: "front", image: await decodeImage(jpeg) }, box: redBoxOf(rgb, width, height) };
    } finally {
      world.close();
    }
  }

  function redBoxOf(rgb: Uint8Array, width: number, height: number) {
    const box = { xMin: 1, yMin: 1, xMax: 0, yMax: 0 };
    for (let at = 0; at < width * height; at++) {
      if (rgb[3 * at]! < 3 * rgb[3 * at + 1]!) continue;
      const [x, y] = [at % width, Math.floor(at / width)];
      box.xMin = Math.min(box.xMin, x / width);
      box.xMax = Math.max(box.xMax, (x + 1) / width);
      box.yMin = Math.min(box.yMin, y / height);
      box.yMax = Math.max(box.yMax, (y + 1) / height);
    }
    return box;
  }

  it("finds the red cube from every side", async () => {
    for (const view of VIEWS) {
      const { frame, box } = await seen("cube", view);
      const { boxes, points } = ground(frame, "pick up the red cube");
      expect(boxes, `${view}`).toHaveLength(1);
      expect(iou(boxes[0]!, box), `${view}`).toBeGreaterThanOrEqual(0.8);
      expect(isInside(points[0]!, box), `${view}`).toBe(true);
    }
  });

  it("finds the red cube that a finger partly hides", async () => {
    // Grey, from above into the middle of the side that the camera sees.
    const hand = '<geom type="box" pos=".02 -.02 .085" size=".007 .007 .05" rgba=".3 .3 .32 1"/>';
    for (const view of VIEWS.filter(([up, turn]) => up <= 50 && turn >= 15 && turn <= 60)) {
      const { frame, box } = await seen("cube", view, 0.6, hand);
      const { points } = ground(frame, "pick up the red cube");
      expect(points, `${view}`).toHaveLength(1);
      expect(isInside(points[0]!, box), `${view}`).toBe(true);
    }
  });

  it("confuses no ball or bar with a cube, and none of them with another color's", async () => {
    for (const view of VIEWS) {
      for (const form of ["ball", "bar"] as const) {
        // Near enough for an outline with six corners to be told from a round one.
        const { frame } = await seen(form, view, 0.3);
        expect(ground(frame, "the red cube").boxes, `${form} ${view}`).toEqual([]);
        expect(ground(frame, `the blue ${form}`).boxes, `${form} ${view}`).toEqual([]);
      }
    }
  });

  it("finds the red ball and the red bar from every side", async () => {
    for (const view of VIEWS) {
      for (const form of ["ball", "bar"] as const) {
        const { frame, box } = await seen(form, view);
        const { boxes } = ground(frame, `the red ${form}`);
        expect(boxes, `${form} ${view}`).toHaveLength(1);
        expect(iou(boxes[0]!, box), `${form} ${view}`).toBeGreaterThanOrEqual(0.7);
      }
    }
  });
});

describe("the phrase parser", () => {
  it.each([
    ["reach the green cube", [{ label: "green cube", color: "green", shape: "cube", all: false }]],
    [
      "put the RED wooden ball on the blue box",
      [
        { label: "red ball", color: "red", shape: "circle", all: false },
        { label: "blue box", color: "blue", shape: "block", all: false },
      ],
    ],
    ["the yellow boxes", [{ label: "yellow box", color: "yellow", shape: "block", all: true }]],
    ["every grey thing", [{ label: "gray", color: "gray", all: true }]],
    ["green and the cube", [{ label: "green", color: "green", all: false }]],
    ["the red cube, the red cube", [{ label: "red cube", color: "red", shape: "cube", all: false }]],
    ["tidy up", []],
  ])("reads %j", (instruction, phrases) => {
    expect(readPhrases(instruction)).toEqual(phrases);
  });
});

const UNIT = { xMin: 0, xMax: 1, yMin: 0, yMax: 1 };

const isInside = (point: { x: number; y: number }, box: typeof UNIT): boolean =>
  point.x >= box.xMin && point.x <= box.xMax && point.y >= box.yMin && point.y <= box.yMax;
