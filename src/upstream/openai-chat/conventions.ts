/**
 * How families of models write places in a picture, as text. Each convention is a prompt that its models were trained for and a
 * reader that turns the text into shares of the picture. Sources: the model cards of Molmo, Molmo2, Gemini Robotics-ER, Qwen-VL,
 * RoboPoint, PaliGemma, Florence-2 and Moondream, and roboflow/supervision's parsers of them.
 */
import { CoordinateConvention } from "../../../gen/limber/v1/supply_pb.ts";
import { jsonIn } from "./json-in.ts";

/** A place as the model wrote it: one or two corners in shares of the picture, x before y. */
export interface PointPlace {
  /** `[x, y]`, or `[x, y, x, y]` for a box; may lie outside of 0 to 1. */
  readonly at: readonly number[];
  readonly label: string;
  /** Absent where the model gives no confidence. */
  readonly confidence?: number;
  /** Which of the pictures, from 0. */
  readonly frame: number;
}

/** The size of a picture as the model saw it. */
export interface ShownPicture {
  readonly width: number;
  readonly height: number;
}

/** One convention. */
export interface Convention {
  /** What the model is asked; `what` is the caller's instruction. */
  prompt(what: string): string;
  /** The places in its answer, in its order; undefined when the text is no answer of this convention. */
  read(text: string, seen: ShownPicture): PointPlace[] | undefined;
  /** All pictures go into one question; otherwise each has a question of its own. */
  readonly manyPictures?: boolean;
  /** Pictures are resized to sides that are multiples of this before they're sent. */
  readonly multipleOf?: number;
}

const JSON_PROMPT = (order: string, keys: string) => (what: string) =>
  `Locate: ${what}\nAnswer with a JSON list alone, one object for each thing: ${keys}. ${order} Answer [] when it is not in the picture.`;

const QWEN_KEYS = `{"point_2d": [x, y], "bbox_2d": [x1, y1, x2, y2], "label": "..."}`;

/** By the offering's declaration. */
export const CONVENTIONS: Readonly<Record<number, Convention>> = {
  [CoordinateConvention.XY_100]: {
    prompt: (what) => `Point to ${what}.`,
    read: (text) => fromTags(text, POINT_TAG, pointTag) ?? absence(text),
  },
  [CoordinateConvention.XY_1000]: {
    prompt: JSON_PROMPT("Coordinates go from 0 to 1000 along each side.", QWEN_KEYS),
    read: (text) => fromJson(text, [1000, 1000]) ?? fromTags(text, QWEN_BOX, qwenBox) ?? florence(text),
  },
  [CoordinateConvention.YX_1000]: {
    prompt: JSON_PROMPT(
      "Points are [y, x] and boxes [ymin, xmin, ymax, xmax], from 0 to 1000 along each side.",
      `{"point": [y, x], "box_2d": [ymin, xmin, ymax, xmax], "label": "..."}`,
    ),
    read: (text) => fromJson(text, [1000, 1000])?.map(swapped),
  },
  [CoordinateConvention.XY_PX_RESIZED28]: {
    prompt: JSON_PROMPT("Coordinates are pixels of the picture.", QWEN_KEYS),
    read: (text, { width, height }) => fromJson(text, [width, height]),
    multipleOf: 28,
  },
  [CoordinateConvention.XY_UNIT]: {
    prompt: (what) =>
      `Locate: ${what}\nAnswer with a list of tuples alone, [(x1, y1), (x2, y2), ...], of points on it. The coordinates are between 0 and 1, shares of the picture's width and height. Answer [] when it is not in the picture.`,
    read: (text) =>
      fromTags(text, TUPLE, ([, inner = ""]) => [placeOf(numbersIn(inner), "")]) ?? fromJson(text, [1, 1]),
  },
  [CoordinateConvention.LOC_YX_1024]: {
    prompt: (what) => `detect ${what}`,
    read: (text) => fromTags(text, LOC_BOX, locBox) ?? absence(text),
  },
  [CoordinateConvention.MOLMO2_COORDS]: {
    prompt: (what) => `Point to ${what}.`,
    read: (text) => fromTags(text, COORDS_TAG, coordsTag) ?? absence(text),
    manyPictures: true,
  },
};

const MAX_PLACES = 1_000;
const placeOf = (at: readonly number[], label: string, frame = 0): PointPlace => ({ at, label: label.trim(), frame });
const swapped = (place: PointPlace): PointPlace => ({ ...place, at: [1, 0, 3, 2].flatMap((i) => place.at[i] ?? []) });
const numbersIn = (text: string): number[] => text.match(/-?\d{1,9}(?:\.\d{1,17})?/g)?.map(Number) ?? [];

