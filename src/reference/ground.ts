/** reference/colour-shape: locates an instruction's colored objects in an image. */
import { type RgbFrame, type RgbImage, shrink } from "./image.ts";

/** A point inside an object: x from the left and y from the top, 0 to 1 of the image; confidence from 0 to 1. */
interface GroundedPoint {
  readonly x: number;
  readonly y: number;
  readonly label: string;
  readonly confidence: number;
}

/** The tight box around an object, 0 to 1 of the image. */
interface GroundedBox {
  readonly xMin: number;
  readonly yMin: number;
  readonly xMax: number;
  readonly yMax: number;
  readonly label: string;
  readonly confidence: number;
}

/** One point and one box for each object found, in the instruction's order; `note` states what was not found, and why. */
export interface Grounding {
  readonly points: readonly GroundedPoint[];
  readonly boxes: readonly GroundedBox[];
  readonly note?: string;
}

/** Larger images are averaged down to at most this many pixels per side. */
const SIDE = 640;
/** An object covers at least this share of the image (and 24 pixels), and at most a quarter: more is the scene. */
const LEAST_SHARE = 0.0002;
const MOST_SHARE = 0.25;
/**
 * An object differs from its surroundings along most of its outline by this step of gray levels in the strongest channel; stains and shadows do
 * not.
 */
const LEAST_STEP = 16;
const STEP_REACH = 3;
const LEAST_OUTLINE = 0.75;
/** The minimum fit of an answer; below it the model abstains. */
const LEAST_FIT = 0.35;

/** The share of the image that one searched pixel covers. */
interface Unit {
  readonly x: number;
  readonly y: number;
}

interface Detection {
  readonly blob: Blob;
  readonly confidence: number;
}

/**
 * Finds each colored object that the instruction names ("the green cube"): connected patches of the color, and of the shape if one is named. A
 * singular noun gets the best patch, a plural every matching patch. Abstains (with a note) without a color word or a match.
 */
export function ground(frame: RgbFrame, instruction: string): Grounding {
  const phrases = readPhrases(instruction);
  if (phrases.length === 0) return { points: [], boxes: [], note: NO_COLOR };
  const { image } = frame;
  const factor = Math.ceil(Math.max(image.width, image.height) / SIDE);
  const picture = shrink(image, factor);
  const unit = { x: factor / image.width, y: factor / image.height };
  const found = phrases.map((phrase) => ({ phrase, sightings: look(picture, phrase) }));
  const seen = new Set(found.filter(({ sightings }) => sightings.length > 0).map(({ phrase }) => phrase.label));
  const note = missingNote(instruction, seen);
  return {
    points: found.flatMap(({ phrase, sightings }) => sightings.map((sighting) => toPoint(unit, phrase, sighting))),
    boxes: found.flatMap(({ phrase, sightings }) => sightings.map((sighting) => toBox(unit, phrase, sighting))),
    ...(note !== undefined && { note }),
  };
}

const NO_COLOR = "The instruction names no color; this model finds things by color and shape only.";

/** Describes the named objects that are not among the labels `seen`; undefined if none is missing. */
export function missingNote(instruction: string, seen: ReadonlySet<string>): string | undefined {
  const labels = readPhrases(instruction).map(({ label }) => label);
  if (labels.length === 0) return NO_COLOR;
  const missing = labels.filter((label) => !seen.has(label));
  return missing.length > 0 ? `Nothing in the picture fits: ${missing.join(", ")}.` : undefined;
}

function look(picture: RgbImage, phrase: Phrase): Detection[] {
  const pixels = picture.width * picture.height;
  const sightings = findBlobs(smooth(maskOf(picture, phrase.color)), Math.max(24, LEAST_SHARE * pixels))
    .filter((blob) => blob.area <= MOST_SHARE * pixels && outlineShare(picture, blob) >= LEAST_OUTLINE)
    .map((blob) => ({ blob, confidence: confidenceOf(blob, phrase) }))
    .filter(({ confidence }) => confidence >= LEAST_FIT)
    .sort((a, b) => b.confidence - a.confidence || b.blob.area - a.blob.area);
  return phrase.all ? sightings : sightings.slice(0, 1);
}

/** The shape's fit. Without a shape, the patch's compactness (a patch cut by the image's edge counts less). */
function confidenceOf(blob: Blob, { shape }: Phrase): number {
  const fit = shape === undefined ? Math.min(1, blob.roundness + 0.1) : formOf(blob, shape);
  return fit * (blob.cut ? 0.6 : 1);
}

