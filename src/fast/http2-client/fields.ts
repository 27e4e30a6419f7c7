/** The fields that the head and the trailers of an answer may have (RFC 9113 sections 8.2 and 8.3). */
import type { FieldReader } from "../http2-frames/hpack.ts";

/** The fields of a head or of trailers by their names; of two of a name, the first. */
export type HeaderFields = Readonly<Partial<Record<string, string>>>;

/** All fields together, each with what a table would count for it. */
const MOST_BYTES = 64 << 10;
const ENTRY_BYTES = 32;

const NAME = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/;
const BAD_VALUE = /[\0\r\n]/;
/** Fields of one HTTP/1 connection, which HTTP/2 forbids. */
const OF_CONNECTIONS = new Set(["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"]);

/** Why fields can't be taken. */
export type Objection = "malformed" | "too_large";

/** Reads a whole block: its fields, or what is wrong with them. A field of no sense in itself is left out. Throws a Fault, as FieldReader does. */
export function readFields(
  reader: FieldReader,
  block: Buffer,
): { fields: HeaderFields; objection: Objection | undefined } {
  const fields: Partial<Record<string, string>> = Object.create(null);
  let size = 0;
  let plain = false;
  let isMalformed = false;
  reader.read(block, (name, value) => {
    size += name.length + value.length + ENTRY_BYTES;
    if (size > MOST_BYTES || isMalformed) return;
    if (name.startsWith(":")) {
      isMalformed = plain || name !== ":status" || name in fields || !/^[1-9]\d\d$/.test(value);
    } else {
      plain = true;
      isMalformed = /[A-Z]/.test(name) || OF_CONNECTIONS.has(name);
      if (name in fields || !NAME.test(name) || BAD_VALUE.test(value)) return;
    }
    fields[name] = value;
  });
  if (size > MOST_BYTES) return { fields: {}, objection: "too_large" };
  return isMalformed ? { fields: {}, objection: "malformed" } : { fields, objection: undefined };
}
