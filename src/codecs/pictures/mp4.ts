/** Counts the images of an MP4 file by its boxes, without decoding. Source: ISO/IEC 14496-12, sections 8.4 to 8.8. */
import { CodecError } from "../error.ts";

const MAX_BOXES = 100_000;
const MAX_DEPTH = 8;

/** Container boxes on the path to the boxes that are read. */
const HOLDERS: ReadonlySet<string> = new Set(["moov", "trak", "mdia", "minf", "stbl", "moof", "traf"]);

/** Whether the bytes begin like an MP4 file. */
export const isMp4 = (bytes: Buffer): boolean => bytes.length >= 12 && bytes.toString("latin1", 4, 8) === "ftyp";

/**
 * Returns the number of samples in the file's video tracks: those of its sample tables, and of its fragments. Throws CodecError: `malformed`,
 * `truncated`, `too_many_values`.
 */
export function countMp4Frames(bytes: Buffer): number {
  const found = { boxes: 0, frames: 0, fragments: 0, isVideo: false };
  walk(bytes, 0, bytes.length, 0, found);
  return found.frames + found.fragments;
}

interface Found {
  boxes: number;
  frames: number;
  fragments: number;
  /** Whether the current track is a video track. */
  isVideo: boolean;
}

function walk(bytes: Buffer, from: number, to: number, depth: number, found: Found): void {
  if (depth > MAX_DEPTH) throw new CodecError("too_deep");
  for (let at = from; at < to; ) {
    if (++found.boxes > MAX_BOXES) throw new CodecError("too_many_values");
    if (to - at < 8) throw new CodecError("truncated");
    const type = bytes.toString("latin1", at + 4, at + 8);
    const { size, head } = sizeOf(bytes, at, to);
    if (size < head) throw new CodecError("malformed");
    if (size > to - at) throw new CodecError("truncated");
    read(bytes, type, at + head, at + size, depth, found);
    at += size;
  }
}

function sizeOf(bytes: Buffer, at: number, to: number): { size: number; head: number } {
  const size = bytes.readUInt32BE(at);
  if (size === 0) return { size: to - at, head: 8 }; // to the end of the file
  if (size !== 1) return { size, head: 8 };
  if (to - at < 16) throw new CodecError("truncated");
  return { size: Number(bytes.readBigUInt64BE(at + 8)), head: 16 };
}

function read(bytes: Buffer, type: string, from: number, to: number, depth: number, found: Found): void {
  if (HOLDERS.has(type)) walk(bytes, from, to, depth + 1, found);
  else if (type === "hdlr") found.isVideo = textAt(bytes, from + 8, to) === "vide";
  else if ((type === "stsz" || type === "stz2") && found.isVideo) found.frames += countAt(bytes, from + 8, to);
  else if (type === "trun") found.fragments += countAt(bytes, from + 4, to);
}

const textAt = (bytes: Buffer, at: number, to: number): string => {
  if (to - at < 4) throw new CodecError("truncated");
  return bytes.toString("latin1", at, at + 4);
};

function countAt(bytes: Buffer, at: number, to: number): number {
  if (to - at < 4) throw new CodecError("truncated");
  return bytes.readUInt32BE(at);
}
