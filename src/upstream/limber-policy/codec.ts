/**
 * The messages of the native wire. Act calls are written into one buffer after gRPC's prefix. Large images are sent as views of the received
 * bytes, and so are a loop's observations and chunks. protobuf-es reads and writes unusual messages.
 */
import { WireType } from "@bufbuild/protobuf/wire";
import { ActCallSchema, ActRequestSchema } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import type { ActionStep } from "../../../gen/limber/v1/action_pb.ts";
import { type Frame, FrameSchema, type Observation, ObservationSchema } from "../../../gen/limber/v1/observation_pb.ts";
import type { PredictedFrame } from "../../../gen/limber/v1/prediction_pb.ts";
import { PREFIX } from "../../codecs/grpc.ts";
import * as protobuf from "../../codecs/protobuf/read.ts";
import { areFinite, Scan } from "../../codecs/protobuf/scan.ts";
import { writeMessage } from "../../codecs/protobuf/write.ts";
import { ownBytes, roomFor, type SlabRoom, taken } from "../../codecs/slab.ts";
import type { ActInput, PackedFrame, PackedObservations, PackedSteps, Piece } from "../../contracts/contract.ts";
import type { EncodedFrame, FrameSet } from "../pictures/frames.ts";
import type { GrpcMessage } from "../transport/grpc.ts";
import type { CallOptions } from "../wire.ts";
import {
  type ActMessage,
  actCommonOf,
  goalImageOf,
  type HeardAct,
  readAct as parseAct,
  type ReadMessage,
  refuseLarge,
  wholeMs,
  withPictures,
} from "./messages.ts";

/** Reads a message and drops fields that the schema does not have. */
export const readMessage: ReadMessage = (schema, bytes) =>
  protobuf.readMessage(schema, bytes, { readUnknownFields: false });

/** Fetches the images of an act call and writes it. Rejects with the errors of fetching them. */
export async function encodeAct(
  model: string,
  input: ActInput,
  frames: FrameSet,
  call: Pick<CallOptions, "requestId" | "budgetMs">,
): Promise<ActMessage> {
  return writeAct(model, input, frames, heldIn(frames) ?? (await fetched(frames)), call);
}

/**
 * Returns a writer of a loop's act calls, which differ only in their observations and time. Their frames declare the properties of the images'
 * bytes.
 */
export function loopEncoder(
  model: string,
  input: Omit<ActInput, "observations">,
  requestId: string,
): (observations: PackedObservations, budgetMs: number) => ActMessage {
  const common = ownBytes(writeMessage(ActCallSchema, actCommonOf(model, input, requestId)));
  return (observations, budgetMs) => new LoopAct(common, observations, budgetMs);
}

/** Reads a message of an act stream. Throws an UpstreamFailure if it cannot. */
export const readAct = (bytes: Buffer): HeardAct => packedAnswer(bytes) ?? parseAct(bytes, readMessage);

const LONGEST_VARINT = 5;

/** A message's bytes in pieces. Protobuf allows fields in any order, so pieces are simply concatenated. */
interface Pieces {
  readonly list: readonly Buffer[];
  readonly bytes: number;
}

/** An act call in pieces. */
class PreparedAct implements ActMessage {
  readonly #pieces: Pieces;

  constructor(pieces: Pieces) {
    this.#pieces = pieces;
  }

