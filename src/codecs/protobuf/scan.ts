/** Walks over the bytes of a protobuf message without building an object, for messages that are passed on as bytes. */

/** The first exponent of a double that stands for NaN or an infinity. */
const NOT_FINITE = 0x7ff;

/** A position in a message. Values that cannot be read are -1 or false. */
export class Scan {
  readonly bytes: Buffer;
  at = 0;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  /** Reads an unsigned number below 2^32; -1 if it is larger or incomplete. */
  varint(): number {
    const { bytes } = this;
    let byte = bytes[this.at++]!;
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    for (let weight = 0x80; weight <= 0x10000000; weight *= 0x80) {
      byte = bytes[this.at++]!;
      value += (byte & 0x7f) * weight;
      if (byte < 0x80) return value <= 0xffffffff ? value : -1;
    }
    return -1;
  }

  /** Whether a field of `length` bytes ends at `end` or before. */
  within(length: number, end: number): boolean {
    return length >= 0 && this.at + length <= end;
  }

  /** Skips packed doubles and returns their number; -1 if they are cut, or if the exponent of one is `limit` or more. */
  doubles(end: number, limit = NOT_FINITE): number {
    const length = this.varint();
    if (!this.within(length, end) || (length & 7) !== 0) return -1;
    const from = this.at;
    this.at += length;
    return areFinite(this.bytes, from, this.at, limit) ? length >> 3 : -1;
  }

  /** Skips one double; false if it is cut or not finite. */
  double(end: number): boolean {
    const from = this.at;
    this.at += 8;
    return this.at <= end && areFinite(this.bytes, from, this.at);
  }
}

/** Whether the exponents of the doubles between two positions are below `limit`. */
export function areFinite(bytes: Buffer, from: number, to: number, limit = NOT_FINITE): boolean {
  for (let i = from + 7; i < to; i += 8) if ((((bytes[i]! & 0x7f) << 4) | (bytes[i - 1]! >> 4)) >= limit) return false;
  return true;
}
