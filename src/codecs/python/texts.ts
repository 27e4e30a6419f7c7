/** numpy's text arrays: `U` with four bytes per character, `S` with one, each padded to the longest. Source: numpy, "The array interface". */
import { isUtf8 } from "node:buffer";
import { CodecError } from "../error.ts";

/** A text, or nested lists of texts. */
export type Texts = string | Texts[];

const TEXT_TYPE = /^([<>=|]?)([US])(\d{1,6})$/;
/** numpy's long names, with the bits of an element: `str160` is `U5`. */
const LONG_NAME = /^(str|bytes)(\d{1,8})$/;

/** Returns the short name for a long one; other names unchanged. */
function shortName(dtype: string): string {
  const [, kind, bits] = LONG_NAME.exec(dtype) ?? [];
  if (kind === undefined) return dtype;
  return kind === "str" ? `U${Number(bits) / 32}` : `S${Number(bits) / 8}`;
}
/** Bytes of a text array: an instruction has some hundred. */
const MAX_BYTES = 1 << 20;
const MAX_TEXTS = 4_096;
const MAX_RANK = 8;
/** Bytes per character of `U`. */
const LETTER = 4;

/** Whether this is numpy's name of a text type. */
export const isTextType = (dtype: unknown): boolean => typeof dtype === "string" && TEXT_TYPE.test(shortName(dtype));

/**
 * Returns the texts of an array in C order, in nested lists of its shape. Throws CodecError: `bad_dtype`, `bad_shape`, `bad_text`, `too_large`.
 */
export function textsIn(dtype: string, shape: readonly number[], data: Uint8Array): Texts {
  const [, order, kind, length] = TEXT_TYPE.exec(shortName(dtype)) ?? [];
  if (kind === undefined) throw new CodecError("bad_dtype");
  const count = shape.reduce((product, size) => product * size, 1);
  if (data.length > MAX_BYTES || count > MAX_TEXTS) throw new CodecError("too_large");
  const size = Number(length) * (kind === "U" ? LETTER : 1);
  if (shape.length > MAX_RANK || count * size !== data.length) throw new CodecError("bad_shape");
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.length);
  const texts = Array.from({ length: count }, (_, i) => {
    const element = bytes.subarray(i * size, (i + 1) * size);
    return kind === "U" ? wideText(element, order === ">") : narrowText(element);
  });
  return nested(texts, shape);
}

/** Shorter texts are padded with zeros. */
function narrowText(bytes: Buffer): string {
  let end = bytes.length;
  while (end > 0 && bytes[end - 1] === 0) end -= 1;
  const text = bytes.subarray(0, end);
  if (!isUtf8(text)) throw new CodecError("bad_text");
  return text.toString("utf8");
}

function wideText(bytes: Buffer, isBig: boolean): string {
  let end = bytes.length;
  while (end > 0 && bytes.readUInt32LE(end - LETTER) === 0) end -= LETTER;
  let text = "";
  for (let at = 0; at < end; at += LETTER) {
    const code = isBig ? bytes.readUInt32BE(at) : bytes.readUInt32LE(at);
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) throw new CodecError("bad_text");
    text += String.fromCodePoint(code);
  }
  return text;
}

function nested(texts: readonly string[], [length, ...inner]: readonly number[]): Texts {
  if (length === undefined) return texts[0] ?? "";
  const step = inner.reduce((product, size) => product * size, 1);
  return Array.from({ length }, (_, i) => nested(texts.slice(i * step, (i + 1) * step), inner));
}