/** The answer of Molmo and PaliGemma for a thing that is not in the picture: such words, or nothing at all. */
const absence = (text: string): PointPlace[] | undefined =>
  text.trim() === "" || /\b(?:there (?:is|are) no|this isn't|none|not in the (?:image|picture))\b/i.test(text)
    ? []
    : undefined;

function fromTags(text: string, tag: RegExp, read: (match: RegExpExecArray) => PointPlace[]): PointPlace[] | undefined {
  const places: PointPlace[] = [];
  let seen = false;
  for (const match of text.matchAll(tag)) {
    seen = true;
    places.push(...read(match));
    if (places.length >= MAX_PLACES) break;
  }
  return seen ? places : undefined;
}

/** Molmo: `<point x="61.5" y="40.6" alt="cup">cup</point>`, `<points x1="…" y1="…" x2="…" …>`. */
const POINT_TAG = /<points?\s([^<>]{1,20000})>([^<>]{0,1000})/g;
const ATTRIBUTE = /\b([xy])(\d{0,4})\s*=\s*"\s{0,3}(-?\d{1,9}(?:\.\d{1,17})?)\s{0,3}"/g;

function pointTag([, attributes = "", label = ""]: RegExpMatchArray): PointPlace[] {
  const sides = new Map<string, { x?: number; y?: number }>();
  for (const [, side, number = "", value] of attributes.matchAll(ATTRIBUTE)) {
    const point = sides.get(number) ?? {};
    point[side as "x" | "y"] = Number(value) / 100; // all that the pattern lets through
    sides.set(number, point);
  }
  return [...sides.values()].flatMap(({ x, y }) =>
    x === undefined || y === undefined ? [] : [placeOf([x, y], label)],
  );
}

/** Qwen-VL: `<|object_ref_start|>cup<|object_ref_end|><|box_start|>(x1,y1),(x2,y2)<|box_end|>`. */
const QWEN_BOX =
  /(?:<\|object_ref_start\|>([^<>]{0,500})<\|object_ref_end\|>)?<\|box_start\|>([^<>]{1,200})<\|box_end\|>/g;
const qwenBox = ([, label = "", corners = ""]: RegExpMatchArray): PointPlace[] => [
  placeOf(
    numbersIn(corners).map((each) => each / 1000),
    label,
  ),
];

/** Florence-2: `cup<loc_10><loc_20><loc_300><loc_400>`; the label stands before, so it's looked for from there. */
const FLORENCE = /<loc_(\d{1,4})><loc_(\d{1,4})>(?:<loc_(\d{1,4})><loc_(\d{1,4})>)?/g;
const florence = (text: string): PointPlace[] | undefined =>
  fromTags(text, FLORENCE, (match) => {
    const label = /[^<>]*$/.exec(text.slice(Math.max(0, match.index - 200), match.index))?.[0] ?? "";
    const numbers = match.slice(1).filter((each) => each !== undefined);
    return [
      placeOf(
        numbers.map((each) => Number(each) / 1000),
        label,
      ),
    ];
  });

/** RoboPoint: `[(0.25, 0.5), (0.1, 0.2, 0.3, 0.4)]`. */
const TUPLE = /\(([^()]{3,200})\)/g;

/** PaliGemma: `<loc0722><loc0047><loc0895><loc0378> car ; …`, ymin xmin ymax xmax. */
const LOC_BOX = /<loc(\d{4})><loc(\d{4})>(?:<loc(\d{4})><loc(\d{4})>)?\s{0,5}([^<>;]{0,500})/g;

function locBox([, ...found]: RegExpMatchArray): PointPlace[] {
  const label = found.pop() ?? "";
  const at = found.filter((each) => each !== undefined).map((each) => Number(each) / 1024);
  return [swapped(placeOf(at, label))];
}

/** Molmo2: `<points coords="1 1 990 800 2 911 800">cup</points>`: the picture from 1, then id, x and y of each point. */
const COORDS_TAG = /<points\s[^<>]{0,200}?coords\s*=\s*"([^"<>]{1,20000})"[^<>]{0,500}>([^<>]{0,1000})/g;

function coordsTag([, coords = "", label = ""]: RegExpMatchArray): PointPlace[] {
  return coords.split(/[\t;]/).flatMap((part) => {
    const [picture = 1, ...rest] = numbersIn(part);
    const points = Array.from({ length: Math.floor(rest.length / 3) }, (_, i) => rest.slice(3 * i + 1, 3 * i + 3));
    return points.map((point) =>
      placeOf(
        point.map((each) => each / 1000),
        label,
        picture - 1,
      ),
    );
  });
}

const KEYS = {
  point: ["point_2d", "point"],
  box: ["bbox_2d", "box_2d", "bbox", "box"],
  label: ["label", "name"],
  confidence: ["confidence", "score"],
} as const;

type ReplyItem = Readonly<Record<string, unknown>>;

/** JSON objects with a point, a box, or both; `per` is what each of a corner's two numbers is a share of. */
function fromJson(text: string, per: readonly [number, number]): PointPlace[] | undefined {
  const items = jsonIn(text)?.slice(0, MAX_PLACES);
  const places = items?.flatMap((item) => placesOf(item, per)) ?? [];
  if (places.length > 0) return places;
  // An empty list means that nothing was found; objects of other things are no answer.
  return items?.every((item) => Object.values(item).some(isEmptyList)) ? [] : undefined;
}

const isEmptyList = (value: unknown): boolean => Array.isArray(value) && value.length === 0;

function placesOf(item: ReplyItem, per: readonly [number, number]): PointPlace[] {
  const label = String(KEYS.label.map((key) => item[key]).find((each) => typeof each === "string") ?? "");
  const sure = KEYS.confidence.map((key) => item[key]).find((each) => typeof each === "number");
  const corners = [
    ...[...KEYS.point, ...KEYS.box].map((key) => item[key]),
    [item.x, item.y],
    [item.x_min, item.y_min, item.x_max, item.y_max],
  ];
  return corners.filter(isCorners).map((at) => ({
    ...placeOf(
      at.map((each, i) => each / per[i % 2]!),
      label,
    ),
    ...(sure !== undefined && { confidence: Number(sure) }),
  }));
}

const isCorners = (value: unknown): value is number[] =>
  Array.isArray(value) &&
  (value.length === 2 || value.length === 4) &&
  value.every((each) => typeof each === "number" && Number.isFinite(each));
