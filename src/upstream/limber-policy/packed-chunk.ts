/**
 * A server's action chunk in its usual form, passed on as bytes: the numbers are counted and checked where they are. protobuf-es reads every
 * other message.
 */
import type { ActionStep } from "../../../gen/limber/v1/action_pb.ts";
import type { PredictedFrame } from "../../../gen/limber/v1/prediction_pb.ts";
import { areFinite, Scan } from "../../codecs/protobuf/scan.ts";
import type { PackedSteps, Piece } from "../../contracts/contract.ts";

/** The most numbers of a step, as the schema bounds them. */
const MAX_VALUES = 1024;
/** The exponent of 2^128, which no number of an action reaches. */
const ACTION_LIMIT = 0x47f;

/** A chunk without pictures or notes. Its steps are parsed on first access. It is its own packed form. */
export class PackedChunk implements PackedSteps, Piece {
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