  under(callId: number): Buffer[] {
    const id = varints((ACT_REQUEST.callId << 3) | WireType.Varint, callId);
    return framed(joined([whole(id), field(ACT_REQUEST.call, this.#pieces)]));
  }
}

/** The maximum number of bytes before a call: gRPC's prefix, its id and its length, each number with its tag. */
const ROOM = PREFIX + 2 * (1 + LONGEST_VARINT);

/** An act call in one buffer, after space for its prefix and its id. */
class WholeAct implements ActMessage {
  #bytes: Buffer;
  #isSent = false;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  under(callId: number): Buffer {
    // The bytes that were sent under another id must not change.
    if (this.#isSent) this.#bytes = Buffer.from(this.#bytes);
    this.#isSent = true;
    const bytes = this.#bytes;
    const size = bytes.length - ROOM;
    const length = 1 + varintSize(callId) + 1 + varintSize(size) + size;
    refuseLarge(length);
    const start = bytes.length - length - PREFIX;
    bytes[start] = 0;
    bytes.writeUInt32BE(length, start + 1);
    let at = putVarint(bytes, (ACT_REQUEST.callId << 3) | WireType.Varint, start + PREFIX);
    at = putVarint(bytes, callId, at);
    at = putVarint(bytes, (ACT_REQUEST.call << 3) | WireType.LengthDelimited, at);
    putVarint(bytes, size, at);
    return bytes.subarray(start);
  }
}

function writeAct(
  model: string,
  input: ActInput,
  { cameras }: FrameSet,
  pictures: readonly EncodedFrame[],
  { requestId, budgetMs }: Pick<CallOptions, "requestId" | "budgetMs">,
): ActMessage {
  const call = { ...actCommonOf(model, input, requestId), budgetMs: wholeMs(budgetMs) };
  const goal = goalImageOf(input, cameras, pictures);
  const observations = withPictures(input.observations, pictures);
  if (sizeOf(pictures) <= SMALL_BYTES) {
    call.observations = observations;
    if (goal) call.goalImage = goal;
    return new WholeAct(writeMessage(ActCallSchema, call, ROOM));
  }
  return new PreparedAct(
    joined([
      whole(writeMessage(ActCallSchema, call)),
      ...observations.map((each) => field(ACT_CALL.observations, observationPieces(each))),
      ...(goal ? [field(ACT_CALL.goalImage, framePieces(goal))] : []),
    ]),
  );
}

/** Field numbers, from the schema. */
const ACT_REQUEST = { callId: ActRequestSchema.field.callId.number, call: ActRequestSchema.field.call.number };
const ACT_CALL = {
  observations: ActCallSchema.field.observations.number,
  goalImage: ActCallSchema.field.goalImage.number,
};
const OBSERVATION = { frames: ObservationSchema.field.frames.number, depth: ObservationSchema.field.depth.number };
const FRAME = { data: FrameSchema.field.data.number };

/** Images of at most this total size are copied into their message, which costs less than pieces. */
const SMALL_BYTES = 8 << 10;

const sizeOf = (pictures: readonly EncodedFrame[]): number =>
  pictures.reduce((sum, { bytes }) => sum + bytes.length, 0);

/** Returns the images if all are available; undefined if one must be fetched. */
function heldIn(frames: FrameSet): EncodedFrame[] | undefined {
  const pictures: EncodedFrame[] = [];
  const count = frames.cameras.length;
  for (let i = 0; i < count; i++) {
    const picture = frames.held(i);
    if (picture === undefined) return undefined;
    pictures.push(picture);
  }
  return pictures;
}

const fetched = (frames: FrameSet): Promise<EncodedFrame[]> =>
  Promise.all(frames.cameras.map((_, i) => frames.bytes(i)));

function observationPieces(observation: Observation): Pieces {
  const { frames, depth } = observation;
  return joined([
    whole(writeMessage(ObservationSchema, { ...observation, frames: [], depth: [] })),
    ...frames.map((each) => field(OBSERVATION.frames, framePieces(each))),
    ...depth.map((each) => field(OBSERVATION.depth, framePieces(each))),
  ]);
}

const NO_BYTES = new Uint8Array();

const framePieces = (frame: Frame): Pieces =>
  joined([
    whole(writeMessage(FrameSchema, { ...frame, data: NO_BYTES })),
    field(FRAME.data, whole(bufferOf(frame.data))),
  ]);

/** Copies an image that is a small part of its message, because a view would retain the message while the server does not read. */
const MOST_KEPT = 8;

const bufferOf = ({ buffer, byteOffset, length }: Uint8Array): Buffer => {
  const bytes = Buffer.from(buffer, byteOffset, length);
  return MOST_KEPT * length >= buffer.byteLength ? bytes : Buffer.from(bytes);
};

const whole = (bytes: Buffer): Pieces => ({ list: [bytes], bytes: bytes.length });

function joined(parts: readonly Pieces[]): Pieces {
  if (parts.length === 1) return parts[0]!;
  const list: Buffer[] = [];
  let bytes = 0;
  for (const part of parts) {
    list.push(...part.list);
    bytes += part.bytes;
  }
  return { list, bytes };
}

/** A bytes field: its header, then the value's pieces. */
function field(number: number, value: Pieces): Pieces {
  const head = varints((number << 3) | WireType.LengthDelimited, value.bytes);
  return { list: [head, ...value.list], bytes: head.length + value.bytes };
}

/** Two numbers below 2^32 as varints: seven bits per byte, the lowest first. */
function varints(first: number, second: number): Buffer {
  const bytes = Buffer.allocUnsafe(varintSize(first) + varintSize(second));
  putVarint(bytes, second, putVarint(bytes, first, 0));
  return bytes;
}

function varintSize(value: number): number {
  let size = 1;
  for (let rest = value; rest > 0x7f; rest >>>= 7) size++;
  return size;
}

function putVarint(bytes: Buffer, value: number, from: number): number {
  let at = from;
  let rest = value;
  for (; rest > 0x7f; rest >>>= 7) bytes[at++] = (rest & 0x7f) | 0x80;
  bytes[at++] = rest;
  return at;
}

/** After gRPC's prefix. */
function framed({ list, bytes }: Pieces): Buffer[] {
  refuseLarge(bytes);
  const prefix = Buffer.allocUnsafe(PREFIX);
  prefix[0] = 0;
  prefix.writeUInt32BE(bytes, 1);
  return [prefix, ...list];
}

const tagOf = ({ number }: { readonly number: number }, wire: WireType): number => (number << 3) | wire;

/** Tags from the schema, all of one byte. */
const TAG = {
  callId: tagOf(ActRequestSchema.field.callId, WireType.Varint),
  call: tagOf(ActRequestSchema.field.call, WireType.LengthDelimited),
  budgetMs: tagOf(ActCallSchema.field.budgetMs, WireType.Varint),
  observations: tagOf(ActCallSchema.field.observations, WireType.LengthDelimited),
  frames: tagOf(ObservationSchema.field.frames, WireType.LengthDelimited),
  format: tagOf(FrameSchema.field.format, WireType.Varint),
  width: tagOf(FrameSchema.field.width, WireType.Varint),
  height: tagOf(FrameSchema.field.height, WireType.Varint),
} as const;

/** Larger frames are views; copying smaller ones costs less than a piece. */
const LARGE_BYTES = 4 << 10;
/** A tag and the longest number after it. */
const MOST_HEAD = 6;
/** Maximum overhead of an observation without images, and of each image: its own header, its observation's, and its metadata. */
const MOST_AROUND = PREFIX + 3 * MOST_HEAD;
const MOST_AROUND_FRAME = 5 * MOST_HEAD;

/** An act call of a loop: the loop's common fields, its time, and its observations unchanged. */
class LoopAct implements ActMessage {
  readonly #common: Buffer;
  readonly #observations: PackedObservations;
  readonly #budgetMs: number;

  constructor(common: Buffer, observations: PackedObservations, budgetMs: number) {
    this.#common = common;
    this.#observations = observations;
    this.#budgetMs = budgetMs;
  }

  under(callId: number): GrpcMessage {
    return encodeLoopAct(callId, this.#common, this.#observations, this.#budgetMs);
  }
}

/** The start of the bytes written so far; one message is written at a time. */
let at = 0;
let block: Buffer = Buffer.alloc(0);
/** The end of the small bytes that are not in a piece yet, and the pieces in reverse order. */
let end = 0;
let pieces: Buffer[] = [];
/** Total bytes of the pieces. */
let sent = 0;

const written = (): number => sent + end - at;

function encodeLoopAct(
  callId: number,
  common: Buffer,
  observations: PackedObservations,
  budgetMs: number,
): GrpcMessage {
  const { source, from, to, frames } = observations;
  const room = roomFor(MOST_AROUND + common.length + smallBytes(observations));
  begin(room);
  let rest = to;
  let ends = 0;
  for (let i = frames.length - 1; i >= 0; i--) {
    const frame = frames[i]!;
    const { observation, start, fields } = frame;
    if (frames[i + 1]?.observation !== observation) {
      putCopy(source, observation.fields.to, rest);
      rest = observation.fields.to;
      ends = written();
    }
    putCopy(source, fields.to, rest);
    putFrame(source, frame);
    rest = start;
    if (frames[i - 1]?.observation === observation) continue;
    putCopy(source, observation.fields.from, rest);
    putNumber(TAG.observations, written() - ends);
    rest = observation.start;
  }
  putCopy(source, from, rest);
  putNumber(TAG.budgetMs, wholeMs(budgetMs));
  putCopy(common, 0, common.length);
  putNumber(TAG.call, written());
  putNumber(TAG.callId, callId);
  const length = written();
  refuseLarge(length);
  at -= PREFIX;
  block[at] = 0;
  block.writeUInt32BE(length, at + 1);
  return pieces.length === 0 ? taken(room, at) : inOrder(room);
}

function begin(room: SlabRoom): void {
  block = room.block;
  end = room.end;
  at = end;
  pieces = [];
  sent = 0;
}

/** The maximum number of bytes that are copied from observations and written around their frames. */
function smallBytes({ from, to, frames }: PackedObservations): number {
  let bytes = to - from;
  for (const { fields } of frames) {
    const length = fields.to - fields.from;
    bytes += MOST_AROUND_FRAME - (length > LARGE_BYTES ? length : 0);
  }
  return bytes;
}

/** Adds the properties of the image's bytes to a frame: the last value of a field counts. */
function putFrame(source: Buffer, { fields, facts, isTold }: PackedFrame): void {
  const before = written();
  if (!isTold) {
    putNumber(TAG.height, facts.height);
    putNumber(TAG.width, facts.width);
    putNumber(TAG.format, facts.format);
  }
  if (fields.to - fields.from > LARGE_BYTES) putView(source, fields.from, fields.to);
  else putCopy(source, fields.from, fields.to);
  putNumber(TAG.frames, written() - before);
}

function putCopy(source: Buffer, from: number, to: number): void {
  at -= to - from;
  source.copy(block, at, from, to);
}

function putView(source: Buffer, from: number, to: number): void {
  cut();
  pieces.push(source.subarray(from, to));
  sent += to - from;
}

function cut(): void {
  if (end === at) return;
  pieces.push(block.subarray(at, end));
  sent += end - at;
  end = at;
}

/** The pieces of a message, some of which are views. */
function inOrder(room: SlabRoom): Buffer[] {
  cut();
  taken(room, at);
  const all = pieces.reverse();
  pieces = [];
  return all;
}

/** A number below 2^32 after its tag: seven bits per byte, the lowest first. */
function putNumber(tag: number, value: number): void {
  let size = 1;
  for (let rest = value; rest > 0x7f; rest >>>= 7) size++;
  at -= size + 1;
  block[at] = tag;
  let rest = value;
  let to = at + 1;
  for (; rest > 0x7f; rest >>>= 7) block[to++] = (rest & 0x7f) | 0x80;
  block[to] = rest;
}

/** The maximum number of a step's numbers, from the schema. */
const MAX_VALUES = 1024;
/** The exponent of 2^128, above every number of an action. */
const ACTION_LIMIT = 0x47f;

/** A chunk without pictures or notes. Its steps are parsed on first access. It is its own packed form. */
class PackedChunk implements PackedSteps, Piece {
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

  get packed(): PackedSteps {
    return this;
  }

  get steps(): ActionStep[] {
    this.#steps ??= stepsOf(this);
    return this.#steps;
  }
}

/** Parses packed steps. Each ends with its numbers. */
function stepsOf({ count, dim, source, from, to }: PackedSteps): ActionStep[] {
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

const NO_FRAMES: PredictedFrame[] = [];

/** Returns the call id and the chunk of a message on an act stream; undefined if it has any other form. */
export function packedAnswer(bytes: Buffer): { callId: number; answer: PackedChunk } | undefined {
  const end = bytes.length;
  const scan = new Scan(bytes);
  if (bytes[scan.at++] !== 0x08) return undefined;
  const callId = scan.varint();
  if (callId < 0 || bytes[scan.at++] !== 0x12 || scan.varint() !== end - scan.at) return undefined;
  const from = scan.at;
  const dim = stepIn(scan, end);
  if (dim < 1) return undefined;
  const size = scan.at - from;
  let to = scan.at;
  for (; bytes[to] === 0x0a; to += size) if (!isEqualStep(bytes, to, end, from, size, dim)) return undefined;
  const count = (to - from) / size;
  scan.at = to;
  let dtMs = 0;
  let gpuSeconds = 0;
  while (scan.at < end) {
    const tag = bytes[scan.at++];
    if (tag === 0x10) {
      dtMs = scan.varint();
      if (dtMs < 0) return undefined;
    } else if (tag === 0x29 && scan.within(8, end)) {
      gpuSeconds = bytes.readDoubleLE(scan.at);
      scan.at += 8;
    } else return undefined;
  }
  if (scan.at !== end) return undefined;
  return { callId, answer: new PackedChunk(count, dim, { source: bytes, from, to }, dtMs, gpuSeconds) };
}

/** Whether a step and its tag are as long as the first one, which has `dim` numbers, and all of its numbers are valid. */
function isEqualStep(bytes: Buffer, start: number, end: number, first: number, size: number, dim: number): boolean {
  const head = size - 8 * dim;
  if (start + size > end) return false;
  for (let i = 1; i < head; i++) if (bytes[start + i] !== bytes[first + i]) return false;
  return areFinite(bytes, start + head, start + size, ACTION_LIMIT);
}

/** Skips one step with its tag and returns how many numbers it has; -1 if it has another form. */
function stepIn(scan: Scan, end: number): number {
  const { bytes } = scan;
  if (bytes[scan.at++] !== 0x0a) return -1;
  const length = scan.varint();
  if (!scan.within(length, end)) return -1;
  const stop = scan.at + length;
  if (bytes[scan.at++] !== 0x0a) return -1;
  const count = scan.doubles(stop, ACTION_LIMIT);
  return scan.at === stop && count <= MAX_VALUES ? count : -1;
}
