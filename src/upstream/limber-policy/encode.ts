/**
 * What the gateway says to a server of `limber.policy.v1`. protobuf-es writes everything but the pictures, whose bytes would be
 * copied once for each message around them; here they're put between the written pieces, and copied once.
 */
import { create, toBinary } from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";
import {
  type ActCall,
  ActCallSchema,
  ActRequestSchema,
  DescribeRequestSchema,
  GroundRequestSchema,
  PredictRequestSchema,
} from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import {
  type Frame,
  FrameSchema,
  ImageFormat,
  type Observation,
  ObservationSchema,
} from "../../../gen/limber/v1/observation_pb.ts";
import { frameMessage, PREFIX } from "../../codecs/grpc.ts";
import { writeMessage } from "../../codecs/protobuf/write.ts";
import { roomFor, taken } from "../../codecs/slab.ts";
import type { ActInput, GroundInput, Piece, PredictInput } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import type { EncodedFrame, FrameSet } from "../pictures/frames.ts";
import { picturesIn } from "../pictures/order.ts";
import { MAX_MESSAGE_BYTES } from "../transport/servers.ts";
import type { CallOptions } from "../wire.ts";

const LONGEST_VARINT = 5;

/** Bytes of one message in the pieces that it's made of. Fields may stand in any order, so pieces are simply put one after another. */
interface Pieces {
  readonly list: readonly Uint8Array[];
  readonly bytes: number;
}

/** An act call that only lacks its id on the stream. */
export interface ActMessage {
  /** The framed message that makes the call under this id. */
  under(callId: number): Buffer;
}

/** An act call in pieces. */
class PreparedAct implements ActMessage {
  readonly #pieces: Pieces;

  constructor(pieces: Pieces) {
    this.#pieces = pieces;
  }

