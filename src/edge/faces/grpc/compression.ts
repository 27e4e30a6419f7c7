/** How the messages of a gRPC call are compressed, in both directions. */
import { promisify } from "node:util";
import { brotliCompress, brotliDecompress, gunzip, gzip } from "node:zlib";
import { Reason, refuse } from "../../../refusal.ts";
import type { Fields } from "../../port/http2/head.ts";
import { NotSpoken } from "./status.ts";

/** One encoding that is spoken here. */
export interface Coding {
  /** Its name in gRPC's headers. */
  readonly name: string;
  compress(bytes: Uint8Array): Promise<Buffer>;
  /** Refuses what is larger than `maxBytes` when it is unpacked, and what is not in this encoding. */
  decompress(bytes: Uint8Array, maxBytes: number): Promise<Buffer>;
}

type Unpack = (bytes: Uint8Array, options: { maxOutputLength: number }) => Promise<Buffer>;

const coding = (name: string, compress: Coding["compress"], unpack: Unpack): Coding => ({
  name,
  compress,
  async decompress(bytes, maxBytes) {
    if (bytes.length === 0) return Buffer.alloc(0);
    try {
      return await unpack(bytes, { maxOutputLength: maxBytes });
    } catch (thrown) {
      throw refusalOfZlib(thrown, maxBytes);
    }
  },
});

const CODINGS: readonly Coding[] = [
  coding("gzip", promisify<Uint8Array, Buffer>(gzip), promisify(gunzip) as Unpack),
  coding("br", promisify<Uint8Array, Buffer>(brotliCompress), promisify(brotliDecompress) as Unpack),
];

const known = (name: string): Coding | undefined => CODINGS.find((coding) => coding.name === name);

const NAMES = CODINGS.map(({ name }) => name).join(",");

/** What `grpc-accept-encoding` says to a caller who writes in an encoding that is not known; undefined to every other. */
export const encodingsFor = (encoding: string | null | undefined): string | undefined =>
  encoding === undefined || encoding === null || encoding === "identity" || known(encoding) ? undefined : NAMES;

/** The encoding of the request's messages; undefined where they are plain. Throws `NotSpoken` for one that is not known. */
export function requestCoding({ "grpc-encoding": encoding }: Fields): Coding | undefined {
  if (encoding === undefined || encoding === null || encoding === "identity") return undefined;
  const found = known(encoding);
  if (found === undefined) {
    throw new NotSpoken(`unknown compression "${encoding}": supported encodings are ${NAMES}`);
  }
  return found;
}

/** The first encoding that the caller reads, or else the one that he writes. */
export function responseCoding(headers: Fields): Coding | undefined {
  const { "grpc-accept-encoding": accepted, "grpc-encoding": encoding } = headers;
  if (accepted === undefined || accepted === "") return encoding === undefined ? undefined : known(encoding);
  for (const name of accepted.split(",")) {
    const found = known(name.trim());
    if (found !== undefined) return found;
  }
  return undefined;
}

const NOT_IN_IT = /^(?:Z_DATA_ERROR|ERR_PADDING_2|ERR__ERROR_FORMAT_)/;

function refusalOfZlib(thrown: unknown, maxBytes: number): unknown {
  const code = thrown instanceof Error && "code" in thrown ? String(thrown.code) : "";
  if (code === "ERR_BUFFER_TOO_LARGE") {
    const text = `message is larger than configured readMaxBytes ${maxBytes} after decompression`;
    return refuse(Reason.PAYLOAD_TOO_LARGE, text);
  }
  const text = NOT_IN_IT.test(code) ? "decompression failed" : "the message cannot be read";
  return refuse(Reason.MALFORMED_BODY, text, {}, { cause: thrown });
}

/** Puts what an answer says of encodings behind its other fields: its own, and those that are known to whoever wrote in another. */
export function nameCodings(fields: string[], coding: Coding | undefined, headers: Fields): void {
  if (coding) fields.push("grpc-encoding", coding.name);
  const known = encodingsFor(headers["grpc-encoding"]);
  if (known !== undefined) fields.push("grpc-accept-encoding", known);
}
