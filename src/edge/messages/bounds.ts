/**
 * How much a request message may be, read from the schema, and a look at protobuf bytes that counts before anything is made of them.
 * A decoder makes an object of two bytes; so bytes alone bound neither its memory nor its time.
 */
import {
  create,
  type DescField,
  type DescMessage,
  type DescMethod,
  getOption,
  type Message,
  ScalarType,
} from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";
import { field as fieldRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { Access, rpc } from "../../../gen/limber/edge/v1/options_pb.ts";
import { ViolationSchema } from "../../../gen/limber/v1/error_pb.ts";
import { Gatherer } from "../../codecs/gatherer.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";

/** The most that a request message may be. */
export interface Bounds {
  /** As sent, and as decompressed. */
  readonly bytes: number;
  /** Messages, texts, members and whatever else is no number of a list, in all. */
  readonly elements: number;
}

/** The most bytes of a call that needs no key. */
const PUBLIC_BYTES = 64 << 10;
/** The most bytes of every other call. */
const KEYED_BYTES = 32 << 20;
/** The most bytes of one message of a conversation, on whatever transport. */
export const CONVERSATION_BYTES = 64 << 20;

/** A message may have an element for each of so many bytes that it might have, but always so many. */
const BYTES_PER_ELEMENT = 320;
const LEAST_ELEMENTS = 10_000;
/** Numbers of lists, in all, where they are written in fewer bytes than they take in memory. */
export const MOST_NUMBERS = 1_000_000;
/** Messages inside messages. */
const MOST_DEPTH = 100;

/** Smaller messages are read unseen: nothing that is made of them is large. */
const UNSEEN_BYTES = 4 << 10;

const KEYED: ReadonlySet<Access> = new Set([Access.KEY, Access.ADMIN, Access.ADMIN_OR_KEY]);

const known = new WeakMap<DescMethod, Bounds>();

/** The bounds of an RPC's request messages. */
export function boundsOf(method: DescMethod): Bounds {
  let bounds = known.get(method);
  if (bounds === undefined) {
    const { maxBytes, access } = getOption(method, rpc);
    const usual = method.methodKind === "bidi_streaming" ? CONVERSATION_BYTES : KEYED_BYTES;
    bounds = boundsFor(maxBytes || (KEYED.has(access) ? usual : PUBLIC_BYTES));
    known.set(method, bounds);
  }
  return bounds;
}

/** The bounds of messages of so many bytes. */
export const boundsFor = (bytes: number): Bounds => ({
  bytes,
  elements: Math.max(LEAST_ELEMENTS, Math.floor(bytes / BYTES_PER_ELEMENT)),
});

/** Asked of every list of every large body, and reading an option makes much that is thrown away. */
const mostItems = new WeakMap<DescField, number>();

/** The most items that the schema gives a list, or the most pairs that it gives a map. */
export function mostItemsOf(field: DescField): number {
  let most = mostItems.get(field);
  if (most === undefined) {
    const { type } = getOption(field, fieldRules);
    const said = type.case === "repeated" ? type.value.maxItems : type.case === "map" ? type.value.maxPairs : 0n;
    most = said > 0n ? Number(said) : Number.POSITIVE_INFINITY;
    mostItems.set(field, most);
  }
  return most;
}

/** The refusal of a body of more than `most` bytes. */
export const tooLarge = (most: number): Refusal =>
  refuse(
    Reason.PAYLOAD_TOO_LARGE,
    `the body is larger than ${most >= 1 << 20 ? `${most >> 20} MiB` : `${most >> 10} KiB`}`,
  );

/** The text for a list or map with too many items. */
export const tooManyItems = (field: DescField, most = mostItemsOf(field)): string =>
  `must have at most ${most} ${field.fieldKind === "map" ? "entries" : "items"}`;

/** The refusal of more than there may be at `path`. */
export function tooMany(path: string, message: string): Refusal {
  const violation = create(ViolationSchema, { path, message, type: "too_long" });
  return refuse(
    Reason.VALIDATION_FAILED,
    `${path === "" ? "the message" : `\`${path}\``} ${message}`,
    { violations: [violation] },
    { param: path },
  );
}

/** The refusal of a message with more elements or numbers than `most`, wherever they are. */
export const tooManyInAll = (most: number, what = "values"): Refusal =>
  tooMany("", `must have at most ${most} ${what} in total`);

/** How a field stands on the wire, as far as counting goes. */
interface BoundsPlan {
  readonly field: DescField;
  readonly wire: WireType;
  readonly isList: boolean;
  readonly most: number;
  /** Where its items are counted. */
  readonly place: number;
  /** Of a list of numbers: the bytes of each where that is the same for all, else 0. */
  readonly numberBytes: number | undefined;
  /** What its bytes are a message of. */
  readonly inner: (() => Plans) | undefined;
}

interface Plans {
  readonly byNumber: readonly (BoundsPlan | undefined)[];
  readonly lists: number;
}

const planned = new WeakMap<DescMessage, Plans>();

function plansOf(desc: DescMessage): Plans {
  let plans = planned.get(desc);
  if (plans === undefined) {
    plans = plansFrom(desc.fields);
    planned.set(desc, plans);
  }
  return plans;
}

function plansFrom(fields: readonly DescField[]): Plans {
  const byNumber: (BoundsPlan | undefined)[] = [];
  let lists = 0;
  for (const field of fields) {
    const isList = field.fieldKind === "list" || field.fieldKind === "map";
    byNumber[field.number] = planOf(field, isList, isList ? lists++ : -1);
  }
  return { byNumber, lists };
}

function planOf(field: DescField, isList: boolean, place: number): BoundsPlan {
  const shared = { field, isList, place, most: isList ? mostItemsOf(field) : Number.POSITIVE_INFINITY };
  if (field.fieldKind === "map") {
    const { mapKind, mapKey } = field;
    const value = mapKind === "scalar" ? wireOf(field.scalar) : mapKind === "enum" ? WIRES.varint : WIRES.bytes;
    const member = { field, isList: false, place: -1, most: Number.POSITIVE_INFINITY, numberBytes: undefined };
    const inner = mapKind === "message" ? { inner: () => plansOf(field.message) } : { inner: undefined };
    const pair: Plans = {
      byNumber: [
        undefined,
        { ...member, wire: wireOf(mapKey).wire, inner: undefined },
        { ...member, wire: value.wire, ...inner },
      ],
      lists: 0,
    };
    return { ...shared, wire: WireType.LengthDelimited, numberBytes: undefined, inner: () => pair };
  }
  const { message } = field;
  if (message !== undefined)
    return { ...shared, wire: WireType.LengthDelimited, numberBytes: undefined, inner: () => plansOf(message) };
  const { wire, bytes } = field.enum !== undefined ? WIRES.varint : wireOf(field.scalar);
  return { ...shared, wire, numberBytes: isList ? bytes : undefined, inner: undefined };
}

interface BodyEncoding {
  readonly wire: WireType;
  /** Of each number: 0 where they differ, undefined where it is none. */
  readonly bytes: number | undefined;
}

const WIRES = {
  varint: { wire: WireType.Varint, bytes: 0 },
  bytes: { wire: WireType.LengthDelimited, bytes: undefined },
  four: { wire: WireType.Bit32, bytes: 4 },
  eight: { wire: WireType.Bit64, bytes: 8 },
} as const satisfies Record<string, BodyEncoding>;

function wireOf(scalar: ScalarType | undefined): BodyEncoding {
  switch (scalar) {
    case ScalarType.STRING:
    case ScalarType.BYTES:
      return WIRES.bytes;
    case ScalarType.DOUBLE:
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return WIRES.eight;
    case ScalarType.FLOAT:
    case ScalarType.FIXED32:
    case ScalarType.SFIXED32:
      return WIRES.four;
    default:
      return WIRES.varint;
  }
}

/** A message whose bytes are being looked at. */
interface BoundsLevel {
  readonly plans: Plans;
  readonly end: number;
  /** Items of each list so far. */
  readonly items: number[];
  /** The field that it is of the message around it, and which item. */
  readonly name: string;
}

/**
 * Refuses, naming field and limit, a message with more items in a list or map than the schema allows, or with more elements in all
 * than `bounds` does, one that nests too deep, and one that is no protobuf or has other wire types than the schema. Makes nothing of
 * the bytes. Fields that the schema does not know count as elements.
 */
export function assertBounded(desc: DescMessage, bytes: Uint8Array, bounds: Bounds): void {
  if (bytes.length <= UNSEEN_BYTES) return;
  const levels: BoundsLevel[] = [{ plans: plansOf(desc), end: bytes.length, items: [], name: "" }];
  const cursor = { bytes, at: 0 };
  let elements = 0;
  let numbers = 0;
  while (levels.length > 0) {
    const level = levels[levels.length - 1]!;
    if (cursor.at >= level.end) {
      if (cursor.at > level.end) throw unreadable();
      levels.pop();
      continue;
    }
    const tag = varint(cursor);
    const wire = tag & 7;
    const plan = level.plans.byNumber[tag >>> 3];
    const isPacked = plan?.numberBytes !== undefined && wire === WireType.LengthDelimited;
    if (plan !== undefined && wire !== plan.wire && !isPacked) throw unreadable();
    const isNumber = plan?.numberBytes !== undefined;
    if (!isNumber && ++elements > bounds.elements) throw tooManyInAll(bounds.elements);
    if (wire !== WireType.LengthDelimited) {
      skip(cursor, wire);
      if (plan?.isList) {
        count(levels, plan, 1);
        if (++numbers > MOST_NUMBERS) throw tooManyInAll(MOST_NUMBERS, "numbers");
      }
      continue;
    }
    const length = varint(cursor);
    const end = cursor.at + length;
    // A decoder would go on there, uncounted.
    if (end > level.end) throw unreadable();
    if (isPacked) {
      const size = plan.numberBytes!;
      const inIt = size > 0 ? Math.floor(length / size) : varintsIn(bytes, cursor.at, end);
      count(levels, plan, inIt);
      // Those of a fixed size take no more memory than they have bytes.
      if (size === 0) numbers += inIt;
      if (numbers > MOST_NUMBERS) throw tooManyInAll(MOST_NUMBERS, "numbers");
    } else if (plan?.isList) count(levels, plan, 1);
    if (plan?.inner === undefined) cursor.at = end;
    else if (levels.length >= MOST_DEPTH) throw tooMany(pathOf(levels, plan), `nests deeper than ${MOST_DEPTH} levels`);
    else {
      const { name } = plan.field;
      const index = plan.isList ? `.${level.items[plan.place]! - 1}` : "";
      levels.push({ plans: plan.inner(), end, items: [], name: name + index });
    }
  }
}

const unreadable = (): Refusal => refuse(Reason.MALFORMED_BODY, "the message cannot be decoded");

function count(levels: readonly BoundsLevel[], plan: BoundsPlan, more: number): void {
  const { items } = levels[levels.length - 1]!;
  const now = (items[plan.place] ?? 0) + more;
  items[plan.place] = now;
  if (now > plan.most) throw tooMany(pathOf(levels, plan), tooManyItems(plan.field, plan.most));
}

const pathOf = (levels: readonly BoundsLevel[], { field }: BoundsPlan): string =>
  [...levels.slice(1).map(({ name }) => name), field.name].join(".");

interface Cursor {
  readonly bytes: Uint8Array;
  at: number;
}

/** The lowest 32 bits of a number, as decoders take tags and lengths. */
function varint(cursor: Cursor): number {
  const { bytes } = cursor;
  let value = 0;
  for (let i = 0; i < 10; i++) {
    const byte = bytes[cursor.at++];
    if (byte === undefined) break;
    if (i < 5) value |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) return value >>> 0;
  }
  throw unreadable();
}

function skip(cursor: Cursor, wire: number): void {
  if (wire === WireType.Varint) varint(cursor);
  else if (wire === WireType.Bit64) cursor.at += 8;
  else if (wire === WireType.Bit32) cursor.at += 4;
  // The schema has no groups, so unknown ones are not followed.
  else throw unreadable();
}

function varintsIn(bytes: Uint8Array, from: number, to: number): number {
  let ends = 0;
  for (let at = from; at < to; at++) if (bytes[at]! < 0x80) ends++;
  return ends;
}

/** Gathers the pieces of a body. One that comes in a single piece is not copied; of several, none is kept beside the copy. */
export class GatheredBody {
  readonly #most: number;
  #first: Buffer | undefined;
  #all: Gatherer | undefined;

  /** The caller refuses more than `most` bytes before they are added. */
  constructor(most: number) {
    this.#most = most;
  }

  add(piece: Buffer): void {
    if (this.#all !== undefined) this.#all.add(piece);
    else if (this.#first === undefined) this.#first = piece;
    else {
      this.#all = new Gatherer(this.#most);
      this.#all.add(this.#first);
      this.#all.add(piece);
      this.#first = undefined;
    }
  }

  /** All of it: call this when nothing more is to come. */
  bytes(): Buffer {
    return this.#all?.bytes() ?? this.#first ?? Buffer.alloc(0);
  }
}

/** Whether a request asks for its answer as a stream, by a field `stream` of its own. */
export const wantsStream = (method: DescMethod, request: Message): boolean =>
  "stream" in method.input.field && "stream" in request && request.stream === true;

/** The refusal of a stream where the call is answered whole. */
export function refuseStream(): Refusal {
  const text =
    "this transport does not stream this call; omit `stream`, or use POST /v1/act or POST /v1/predict/stream";
  return refuse(Reason.STREAM_UNSUPPORTED, text, {}, { param: "stream" });
}
