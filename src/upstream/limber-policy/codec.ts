/**
 * The messages of the native wire: act calls are written into one buffer behind gRPC's prefix, large pictures leave as views of the bytes that
 * arrived, and so do a loop's observations and chunks. protobuf-es reads and writes what is unusual.
 */

import { WireType } from "@bufbuild/protobuf/wire";
import { ActCallSchema, ActRequestSchema } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { type Frame, FrameSchema, type Observation, ObservationSchema } from "../../../gen/limber/v1/observation_pb.ts";
import { PREFIX } from "../../codecs/grpc.ts";
import * as protobuf from "../../codecs/protobuf/read.ts";
import { writeMessage } from "../../codecs/protobuf/write.ts";
import { ownBytes } from "../../codecs/slab.ts";
import type { ActInput, PackedObservations } from "../../contracts/contract.ts";
import type { EncodedFrame, FrameSet } from "../pictures/frames.ts";
import type { CallOptions } from "../wire.ts";
import { type HeardAct, readAct as parseAct, type ReadMessage } from "./decode.ts";
import type { ActMessage } from "./encode.ts";
import { actCommonOf, goalImageOf, refuseLarge, wholeMs, withPictures } from "./encode.ts";
import { LoopAct } from "./loop-act.ts";
import { packedAnswer } from "./packed-chunk.ts";

/** Reads a message and drops fields that the schema doesn't have. */
export const readMessage: ReadMessage = (schema, bytes) =>
  protobuf.readMessage(schema, bytes, { readUnknownFields: false });

/** Fetches the pictures of an act call and writes it. Rejects with what fetching them rejects with. */
export async function encodeAct(
  model: string,
  input: ActInput,
  frames: FrameSet,
  call: Pick<CallOptions, "requestId" | "budgetMs">,
): Promise<ActMessage> {
  return writeAct(model, input, frames, heldIn(frames) ?? (await fetched(frames)), call);
}

/** Returns a writer of a loop's act calls, which differ only in their observations and time. Their frames declare what the pictures' bytes say. */
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

/** Bytes of one message in the pieces that it's made of. Fields may stand in any order, so pieces are simply put one after another. */
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

/** The most bytes ahead of a call: gRPC's prefix, its id and its length, each number behind its tag. */
const ROOM = PREFIX + 2 * (1 + LONGEST_VARINT);

/** An act call in one buffer, behind room for its prefix and its id. */
class WholeAct implements ActMessage {
  #bytes: Buffer;
  #isSent = false;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  under(callId: number): Buffer {
    // The bytes that were sent under another id stay as they are.
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

/** Field numbers, from the schema, so that none is written twice. */
const ACT_REQUEST = { callId: ActRequestSchema.field.callId.number, call: ActRequestSchema.field.call.number };
const ACT_CALL = {
  observations: ActCallSchema.field.observations.number,
  goalImage: ActCallSchema.field.goalImage.number,
};
const OBSERVATION = { frames: ObservationSchema.field.frames.number, depth: ObservationSchema.field.depth.number };
const FRAME = { data: FrameSchema.field.data.number };

/** Together no larger than this, pictures are written with the rest of their message: copying them costs less than pieces do. */
const SMALL_BYTES = 8 << 10;

const sizeOf = (pictures: readonly EncodedFrame[]): number =>
  pictures.reduce((sum, { bytes }) => sum + bytes.length, 0);

/** The pictures where all of them are there; undefined where one has to be fetched. */
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

/** A picture that is a small part of what it arrived in is copied: a view would keep all of that while the server does not read. */
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

/** A field of bytes: its head, then the value's pieces. */
function field(number: number, value: Pieces): Pieces {
  const head = varints((number << 3) | WireType.LengthDelimited, value.bytes);
  return { list: [head, ...value.list], bytes: head.length + value.bytes };
}

/** Two numbers below 2^32 as protobuf writes them: seven bits a byte, the lowest first. */
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

/** Behind gRPC's prefix. */
function framed({ list, bytes }: Pieces): Buffer[] {
  refuseLarge(bytes);
  const prefix = Buffer.allocUnsafe(PREFIX);
  prefix[0] = 0;
  prefix.writeUInt32BE(bytes, 1);
  return [prefix, ...list];
}
