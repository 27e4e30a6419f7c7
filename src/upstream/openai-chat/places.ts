/**
 * How model families write places in an image as text. Each convention has the prompt that its models were trained for and a reader that
 * converts the text to fractions of the image. Sources: the model cards of Molmo, Molmo2, Gemini Robotics-ER, Qwen-VL, RoboPoint, PaliGemma,
 * Florence-2 and Moondream, and roboflow/supervision's parsers of them.
 */
import type { GroundedBox, GroundedPoint } from "../../../gen/limber/v1/grounding_pb.ts";
import { CoordinateConvention } from "../../../gen/limber/v1/supply_pb.ts";
import { AttemptFailure, type GroundAnswer, UpstreamFailure } from "../../contracts/contract.ts";
import { malformed } from "../transport/failures.ts";
import { isObject } from "../transport/http.ts";
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
    read: (text) =>
      fromTags(text, NAMED_TAG, namedTag) ?? fromJson(text, [1000, 1000], "xy") ?? fromTags(text, FLORENCE, florence),
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
    read: (text) => fromTags(text, TUPLE, tuple) ?? fromJson(text, [1, 1], "xy"),
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
  const isNothing = saysNothing(text, asked) || (convention.isTacit && text.trim() === "");
  return isNothing || wordsInJson(text).some((each) => saysNothing(each, asked)) ? [] : undefined;
}

/** Returns the texts of a JSON answer that is one object of texts, such as `{"answer": "There is no cup."}`. */
function wordsInJson(text: string): string[] {
  const json = jsonIn(text);
  const [item] = json?.isAlone && json.roots.length === 1 ? itemsIn(json.roots) : [];
  if (item === undefined || item.error !== undefined || placeKeysIn(item).length > 0) return [];
  const values = Object.values(item);
  return values.every((value) => typeof value !== "object" || value === null)
    ? values.filter((value) => typeof value === "string")
    : [];
}

/** Returns a truncated text without a possibly incomplete run of location tokens at its end. */
const uncut = (text: string): string =>
  text.replace(LOC_RUN_AT_END, (_, run: string) => ((run.match(/</g) ?? []).length === 4 ? run : ""));
const LOC_RUN_AT_END = /((?:<loc_?\d{1,4}>){1,8})(?:<[^<>]{0,10})?$/;

/** A place that cannot be read; it counts as left out. */
const UNREADABLE: PointPlace = { at: [], label: "", frame: 0 };
const isReadable = ({ at }: PointPlace): boolean => at.length > 0;

/** Returns the places of a text's tags; undefined without a readable tag, because an unreadable one does not mean that nothing was found. */
function fromTags(text: string, tag: RegExp, read: (match: RegExpExecArray) => PointPlace[]): PointPlace[] | undefined {
  const places: PointPlace[] = [];
  for (const match of text.matchAll(tag)) {
    const found = read(match);
    places.push(...(found.length > 0 ? found : [UNREADABLE]));
    if (places.length >= MAX_PLACES) break;
  }
  return places.some(isReadable) ? places : undefined;
}

/** Splits numbers into places of `size` numbers; none if some remain. */
const inGroups = (numbers: readonly number[], size: number): number[][] =>
  numbers.length % size > 0
    ? []
    : Array.from({ length: numbers.length / size }, (_, i) => numbers.slice(size * i, size * (i + 1)));

