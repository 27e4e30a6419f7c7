/**
 * A loop's observation in its usual form, with numbers and images as bytes: validated in place and parsed only on access. protobuf-es reads
 * all other messages.
 */
import type { ActionStep } from "../../../gen/limber/v1/action_pb.ts";
import { type LoopObservation, LoopObservationSchema } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ActStreamRequest } from "../../../gen/limber/v1/inference_service_pb.ts";
import { ImageFormat, type Observation } from "../../../gen/limber/v1/observation_pb.ts";
import { readMessage } from "../../codecs/protobuf/read.ts";
import { Scan } from "../../codecs/protobuf/scan.ts";
import type { PackedFrame, Span } from "../../contracts/contract.ts";
import type { PictureFacts } from "../../contracts/inputs.ts";
import { isUpright, lookAt } from "../../upstream/pictures/frames.ts";
import { FORMATS } from "../../upstream/pictures/header.ts";
import type { ParsedObservation } from "./loop-plan.ts";

/** Limits of the schema. */
const MAX_OBSERVATIONS = 32;
const MAX_NUMBERS = 4096;
const MAX_FRAMES = 16;
const MAX_PICTURE_BYTES = 1 << 24;
const MAX_LETTERS = 128;
const MAX_SIDE = 16_384;
const LAST_FORMAT = 3;
/** The last step of a chunk must fit into 32 bits too. */
const LAST_STEP = 4_294_967_039;

type Packed = NonNullable<ParsedObservation["packed"]>;

/** What a frame declares about its picture; -1 for each field that it leaves out. */
interface DeclaredPicture {
  readonly format: number;
  readonly width: number;
  readonly height: number;
}

const NO_FACTS: PictureFacts = { format: ImageFormat.UNSPECIFIED, width: 0, height: 0 };

/** The positions of a frame whose picture came as bytes. */
class ScannedFrame implements PackedFrame {
  readonly observation: PackedFrame["observation"];
  readonly start: number;
  readonly fields: Span;
  readonly data: Span;
  readonly #declared: DeclaredPicture;
  /** Set by `inspect`. */
  facts: PictureFacts = NO_FACTS;

  constructor(
    observation: PackedFrame["observation"],
    start: number,
    fields: Span,
    data: Span,
    declared: DeclaredPicture,
  ) {
    this.observation = observation;
    this.start = start;
    this.fields = fields;
    this.data = data;
    this.#declared = declared;
  }

  get isTold(): boolean {
    const { format, width, height } = this.facts;
    return format === this.#declared.format && width === this.#declared.width && height === this.#declared.height;
  }

  /** Reads the picture's header; false if the picture is incomplete, rotated or a depth image. */
  inspect(source: Buffer): boolean {
    const found = lookAt(source.subarray(this.data.from, this.data.to));
    if (typeof found === "string" || !isUpright(found) || found.isDepth) return false;
    this.facts = { format: FORMATS[found.format], width: found.width, height: found.height };
    return true;
  }
}

/** An observation that is its own packed form: `observations` have the field number that an act call has them under. */
class PackedObservation implements LoopObservation, Packed {
  readonly $typeName = "limber.v1.LoopObservation";
  readonly step: number;
  readonly source: Buffer;
  readonly from: number;
  readonly to: number;
  readonly numbers: number;
  readonly pictures: number;
  readonly tMs: number | undefined;
  readonly frames: readonly ScannedFrame[];
  readonly prevChunkLeftOver: ActionStep[] = NO_STEPS;
  #observations: Observation[] | undefined;
  #isSound: boolean | undefined;

  constructor(step: number, from: number, to: number, scan: ObservationScan) {
    this.step = step;
    this.source = scan.bytes;
    this.from = from;
    this.to = to;
    this.numbers = scan.numbers;
    this.pictures = scan.pictures;
    this.tMs = scan.tMs;
    this.frames = scan.frames;
  }

  get packed(): Packed {
    return this;
  }

  get isSound(): boolean {
    this.#isSound ??= this.frames.every((frame) => frame.inspect(this.source));
    return this.#isSound;
  }

  get observations(): Observation[] {
    this.#observations ??= readMessage(LoopObservationSchema, this.source.subarray(this.from, this.to)).observations;
    return this.#observations;
  }
}

const NO_STEPS: ActionStep[] = [];
const NO_FRAMES: ScannedFrame[] = [];