/** The fit of a patch without a known shape: an object that is partly hidden or reflects light can be the target. */
const FORMLESS = 0.5;
/** The maximum fit of another shape, for a compact patch: a smear of the color is not an object. */
const MOST_OTHER = 0.6;
const LEAST_COMPACT = 0.6;

function formOf(blob: Blob, shape: ShapeWord): number {
  const fit = fitOf(blob, shape);
  if (fit >= FORMLESS) return fit;
  const isFormless = blob.roundness >= LEAST_COMPACT && otherFitOf(blob, shape) <= MOST_OTHER;
  return isFormless ? FORMLESS : fit;
}

/** The share of the outline at which the color changes by `LEAST_STEP` or more from `STEP_REACH` pixels inside to as many outside. */
function outlineShare({ width, height, data }: RgbImage, blob: Blob): number {
  let steps = 0;
  let count = 0;
  for (const at of blob.rim) {
    const x = at % width;
    const y = Math.floor(at / width);
    const length = Math.hypot(x - blob.x, y - blob.y) || 1;
    const dx = Math.round((STEP_REACH * (x - blob.x)) / length);
    const dy = Math.round((STEP_REACH * (y - blob.y)) / length);
    if (x + dx < 0 || x + dx >= width || y + dy < 0 || y + dy >= height) continue;
    const inside = ((y - dy) * width + x - dx) * 3;
    const outside = ((y + dy) * width + x + dx) * 3;
    let step = 0;
    for (let c = 0; c < 3; c++) step = Math.max(step, Math.abs(data[inside + c]! - data[outside + c]!));
    if (step >= LEAST_STEP) steps++;
    count++;
  }
  return count === 0 ? 0 : steps / count;
}

function toPoint(unit: Unit, { label }: Phrase, { blob, confidence }: Detection): GroundedPoint {
  return { x: blob.x * unit.x, y: blob.y * unit.y, label, confidence };
}

function toBox(unit: Unit, { label }: Phrase, { blob, confidence }: Detection): GroundedBox {
  const { left, top, right, bottom } = blob;
  return {
    xMin: left * unit.x,
    yMin: top * unit.y,
    xMax: right * unit.x,
    yMax: bottom * unit.y,
    label,
    confidence,
  };
}

/** One colored object. Without a shape any form matches; `all` requests every visible one. */
interface Phrase {
  readonly label: string;
  readonly color: ColorWord;
  readonly shape?: ShapeWord;
  readonly all: boolean;
}

/** The maximum number of words between an object's color and its noun ("the green wooden toy cube"). */
const REACH = 3;
const BREAKS = new Set([
  "and",
  "or",
  "on",
  "onto",
  "in",
  "into",
  "to",
  "with",
  "from",
  "near",
  "next",
  "over",
  "under",
  "the",
  "a",
]);
const EVERY = new Set(["all", "every", "each"]);

/** Returns an instruction's colored objects, in order and without repeats; empty without a color word. */
export function readPhrases(instruction: string): Phrase[] {
  const words = instruction.toLowerCase().match(/[a-z]+/g) ?? [];
  const phrases = new Map<string, Phrase>();
  words.forEach((word, at) => {
    const color = colorOf(word);
    if (color === undefined) return;
    const noun = nounAfter(words, at);
    const label = noun === undefined ? color : `${color} ${noun.word}`;
    const all = noun?.plural === true || words.slice(Math.max(0, at - 2), at).some((before) => EVERY.has(before));
    const phrase = { label, color, all, ...(noun && { shape: noun.shape }) };
    if (!phrases.has(label)) phrases.set(label, phrase);
  });
  return [...phrases.values()];
}

function nounAfter(
  words: readonly string[],
  at: number,
): { word: string; shape: ShapeWord; plural: boolean } | undefined {
  for (const word of words.slice(at + 1, at + 1 + REACH)) {
    if (BREAKS.has(word) || colorOf(word) !== undefined) return undefined;
    for (const singular of [word, word.replace(/s$/, ""), word.replace(/es$/, "")]) {
      const shape = shapeOf(singular);
      if (shape !== undefined) return { word: singular, shape, plural: singular !== word };
    }
  }
  return undefined;
}

