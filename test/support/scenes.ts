/** Pictures made for tests: tables with coloured shapes, moving shapes, and the figures that judge what models say of them. */
import { blankImage, type RgbFrame, type RgbImage } from "../../src/reference/image.ts";

/** A seeded source of uniform numbers in [0, 1) (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A number in [low, high) from `random`. */
export const between = (random: () => number, low: number, high: number): number => low + (high - low) * random();

/** The shapes that the scenes draw. */
export type SceneShape = "square" | "circle" | "triangle" | "rectangle";

/** A flat shape: centre and half size in pixels, turned by `angle` radians, of one colour. */
interface SceneObject {
  shape: SceneShape;
  x: number;
  y: number;
  size: number;
  angle: number;
  rgb: readonly [number, number, number];
}

/** Whether the point, given in the object's own turned and scaled frame, lies inside the shape. */
const INSIDE: Record<SceneShape, (u: number, v: number) => boolean> = {
  square: (u, v) => Math.abs(u) <= 0.85 && Math.abs(v) <= 0.85,
  circle: (u, v) => u * u + v * v <= 1,
  triangle: (u, v) => v <= 0.6 && v >= -1.1 + Math.abs(u) * 1.7,
  rectangle: (u, v) => Math.abs(u) <= 1.25 && Math.abs(v) <= 0.5,
};

/** The reach of each shape from its centre, in half sizes. */
const REACH = 1.4;

/** Draws `object` over `image` with 3 by 3 samples per pixel, a little shaded from top to bottom; returns its tight box in pixels. */
function drawObject(
  image: RgbImage,
  object: SceneObject,
): { left: number; top: number; right: number; bottom: number } {
  const box = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  const reach = object.size * REACH;
  const cos = Math.cos(object.angle);
  const sin = Math.sin(object.angle);
  const inside = INSIDE[object.shape];
  for (let y = Math.max(0, Math.floor(object.y - reach)); y < Math.min(image.height, object.y + reach); y++) {
    for (let x = Math.max(0, Math.floor(object.x - reach)); x < Math.min(image.width, object.x + reach); x++) {
      let covered = 0;
      for (let s = 0; s < 9; s++) {
        const dx = (x + ((s % 3) + 0.5) / 3 - object.x) / object.size;
        const dy = (y + (Math.floor(s / 3) + 0.5) / 3 - object.y) / object.size;
        if (inside(dx * cos + dy * sin, dy * cos - dx * sin)) covered++;
      }
      if (covered === 0) continue;
      const light = 1 - 0.12 * ((y - object.y) / reach);
      const at = (y * image.width + x) * 3;
      for (let c = 0; c < 3; c++) {
        const colour = Math.min(255, object.rgb[c]! * light);
        image.data[at + c] = Math.round(image.data[at + c]! + ((colour - image.data[at + c]!) * covered) / 9);
      }
      if (covered < 5) continue;
      box.left = Math.min(box.left, x);
      box.right = Math.max(box.right, x + 1);
      box.top = Math.min(box.top, y);
      box.bottom = Math.max(box.bottom, y + 1);
    }
  }
  return box;
}

/** A dull, softly lit surface with smooth blotches of `texture` grey levels. */
function drawSurface(
  image: RgbImage,
  random: () => number,
  rgb: readonly [number, number, number],
  texture: number,
): void {
  const waves = Array.from({ length: 6 }, () => ({
    kx: between(random, -0.25, 0.25),
    ky: between(random, -0.25, 0.25),
    phase: between(random, 0, 7),
  }));
  for (let y = 0; y < image.height; y++) {
    for (let x = 0; x < image.width; x++) {
      let level = 0;
      for (const wave of waves) level += Math.sin(wave.kx * x + wave.ky * y + wave.phase);
      const at = (y * image.width + x) * 3;
      for (let c = 0; c < 3; c++) image.data[at + c] = Math.max(0, Math.min(255, rgb[c]! + (level * texture) / 3));
    }
  }
}

/** Adds uniform noise of plus or minus `amount` grey levels to every byte. */
export function addNoise(image: RgbImage, random: () => number, amount: number): void {
  for (let i = 0; i < image.data.length; i++) {
    image.data[i] = Math.max(0, Math.min(255, Math.round(image.data[i]! + between(random, -amount, amount))));
  }
}

/** A sequence of 320 by 168 frames with three to five textured-ground shapes that each keep their own velocity, with sensor noise. */
export function movingShapes(seed: number, length: number): RgbFrame[] {
  const random = seeded(seed);
  const ground = blankImage(320, 168);
  drawSurface(ground, random, [between(random, 70, 150), between(random, 70, 150), between(random, 70, 150)], 30);
  const shapes = ["square", "circle", "triangle", "rectangle"] as const;
  const movers = Array.from({ length: 3 + Math.floor(random() * 3) }, () => ({
    object: {
      shape: shapes[Math.floor(random() * shapes.length)]!,
      x: between(random, 60, 260),
      y: between(random, 40, 130),
      size: between(random, 12, 28),
      angle: between(random, 0, 3),
      rgb: [between(random, 0, 255), between(random, 0, 255), between(random, 0, 255)] as const,
    },
    vx: between(random, -5, 5),
    vy: between(random, -4, 4),
  }));
  return Array.from({ length }, (_, t) => {
    const image = { ...ground, data: ground.data.slice() };
    for (const { object, vx, vy } of movers)
      drawObject(image, { ...object, x: object.x + vx * t, y: object.y + vy * t });
    addNoise(image, random, 2);
    return { camera: "front", image };
  });
}

