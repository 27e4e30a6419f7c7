/**
 * The messages that every step of a control loop is made of, looked at and not read: where they are as they nearly always are, the
 * numbers in them are counted and found finite where they stand, and what is handed on is handed on as bytes. protobuf-es is the
 * judge: whatever is unusual is left to it.
 */
import type { ActionStep } from "../../../gen/limber/v1/action_pb.ts";
import { type LoopObservation, LoopObservationSchema } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ActStreamRequest } from "../../../gen/limber/v1/inference_service_pb.ts";
import { ImageFormat, type Observation } from "../../../gen/limber/v1/observation_pb.ts";
import type { PredictedFrame } from "../../../gen/limber/v1/prediction_pb.ts";
import type { PackedFrame, Piece, Span } from "../../contracts/contract.ts";
import type { PictureFacts } from "../../contracts/inputs.ts";
import type { ParsedObservation } from "../../inference/loops/observation-view.ts";
import { isUpright, lookAt } from "../../upstream/pictures/frames.ts";
import { FORMATS } from "../../upstream/pictures/header.ts";
import type { PackedStepsWriter } from "./packed-steps.ts";
import { readMessage } from "./read.ts";

/** As the schema bounds them. */
const MOST_OBSERVATIONS = 32;
const MOST_NUMBERS = 4096;
const MOST_VALUES = 1024;
const MOST_FRAMES = 16;
const MOST_PICTURE_BYTES = 1 << 24;
const MOST_LETTERS = 128;
const MOST_SIDE = 16_384;
const LAST_FORMAT = 3;

/** Where the look is; one look is over before the next one begins. */
let at = 0;

/** An unsigned number below 2^32, or -1 where it is none. */
function varint(bytes: Buffer): number {
  let byte = bytes[at++]!;
  if (byte < 0x80) return byte;
  let value = byte & 0x7f;
  for (let weight = 0x80; weight <= 0x10000000; weight *= 0x80) {
    byte = bytes[at++]!;
    value += (byte & 0x7f) * weight;
    if (byte < 0x80) return value <= 0xffffffff ? value : -1;
  }
  return -1;
}

/** Steps over a field of `length` bytes; false where that leaves the message around it. */
function within(length: number, end: number): boolean {
  return length >= 0 && at + length <= end;
}

/** The exponent of NaN and the infinities, and of 2^128, which no number of an action reaches. */
const NOT_FINITE = 0x7ff;
const ACTION_LIMIT = 0x47f;

/** Whether the exponents of the doubles between two places are below `limit`. */
function finite(bytes: Buffer, from: number, to: number, limit = NOT_FINITE): boolean {
  for (let i = from + 7; i < to; i += 8) if ((((bytes[i]! & 0x7f) << 4) | (bytes[i - 1]! >> 4)) >= limit) return false;
  return true;
}

/** Steps over packed doubles; how many they are, or -1 where they aren't what the schema asks for. */
function numbersIn(bytes: Buffer, end: number, limit = NOT_FINITE): number {
  const length = varint(bytes);
  if (!within(length, end) || (length & 7) !== 0 || !finite(bytes, at, at + length, limit)) return -1;
  at += length;
  return length >> 3;
}

const bytesOf = ({ source, from, to }: Piece): Buffer => source.subarray(from, to);

/** What a loop has to know of its observations. */
type PackedObservation = NonNullable<ParsedObservation["packed"]>;

/** What a frame says of its picture: numbers below zero where it says nothing. */
interface SaidOfPicture {
  readonly format: number;
  readonly width: number;
  readonly height: number;
}

const NO_FACTS: PictureFacts = { format: ImageFormat.UNSPECIFIED, width: 0, height: 0 };

/** What stands where in a frame whose picture came as bytes. */
class SeenFrame implements PackedFrame {
  readonly observation: PackedFrame["observation"];
  readonly start: number;
  readonly fields: Span;
  readonly data: Span;
  readonly #said: SaidOfPicture;
  /** Known once it was looked at. */
  facts: PictureFacts = NO_FACTS;

  constructor(observation: PackedFrame["observation"], start: number, fields: Span, data: Span, said: SaidOfPicture) {
    this.observation = observation;
    this.start = start;
    this.fields = fields;
    this.data = data;
    this.#said = said;
  }

  get isTold(): boolean {
    const { format, width, height } = this.facts;
    return format === this.#said.format && width === this.#said.width && height === this.#said.height;
  }

  /** Looks at the picture, which stands in these bytes; false where it does not look whole, has to be turned, or is none of colors. */
  look(source: Buffer): boolean {
    const found = lookAt(source.subarray(this.data.from, this.data.to));
    if (typeof found === "string" || !isUpright(found) || found.isDepth) return false;
    this.facts = { format: FORMATS[found.format], width: found.width, height: found.height };
    return true;
  }
}

/**
 * A loop's observation of numbers and pictures in bytes, which is read where somebody asks for what is in it. It is its own packed form: its
 * `observations` have the number that an act call has them under.
 */