/** Molmo: `<point x="61.5" y="40.6" alt="cup">cup</point>`, `<points x1="…" y1="…" x2="…" …>`. */
const POINT_TAG = /<points?\s([^<>]{1,20000})>([^<>]{0,1000})/g;
const ATTRIBUTE = /\b([xy])(\d{0,4})\s*=\s*["']\s{0,3}(-?\d{1,9}(?:\.\d{1,17})?)\s{0,3}%?\s{0,3}["']/g;

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

/**
 * Tags with a name: `<|object_ref_start|>cup<|object_ref_end|><|box_start|>(x1,y1),(x2,y2)<|box_end|>` of Qwen-VL, `<ref>cup</ref><box>[[…]]</box>`
 * of InternVL, `<|ref|>cup<|/ref|><|det|>[[…]]<|/det|>` of DeepSeek-VL2, `<point>x y</point>` and `<bbox>x1 y1 x2 y2</bbox>` of Seed and UI-TARS.
 */
const NAMED_TAG =
  /(?:<(?:\|object_ref_start\||\|ref\||ref)>([^<>]{0,500})<(?:\|object_ref_end\||\|\/ref\||\/ref)>\s{0,5})?<(?:\|(box|point)_start\||\|(det)\||(box|bbox|point))>([^<>]{1,20000})<(?:\|(?:box|point)_end\||\|\/det\||\/(?:box|bbox|point))>/g;

function namedTag([, label = "", start, det, plain, inner = ""]: RegExpMatchArray): PointPlace[] {
  if (/[^\s\d.,()[\]-]/.test(inner)) return [];
  const size = (start ?? det ?? plain) === "point" ? 2 : 4;
  return inGroups(numbersIn(inner), size).map((at) =>
    placeOf(
      at.map((each) => each / 1000),
      label,
    ),
  );
}

/** Florence-2: `cup<loc_10><loc_20><loc_300><loc_400>`, with one or more boxes after the label; the search starts there. */
const FLORENCE = /(?:<loc_\d{1,4}>){1,400}/g;

function florence(match: RegExpExecArray): PointPlace[] {
  const label = /[^<>]*$/.exec(match.input.slice(Math.max(0, match.index - 200), match.index))?.[0] ?? "";
  const numbers = numbersIn(match[0]).map((each) => each / 1000);
  return inGroups(numbers, numbers.length === 2 ? 2 : 4).map((at) => placeOf(at, label));
}

/** RoboPoint: `[(0.25, 0.5), (0.1, 0.2, 0.3, 0.4)]`, also with names: `(x=0.25, y=0.5)`. */
const TUPLE = /\(\s*((?:[xy]\w{0,8}\s*[=:]\s*)?-?\d[^()]{2,200})\)/g;

function tuple([, inner = ""]: RegExpMatchArray): PointPlace[] {
  const plain = inner.replace(/\b[xy]\w{0,8}\s*[=:]/g, " ");
  const numbers = /[^\s\d.,-]/.test(plain) ? [] : numbersIn(plain);
  return numbers.length === 2 || numbers.length === 4 ? [placeOf(numbers, "")] : [];
}

/** PaliGemma: `<loc0722><loc0047><loc0895><loc0378> car ; …`, ymin xmin ymax xmax. A truncated run is neither a box nor a point. */
const LOC_BOX = /((?:<loc\d{4}>){1,8})(?:<seg\d{3}>){0,16}\s{0,5}([^<>;]{0,500})/g;

function locBox([, run = "", label = ""]: RegExpMatchArray): PointPlace[] {
  const numbers = numbersIn(run).map((each) => each / 1024);
  return inGroups(numbers, numbers.length === 2 ? 2 : 4).map((at) => swapped(placeOf(at, label)));
}

/** Molmo2: `<points coords="1 1 990 800 2 911 800">cup</points>`: the image from 1, then id, x and y of each point. */
const COORDS_TAG = /<points\s[^<>]{0,200}?coords\s*=\s*["']([^"'<>]{1,20000})["'][^<>]{0,500}>([^<>]{0,1000})/g;

function coordsTag([, coords = "", label = ""]: RegExpMatchArray): PointPlace[] {
  return coords.split(/[\t;]/).flatMap((part) => {
    const [picture = 1, ...rest] = numbersIn(part);
    return inGroups(rest, 3).map(([, ...point]) =>
      placeOf(
        point.map((each) => each / 1000),
        label,
        picture - 1,
      ),
    );
  });
}

const KEYS = {
  point: [
    "point_2d",
    "point2d",
    "point",
    "coordinate",
    "coordinates",
    "center",
    "centre",
    "keypoint",
    "position",
    "location",
  ],
  box: ["bbox_2d", "bbox2d", "box_2d", "box2d", "bbox", "box", "bounding_box", "boundingbox", "rect"],
  /** Lists of points and of boxes. */
  points: ["points", "points_2d", "coords", "keypoints"],
  boxes: ["boxes", "bboxes", "bboxes_2d", "bounding_boxes"],
  label: ["label", "name", "description", "class"],
  labels: ["labels", "names", "classes"],
  confidence: ["confidence", "score"],
  /** Whether the object was found. */
  found: ["found", "present", "visible", "detected", "exists"],
  count: ["count", "num_objects", "num_detections", "total"],
} as const;
const PLACE_KEYS: readonly string[] = [...KEYS.point, ...KEYS.box, ...KEYS.points, ...KEYS.boxes];

/** An object's key as it is compared: `Bbox-2D` is `bbox_2d`. */
const plainKey = (key: string): string => key.toLowerCase().replaceAll("-", "_");
const renamed = (item: JsonItem): JsonItem =>
  Object.fromEntries(Object.entries(item).map(([key, value]) => [plainKey(key), value]));
const placeKeysIn = (item: JsonItem): string[] => PLACE_KEYS.filter((key) => item[key] !== undefined);

type Per = readonly [x: number, y: number];
/** The order of numbers in a list; keys that name sides have no order. */
type Order = "xy" | "yx";

/** JSON objects with a point, a box, or both, or bare lists of their numbers; `per` is the unit of each corner's two numbers. */
function fromJson(text: string, per: Per, order: Order): PointPlace[] | undefined {
  const json = jsonIn(text);
  if (json === undefined) return undefined;
  const originals = itemsIn(json.roots).slice(0, MAX_PLACES);
  // A place in an object of its own is read with the object that contains it.
  const inner = new Set(
    originals
      .map(renamed)
      .flatMap((item) => PLACE_KEYS.map((key) => item[key]))
      .filter((each) => namedSides(each) !== undefined),
  );
  const items = originals.filter((item) => !inner.has(item)).map(renamed);
  const read = items.map((item) => placesOf(item, per, order));
  // A place of an object that was not found is a contradiction.
  if (items.some((item, i) => isNotFound(item) && read[i]!.some(({ at }) => at.some((each) => each > 0))))
    return undefined;
  const isKept = items.map((item) => !isSentinel(item) && !isNotFound(item));
  const bare = json.isAlone && originals.length === 0 ? bareLists(json.roots) : [];
  const all = [...read.filter((_, i) => isKept[i]).flat(), ...listed(bare, per, order, "")];
  // Fractions in place of larger units would be in one corner.
  const places = all
    .filter((place) => !isNowhere(place, per))
    .map((place) => (per[0] > 1 && isOfShares(place, per) ? UNREADABLE : place));
  if (places.length > 0) return places.some(isReadable) ? places : undefined;
  if (all.length > 0) return [];
  // An empty list means that nothing was found; other objects are not an answer.
  if (!json.isAlone && CONDITION.test(text)) return undefined;
  const isEmpty = json.roots.every(isEmptyList) || (items.length > 0 && items.every(isNothing));
  return isEmpty || (json.isAlone && json.roots.every(isHollow)) ? [] : undefined;
}

/** Words of a repeated prompt: "answer [] when it is not in the picture". */
const CONDITION = /\b(?:if|when|unless)\b/i;

/** Places that models return for an absent object: -1 for every number, or a box without a size at the origin. */
const isNowhere = ({ at }: PointPlace, per: Per): boolean =>
  isReadable({ at, label: "", frame: 0 }) &&
  (at.every((each, i) => Math.abs(each * per[i % 2]! + 1) < 1e-6) ||
    (at.length === 4 && at.every((each) => each === 0)));

const isOfShares = ({ at }: PointPlace, [x, y]: Per): boolean => {
  const numbers = at.map((each, i) => each * [x, y][i % 2]!);
  return numbers.every((each) => each >= 0 && each <= 1) && numbers.some((each) => !Number.isInteger(each));
};

const isEmptyList = (value: unknown): boolean => Array.isArray(value) && value.every(isEmptyList);
/** An empty object, null, or a list only of empty lists and nulls: `{}`, `[null]`. A list of empty objects states no absence. */
const isHollow = (value: unknown): boolean =>
  value === null ||
  (Array.isArray(value)
    ? value.every((each) => each === null || (Array.isArray(each) && isHollow(each)))
    : typeof value === "object" && Object.keys(value).length === 0);

/** Whether a value is a place that a model left empty: null, an empty list, nulls, a word such as "none". */
const isNoPlace = (value: unknown): boolean =>
  isHollow(value) || (typeof value === "string" && (value.trim() === "" || isWordForNothing(value)));

/** An object that states that nothing was found: an empty list, no place at all, `"found": false`, a word such as "none". */
function isNothing(item: JsonItem): boolean {
  if (item.error !== undefined) return false;
  if (isSentinel(item) || isNotFound(item)) return true;
  const places = placeKeysIn(item).map((key) => item[key]);
  if (places.length > 0) return places.every(isNoPlace);
  const values = Object.values(item);
  if (values.every((each) => each === null) || KEYS.count.some((key) => item[key] === 0)) return true;
  // Objects inside are judged on their own. Beside another list, an empty one can mean something else.
  const containers = values.filter((each) => typeof each === "object" && each !== null);
  return containers.length > 0 && containers.every((each) => isEmptyList(each) || itemsIn([each]).length > 0);
}

const isNotFound = (item: JsonItem): boolean =>
  KEYS.found.some(
    (key) => item[key] === false || (typeof item[key] === "string" && /^(?:false|no)$/i.test(String(item[key]))),
  );

/** A place labeled "none" is not a match, wherever it is. */
const isSentinel = (item: JsonItem): boolean =>
  KEYS.label.some((key) => typeof item[key] === "string" && isWordForNothing(String(item[key])));

/** The lists of two or four numbers of which a text consists. */
const bareLists = (roots: readonly unknown[]): unknown[] =>
  roots.flatMap((root) => (Array.isArray(root) && root.some(Array.isArray) ? root : [root]));

/** Returns the places of one object; an unreadable one if its list or object under a place key is not a place. */
function placesOf(item: JsonItem, per: Per, order: Order): PointPlace[] {
  const label = String(KEYS.label.map((key) => item[key]).find((each) => typeof each === "string") ?? "");
  const labels = KEYS.labels.map((key) => item[key]).find((each) => Array.isArray(each)) ?? [];
  const firstOf = (keys: readonly string[]): unknown =>
    keys.map((key) => parsedPlace(item[key])).find((each) => typeof each === "object" && !isNoPlace(each));
  const single = [firstOf(KEYS.point), flattened(firstOf(KEYS.box))].flatMap((each) =>
    isOfLists(each) ? each : [each],
  );
  const lists = [...placeLists(firstOf(KEYS.points), 2), ...placeLists(firstOf(KEYS.boxes), 4)];
  const read = (value: unknown, name: string): PointPlace[] => {
    const places = [...listed([value], per, order, name), ...listed([namedSides(value, order)], per, "xy", name)];
    return places.length > 0 || value === undefined || hasItems(value) ? places : [UNREADABLE];
  };
  const places = [
    ...single.flatMap((value) => read(value, label)),
    ...lists.flatMap((value, i) => read(value, typeof labels[i] === "string" ? labels[i] : label)),
    ...listed([namedSides(item, order)], per, "xy", label),
  ];
  const confidence = confidenceIn(KEYS.confidence.map((key) => item[key]).find((each) => each !== undefined));
  return places.map((place) => ({ ...place, ...(confidence !== undefined && { confidence }) }));
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

/** Whether a value contains objects, whose places are read on their own. */
const hasItems = (value: unknown): boolean => itemsIn([value]).some((item) => placeKeysIn(renamed(item)).length > 0);
const isOfLists = (value: unknown): value is unknown[][] =>
  Array.isArray(value) && value.length > 0 && value.every(Array.isArray);

/** The places in a list of them; a flat list of numbers is one place. Objects in it are read on their own. `null` is not a place. */
function placeLists(value: unknown, size: 2 | 4): unknown[] {
  if (!Array.isArray(value)) return value === undefined ? [] : [value];
  if (value.every((each) => typeof each !== "object")) return [value.length === size ? value : null];
  return value
    .filter((each) => !(isObject(each) && (hasItems(each) || namedSides(each) !== undefined)))
    .map((each) => (size === 4 ? flattened(each) : each))
    .map((each) => (Array.isArray(each) && each.length === size ? each : null));
}

/** A place in a text, such as `"750, 250"` or `"[750, 250]"`, as a list; other values unchanged. */
function parsedPlace(value: unknown): unknown {
  const isOfNumbers = typeof value === "string" && /^[\s\d.,()[\]-]{3,200}$/.test(value);
  const numbers = isOfNumbers ? numbersIn(value) : [];
  return numbers.length === 2 || numbers.length === 4 ? numbers : value;
}

/** Returns a confidence from 0 to 1, also of a number in text and of percent; undefined for other values. */
function confidenceIn(value: unknown): number | undefined {
  const [, digits, percent] = typeof value === "string" ? (/^([\d.]{1,18})\s*(%?)$/.exec(value.trim()) ?? []) : [];
  const number = typeof value === "number" ? value : Number(digits ?? Number.NaN);
  const share = percent === "%" || number > 1 ? number / 100 : number;
  return share >= 0 && share <= 1 ? share : undefined;
}

/** Returns the named sides of an object, x before y: a point, the corners of a box, or a corner with a width and a height. */
function namedSides(value: unknown, order: Order = "xy"): unknown[] | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const sides = renamed(value as JsonItem); // an object that is not a list
  const of = (...names: string[]): unknown => names.map((name) => sides[name]).find((each) => each !== undefined);
  const [topLeft, bottomRight] = [of("top_left", "topleft"), of("bottom_right", "bottomright")].map((corner) =>
    pairOf(corner, order),
  );
  if (topLeft && bottomRight) return [...topLeft, ...bottomRight];
  const isFromZero = of("x0") !== undefined; // then x1 is the far side
  const low = [
    of("x_min", "xmin", "left", isFromZero ? "x0" : "x1"),
    of("y_min", "ymin", "top", isFromZero ? "y0" : "y1"),
  ];
  const high = [
    of("x_max", "xmax", "right", isFromZero ? "x1" : "x2"),
    of("y_max", "ymax", "bottom", isFromZero ? "y1" : "y2"),
  ];
  if ([...low, ...high].every((each) => each !== undefined)) return [...low, ...high];
  const center = [of("center_x", "centre_x", "cx", "x_center"), of("center_y", "centre_y", "cy", "y_center")].map(
    numberOf,
  );
  const [width, height] = [of("width", "w"), of("height", "h")].map(numberOf);
  const [x, y] = [of("x", "left"), of("y", "top")].map(numberOf);
  if (center[0] !== undefined && center[1] !== undefined) {
    const [cx, cy] = center;
    return width === undefined || height === undefined
      ? [cx, cy]
      : [cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2];
  }
  if (x === undefined || y === undefined) return undefined;
  if (width === undefined && height === undefined) return [x, y];
  return width === undefined || height === undefined ? undefined : [x, y, x + width, y + height];
}

/** The x and y of a corner that is a pair in this order or names its sides. */
function pairOf(value: unknown, order: Order): unknown[] | undefined {
  const pair = Array.isArray(value) && order === "yx" ? value.toReversed() : value;
  const sides = Array.isArray(pair) ? pair : namedSides(pair);
  return sides?.length === 2 ? sides : undefined;
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
  { text, isCut, reason, outputTokens }: Completion,
  { convention, seen, asked }: { convention: Convention; seen: ShownPicture; asked: string },
  cameras: readonly string[],
  first: number,
): ReadReply {
  const places = placesIn(isCut ? uncut(text) : text, convention, seen, asked);
  // An empty result is valid only if the model ended regularly.
  if (isCut && !places?.length)
    throw new UpstreamFailure(AttemptFailure.MALFORMED_ANSWER, cutBecause(reason, outputTokens ?? 0));
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
    dropped > 0 && `${dropped} places that are outside the image or unreadable were left out`,
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
