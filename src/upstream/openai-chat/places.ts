/**
 * How model families write places in an image as text. Each convention has the prompt that its models were trained for and a reader that
 * converts the text to fractions of the image. Sources: the model cards of Molmo, Molmo2, Gemini Robotics-ER, Qwen-VL, RoboPoint, PaliGemma,
 * Florence-2 and Moondream, and roboflow/supervision's parsers of them.
 */
import type { GroundedBox, GroundedPoint } from "../../../gen/limber/v1/grounding_pb.ts";
import { CoordinateConvention } from "../../../gen/limber/v1/supply_pb.ts";
import { AttemptFailure, type GroundAnswer, UpstreamFailure } from "../../contracts/contract.ts";
import { malformed } from "../transport/failures.ts";
import { type Completion, cutBecause } from "./completion.ts";
import { isWordForNothing, itemsIn, type JsonItem, jsonIn, saysNothing } from "./model-text.ts";

/** A place in the model's answer: one or two corners in fractions of the image, x before y. */
interface PointPlace {
  /** `[x, y]`, or `[x, y, x, y]` for a box; can be outside 0 to 1. */
  readonly at: readonly number[];
  readonly label: string;
  /** Absent if the model returns no confidence. */
  readonly confidence?: number;
  /** The index of the image, from 0. */
  readonly frame: number;
}

/** The size of an image as sent to the model. */
export interface ShownPicture {
  readonly width: number;
  readonly height: number;
}

/** One convention. */
export interface Convention {
  /** The prompt; `what` is the caller's instruction. */
  prompt(what: string): string;
  /** The places in an answer, in order; undefined if the text is not in this convention. An empty list is a valid answer. */
  read(text: string, seen: ShownPicture): PointPlace[] | undefined;
  /** Whether an empty answer means that nothing was found. */
  readonly isTacit?: boolean;
  /** Whether all images are in one request; otherwise each has its own. */
  readonly manyPictures?: boolean;
  /** Images are resized to sides that are multiples of this. */
  readonly multipleOf?: number;
}

const JSON_PROMPT = (order: string, keys: string) => (what: string) =>
  `Locate: ${what}\nAnswer with a JSON list alone, one object for each thing: ${keys}. ${order} Answer [] when it is not in the picture.`;

const QWEN_KEYS = `{"point_2d": [x, y], "bbox_2d": [x1, y1, x2, y2], "label": "..."}`;

/** By the offering's declaration. */
export const CONVENTIONS: Readonly<Record<number, Convention>> = {
  [CoordinateConvention.XY_100]: {
    prompt: (what) => `Point to ${what}.`,
    read: (text) => fromTags(text, POINT_TAG, pointTag),
    isTacit: true,
  },
  [CoordinateConvention.XY_1000]: {
    prompt: JSON_PROMPT("Coordinates go from 0 to 1000 along each side.", QWEN_KEYS),
    read: (text) => fromJson(text, [1000, 1000], "xy") ?? fromTags(text, QWEN_BOX, qwenBox) ?? florence(text),
  },
  [CoordinateConvention.YX_1000]: {
    prompt: JSON_PROMPT(
      "Points are [y, x] and boxes [ymin, xmin, ymax, xmax], from 0 to 1000 along each side.",
      `{"point": [y, x], "box_2d": [ymin, xmin, ymax, xmax], "label": "..."}`,
    ),
    read: (text) => fromJson(text, [1000, 1000], "yx"),
  },
  [CoordinateConvention.XY_PX_RESIZED28]: {
    prompt: JSON_PROMPT("Coordinates are pixels of the picture.", QWEN_KEYS),
    read: (text, { width, height }) => fromJson(text, [width, height], "xy"),
    multipleOf: 28,
  },
  [CoordinateConvention.XY_UNIT]: {
    prompt: (what) =>
      `Locate: ${what}\nAnswer with a list of tuples alone, [(x1, y1), (x2, y2), ...], of points on it. The coordinates are between 0 and 1, shares of the picture's width and height. Answer [] when it is not in the picture.`,
    read: (text) =>
      fromTags(text, TUPLE, ([, inner = ""]) => [placeOf(numbersIn(inner), "")]) ?? fromJson(text, [1, 1], "xy"),
  },
  [CoordinateConvention.LOC_YX_1024]: {
    prompt: (what) => `detect ${what}`,
    read: (text) => fromTags(text, LOC_BOX, locBox),
    isTacit: true,
  },
  [CoordinateConvention.MOLMO2_COORDS]: {
    prompt: (what) => `Point to ${what}.`,
    read: (text) => fromTags(text, COORDS_TAG, coordsTag),
    isTacit: true,
    manyPictures: true,
  },
};

