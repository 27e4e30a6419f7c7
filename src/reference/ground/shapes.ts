/** Shape words as ranges of a patch's measured form. */
import type { Blob } from "./blobs.ts";

/** A shape that instructions may name. */
export type ShapeWord = keyof typeof SHAPES;

type Form = "fill" | "aspect" | "roundness" | "raggedness";

/** A range of one measure and how far outside it a patch may be before it no longer counts at all. */
type Range = readonly [form: Form, low: number, high: number, slack: number];

const SHAPES = {
  square: [
    ["aspect", 0.75, 1, 0.12],
    ["roundness", 0.945, 0.987, 0.03],
    ["raggedness", 0.066, 0.125, 0.025],
  ],
  // As a camera sees one: from straight above a square, else two or three faces, whose outline has up to six corners.
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

/** Every shape that is known, in one spelling each. */
const SHAPE_WORDS = Object.keys(SHAPES) as readonly ShapeWord[];

/** The shape that a lower-case singular noun names, if it names one. */
export const shapeOf = (noun: string): ShapeWord | undefined =>
  SHAPE_WORDS.find((shape) => NOUNS[shape].includes(noun));

/** Shapes that one thing may have in one picture: a cube from straight above is a square. */
const KIN: Readonly<Record<ShapeWord, readonly ShapeWord[]>> = {
  square: ["cube", "block"],
  cube: ["square", "block"],
  block: ["square", "cube", "rectangle"],
  circle: [],
  triangle: [],
  rectangle: ["block"],
};

/** How well the other shapes fit a patch at best: what has the form of another thing is not the one that is looked for. */
export const otherFitOf = (blob: Blob, shape: ShapeWord): number =>
  Math.max(
    ...SHAPE_WORDS.filter((other) => other !== shape && !KIN[shape].includes(other)).map((other) => fitOf(blob, other)),
  );

/** How well a patch has the shape, from 0 (not at all) to 1. */
export function fitOf(blob: Blob, shape: ShapeWord): number {
  let fit = 1;
  for (const [form, low, high, slack] of SHAPES[shape] as readonly Range[]) {
    const outside = Math.max(low - blob[form], blob[form] - high, 0);
    fit *= Math.max(0, 1 - outside / slack);
  }
  return fit;
}
