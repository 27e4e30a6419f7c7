/** What a request begins with: the fields of its head, and whether they are of the plainest form (RFC 9113 section 8.3). */
import { type Field, FieldReader } from "../http2-frames/hpack.ts";
import { ownBytes } from "../slab.ts";
import type { CallTaker, FindTaker } from "./call.ts";

/** The fields of a plain head by their names. */
export type HeadFields = Readonly<Partial<Record<string, string>>>;

/** A plain head of a call that has a taker. */
export interface PlainHead {
  readonly named: HeadFields;
  readonly taker: CallTaker;
  /** The bytes that the body has to have; undefined where its length is not named. */
  readonly bodyBytes: number | undefined;
}

/** A head that was read. */
export interface RequestHead {
  /** As they came. */
  readonly fields: readonly Field[];
  /** They are more than is read of any head. */
  readonly isTooLarge: boolean;
  /** By their names, where the head is plain and such calls have a taker. */
  readonly plain: PlainHead | undefined;
}

const ENTRY_BYTES = 32;
/** More is not even refused in words. */
const MOST_BYTES = 64 << 10;
/** Longer blocks are not remembered. */
const MOST_REMEMBERED = 2 << 10;

const NAME = /^:?[!#$%&'*+\-.^_`|~0-9a-z]+$/;
const BAD_VALUE = /[\0\r\n]|^[ \t]|[ \t]$/;
const PSEUDO = new Set([":method", ":path", ":scheme", ":authority"]);
/** Fields about the connection are not plain. */
const ODD = new Set(["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "expect", "host"]);
const LENGTH = /^\d{1,15}$/;

const NOTHING: Buffer = Buffer.alloc(0);

/** Reads the heads of one connection. */
export class HeadReader {
  readonly #reader = new FieldReader();
  readonly #find: FindTaker;
  readonly #mostPlain: number;
  /** A robot's calls begin alike: a block that is the last one again, with the same table, is not read again. */
  #lastBlock = NOTHING;
  #lastChanges = -1;
  #last: RequestHead | undefined;

  /** A head of more than `mostPlain` bytes is not plain. */
  constructor(find: FindTaker, mostPlain: number) {
    this.#find = find;
    this.#mostPlain = mostPlain;
  }

  /** Reads a whole block. Throws a Fault for one that can't be read. */
  read(block: Buffer): RequestHead {
    const { changes } = this.#reader;
    if (this.#last !== undefined && changes === this.#lastChanges && block.equals(this.#lastBlock)) return this.#last;
    const fields: Field[] = [];
    let size = 0;
    this.#reader.read(block, (name, value) => {
      size += name.length + value.length + ENTRY_BYTES;
      if (size <= MOST_BYTES) fields.push([name, value]);
    });
    const head: RequestHead = {
      fields,
      isTooLarge: size > MOST_BYTES,
      plain: size > this.#mostPlain ? undefined : plainOf(fields, this.#find),
    };
    if (this.#reader.changes === changes && block.length <= MOST_REMEMBERED) {
      this.#lastBlock = ownBytes(block);
      this.#lastChanges = changes;
      this.#last = head;
    }
    return head;
  }
}

function plainOf(fields: readonly Field[], find: FindTaker): PlainHead | undefined {
  const named: Partial<Record<string, string>> = Object.create(null);
  let regular = false;
  for (const [name, value] of fields) {
    const isPseudo = name.startsWith(":");
    if (isPseudo ? regular || !PSEUDO.has(name) : ODD.has(name)) return undefined;
    if (name in named || !NAME.test(name) || BAD_VALUE.test(value)) return undefined;
    regular = !isPseudo;
    named[name] = value;
  }
  if (named[":method"] === undefined || named[":scheme"] === undefined) return undefined;
  if (named.te !== undefined && named.te !== "trailers") return undefined;
  const { "content-length": length } = named;
  if (length !== undefined && !LENGTH.test(length)) return undefined;
  const taker = find(named);
  return taker && { named, taker, bodyBytes: length === undefined ? undefined : Number(length) };
}