const MAX_PLACES = 1_000;
const placeOf = (at: readonly number[], label: string, frame = 0): PointPlace => ({ at, label: label.trim(), frame });
const swapped = (place: PointPlace): PointPlace => ({ ...place, at: [1, 0, 3, 2].flatMap((i) => place.at[i] ?? []) });
const numbersIn = (text: string): number[] => text.match(/-?\d{1,9}(?:\.\d{1,17})?/g)?.map(Number) ?? [];

/**
 * Returns the places in a model's answer; an empty list if it states that there are none, in its convention, in words or, for some families, by
 * an empty answer. `asked` is the caller's instruction. Undefined if the text is neither.
 */
function placesIn(text: string, convention: Convention, seen: ShownPicture, asked: string): PointPlace[] | undefined {
  const places = convention.read(text, seen);
  if (places !== undefined) return places;
  return saysNothing(text, asked) || (convention.isTacit && text.trim() === "") ? [] : undefined;
}

/** Returns a truncated text without a possibly incomplete run of location tokens at its end. */
const uncut = (text: string): string =>
  text.replace(LOC_RUN_AT_END, (_, run: string) => ((run.match(/</g) ?? []).length === 4 ? run : ""));
const LOC_RUN_AT_END = /((?:<loc_?\d{1,4}>){1,8})(?:<[^<>]{0,10})?$/;

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
    point[side as "x" | "y"] = Number(value) / 100; // all that the pattern allows
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

/** Florence-2: `cup<loc_10><loc_20><loc_300><loc_400>`; the label comes first, so the search starts there. */
const FLORENCE = /(?:<loc_\d{1,4}>){1,8}/g;
const florence = (text: string): PointPlace[] | undefined =>
  fromTags(text, FLORENCE, (match) => {
    const label = /[^<>]*$/.exec(text.slice(Math.max(0, match.index - 200), match.index))?.[0] ?? "";
    const at = numbersIn(match[0]).map((each) => each / 1000);
    return at.length === 2 || at.length === 4 ? [placeOf(at, label)] : [];
  });

/** RoboPoint: `[(0.25, 0.5), (0.1, 0.2, 0.3, 0.4)]`. */
const TUPLE = /\(([^()]{3,200})\)/g;

/** PaliGemma: `<loc0722><loc0047><loc0895><loc0378> car ; …`, ymin xmin ymax xmax. A truncated run is neither a box nor a point. */
const LOC_BOX = /((?:<loc\d{4}>){1,8})\s{0,5}([^<>;]{0,500})/g;

function locBox([, run = "", label = ""]: RegExpMatchArray): PointPlace[] {
  const at = numbersIn(run).map((each) => each / 1024);
  return at.length === 2 || at.length === 4 ? [swapped(placeOf(at, label))] : [];
}

/** Molmo2: `<points coords="1 1 990 800 2 911 800">cup</points>`: the image from 1, then id, x and y of each point. */
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
  point: ["point_2d", "point2d", "point", "coordinate", "coordinates", "center", "centre"],
  box: ["bbox_2d", "bbox2d", "box_2d", "box2d", "bbox", "box", "bounding_box", "boundingBox"],
  label: ["label", "name", "description", "class"],
  confidence: ["confidence", "score"],
  /** Whether the object was found. */
  found: ["found", "present", "visible", "detected", "exists"],
} as const;

type Per = readonly [x: number, y: number];
/** The order of numbers in a list; keys that name sides have no order. */
type Order = "xy" | "yx";

/** JSON objects with a point, a box, or both, or bare lists of their numbers; `per` is the unit of each corner's two numbers. */
function fromJson(text: string, per: Per, order: Order): PointPlace[] | undefined {
  const json = jsonIn(text);
  if (json === undefined) return undefined;
  const items = itemsIn(json.roots).slice(0, MAX_PLACES);
  // A place in an object of its own is read with the object that contains it.
  const inner = new Set(items.flatMap((item) => [...KEYS.point, ...KEYS.box].map((key) => item[key])));
  const objects = items.filter((item) => !isSentinel(item) && !inner.has(item));
  const bare = json.isAlone && items.length === 0 ? bareLists(json.roots) : [];
  const places = [...objects.flatMap((item) => placesOf(item, per, order)), ...listed(bare, per, order, "")];
  // Fractions in place of larger units would all be in one corner.
  if (per[0] > 1 && isOfShares(places, per)) return undefined;
  if (places.length > 0) return places;
  // An empty list means that nothing was found; other objects are not an answer.
  const isEmpty = json.roots.every(isEmptyList) || (items.length > 0 && items.every(isNothing));
  return isEmpty || (json.isAlone && json.roots.every(isHollow)) ? [] : undefined;
}