class SeenObservation implements LoopObservation, PackedObservation {
  readonly $typeName = "limber.v1.LoopObservation";
  readonly step: number;
  readonly source: Buffer;
  readonly from: number;
  readonly to: number;
  readonly numbers: number;
  readonly pictures: number;
  readonly tMs: number | undefined;
  readonly frames: readonly SeenFrame[];
  readonly prevChunkLeftOver: ActionStep[] = NO_STEPS;
  #observations: Observation[] | undefined;
  #isSound: boolean | undefined;

  constructor(step: number, source: Buffer, from: number, to: number) {
    this.step = step;
    this.source = source;
    this.from = from;
    this.to = to;
    // Of the one that was looked at last.
    this.numbers = numbers;
    this.pictures = pictures;
    this.tMs = tMs;
    this.frames = frames;
  }

  get packed(): PackedObservation {
    return this;
  }

  get isSound(): boolean {
    this.#isSound ??= this.frames.every((frame) => frame.look(this.source));
    return this.#isSound;
  }

  get observations(): Observation[] {
    this.#observations ??= readMessage(LoopObservationSchema, bytesOf(this)).observations;
    return this.#observations;
  }
}

/** The largest number of a step: those of its chunk are numbers of 32 bits too. */
const LAST_STEP = 4_294_967_039;

/** A plain observation has none. */
const NO_STEPS: ActionStep[] = [];

const NO_PICTURES: SeenFrame[] = [];

let numbers = 0;
let pictures = 0;
let tMs: number | undefined;
/** Of all observations of the message. */
let frames = NO_PICTURES;

/** Looks at one observation that begins at `start` and ends at `end`. */
function lookAtObservation(bytes: Buffer, start: number, end: number): boolean {
  const from = at;
  let observation: PackedFrame["observation"] | undefined;
  let touches = 0;
  numbers = 0;
  pictures = 0;
  tMs = undefined;
  while (at < end) {
    const tag = bytes[at++];
    if (tag === 0x0a) {
      observation ??= { start, fields: { from, to: end } };
      if (++pictures > MOST_FRAMES || !lookAtFrame(bytes, observation, end)) return false;
      continue;
    }
    if (tag === 0x12 || tag === 0x32) {
      const count = numbersIn(bytes, end);
      if (count < 0) return false;
      if (tag === 0x12) numbers += count;
      else touches += count;
    } else if (tag === 0x19 || tag === 0x39) {
      if (!within(8, end) || !finite(bytes, at, at + 8)) return false;
      if (tag === 0x19) tMs = bytes.readDoubleLE(at);
      at += 8;
    } else return false;
  }
  return at === end && numbers <= MOST_NUMBERS && touches <= MOST_NUMBERS;
}

/** Looks at a frame whose tag was read. What it says is said once, and its picture came as bytes. */
function lookAtFrame(bytes: Buffer, observation: PackedFrame["observation"], end: number): boolean {
  const start = at - 1;
  const length = varint(bytes);
  if (!within(length, end)) return false;
  const fields = { from: at, to: at + length };
  const said = { format: -1, width: -1, height: -1 };
  let data: Span | undefined;
  let seen = 0;
  while (at < fields.to) {
    const tag = bytes[at++]!;
    if ((seen & (1 << (tag >> 3))) !== 0) return false;
    seen |= 1 << (tag >> 3);
    if (tag === 0x39) {
      if (!within(8, fields.to) || !finite(bytes, at, at + 8)) return false;
      at += 8;
      continue;
    }
    const value = varint(bytes);
    if (value < 0) return false;
    if (tag === 0x0a) {
      if (!within(value, fields.to) || !isPlainName(bytes, value)) return false;
      at += value;
    } else if (tag === 0x1a) {
      if (value === 0 || value > MOST_PICTURE_BYTES || !within(value, fields.to)) return false;
      data = { from: at, to: at + value };
      at += value;
    } else if (tag === 0x20 && value <= LAST_FORMAT) said.format = value;
    else if (tag === 0x28 && value <= MOST_SIDE) said.width = value;
    else if (tag === 0x30 && value <= MOST_SIDE) said.height = value;
    else return false;
  }
  if (at !== fields.to || data === undefined) return false;
  if (frames === NO_PICTURES) frames = [];
  frames.push(new SeenFrame(observation, start, fields, data, said));
  return true;
}

/** Whether so many bytes are a name in plain letters, which is surely neither too long nor no text. */
function isPlainName(bytes: Buffer, length: number): boolean {
  for (let i = 0; i < length; i++) if (bytes[at + i]! >= 0x80) return false;
  return length <= MOST_LETTERS;
}

/**
 * A message of a loop's caller that is an observation of numbers and of pictures in bytes and keeps every rule of the schema; undefined
 * where it is anything else, or might be.
 */
