/** The message that carries a chunk to a loop's caller, written in one pass in its usual form. */
import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { LoopChunk } from "../../../../gen/limber/v1/control_loop_pb.ts";
import { type ActStreamResponse, InferenceService } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { PREFIX } from "../../../codecs/grpc.ts";
import { copySteps, type PackedSteps, packedIn } from "../../../codecs/protobuf/write.ts";
import { roomFor, taken } from "../../../codecs/slab.ts";
import { packedRequest } from "../../../inference/control-loop/packed-observation.ts";

/** The beginning of a chunk's name, in plain letters, where the name is that and its step, so that no text is made of the two. */
const namedBy = (chunk: LoopChunk): Uint8Array | undefined => (chunk as { readonly name?: Uint8Array }).name;

/** Where the next byte stands that is written already; one message is written before the next one begins. */
let at = 0;

/**
 * The framed message of a chunk whose steps are packed, byte for byte as the schema writes it; undefined for every other
 * message. It is written from its end, because the length of a message stands before it.
 */
export function framedChunk({ event }: ActStreamResponse): Buffer | undefined {
  if (event.case !== "chunk") return undefined;
  const chunk = event.value;
  const { usage, action } = chunk;
  const name = namedBy(chunk);
  const packed = action && packedIn(action);
  if (!action || !packed || !usage || action.note !== "" || chunk.route !== undefined) return undefined;
  const nameLength = name ? name.length + MOST_DIGITS : chunk.chunkId.length;
  const room = roomFor(MOST_AROUND + nameLength + action.space.length + packed.to - packed.from);
  const { block: frame, end } = room;
  at = end;
  putNumber(frame, 0x60, chunk.episode);
  putFlag(frame, 0x58, chunk.replayed);
  putNumber(frame, 0x50, chunk.droppedObservations);
  const usageEnd = at;
  putDouble(frame, 0x19, usage.costUsd);
  putDouble(frame, 0x11, usage.gpuSeconds);
  putNumber(frame, 0x08, usage.actionSteps);
  putHead(frame, 0x4a, usageEnd);
  putFlag(frame, 0x40, chunk.episodeBreak);
  putDouble(frame, 0x31, chunk.observationAgeMs);
  if (chunk.observationTime !== undefined) putDouble(frame, 0x29, chunk.observationTime, true);
  putNumber(frame, 0x20, chunk.validUntilStep);
  putNumber(frame, 0x18, chunk.startStep);
  const actionEnd = at;
  putNumber(frame, 0x18, action.dtMs);
  putSteps(frame, packed);
  if (!putText(frame, 0x0a, action.space)) return undefined;
  putHead(frame, 0x12, actionEnd);
  if (name) putNumbered(frame, 0x0a, name, chunk.startStep);
  else if (!putText(frame, 0x0a, chunk.chunkId)) return undefined;
  putHead(frame, 0x12, end);
  const length = end - at;
  at -= PREFIX;
  frame[at] = 0;
  frame.writeUInt32BE(length, at + 1);
  return taken(room, at);
}

/** Bytes of all that is neither text nor steps, at most. */
const MOST_AROUND = 128;

/** A number behind its tag, before what is written already. */
function putVarint(frame: Buffer, tag: number, value: number): void {
  let size = 1;
  for (let rest = value; rest > 0x7f; rest >>>= 7) size++;
  at -= size + 1;
  frame[at] = tag;
  let rest = value;
  let to = at + 1;
  for (; rest > 0x7f; rest >>>= 7) frame[to++] = (rest & 0x7f) | 0x80;
  frame[to] = rest;
}

function putNumber(frame: Buffer, tag: number, value: number): void {
  if (value !== 0) putVarint(frame, tag, value);
}

function putFlag(frame: Buffer, tag: number, value: boolean): void {
  if (value) putVarint(frame, tag, 1);
}

function putDouble(frame: Buffer, tag: number, value: number, always = false): void {
  if (!always && Object.is(value, 0)) return;
  at -= 9;
  frame[at] = tag;
  frame.writeDoubleLE(value, at + 1);
}

/** The head of a message that begins here and ends at `end`. */
function putHead(frame: Buffer, tag: number, end: number): void {
  putVarint(frame, tag, end - at);
}

/** A text of plain letters; false where it has others. */
function putText(frame: Buffer, tag: number, text: string): boolean {
  if (text === "") return true;
  const end = at;
  at -= text.length;
  for (let i = 0; i < text.length; i++) {
    const letter = text.charCodeAt(i);
    if (letter >= 0x80) return false;
    frame[at + i] = letter;
  }
  putHead(frame, tag, end);
  return true;
}

/** A text of plain letters that ends with a whole number. */
function putNumbered(frame: Buffer, tag: number, text: Uint8Array, value: number): void {
  const end = at;
  let rest = value;
  do {
    const tenth = Math.floor(rest / 10);
    frame[--at] = ZERO + rest - 10 * tenth;
    rest = tenth;
  } while (rest > 0);
  at -= text.length;
  frame.set(text, at);
  putHead(frame, tag, end);
}

const ZERO = 0x30;
/** Of a number below 2^32. */
const MOST_DIGITS = 10;

/** The steps under the number that an action has them under. */
function putSteps(frame: Buffer, packed: PackedSteps): void {
  at -= packed.to - packed.from;
  copySteps(packed, frame, at, 0x12);
}

/** The plain form of a method's messages; undefined where a message has another. */
export interface Quick {
  /** The message, which keeps every rule of the schema. */
  read(bytes: Buffer): Message | undefined;
  /** The message behind gRPC's prefix. */
  write(message: Message): Buffer | undefined;
}

/** By method. */
export const QUICK: ReadonlyMap<DescMethod, Quick> = new Map([
  [
    InferenceService.method.actStream,
    {
      read: packedRequest,
      // Sound: the method's output is no other message.
      write: (message) => framedChunk(message as ActStreamResponse),
    },
  ],
]);