const isOfShares = (places: readonly PointPlace[], [x, y]: Per): boolean => {
  const numbers = places.flatMap(({ at }) => at.map((each, i) => each * [x, y][i % 2]!));
  return numbers.every((each) => each >= 0 && each <= 1) && numbers.some((each) => !Number.isInteger(each));
};

const isEmptyList = (value: unknown): boolean => Array.isArray(value) && value.every(isEmptyList);
/** Only empty lists, empty objects and nulls: `{}`, `[null]`. */
const isHollow = (value: unknown): boolean =>
  value === null ||
  (Array.isArray(value) ? value.every(isHollow) : typeof value === "object" && Object.keys(value).length === 0);

/** An object that states that nothing was found: an empty list, no place at all, `"found": false`, a word such as "none". */
function isNothing(item: JsonItem): boolean {
  if (item.error !== undefined) return false;
  const place = [...KEYS.point, ...KEYS.box].map((key) => item[key]);
  return (
    Object.values(item).some(isEmptyList) ||
    Object.values(item).every((each) => each === null) ||
    place.some((each) => each === null || (typeof each === "string" && isWordForNothing(each))) ||
    KEYS.found.some((key) => item[key] === false) ||
    isSentinel(item)
  );
}

/** A place labeled "none" is not a match, wherever it is. */
const isSentinel = (item: JsonItem): boolean =>
  KEYS.label.some((key) => typeof item[key] === "string" && isWordForNothing(String(item[key])));

/** The lists of two or four numbers of which a text consists. */
const bareLists = (roots: readonly unknown[]): unknown[] =>
  roots.flatMap((root) => (Array.isArray(root) && root.some(Array.isArray) ? root : [root]));

function placesOf(item: JsonItem, per: Per, order: Order): PointPlace[] {
  const label = String(KEYS.label.map((key) => item[key]).find((each) => typeof each === "string") ?? "");
  const sure = KEYS.confidence.map((key) => item[key]).find((each) => typeof each === "number");
  const [points, boxes] = [KEYS.point, KEYS.box].map((keys) => keys.map((key) => item[key])) as [unknown[], unknown[]];
  const given = [...points, ...boxes];
  const places = [
    ...listed([...points, ...boxes.map(flattened)], per, order, label),
    ...[item, ...given].flatMap((each) => listed([namedSides(each)], per, "xy", label)),
  ];
  const confidence = sure === undefined ? {} : { confidence: Number(sure) };
  return places.map((place) => ({ ...place, ...confidence }));
}

/** Lists of numbers as places. */
const listed = (lists: readonly unknown[], per: Per, order: Order, label: string): PointPlace[] =>
  lists.flatMap((list) => {
    const corners = cornersIn(list);
    if (corners === undefined) return [];
    const ordered = order === "xy" ? corners : [1, 0, 3, 2].flatMap((i) => corners[i] ?? []);
    return [
      placeOf(
        ordered.map((each, i) => each / per[i % 2]!),
        label,
      ),
    ];
  });

/** Returns the named sides of an object, x before y: a point, the corners of a box, or a corner with a width and a height. */
function namedSides(value: unknown): unknown[] | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const sides = value as JsonItem; // an object that is not a list
  const of = (...names: string[]): unknown => names.map((name) => sides[name]).find((each) => each !== undefined);
  const low = [of("x_min", "xmin", "x1", "left"), of("y_min", "ymin", "y1", "top")];
  const high = [of("x_max", "xmax", "x2", "right"), of("y_max", "ymax", "y2", "bottom")];
  if ([...low, ...high].every((each) => each !== undefined)) return [...low, ...high];
  const [x, y, width, height] = [of("x"), of("y"), of("width", "w"), of("height", "h")].map(numberOf);
  if (x === undefined || y === undefined) return undefined;
  if (width === undefined && height === undefined) return [x, y];
  return width === undefined || height === undefined ? undefined : [x, y, x + width, y + height];
}

/** Returns a box's corners as one list if they are two pairs. */
const flattened = (box: unknown): unknown =>
  Array.isArray(box) && box.length === 2 && box.every((pair) => Array.isArray(pair) && pair.length === 2)
    ? box.flat()
    : box;