  under(callId: number): Buffer {
    const id = varints((ACT_REQUEST.callId << 3) | WireType.Varint, callId);
    return framed(joined([whole(id), field(ACT_REQUEST.call, this.#pieces)]));
  }
}

/** So many bytes stand ahead of a call at most: gRPC's prefix, its id and its length, each number behind its tag. */
const ROOM = PREFIX + 2 * (1 + LONGEST_VARINT);

/** An act call in one piece, behind room for what stands ahead of it. */
class WholeAct implements ActMessage {
  #bytes: Buffer;
  #isSent = false;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  under(callId: number): Buffer {
    // What is on its way under another id stays as it is.
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

/** Collects and writes an act call, at once where no picture is still being fetched. */
export function prepareAct(
  model: string,
  input: ActInput,
  frames: FrameSet,
  call: Pick<CallOptions, "requestId" | "budgetMs">,
): ActMessage | Promise<ActMessage> {
  const { cameras } = frames;
  const pictures = firstOf(frames, cameras.length);
  if (!(pictures instanceof Promise)) return writeAct(model, input, cameras, pictures, call);
  return pictures.then((fetched) => writeAct(model, input, cameras, fetched, call));
}

function writeAct(
  model: string,
  input: ActInput,
  cameras: readonly string[],
  pictures: readonly EncodedFrame[],
  { requestId, budgetMs }: Pick<CallOptions, "requestId" | "budgetMs">,
): ActMessage {
  const call = actCallOf(model, input, requestId, wholeMs(budgetMs));
  const count = picturesIn(input.observations);
  const goal = pictures[count];
  const goalFrame = goal && withPicture(create(FrameSchema, { camera: cameras[count] ?? "" }), goal);
  if (sizeOf(pictures) <= SMALL_BYTES) {
    const observations = filled(input.observations, pictures);
    call.observations = observations;
    if (goalFrame) call.goalImage = goalFrame;
    return new WholeAct(writeMessage(ActCallSchema, call, ROOM));
  }
  return new PreparedAct(
    joined([
      whole(writeMessage(ActCallSchema, call)),
      ...filled(input.observations, pictures).map((each) => field(ACT_CALL.observations, observationPieces(each))),
      ...(goalFrame ? [field(ACT_CALL.goalImage, framePieces(goalFrame))] : []),
    ]),
  );
}

/** What all act calls of a loop have in common. */
export const encodeCommon = (model: string, input: Omit<ActInput, "observations">, requestId: string): Buffer =>
  writeMessage(ActCallSchema, actCallOf(model, input, requestId, 0));

/** An act call of a loop: what all of the loop have in common, its time, and its observations as they came. */
export class AskedAct implements ActMessage {
  readonly #common: Buffer;
  readonly #observations: Piece;
  readonly #budgetMs: number;

  constructor(common: Buffer, observations: Piece, budgetMs: number) {
    this.#common = common;
    this.#observations = observations;
    this.#budgetMs = budgetMs;
  }

  under(callId: number): Buffer {
    return encodeAsked(callId, this.#common, this.#observations, this.#budgetMs);
  }
}

function encodeAsked(callId: number, common: Buffer, observations: Piece, budgetMs: number): Buffer {
  const budget = wholeMs(budgetMs);
  const { source, from, to } = observations;
  const bytes = common.length + 1 + varintSize(budget) + to - from;
  const length = 1 + varintSize(callId) + 1 + varintSize(bytes) + bytes;
  const room = roomFor(PREFIX + length);
  const message = room.block;
  const start = room.end - PREFIX - length;
  message[start] = 0;
  message.writeUInt32BE(length, start + 1);
  let at = putVarint(message, (ACT_REQUEST.callId << 3) | WireType.Varint, start + PREFIX);
  at = putVarint(message, callId, at);
  at = putVarint(message, (ACT_REQUEST.call << 3) | WireType.LengthDelimited, at);
  at = putVarint(message, bytes, at);
  message.set(common, at);
  at = putVarint(message, (ACT_CALL.budgetMs << 3) | WireType.Varint, at + common.length);
  at = putVarint(message, budget, at);
  source.copy(message, at, from, to);
  return taken(room, start);
}

const wholeMs = (budgetMs: number): number => Math.max(1, Math.floor(budgetMs));

function actCallOf(model: string, input: Omit<ActInput, "observations">, requestId: string, budgetMs: number): ActCall {
  const { instruction, seed, temperature, sessionId, actionSpace, horizon, returnPrediction, inferenceDelay } = input;
  const call: ActCall = {
    $typeName: "limber.policy.v1.ActCall",
    model,
    observations: [],
    instruction,
    actionSpace,
    horizon,
    returnPrediction,
    sessionId: sessionId ?? "",
    requestId,
    budgetMs,
    prevChunkLeftOver: input.leftOver === undefined ? [] : [...input.leftOver],
  };
  if (seed !== undefined) call.seed = seed;
  if (temperature !== undefined) call.temperature = temperature;
  if (inferenceDelay !== undefined) call.inferenceDelay = inferenceDelay;
  return call;
}

/** The framed message that calls off the call of this id. */
export const encodeCancel = (callId: number): Buffer =>
  frameMessage(toBinary(ActRequestSchema, create(ActRequestSchema, { callId, body: { case: "cancel", value: {} } })));

/** The framed message of a predict call. */
export async function encodePredict(model: string, input: PredictInput, frames: FrameSet): Promise<Buffer> {
  const { instruction, horizon, actions, actionSpace, seed, fps, resolution } = input;
  const request = create(PredictRequestSchema, {
    model,
    instruction,
    horizon,
    actions: [...actions],
    actionSpace: actionSpace ?? "",
    resolution: resolution ?? "",
    ...(seed !== undefined && { seed }),
    ...(fps !== undefined && { fps }),
  });
  const pictures = await firstOf(frames, picturesIn(input.observations));
  const observations = filled(input.observations, pictures);
  const fields = observations.map((each) => field(PREDICT_REQUEST.observations, observationPieces(each)));
  return framed(joined([whole(toBinary(PredictRequestSchema, request)), ...fields]));
}

/** The framed message of a ground call. */
export async function encodeGround(model: string, input: GroundInput, frames: FrameSet): Promise<Buffer> {
  const request = create(GroundRequestSchema, { model, instruction: input.instruction });
  const pictures = await firstOf(frames, picturesIn(input.observations));
  const observations = filled(input.observations, pictures);
  const fields = observations.map((each) => field(GROUND_REQUEST.observation, observationPieces(each)));
  return framed(joined([whole(toBinary(GroundRequestSchema, request)), ...fields]));
}

/** The framed message that asks what a server serves. */
export const encodeDescribe = (): Buffer =>
  frameMessage(toBinary(DescribeRequestSchema, create(DescribeRequestSchema)));

/** Field numbers, from the schema, so that none is written twice. */
const ACT_REQUEST = { callId: ActRequestSchema.field.callId.number, call: ActRequestSchema.field.call.number };
const ACT_CALL = {
  observations: ActCallSchema.field.observations.number,
  goalImage: ActCallSchema.field.goalImage.number,
  budgetMs: ActCallSchema.field.budgetMs.number,
};
const PREDICT_REQUEST = { observations: PredictRequestSchema.field.observations.number };
const GROUND_REQUEST = { observation: GroundRequestSchema.field.observation.number };
const OBSERVATION = { frames: ObservationSchema.field.frames.number, depth: ObservationSchema.field.depth.number };
const FRAME = { data: FrameSchema.field.data.number };

/** Together no larger than this, pictures are written with the rest of their message: copying them costs less than pieces do. */
const SMALL_BYTES = 8 << 10;

const sizeOf = (pictures: readonly EncodedFrame[]): number =>
  pictures.reduce((sum, { bytes }) => sum + bytes.length, 0);

function firstOf(frames: FrameSet, count: number): EncodedFrame[] | Promise<EncodedFrame[]> {
  const pictures: EncodedFrame[] = [];
  for (let i = 0; i < count; i++) {
    const picture = frames.bytes(i);
    if (picture instanceof Promise) return Promise.all(Array.from({ length: count }, (_, each) => frames.bytes(each)));
    pictures.push(picture);
  }
  return pictures;
}

/** The caller's frame with the picture's bytes in place of its address. */
const withPicture = (frame: Frame, { bytes, format, width, height }: EncodedFrame): Frame => ({
  ...frame,
  url: "",
  data: bytes,
  format: FORMATS[format],
  width,
  height,
});

/** The observations with their pictures in them, which come in the order of `frameSources`. */
function filled(observations: readonly Observation[], pictures: readonly EncodedFrame[]): Observation[] {
  let next = 0;
  const place = (frames: readonly Frame[]): Frame[] => frames.map((frame) => withPicture(frame, pictures[next++]!));
  return observations.map((each) => ({ ...each, frames: place(each.frames), depth: place(each.depth) }));
}

function observationPieces(observation: Observation): Pieces {
  const { frames, depth } = observation;
  return joined([
    whole(toBinary(ObservationSchema, { ...observation, frames: [], depth: [] })),
    ...frames.map((each) => field(OBSERVATION.frames, framePieces(each))),
    ...depth.map((each) => field(OBSERVATION.depth, framePieces(each))),
  ]);
}

const NO_BYTES = new Uint8Array();

const framePieces = (frame: Frame): Pieces =>
  joined([whole(toBinary(FrameSchema, { ...frame, data: NO_BYTES })), field(FRAME.data, whole(frame.data))]);

const FORMATS: Readonly<Record<EncodedFrame["format"], ImageFormat>> = {
  png: ImageFormat.PNG,
  jpeg: ImageFormat.JPEG,
  webp: ImageFormat.WEBP,
};

const whole = (bytes: Uint8Array): Pieces => ({ list: [bytes], bytes: bytes.length });

function joined(parts: readonly Pieces[]): Pieces {
  if (parts.length === 1) return parts[0]!;
  const list: Uint8Array[] = [];
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
  const bytes = Buffer.allocUnsafe(2 * LONGEST_VARINT);
  return bytes.subarray(0, putVarint(bytes, second, putVarint(bytes, first, 0)));
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

function refuseLarge(bytes: number): void {
  if (bytes > MAX_MESSAGE_BYTES)
    throw new UpstreamFailure(AttemptFailure.INPUT_REJECTED, "the observations are larger than a message may be");
}

/** One buffer with gRPC's prefix, so that it leaves in one write. */
function framed({ list, bytes }: Pieces): Buffer {
  refuseLarge(bytes);
  const message = Buffer.allocUnsafe(PREFIX + bytes);
  message[0] = 0;
  message.writeUInt32BE(bytes, 1);
  let at = PREFIX;
  for (const piece of list) {
    message.set(piece, at);
    at += piece.length;
  }
  return message;
}