class ObservationScan extends Scan {
  /** Numbers, pictures and time of the newest observation. */
  numbers = 0;
  pictures = 0;
  tMs: number | undefined;
  /** The frames of all observations. */
  frames = NO_FRAMES;

  /** Checks the observation that begins at `start`, whose fields end at `end`. */
  observation(start: number, end: number): boolean {
    const { bytes } = this;
    const from = this.at;
    let observation: PackedFrame["observation"] | undefined;
    let touches = 0;
    this.numbers = 0;
    this.pictures = 0;
    this.tMs = undefined;
    while (this.at < end) {
      const tag = bytes[this.at++];
      if (tag === 0x0a) {
        observation ??= { start, fields: { from, to: end } };
        if (++this.pictures > MAX_FRAMES || !this.#frame(observation, end)) return false;
      } else if (tag === 0x12 || tag === 0x32) {
        const count = this.doubles(end);
        if (count < 0) return false;
        if (tag === 0x12) this.numbers += count;
        else touches += count;
      } else if (tag === 0x19 || tag === 0x39) {
        if (!this.double(end)) return false;
        if (tag === 0x19) this.tMs = bytes.readDoubleLE(this.at - 8);
      } else return false;
    }
    return this.at === end && this.numbers <= MAX_NUMBERS && touches <= MAX_NUMBERS;
  }

  /** Checks the frame behind its tag: no field comes twice, and its picture came as bytes. */
  #frame(observation: PackedFrame["observation"], end: number): boolean {
    const { bytes } = this;
    const start = this.at - 1;
    const length = this.varint();
    if (!this.within(length, end)) return false;
    const fields = { from: this.at, to: this.at + length };
    const declared = { format: -1, width: -1, height: -1 };
    let data: Span | undefined;
    let seen = 0;
    while (this.at < fields.to) {
      const tag = bytes[this.at++]!;
      if ((seen & (1 << (tag >> 3))) !== 0) return false;
      seen |= 1 << (tag >> 3);
      if (tag === 0x39) {
        if (!this.double(fields.to)) return false;
        continue;
      }
      const value = this.varint();
      if (value < 0) return false;
      if (tag === 0x0a) {
        if (!this.within(value, fields.to) || !this.#isAscii(value)) return false;
        this.at += value;
      } else if (tag === 0x1a) {
        if (value === 0 || value > MAX_PICTURE_BYTES || !this.within(value, fields.to)) return false;
        data = { from: this.at, to: this.at + value };
        this.at += value;
      } else if (tag === 0x20 && value <= LAST_FORMAT) declared.format = value;
      else if (tag === 0x28 && value <= MAX_SIDE) declared.width = value;
      else if (tag === 0x30 && value <= MAX_SIDE) declared.height = value;
      else return false;
    }
    if (this.at !== fields.to || data === undefined) return false;
    if (this.frames === NO_FRAMES) this.frames = [];
    this.frames.push(new ScannedFrame(observation, start, fields, data, declared));
    return true;
  }

  /** Whether the next `length` bytes are a name in ASCII, which is valid text of a valid length. */
  #isAscii(length: number): boolean {
    for (let i = 0; i < length; i++) if (this.bytes[this.at + i]! >= 0x80) return false;
    return length <= MAX_LETTERS;
  }
}

/** Returns the message if it is an observation in its usual form that keeps every rule of the schema; undefined otherwise. */
export function packedRequest(bytes: Buffer): ActStreamRequest | undefined {
  const scan = new ObservationScan(bytes);
  const end = bytes.length;
  if (bytes[scan.at++] !== 0x12 || scan.varint() !== end - scan.at) return undefined;
  let step = 0;
  let from = -1;
  let to = -1;
  let count = 0;
  while (scan.at < end) {
    const start = scan.at;
    const tag = bytes[scan.at++];
    const value = scan.varint();
    if (value < 0) return undefined;
    if (tag === 0x08) {
      if (value > LAST_STEP) return undefined;
      step = value;
    } else if (tag === 0x12) {
      if (from < 0) from = start;
      else if (to !== start) return undefined;
      if (!scan.within(value, end) || !scan.observation(start, scan.at + value)) return undefined;
      to = scan.at;
      count++;
    } else return undefined;
  }
  if (scan.at !== end || count === 0 || count > MAX_OBSERVATIONS) return undefined;
  const value = new PackedObservation(step, from, to, scan);
  return { $typeName: "limber.v1.ActStreamRequest", message: { case: "observation", value } };
}
