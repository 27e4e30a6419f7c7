/** How the messages of a gRPC call are compressed, in both directions. */
import type { Transform } from "node:stream";
import { promisify } from "node:util";
import { brotliCompress, createBrotliDecompress, createGunzip, gzip } from "node:zlib";
import { Reason, type Refusal, refuse } from "../../../errors.ts";
import { tooLarge } from "../../messages/bounds.ts";
import type { HeadFields } from "./call-stream.ts";
import { NotSpoken } from "./status.ts";

/** One encoding that is spoken here. */
export interface Coding {
  /** Its name in gRPC's headers. */
  readonly name: string;
  compress(bytes: Uint8Array): Promise<Buffer<ArrayBuffer>>;
  /**
   * Refuses what is not in this encoding, and what is larger than `maxBytes` when it is unpacked: at the byte that is too many. `grown`
   * receives the number so far, and may throw to end it. The event loop is left to others between the pieces.
   */
  decompress(bytes: Uint8Array, maxBytes: number, grown?: (bytes: number) => void): Promise<Buffer<ArrayBuffer>>;
}

/** So much is unpacked at once. */
const PIECE_BYTES = 64 << 10;

type Compress = (bytes: Uint8Array) => Promise<Buffer<ArrayBuffer>>;

const coding = (name: string, compress: Compress, unpacker: () => Transform): Coding => ({
  name,
  compress,
  decompress: (bytes, maxBytes, grown) =>
    bytes.length === 0 ? Promise.resolve(Buffer.alloc(0)) : unpacked(unpacker(), bytes, maxBytes, grown),
});

function unpacked(
  unpacker: Transform,
  bytes: Uint8Array,
  maxBytes: number,
  grown: (bytes: number) => void = () => undefined,
): Promise<Buffer<ArrayBuffer>> {
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = [];
    let size = 0;
    unpacker.on("data", (piece: Buffer) => {
      size += piece.length;
      try {
        if (size > maxBytes) throw tooLarge(maxBytes);
        grown(size);
        pieces.push(piece);
      } catch (thrown) {
        pieces.length = 0;
        unpacker.destroy();
        reject(thrown);
      }
    });
    unpacker.once("end", () => resolve(Buffer.concat(pieces, size)));
    unpacker.on("error", (error) => reject(refusalOfZlib(error)));
    unpacker.end(bytes);
  });
}

/** Every encoding that is spoken here. */
export const CODINGS: readonly Coding[] = [
  coding("gzip", promisify(gzip) as Compress, () => createGunzip({ chunkSize: PIECE_BYTES })),
  coding("br", promisify(brotliCompress) as Compress, () => createBrotliDecompress({ chunkSize: PIECE_BYTES })),
];

/** The encoding with this name; undefined if unknown. */
export const codingOf = (name: string): Coding | undefined => CODINGS.find((coding) => coding.name === name);

/** The names of all of them. */
const NAMES = CODINGS.map(({ name }) => name).join(",");

/** What `grpc-accept-encoding` says to a caller who writes in an encoding that is not known; undefined to every other. */
export const encodingsFor = (encoding: string | null | undefined): string | undefined =>
  encoding === undefined || encoding === null || encoding === "identity" || codingOf(encoding) ? undefined : NAMES;

const NOT_IN_IT = /^(?:Z_DATA_ERROR|ERR_PADDING_2|ERR__ERROR_FORMAT_)/;

function refusalOfZlib(error: Error): Refusal {
  const code = "code" in error ? String(error.code) : "";
  const text = NOT_IN_IT.test(code) ? "decompression failed" : "the message cannot be decoded";
  return refuse(Reason.MALFORMED_BODY, text, {}, { cause: error });
}

/** The encoding of the request's messages; undefined where they are plain. Throws `NotSpoken` for one that is not known. */
export function requestCoding({ "grpc-encoding": encoding }: HeadFields): Coding | undefined {
  if (encoding === undefined || encoding === null || encoding === "identity") return undefined;
  const found = codingOf(encoding);
  if (found === undefined) {
    throw new NotSpoken(`unknown compression "${encoding}": supported encodings are ${NAMES}`);
  }
  return found;
}

/** The first known encoding that the caller reads, or else the one that it writes. */
export function responseCoding(headers: HeadFields): Coding | undefined {
  const { "grpc-accept-encoding": accepted, "grpc-encoding": encoding } = headers;
  if (accepted === undefined || accepted === "") return encoding === undefined ? undefined : codingOf(encoding);
  for (const name of accepted.split(",")) {
    const found = codingOf(name.trim());
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Adds what an answer says of encodings to its fields: its own, and the known ones where the caller wrote in another. */
export function nameCodings(fields: string[], coding: Coding | undefined, headers: HeadFields): void {
  if (coding) fields.push("grpc-encoding", coding.name);
  const known = encodingsFor(headers["grpc-encoding"]);
  if (known !== undefined) fields.push("grpc-accept-encoding", known);
}