export function seenRequest(bytes: Buffer): ActStreamRequest | undefined {
  at = 0;
  frames = NO_PICTURES;
  if (bytes[at++] !== 0x12 || varint(bytes) !== bytes.length - at) return undefined;
  let step = 0;
  let from = -1;
  let to = -1;
  let count = 0;
  while (at < bytes.length) {
    const start = at;
    const tag = bytes[at++];
    const value = varint(bytes);
    if (value < 0) return undefined;
    if (tag === 0x08) {
      if (value > LAST_STEP) return undefined;
      step = value;
    } else if (tag === 0x12) {
      if (from < 0) from = start;
      else if (to !== start) return undefined;
      if (!within(value, bytes.length) || !lookAtObservation(bytes, start, at + value)) return undefined;
      to = at;
      count++;
    } else return undefined;
  }
  if (at !== bytes.length || count === 0 || count > MOST_OBSERVATIONS) return undefined;
  const value = new SeenObservation(step, bytes, from, to);
  return { $typeName: "limber.v1.ActStreamRequest", message: { case: "observation", value } };
}

/** A server's chunk without pictures or words, whose steps are read where somebody asks for them. It is its own packed form. */
export class SeenChunk implements PackedStepsWriter, Piece {
  readonly count: number;
  readonly dim: number;
  readonly source: Buffer;
  readonly from: number;
  readonly to: number;
  readonly dtMs: number;
  readonly gpuSeconds: number;
  readonly note = "";
  readonly prediction: PredictedFrame[] = NO_FRAMES;
  #steps: ActionStep[] | undefined;

  constructor(count: number, dim: number, { source, from, to }: Piece, dtMs: number, gpuSeconds: number) {
    this.count = count;
    this.dim = dim;
    this.source = source;
    this.from = from;
    this.to = to;
    this.dtMs = dtMs;
    this.gpuSeconds = gpuSeconds;
  }

  get packed(): PackedStepsWriter {
    return this;
  }

  get steps(): ActionStep[] {
    this.#steps ??= stepsOf(this);
    return this.#steps;
  }
}

/** Packed steps as lists. Each ends with its numbers. */
function stepsOf({ count, dim, source, from, to }: PackedStepsWriter): ActionStep[] {
  const view = new DataView(source.buffer, source.byteOffset, source.length);
  const size = (to - from) / count;
  const steps: ActionStep[] = [];
  for (let end = from + size; end <= to; end += size) {
    const values: number[] = [];
    for (let i = end - 8 * dim; i < end; i += 8) values.push(view.getFloat64(i, true));
    steps.push({ $typeName: "limber.v1.ActionStep", values });
  }
  return steps;
}

/** A plain chunk has none. */
const NO_FRAMES: PredictedFrame[] = [];

/** The call that a server's message on an act stream answers, and its chunk; undefined where it is anything else, or might be. */
export function seenAnswer(bytes: Buffer): { callId: number; answer: SeenChunk } | undefined {
  const end = bytes.length;
  at = 0;
  if (bytes[at++] !== 0x08) return undefined;
  const callId = varint(bytes);
  if (callId < 0 || bytes[at++] !== 0x12 || varint(bytes) !== end - at) return undefined;
  const from = at;
  const dim = stepIn(bytes, end);
  if (dim < 1) return undefined;
  const size = at - from;
  let to = at;
  for (; bytes[to] === 0x0a; to += size) if (!isAlike(bytes, to, end, from, size, dim)) return undefined;
  const count = (to - from) / size;
  at = to;
  let dtMs = 0;
  let gpuSeconds = 0;
  while (at < end) {
    const tag = bytes[at++];
    if (tag === 0x10) {
      dtMs = varint(bytes);
      if (dtMs < 0) return undefined;
    } else if (tag === 0x29 && within(8, end)) {
      gpuSeconds = bytes.readDoubleLE(at);
      at += 8;
    } else return undefined;
  }
  if (at !== end) return undefined;
  return { callId, answer: new SeenChunk(count, dim, { source: bytes, from, to }, dtMs, gpuSeconds) };
}

/** Whether an action step with its tag is as long as the first one, which has `dim` numbers, and all of its own can be numbers of an action. */
function isAlike(bytes: Buffer, start: number, end: number, first: number, size: number, dim: number): boolean {
  const head = size - 8 * dim;
  if (start + size > end) return false;
  for (let i = 1; i < head; i++) if (bytes[start + i] !== bytes[first + i]) return false;
  return finite(bytes, start + head, start + size, ACTION_LIMIT);
}

/** Steps over one action step with its tag; how many numbers it has, or -1. */
function stepIn(bytes: Buffer, end: number): number {
  if (bytes[at++] !== 0x0a) return -1;
  const length = varint(bytes);
  if (!within(length, end)) return -1;
  const stop = at + length;
  if (bytes[at++] !== 0x0a) return -1;
  const count = numbersIn(bytes, stop, ACTION_LIMIT);
  return at === stop && count <= MOST_VALUES ? count : -1;
}
