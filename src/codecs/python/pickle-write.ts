/** Writes pickles of protocol 4, as CPython's own unpickler reads them. Source: CPython, Lib/pickletools.py. */
import { CodecError } from "../error.ts";

/** A value that can be written: plain values, tuples, and named objects with arguments or fields. */
export type Picklable =
  | null
  | boolean
  | number
  | string
  | PyFloat
  | Uint8Array
  | readonly Picklable[]
  | ReadonlyMap<string, Picklable>
  | { readonly tuple: readonly Picklable[] }
  | { readonly call: readonly [module: string, name: string]; readonly args: readonly Picklable[] }
  | { readonly instance: readonly [module: string, name: string]; readonly fields: ReadonlyMap<string, Picklable> };

/** Writes one pickle of protocol 4. Whole numbers become int unless they are a PyFloat. */
export function writePickle(value: Picklable): Buffer {
  const pieces: Uint8Array[] = [Buffer.of(0x80, 4)];
  write(value, pieces);
  pieces.push(Buffer.of(0x2e));
  return Buffer.concat(pieces);
}

/** A number that becomes a Python float, whole or not. */
export class PyFloat {
  readonly value: number;

  constructor(value: number | undefined) {
    this.value = value ?? 0;
  }
}

function write(value: Picklable, out: Uint8Array[]): void {
  if (value === null) out.push(Buffer.of(0x4e));
  else if (value instanceof PyFloat) writeFloat(value.value, out);
  else if (typeof value === "boolean") out.push(Buffer.of(value ? 0x88 : 0x89));
  else if (typeof value === "number") writeNumber(value, out);
  else if (typeof value === "string") writeText(value, out);
  else if (value instanceof Uint8Array) out.push(sized(0x42, value.length), value);
  else if (Array.isArray(value)) writeMany(value, 0x5d, 0x65, out);
  else if (value instanceof Map) writeMany([...value].flat(), 0x7d, 0x75, out);
  else if ("tuple" in value) writeTuple(value.tuple, out);
  else if ("call" in value) {
    writeGlobal(value.call, out);
    writeTuple(value.args, out);
    out.push(Buffer.of(0x52));
  } else if ("instance" in value) {
    writeGlobal(value.instance, out);
    out.push(Buffer.of(0x29, 0x81));
    write(value.fields, out);
    out.push(Buffer.of(0x62));
  } else throw new CodecError("unsupported");
}

function writeMany(items: readonly Picklable[], empty: number, all: number, out: Uint8Array[]): void {
  out.push(Buffer.of(empty, 0x28));
  for (const item of items) write(item, out);
  out.push(Buffer.of(all));
}

function writeTuple(items: readonly Picklable[], out: Uint8Array[]): void {
  out.push(Buffer.of(0x28));
  for (const item of items) write(item, out);
  out.push(Buffer.of(0x74));
}

function writeGlobal([module, name]: readonly [string, string], out: Uint8Array[]): void {
  writeText(module, out);
  writeText(name, out);
  out.push(Buffer.of(0x93));
}

function writeText(text: string, out: Uint8Array[]): void {
  const bytes = Buffer.from(text);
  out.push(sized(0x58, bytes.length), bytes);
}

function writeNumber(value: number, out: Uint8Array[]): void {
  if (!Number.isInteger(value) || Math.abs(value) >= 2 ** 31) {
    writeFloat(value, out);
    return;
  }
  const bytes = Buffer.alloc(5, 0x4a);
  bytes.writeInt32LE(value, 1);
  out.push(bytes);
}

function writeFloat(value: number, out: Uint8Array[]): void {
  const bytes = Buffer.alloc(9, 0x47);
  bytes.writeDoubleBE(value, 1);
  out.push(bytes);
}

function sized(op: number, length: number): Buffer {
  const bytes = Buffer.alloc(5, op);
  bytes.writeUInt32LE(length, 1);
  return bytes;
}
