/**
 * Size limits of request messages, read from the schema, and a scan of protobuf bytes that counts before decoding. A decoder can create an
 * object from two bytes, so a limit of bytes alone bounds neither its memory nor its time.
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

/** The limits of a request message. */
export interface Bounds {
  /** Bytes as sent, and after decompression. */
  readonly bytes: number;
  /** The total of messages, texts, members and other values, except numbers in lists. */
  readonly elements: number;
}

/** The maximum bytes of a call without a key. */
const PUBLIC_BYTES = 64 << 10;
/** The maximum bytes of other calls. */
const KEYED_BYTES = 32 << 20;
/** The maximum bytes of one message of a stream, on every transport. */
export const CONVERSATION_BYTES = 64 << 20;

/** A message can have one element per this many of its maximum bytes, and always `LEAST_ELEMENTS`. */
const BYTES_PER_ELEMENT = 320;
const LEAST_ELEMENTS = 10_000;
/** The total of numbers in lists, if they can be encoded in fewer bytes than they take in memory. */
export const MOST_NUMBERS = 1_000_000;
/** The nesting depth of messages. */
const MOST_DEPTH = 100;

/** Smaller messages are decoded without a scan, because the result is small. */
const UNSEEN_BYTES = 4 << 10;

const KEYED: ReadonlySet<Access> = new Set([Access.KEY, Access.ADMIN, Access.ADMIN_OR_KEY]);

const known = new WeakMap<DescMethod, Bounds>();

/** Returns the limits of an RPC's request messages. */
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

/** Returns the limits of messages of this many bytes. */
export const boundsFor = (bytes: number): Bounds => ({
  bytes,
  elements: Math.max(LEAST_ELEMENTS, Math.floor(bytes / BYTES_PER_ELEMENT)),
});

/** Cached, because it is needed for every list of a large body, and reading an option allocates. */
const mostItems = new WeakMap<DescField, number>();

/** The schema's maximum number of a list's items or a map's pairs. */
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

/** The refusal of a body above `most` bytes. */
export const tooLarge = (most: number): Refusal =>
  refuse(
    Reason.PAYLOAD_TOO_LARGE,
    `the body is larger than ${most >= 1 << 20 ? `${most >> 20} MiB` : `${most >> 10} KiB`}`,
  );

/** The text for a list or map with too many items. */
export const tooManyItems = (field: DescField, most = mostItemsOf(field)): string =>
  `must have at most ${most} ${field.fieldKind === "map" ? "entries" : "items"}`;

/** The refusal of too many items at `path`. */
export function tooMany(path: string, message: string): Refusal {
  const violation = create(ViolationSchema, { path, message, type: "too_long" });
  return refuse(
    Reason.VALIDATION_FAILED,
    `${path === "" ? "the message" : `\`${path}\``} ${message}`,
    { violations: [violation] },
    { param: path },
  );
}

/** The refusal of a message with more elements or numbers than `most` in total. */
export const tooManyInAll = (most: number, what = "values"): Refusal =>
  tooMany("", `must have at most ${most} ${what} in total`);

/** A field's encoding, as far as counting needs it. */
interface BoundsPlan {
  readonly field: DescField;
  readonly wire: WireType;
  readonly isList: boolean;
  readonly most: number;
  /** The index of its item counter. */
  readonly place: number;
  /** For a list of numbers: the bytes of each if that is constant, otherwise 0. */
  readonly numberBytes: number | undefined;
  /** The message type of its bytes. */
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
  /** The size of each number: 0 if it varies, undefined for other types. */
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

/** A message being scanned. */
interface BoundsLevel {
  readonly plans: Plans;
  readonly end: number;
  /** The number of items in each list so far. */
  readonly items: number[];
  /** Its field in the parent message, and its index. */
  readonly name: string;
}

/**
 * Refuses, with field and limit, a message with more items in a list or map than the schema allows, with more elements in total than `bounds`
 * allows, with too much nesting, with invalid protobuf, or with other wire types than the schema. Decodes nothing. Fields that the schema does
 * not know count as elements.
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
    // A decoder would continue there, uncounted.
    if (end > level.end) throw unreadable();
    if (isPacked) {
      const size = plan.numberBytes!;
      const inIt = size > 0 ? Math.floor(length / size) : varintsIn(bytes, cursor.at, end);
      count(levels, plan, inIt);
      // Fixed-size numbers take no more memory than their bytes.
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

/** The lowest 32 bits of a number, as decoders read tags and lengths. */
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

/** Collects the pieces of a body. A single piece is not copied; of several, none is kept besides the copy. */
export class GatheredBody {
  readonly #most: number;
  #first: Buffer | undefined;
  #all: Gatherer | undefined;

  /** The caller must refuse more than `most` bytes before adding them. */
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

  /** Returns the complete body. Call it after the last piece. */
  bytes(): Buffer {
    return this.#all?.bytes() ?? this.#first ?? Buffer.alloc(0);
  }
}

/** Whether a request requests a streamed response by its field `stream`. */
export const wantsStream = (method: DescMethod, request: Message): boolean =>
  "stream" in method.input.field && "stream" in request && request.stream === true;

/** The refusal of a stream on a transport with single responses. */
export function refuseStream(): Refusal {
  const text =
    "this transport does not stream this call; omit `stream`, or use POST /v1/act or POST /v1/predict/stream";
  return refuse(Reason.STREAM_UNSUPPORTED, text, {}, { param: "stream" });
}
