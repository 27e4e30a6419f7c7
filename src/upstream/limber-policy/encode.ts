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
import { frameMessage } from "../../codecs/grpc.ts";
import type { ActInput, GroundInput, PredictInput } from "../../contracts/contract.ts";
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import type { EncodedFrame, FrameSet } from "../frames.ts";
import { picturesIn } from "../pictures.ts";
import { MAX_MESSAGE_BYTES } from "../servers.ts";
import type { CallOptions } from "../wire.ts";

/** Bytes of one message in the pieces that it's made of. Fields may stand in any order, so pieces are simply put one after another. */
interface Pieces {
  readonly list: readonly Uint8Array[];
  readonly bytes: number;
}

/** An act call that only lacks its id on the stream. */
export type PreparedAct = Pieces;

/** Collects and writes an act call; waits for pictures that are still being fetched. */
export async function prepareAct(
  model: string,
  input: ActInput,
  frames: FrameSet,
  { requestId, budgetMs }: Pick<CallOptions, "requestId" | "budgetMs">,
): Promise<PreparedAct> {
  const { instruction, seed, temperature, sessionId, actionSpace, horizon, returnPrediction } = input;
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
    budgetMs: Math.max(1, Math.floor(budgetMs)),
    ...(seed !== undefined && { seed }),
    ...(temperature !== undefined && { temperature }),
  };
  const count = picturesIn(input.observations);
  const hasGoal = frames.cameras.length > count;
  const observations = count === 0 ? bare(input.observations) : await observationPieces(input.observations, frames);
  const goal = hasGoal ? [field(ACT_CALL.goalImage, await goalPieces(frames, count))] : [];
  return joined([
    whole(toBinary(ActCallSchema, call)),
    ...observations.map((each) => field(ACT_CALL.observations, each)),
    ...goal,
  ]);
}

/** The framed message that makes a prepared call under this id. */
export function encodeAct(callId: number, call: PreparedAct): Buffer {
  const id = varints((ACT_REQUEST.callId << 3) | WireType.Varint, callId);
  return framed(joined([whole(id), field(ACT_REQUEST.call, call)]));
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
  const observations = await observationPieces(input.observations, frames);
  const fields = observations.map((each) => field(PREDICT_REQUEST.observations, each));
  return framed(joined([whole(toBinary(PredictRequestSchema, request)), ...fields]));
}

/** The framed message of a ground call. */
export async function encodeGround(model: string, input: GroundInput, frames: FrameSet): Promise<Buffer> {
  const request = create(GroundRequestSchema, { model, instruction: input.instruction });
  const observations = await observationPieces(input.observations, frames);
  const fields = observations.map((each) => field(GROUND_REQUEST.observation, each));
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
};
const PREDICT_REQUEST = { observations: PredictRequestSchema.field.observations.number };
const GROUND_REQUEST = { observation: GroundRequestSchema.field.observation.number };
const OBSERVATION = { frames: ObservationSchema.field.frames.number, depth: ObservationSchema.field.depth.number };
const FRAME = { data: FrameSchema.field.data.number };

const bare = (observations: readonly Observation[]): Pieces[] =>
  observations.map((observation) => whole(toBinary(ObservationSchema, observation)));

async function observationPieces(observations: readonly Observation[], frames: FrameSet): Promise<Pieces[]> {
  const pictures = await Promise.all(Array.from({ length: picturesIn(observations) }, (_, i) => frames.bytes(i)));
  let next = 0;
  const placed = (list: readonly Frame[], number: number): Pieces[] =>
    list.map((frame) => field(number, framePieces(frame, pictures[next++]!)));
  return observations.map((observation) => {
    const rest = whole(toBinary(ObservationSchema, { ...observation, frames: [], depth: [] }));
    return joined([
      rest,
      ...placed(observation.frames, OBSERVATION.frames),
      ...placed(observation.depth, OBSERVATION.depth),
    ]);
  });
}

async function goalPieces(frames: FrameSet, index: number): Promise<Pieces> {
  const camera = frames.cameras[index] ?? "";
  return framePieces(create(FrameSchema, { camera }), await frames.bytes(index));
}

const NO_BYTES = new Uint8Array();

/** The caller's frame with the picture's bytes in place of its address. */
function framePieces(frame: Frame, { bytes, format, width, height }: EncodedFrame): Pieces {
  const rest = { ...frame, url: "", data: NO_BYTES, format: FORMATS[format], width, height };
  return joined([whole(toBinary(FrameSchema, rest)), field(FRAME.data, whole(bytes))]);
}

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

const LONGEST_VARINT = 5;

/** Two numbers below 2^32 as protobuf writes them: seven bits a byte, the lowest first. */
function varints(first: number, second: number): Buffer {
  const bytes = Buffer.allocUnsafe(2 * LONGEST_VARINT);
  return bytes.subarray(0, putVarint(bytes, second, putVarint(bytes, first, 0)));
}

function putVarint(bytes: Buffer, value: number, from: number): number {
  let at = from;
  let rest = value;
  for (; rest > 0x7f; rest >>>= 7) bytes[at++] = (rest & 0x7f) | 0x80;
  bytes[at++] = rest;
  return at;
}

/** One buffer with gRPC's prefix, so that it leaves in one write. */
function framed({ list, bytes }: Pieces): Buffer {
  if (bytes > MAX_MESSAGE_BYTES) {
    throw new UpstreamFailure(AttemptFailure.INPUT_REJECTED, "the observations are larger than a message may be");
  }
  const message = Buffer.allocUnsafe(PREFIX_BYTES + bytes);
  message[0] = 0;
  message.writeUInt32BE(bytes, 1);
  let at = PREFIX_BYTES;
  for (const piece of list) {
    message.set(piece, at);
    at += piece.length;
  }
  return message;
}

const PREFIX_BYTES = 5;
