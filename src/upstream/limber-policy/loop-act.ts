/**
 * The act calls of a loop on the native wire, written around observations that stay where they are: large pictures go on as views of what
 * arrived. A call is written from its end, because the length of a message stands before it.
 */
import { WireType } from "@bufbuild/protobuf/wire";
import { ActCallSchema, ActRequestSchema } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { FrameSchema, ObservationSchema } from "../../../gen/limber/v1/observation_pb.ts";
import { PREFIX } from "../../codecs/grpc.ts";
import { roomFor, type SlabRoom, taken } from "../../codecs/slab.ts";
import type { PackedFrame, PackedObservations } from "../../contracts/contract.ts";
import type { GrpcMessage } from "../transport/grpc.ts";
import type { ActMessage } from "./encode.ts";
import { refuseLarge, wholeMs } from "./encode.ts";

const tagOf = ({ number }: { readonly number: number }, wire: WireType): number => (number << 3) | wire;

/** Tags, all of one byte, from the schema. */
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

/** Longer frames are views; copying shorter ones costs less than a piece does. */
const LARGE_BYTES = 4 << 10;
/** A tag and the longest number behind it. */
const MOST_HEAD = 6;
/** What may be written around an observation without pictures, and around each picture: its own head, its observation's, and what is told of it. */
const MOST_AROUND = PREFIX + 3 * MOST_HEAD;
const MOST_AROUND_FRAME = 5 * MOST_HEAD;

/** An act call of a loop: what all of the loop have in common, its time, and its observations as they came. */
export class LoopAct implements ActMessage {
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

/** Where the next byte stands that is written already; one message is written before the next one begins. */
let at = 0;
let block: Buffer = Buffer.alloc(0);
/** Where the small bytes end that are in no piece yet, and the pieces, the last one first. */
let end = 0;
let pieces: Buffer[] = [];
/** Bytes of all pieces. */
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

/** How much is copied of observations, at most, and written around their frames. */
function smallBytes({ from, to, frames }: PackedObservations): number {
  let bytes = to - from;
  for (const { fields } of frames) {
    const length = fields.to - fields.from;
    bytes += MOST_AROUND_FRAME - (length > LARGE_BYTES ? length : 0);
  }
  return bytes;
}

/** A frame that says what its picture's bytes say: what a field says last is what it says. */
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

/** The pieces of a message of which some are views. */
function inOrder(room: SlabRoom): Buffer[] {
  cut();
  taken(room, at);
  const all = pieces.reverse();
  pieces = [];
  return all;
}

/** A number below 2^32 behind its tag: seven bits a byte, the lowest first. */
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