/** A color word in instructions. */
type ColorWord = keyof typeof COLORS;

/** Hue in degrees (a range can wrap through 0), saturation and value from 0 to 1. Ranges of neighboring colors can share an edge. */
interface ColorRegion {
  readonly hue?: readonly [number, number];
  readonly saturation: readonly [number, number];
  readonly value: readonly [number, number];
}

const VIVID: readonly [number, number] = [0.35, 1];
const SOFT: readonly [number, number] = [0.2, 1];
const LIT: readonly [number, number] = [0.2, 1];

const COLORS = {
  red: { hue: [342, 15], saturation: VIVID, value: LIT },
  orange: { hue: [13, 37], saturation: [0.5, 1], value: [0.6, 1] },
  brown: { hue: [10, 40], saturation: VIVID, value: [0.15, 0.52] },
  yellow: { hue: [38, 70], saturation: SOFT, value: [0.4, 1] },
  green: { hue: [75, 165], saturation: SOFT, value: LIT },
  cyan: { hue: [166, 195], saturation: SOFT, value: LIT },
  blue: { hue: [196, 255], saturation: VIVID, value: LIT },
  purple: { hue: [256, 300], saturation: SOFT, value: LIT },
  pink: { hue: [301, 344], saturation: SOFT, value: [0.4, 1] },
  white: { saturation: [0, 0.15], value: [0.82, 1] },
  gray: { saturation: [0, 0.15], value: [0.25, 0.8] },
  black: { saturation: [0, 1], value: [0, 0.17] },
} as const satisfies Record<string, ColorRegion>;

const SYNONYMS: ReadonlyMap<string, ColorWord> = new Map([
  ["grey", "gray"],
  ["violet", "purple"],
  ["magenta", "pink"],
  ["teal", "cyan"],
  ["turquoise", "cyan"],
]);

/** Every known color, in one spelling each. */
const COLOR_WORDS = Object.keys(COLORS) as readonly ColorWord[];

/** Returns the color of a lower-case word, if it is one. */
const colorOf = (word: string): ColorWord | undefined =>
  SYNONYMS.get(word) ?? COLOR_WORDS.find((color) => color === word);

/** The pixels of `image` that have the color. */
function maskOf(image: RgbImage, color: ColorWord): Mask {
  const region: ColorRegion = COLORS[color];
  const data = new Uint8Array(image.width * image.height);
  for (let i = 0; i < data.length; i++) {
    data[i] = contains(region, image.data[3 * i]!, image.data[3 * i + 1]!, image.data[3 * i + 2]!) ? 1 : 0;
  }
  return { width: image.width, height: image.height, data };
}

function contains(region: ColorRegion, red: number, green: number, blue: number): boolean {
  const most = Math.max(red, green, blue);
  const spread = most - Math.min(red, green, blue);
  const saturation = most === 0 ? 0 : spread / most;
  if (!within(most / 255, region.value) || !within(saturation, region.saturation)) return false;
  if (region.hue === undefined) return true;
  const hue = Math.round(hueOf(red, green, blue, most, spread));
  const [from, to] = region.hue;
  return from <= to ? hue >= from && hue <= to : hue >= from || hue <= to;
}

const within = (value: number, [low, high]: readonly [number, number]): boolean => value >= low && value <= high;

function hueOf(red: number, green: number, blue: number, most: number, spread: number): number {
  if (spread === 0) return 0;
  if (most === red) return (60 * ((green - blue) / spread) + 360) % 360;
  if (most === green) return 60 * ((blue - red) / spread + 2);
  return 60 * ((red - green) / spread + 4);
}

/** A shape word in instructions. */
type ShapeWord = keyof typeof SHAPES;

type Form = "fill" | "aspect" | "roundness" | "raggedness";

/** A range of one measure, and how far outside it a patch can be before its fit is zero. */
type Range = readonly [form: Form, low: number, high: number, slack: number];