/** Peak signal-to-noise ratio in decibels between two pictures of one size. */
export function psnr(a: RgbImage, b: RgbImage): number {
  let sum = 0;
  for (let i = 0; i < a.data.length; i++) sum += (a.data[i]! - b.data[i]!) ** 2;
  return 10 * Math.log10((255 * 255 * a.data.length) / Math.max(sum, 1e-9));
}

/** What each colour word looks like when it is painted. */
export const PAINT = {
  red: [200, 30, 35],
  orange: [240, 130, 20],
  brown: [110, 66, 32],
  yellow: [235, 210, 40],
  green: [40, 150, 70],
  cyan: [40, 190, 190],
  blue: [40, 80, 200],
  purple: [120, 50, 170],
  pink: [235, 110, 170],
  white: [248, 246, 244],
  gray: [128, 126, 128],
  black: [18, 18, 20],
} as const satisfies Record<string, readonly [number, number, number]>;

/** A colour that the scenes paint. */
export type Paint = keyof typeof PAINT;

const TABLES = [
  [165, 125, 100],
  [105, 122, 146],
  [140, 118, 112],
] as const;

/** A box from 0 to 1 of the picture, as grounding answers it. */
export interface UnitBox {
  xMin: number;
  yMin: number;
  xMax: number;
  yMax: number;
}

/**
 * A noisy 320 by 240 view of a table from above with one target and five other things: one of its colour in another shape, one of its
 * shape in another colour, and three that share neither. With `present` false the target itself is left out.
 */
export function tableScene(
  seed: number,
  colour: Paint,
  shape: SceneShape,
  present = true,
): { frame: RgbFrame; box: UnitBox } {
  const random = seeded(seed);
  const image = blankImage(320, 240);
  drawSurface(image, random, TABLES[Math.floor(random() * TABLES.length)]!, 8);
  const shapes = Object.keys(INSIDE) as SceneShape[];
  const paints = Object.keys(PAINT) as Paint[];
  const other = <T>(list: readonly T[], not: T): T => {
    const rest = list.filter((item) => item !== not);
    return rest[Math.floor(random() * rest.length)]!;
  };
  const wanted: [Paint, SceneShape][] = [
    [colour, shape],
    [colour, other(shapes, shape)],
    [other(paints, colour), shape],
    ...Array.from({ length: 3 }, (): [Paint, SceneShape] => [other(paints, colour), other(shapes, shape)]),
  ];
  const cells = shuffled(12, random);
  const boxes = wanted.map(([paint, form], i) => {
    const cell = cells[i]!;
    const light = between(random, -8, 8);
    const object: SceneObject = {
      shape: form,
      x: 40 + 80 * (cell % 4) + between(random, -12, 12),
      y: 40 + 80 * Math.floor(cell / 4) + between(random, -12, 12),
      size: between(random, 10, 22),
      angle: between(random, 0, Math.PI),
      rgb: PAINT[paint].map((level) => level + light + between(random, -3, 3)) as [number, number, number],
    };
    return i === 0 && !present ? undefined : drawObject(image, object);
  });
  addNoise(image, random, 5);
  const box = boxes[0] ?? { left: 0, top: 0, right: 0, bottom: 0 };
  return {
    frame: { camera: "overhead", image },
    box: { xMin: box.left / 320, yMin: box.top / 240, xMax: box.right / 320, yMax: box.bottom / 240 },
  };
}

function shuffled(length: number, random: () => number): number[] {
  const order = Array.from({ length }, (_, i) => i);
  for (let i = length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [order[i], order[j]] = [order[j]!, order[i]!];
  }
  return order;
}

/** Intersection over union of two boxes. */
export function iou(a: UnitBox, b: UnitBox): number {
  const width = Math.max(0, Math.min(a.xMax, b.xMax) - Math.max(a.xMin, b.xMin));
  const height = Math.max(0, Math.min(a.yMax, b.yMax) - Math.max(a.yMin, b.yMin));
  const area = (box: UnitBox): number => (box.xMax - box.xMin) * (box.yMax - box.yMin);
  const shared = width * height;
  return shared / Math.max(area(a) + area(b) - shared, 1e-12);
}

/** A thing on a table: its place and half size in metres of the base frame. */
export interface TableThing {
  paint: Paint;
  shape: SceneShape;
  x: number;
  y: number;
  size: number;
}

/** A 320 by 240 picture from a camera that looks straight down at `centre`: picture up is +x, picture left is +y, `viewWidth` metres wide. */
export function overheadView(
  seed: number,
  things: readonly TableThing[],
  centre: readonly [number, number],
  viewWidth: number,
): RgbFrame {
  const random = seeded(seed);
  const image = blankImage(320, 240);
  drawSurface(image, random, TABLES[seed % TABLES.length]!, 8);
  const pixels = 320 / viewWidth;
  for (const { paint, shape, x, y, size } of things) {
    drawObject(image, {
      shape,
      x: 160 - (y - centre[1]) * pixels,
      y: 120 - (x - centre[0]) * pixels,
      size: size * pixels,
      angle: 0.3,
      rgb: PAINT[paint],
    });
  }
  addNoise(image, random, 4);
  return { camera: "overhead", image };
}
