/** reference/colour-shape: where the coloured things of an instruction are in a picture. */
import { type RgbFrame, type RgbImage, shrink } from "../image.ts";
import { type Blob, findBlobs, smooth } from "./blobs.ts";
import { maskOf } from "./colours.ts";
import { type Phrase, readPhrases } from "./phrases.ts";
import { fitOf, otherFitOf, type ShapeWord } from "./shapes.ts";

/** A place inside a thing: x from the left and y from the top, 0 to 1 of the picture; confidence from 0 to 1. */
interface GroundedPoint {
  readonly x: number;
  readonly y: number;
  readonly label: string;
  readonly confidence: number;
}

/** The tight box around a thing, 0 to 1 of the picture. */
interface GroundedBox {
  readonly xMin: number;
  readonly yMin: number;
  readonly xMax: number;
  readonly yMax: number;
  readonly label: string;
  readonly confidence: number;
}

/** One point and one box for each thing found, in the instruction's order; `note` says what was not found, and why. */
export interface Grounding {
  readonly points: readonly GroundedPoint[];
  readonly boxes: readonly GroundedBox[];
  readonly note?: string;
}

/** Larger pictures are averaged down to at most this many pixels a side. */
const SIDE = 640;
/** A thing covers at least this share of the picture (and 24 pixels), and at most a quarter: more is the scene, not a thing in it. */
const LEAST_SHARE = 0.0002;
const MOST_SHARE = 0.25;
/** A thing stands out from what is around it along most of its outline: a step of grey levels in the strongest channel; stains and shadows don't. */
const LEAST_STEP = 16;
const STEP_REACH = 3;
const LEAST_OUTLINE = 0.75;
/** The least fit that is an answer; below it the model abstains. */
const LEAST_FIT = 0.35;

/** The share of the picture that one searched pixel covers. */
interface Unit {
  readonly x: number;
  readonly y: number;
}

interface Detection {
  readonly blob: Blob;
  readonly confidence: number;
}

/**
 * Finds each coloured thing that the instruction names ("the green cube"): connected patches of the colour, of the shape if one is named.
 * A singular noun gets the best patch, a plural every patch that fits. Abstains (nothing, and a note) without a colour word or a fit.
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

const NO_COLOR = "The instruction names no colour; this model finds things by colour and shape only.";

/** What to say of the things that an instruction names and that are not among the labels `seen`; undefined where nothing is missing. */
export function missingNote(instruction: string, seen: ReadonlySet<string>): string | undefined {
  const labels = readPhrases(instruction).map(({ label }) => label);
  if (labels.length === 0) return NO_COLOR;
  const missing = labels.filter((label) => !seen.has(label));
  return missing.length > 0 ? `Nothing in the picture fits: ${missing.join(", ")}.` : undefined;
}

function look(picture: RgbImage, phrase: Phrase): Detection[] {
  const pixels = picture.width * picture.height;
  const sightings = findBlobs(smooth(maskOf(picture, phrase.colour)), Math.max(24, LEAST_SHARE * pixels))
    .filter((blob) => blob.area <= MOST_SHARE * pixels && outlineShare(picture, blob) >= LEAST_OUTLINE)
    .map((blob) => ({ blob, confidence: confidenceOf(blob, phrase) }))
    .filter(({ confidence }) => confidence >= LEAST_FIT)
    .sort((a, b) => b.confidence - a.confidence || b.blob.area - a.blob.area);
  return phrase.all ? sightings : sightings.slice(0, 1);
}

/** The shape's fit; without a shape, how compact the patch is (a patch cut by the picture's edge counts less, but counts). */
function confidenceOf(blob: Blob, { shape }: Phrase): number {
  const fit = shape === undefined ? Math.min(1, blob.roundness + 0.1) : formOf(blob, shape);
  return fit * (blob.cut ? 0.6 : 1);
}

/** What a patch without any shape's form counts: a thing that is half hidden, or shines in places, may be the one. */
const FORMLESS = 0.5;
/** No more than this of another shape, and compact: a smear of the colour is no thing. */
const MOST_OTHER = 0.6;
const LEAST_COMPACT = 0.6;

function formOf(blob: Blob, shape: ShapeWord): number {
  const fit = fitOf(blob, shape);
  if (fit >= FORMLESS) return fit;
  const isFormless = blob.roundness >= LEAST_COMPACT && otherFitOf(blob, shape) <= MOST_OTHER;
  return isFormless ? FORMLESS : fit;
}

/** The share of the outline at which the colour steps by `LEAST_STEP` or more from `STEP_REACH` pixels inside to as many outside. */
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