const SHAPES = {
  square: [
    ["aspect", 0.75, 1, 0.12],
    ["roundness", 0.945, 0.987, 0.03],
    ["raggedness", 0.066, 0.125, 0.025],
  ],
  // From straight above a square; otherwise two or three faces, whose outline has up to six corners.
  cube: [
    ["fill", 0.72, 1, 0.1],
    ["aspect", 0.68, 1, 0.12],
    ["roundness", 0.9, 0.993, 0.04],
    ["raggedness", 0.048, 0.165, 0.015],
  ],
  block: [
    ["fill", 0.72, 1, 0.1],
    ["aspect", 0.45, 1, 0.12],
    ["roundness", 0.72, 0.993, 0.04],
    ["raggedness", 0.048, 0.28, 0.015],
  ],
  circle: [
    ["aspect", 0.85, 1, 0.15],
    ["roundness", 0.985, 1.1, 0.03],
    ["raggedness", 0, 0.055, 0.02],
  ],
  triangle: [
    ["fill", 0.4, 0.62, 0.08],
    ["roundness", 0.7, 0.88, 0.06],
  ],
  rectangle: [
    ["fill", 0.78, 1, 0.12],
    ["aspect", 0.05, 0.72, 0.1],
  ],
} as const satisfies Record<string, readonly Range[]>;

const NOUNS: Readonly<Record<ShapeWord, readonly string[]>> = {
  square: ["square"],
  cube: ["cube", "dice"],
  block: ["block", "box"],
  circle: ["circle", "ball", "sphere", "disc", "disk"],
  triangle: ["triangle", "cone", "pyramid"],
  rectangle: ["rectangle", "bar", "brick", "stick"],
};

/** Every known shape, in one spelling each. */
const SHAPE_WORDS = Object.keys(SHAPES) as readonly ShapeWord[];

/** Returns the shape of a lower-case singular noun, if it is one. */
const shapeOf = (noun: string): ShapeWord | undefined => SHAPE_WORDS.find((shape) => NOUNS[shape].includes(noun));

/** Shapes that one object can have in an image: a cube from straight above is a square. */
const KIN: Readonly<Record<ShapeWord, readonly ShapeWord[]>> = {
  square: ["cube", "block"],
  cube: ["square", "block"],
  block: ["square", "cube", "rectangle"],
  circle: [],
  triangle: [],
  rectangle: ["block"],
};

/** The best fit of the other shapes: a patch with another object's form is not the target. */
const otherFitOf = (blob: Blob, shape: ShapeWord): number =>
  Math.max(
    ...SHAPE_WORDS.filter((other) => other !== shape && !KIN[shape].includes(other)).map((other) => fitOf(blob, other)),
  );

/** How well a patch fits the shape, from 0 to 1. */
function fitOf(blob: Blob, shape: ShapeWord): number {
  let fit = 1;
  for (const [form, low, high, slack] of SHAPES[shape] as readonly Range[]) {
    const outside = Math.max(low - blob[form], blob[form] - high, 0);
    fit *= Math.max(0, 1 - outside / slack);
  }
  return fit;
}

/** Patches of one color: connected pixels and their shape. */

/** A 1 for every pixel of the color, row by row. */
interface Mask {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

/** A connected patch. The box is in pixels with right and bottom exclusive; (x, y) is the center of a member pixel near the middle. */
interface Blob {
  readonly area: number;
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
  readonly x: number;
  readonly y: number;
  /** Area over the area of the smallest rotated rectangle around it: 1 for a rectangle, 0.79 for a disc, 0.5 for a triangle. */
  readonly fill: number;
  /** Short side over long side of that rectangle. */
  readonly aspect: number;
  /** Area squared over 2π times its second moment: 1 for a disc, 0.95 for a square, less for anything else. */
  readonly roundness: number;
  /** The variation of its radius around the center over the mean radius: 0 for a disc, 0.04 for a hexagon, 0.1 for a square. */
  readonly raggedness: number;
  /** Its outermost pixels, as indices into the mask. */
  readonly rim: Int32Array;
  /** Whether it touches the edge of the image. */
  readonly cut: boolean;
}

/** The mask after filling gaps and removing specks: a pixel is kept if at least 5 of its 3 by 3 square are set. */
function smooth(mask: Mask): Mask {
  const { width, height } = mask;
  const data = new Uint8Array(width * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      let set = 0;
      for (let j = Math.max(0, y - 1); j <= Math.min(height - 1, y + 1); j++) {
        for (let i = Math.max(0, x - 1); i <= Math.min(width - 1, x + 1); i++) set += mask.data[j * width + i]!;
      }
      data[y * width + x] = set >= 5 ? 1 : 0;
    }
  }
  return { width, height, data };
}