/** Two or four numbers, as numbers or text. */
function cornersIn(value: unknown): number[] | undefined {
  if (!Array.isArray(value) || (value.length !== 2 && value.length !== 4)) return undefined;
  const numbers = value.map(numberOf);
  return numbers.every((each) => each !== undefined) ? numbers : undefined;
}

const numberOf = (value: unknown): number | undefined => {
  const isText = typeof value === "string" && /^\s{0,3}-?\d{1,9}(?:\.\d{1,17})?\s{0,3}$/.test(value);
  const number = typeof value === "number" ? value : isText ? Number(value) : Number.NaN;
  return Number.isFinite(number) ? number : undefined;
};

const MAX_LABEL = 200;

/** How far outside the image rounding can move a place. */
const SLACK = 0.005;

/** The result of one request. */
interface ReadReply {
  readonly points: readonly GroundedPoint[];
  readonly boxes: readonly GroundedBox[];
  /** Places outside the image, or in an unknown image. */
  readonly dropped: number;
}

/**
 * Returns the places in a text, clamped after rounding. `cameras` are those of the sent images, the first of which is frame number `first`.
 * Throws an UpstreamFailure for a text of another convention, and if no place is in the image.
 */
export function readPlaces(
  { text, isCut, outputTokens }: Completion,
  { convention, seen, asked }: { convention: Convention; seen: ShownPicture; asked: string },
  cameras: readonly string[],
  first: number,
): ReadReply {
  const places = placesIn(isCut ? uncut(text) : text, convention, seen, asked);
  // An empty result is valid only if the model ended regularly.
  if (isCut && !places?.length)
    throw new UpstreamFailure(AttemptFailure.MALFORMED_ANSWER, cutBecause("length", outputTokens ?? 0));
  if (places === undefined) throw malformed("the response does not use the declared coordinate convention");
  const points: GroundedPoint[] = [];
  const boxes: GroundedBox[] = [];
  for (const place of places) {
    const camera = cameras[place.frame];
    const at = place.at.map(inside);
    if (camera === undefined || !at.every((each) => each !== undefined)) continue;
    const { label, confidence = 1 } = place;
    const common = { label: label.slice(0, MAX_LABEL).toWellFormed(), confidence, frame: first + place.frame, camera };
    if (at.length === 2) points.push(pointOf(at, common));
    if (at.length === 4) boxes.push(boxOf(at, common));
  }
  const dropped = places.length - points.length - boxes.length;
  if (dropped > 0 && dropped === places.length) {
    throw malformed("every coordinate in the response is outside the image; check the declared coordinate convention");
  }
  return { points, boxes, dropped };
}

type Common = Pick<GroundedPoint, "label" | "confidence" | "frame" | "camera">;

const pointOf = ([x = 0, y = 0]: readonly number[], common: Common): GroundedPoint => ({
  $typeName: "limber.v1.GroundedPoint",
  x,
  y,
  ...common,
});

/** Corners in either order. */
const boxOf = ([x1 = 0, y1 = 0, x2 = 0, y2 = 0]: readonly number[], common: Common): GroundedBox => ({
  $typeName: "limber.v1.GroundedBox",
  xMin: Math.min(x1, x2),
  yMin: Math.min(y1, y2),
  xMax: Math.max(x1, x2),
  yMax: Math.max(y1, y2),
  ...common,
});

function inside(share: PointPlace["at"][number]): number | undefined {
  if (!(share >= -SLACK && share <= 1 + SLACK)) return undefined;
  return Math.min(1, Math.max(0, share));
}

/** Combines the answers of several requests. `left` are the caller's parameters that the server refuses. */
export function groundAnswerOf(
  read: readonly ReadReply[],
  completions: readonly Completion[],
  left: readonly string[],
): GroundAnswer {
  const dropped = read.reduce((sum, each) => sum + each.dropped, 0);
  const isUncounted = completions.some((each) => each.inputTokens === undefined || each.outputTokens === undefined);
  const notes = [
    dropped > 0 && `${dropped} places outside of the picture were left out`,
    completions.some(({ isCut }) => isCut) && "the answer was cut off: the places before that are given",
    left.length > 0 && `the server refuses ${left.join(" and ")}, which was left out`,
    isUncounted && "the server counts no tokens, so that some are not charged",
  ];
  return {
    points: read.flatMap(({ points }) => points),
    boxes: read.flatMap(({ boxes }) => boxes),
    note: notes.filter((note) => note !== false).join("; "),
    inputTokens: completions.reduce((sum, { inputTokens = 0 }) => sum + inputTokens, 0),
    outputTokens: completions.reduce((sum, { outputTokens = 0 }) => sum + outputTokens, 0),
  };
}