/** Every patch of side-connected set pixels with at least `minArea` of them. */
function findBlobs(mask: Mask, minArea: number): Blob[] {
  const { width, height } = mask;
  const left = mask.data.slice();
  const stack = new Int32Array(width * height);
  const blobs: Blob[] = [];
  for (let start = 0; start < left.length; start++) {
    if (left[start] === 0) continue;
    const members = flood(left, width, height, start, stack);
    if (members.length >= minArea) blobs.push(measure(members, mask));
  }
  return blobs;
}

/** Returns the pixels connected with `start`, and clears them in `left`; valid until the next call. */
function flood(left: Uint8Array, width: number, height: number, start: number, stack: Int32Array): Int32Array {
  let end = 0;
  const take = (at: number): void => {
    if (left[at] === 0) return;
    left[at] = 0;
    stack[end++] = at;
  };
  take(start);
  for (let next = 0; next < end; next++) {
    const at = stack[next]!;
    const x = at % width;
    if (x > 0) take(at - 1);
    if (x < width - 1) take(at + 1);
    if (at >= width) take(at - width);
    if (at < width * (height - 1)) take(at + width);
  }
  return stack.subarray(0, end);
}

function measure(members: Int32Array, mask: Mask): Blob {
  const { width, height } = mask;
  let sumX = 0;
  let sumY = 0;
  const box = { left: width, top: height, right: 0, bottom: 0 };
  for (const at of members) {
    const x = at % width;
    const y = Math.floor(at / width);
    sumX += x;
    sumY += y;
    box.left = Math.min(box.left, x);
    box.right = Math.max(box.right, x + 1);
    box.top = Math.min(box.top, y);
    box.bottom = Math.max(box.bottom, y + 1);
  }
  const area = members.length;
  const cx = sumX / area;
  const cy = sumY / area;
  let moment = area / 6;
  let nearest = Infinity;
  let middle = members[0]!;
  for (const at of members) {
    const distance = ((at % width) - cx) ** 2 + (Math.floor(at / width) - cy) ** 2;
    moment += distance;
    if (distance < nearest) {
      nearest = distance;
      middle = at;
    }
  }
  const rim = members.filter((at) => isRim(at, mask));
  return {
    area,
    ...box,
    x: (middle % width) + 0.5,
    y: Math.floor(middle / width) + 0.5,
    ...turnedRectangle(rim, width, area),
    roundness: area ** 2 / (2 * Math.PI * moment),
    rim,
    raggedness: radiusSpread(rim, width, cx, cy),
    cut: box.left === 0 || box.top === 0 || box.right === width || box.bottom === height,
  };
}

function isRim(at: number, { width, height, data }: Mask): boolean {
  const x = at % width;
  const inner = x > 0 && x < width - 1 && at >= width && at < width * (height - 1);
  return !(inner && data[at - 1] && data[at + 1] && data[at - width] && data[at + width]);
}

const TURNS = 24;

/** Fill and aspect of the smallest of `TURNS` rectangles around the rim; each pixel counts with its own extent. */
function turnedRectangle(rim: Int32Array, width: number, area: number): { fill: number; aspect: number } {
  let best = { fill: 0, aspect: 1 };
  for (let turn = 0; turn < TURNS; turn++) {
    const angle = (turn * Math.PI) / 2 / TURNS;
    const cos = Math.cos(angle);
    const sin = Math.sin(angle);
    let [minU, maxU, minV, maxV] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const at of rim) {
      const x = at % width;
      const y = Math.floor(at / width);
      const u = x * cos + y * sin;
      const v = y * cos - x * sin;
      minU = Math.min(minU, u);
      maxU = Math.max(maxU, u);
      minV = Math.min(minV, v);
      maxV = Math.max(maxV, v);
    }
    const across = maxU - minU + 1;
    const along = maxV - minV + 1;
    const fill = Math.min(1, area / (across * along));
    if (fill > best.fill) best = { fill, aspect: Math.min(across, along) / Math.max(across, along) };
  }
  return best;
}

function radiusSpread(rim: Int32Array, width: number, cx: number, cy: number): number {
  let sum = 0;
  let squares = 0;
  for (const at of rim) {
    const square = ((at % width) - cx) ** 2 + (Math.floor(at / width) - cy) ** 2;
    sum += Math.sqrt(square);
    squares += square;
  }
  const mean = sum / rim.length;
  return Math.sqrt(Math.max(0, squares / rim.length - mean * mean)) / Math.max(mean, 1);
}
