/**
 * LeRobot's remote-inference protocol, version 1: MessagePack envelopes with a type and four identities, around a body of maps, lists, tensors
 * and images. Source: huggingface/lerobot, src/lerobot/remote_inference/protocol.py and codec.py at 0c72316.
 */
import { CodecError } from "../error.ts";
import { decodeMsgpack, encodeMsgpack, type Packable, type Unpacked } from "./msgpack.ts";
import { type DType, NdArray } from "./ndarray.ts";

/** The supported version. */
export const REMOTE_VERSION = 1;

const TYPES = [
  "describe",
  "descriptor",
  "open",
  "accepted",
  "control",
  "ack",
  "observation",
  "action",
  "language_request",
  "language_result",
  "error",
] as const;

/** The message types. */
export type RemoteType = (typeof TYPES)[number];

/** Types that belong to a session: all of their identities are non-empty. */
const OF_SESSION: ReadonlySet<RemoteType> = new Set([
  "observation",
  "action",
  "language_request",
  "language_result",
  "control",
  "ack",
]);

/** Why a peer could not fulfill a request. */
export const REMOTE_ERRORS = [
  "unsupported",
  "malformed",
  "busy",
  "stale",
  "incompatible",
  "execution",
  "timeout",
  "protocol",
] as const;
export type RemoteErrorCode = (typeof REMOTE_ERRORS)[number];

/** An image [height, width, 3] of RGB bytes, raw or as a JPEG. */
export class RemotePicture {
  readonly height: number;
  readonly width: number;
  readonly encoding: "raw" | "jpeg";
  readonly data: Uint8Array;

  /** Throws CodecError `bad_shape` for sizes beyond the protocol's, and for a wrong number of raw bytes. */
  constructor(height: number, width: number, encoding: "raw" | "jpeg", data: Uint8Array) {
    if (!isDimension(height) || !isDimension(width) || height * width > LIMITS.pixels)
      throw new CodecError("bad_shape");
    if (encoding === "raw" && data.length !== 3 * height * width) throw new CodecError("bad_shape");
    this.height = height;
    this.width = width;
    this.encoding = encoding;
    this.data = data;
  }
}

/** A value of a body. Tensors contain only finite numbers and no empty axis. */
export type RemoteValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | NdArray
  | RemotePicture
  | readonly RemoteValue[]
  | ReadonlyMap<string, RemoteValue>
  | { readonly [key: string]: RemoteValue };

/** A map as read. */
export type RemoteMap = ReadonlyMap<string, RemoteValue>;

/** A message's envelope. */
export interface RemoteHeader {
  readonly type: RemoteType;
  /** Identifies one start of a server; empty before it is known. */
  readonly instance: string;
  readonly session: string;
  /** The generation of the episode, increased by each reset. From 0 to 2^63 - 1; a bigint beyond 2^53. */
  readonly generation: number | bigint;
  readonly request: string;
}

/** One message. */
export interface RemoteMessage extends RemoteHeader {
  readonly body: RemoteMap;
}

/** The protocol's limits per message, which both sides enforce. */
const LIMITS = {
  bytes: 32 << 20,
  decoded: 64 << 20,
  tensor: 32 << 20,
  pixels: 4_096 * 4_096,
  dimension: 16_384,
  rank: 8,
  text: 16_384,
  items: 4_096,
  nodes: 32_768,
  depth: 16,
} as const;

/** The envelope and the maximum body depth. */
const UNPACK = { maxBytes: LIMITS.bytes, maxDepth: LIMITS.depth + 2, maxValues: LIMITS.nodes };

const MARKER = "__lerobot_type__";

const DTYPES: Readonly<Record<string, readonly [little: DType, big: DType]>> = {
  bool: ["|b1", "|b1"],
  uint8: ["|u1", "|u1"],
  int8: ["|i1", "|i1"],
  uint16: ["<u2", ">u2"],
  int16: ["<i2", ">i2"],
  uint32: ["<u4", ">u4"],
  int32: ["<i4", ">i4"],
  uint64: ["<u8", ">u8"],
  int64: ["<i8", ">i8"],
  float16: ["<f2", ">f2"],
  float32: ["<f4", ">f4"],
  float64: ["<f8", ">f8"],
};
const NAMES: ReadonlyMap<DType, string> = new Map(
  Object.entries(DTYPES).flatMap(([name, [little, big]]) => [[little, name] as const, [big, name] as const]),
);

/** The protocol's name of an element type, such as `float32`. */
export const remoteTypeOf = ({ dtype }: NdArray): string => NAMES.get(dtype)!; // every supported numpy type has a name

/** Writes a message. Throws CodecError as `encodeMsgpack` does, `too_large` above 32 MiB, and `malformed` for non-finite numbers. */
export function encodeRemote(
  header: RemoteHeader,
  body: RemoteMap | { readonly [key: string]: RemoteValue } = {},
): Buffer {
  const bytes = encodeMsgpack<NdArray | RemotePicture>(
    {
      version: REMOTE_VERSION,
      message_type: header.type,
      instance_id: header.instance,
      session_id: header.session,
      generation: header.generation,
      request_id: header.request,
      body,
    },
    recordOf,
  );
  if (bytes.length > LIMITS.bytes) throw new CodecError("too_large");
  return bytes;
}

/** Reads a message's envelope without its tensors and images. Throws CodecError. */
export const peekRemote = (bytes: Uint8Array): RemoteHeader => envelopeOf(bytes).header;

/**
 * Reads one message; tensors and images are views of `bytes`. Throws CodecError: `unsupported` for another version, `malformed` for an invalid
 * envelope, identities that are not a single key segment, and non-finite numbers; the reasons of `decodeMsgpack`; `bad_dtype`, `bad_shape`,
 * `bad_ndarray`, `too_deep`, `too_many_values`, `too_large` beyond the protocol's limits.
 */
export function decodeRemote(bytes: Uint8Array): RemoteMessage {
  const { header, body } = envelopeOf(bytes);
  if (!(body instanceof Map)) throw new CodecError("malformed");
  const read = new BodyReader().read(body, 0);
  if (!(read instanceof Map)) throw new CodecError("malformed");
  return { ...header, body: read };
}

const SEGMENT = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;

/** Whether a name is valid in a deployment's address. */
export const isSegment = (name: string): boolean => SEGMENT.test(name);

const isType = (value: unknown): value is RemoteType => TYPES.some((type) => type === value);

function envelopeOf(bytes: Uint8Array): { header: RemoteHeader; body: Unpacked } {
  const record = decodeMsgpack(bytes, undefined, UNPACK);
  if (!(record instanceof Map)) throw new CodecError("malformed");
  const version = record.get("version");
  if (version !== REMOTE_VERSION) throw new CodecError(typeof version === "number" ? "unsupported" : "malformed");
  const type = record.get("message_type");
  const generation = record.get("generation");
  if (!isType(type) || !isGeneration(generation) || !record.has("body")) throw new CodecError("malformed");
  const [instance, session, request] = ["instance_id", "session_id", "request_id"].map((key) => {
    const value = record.get(key);
    if (typeof value !== "string" || (value !== "" && !isSegment(value))) throw new CodecError("malformed");
    return value;
  }) as [string, string, string]; // as many values as keys
  if (OF_SESSION.has(type) && (instance === "" || session === "" || request === "")) throw new CodecError("malformed");
  return { header: { type, instance, session, generation, request }, body: record.get("body") ?? null };
}

const isGeneration = (value: unknown): value is number | bigint =>
  typeof value === "bigint" ? value >= 0n && value < 2n ** 63n : Number.isSafeInteger(value) && Number(value) >= 0;

/** Traverses a body within the protocol's limits. */
class BodyReader {
  #nodes = 0;
  #decoded = 0;

  read(value: Unpacked, depth: number): RemoteValue {
    this.#nodes += 1;
    if (this.#nodes > LIMITS.nodes) throw new CodecError("too_many_values");
    if (depth > LIMITS.depth) throw new CodecError("too_deep");
    if (typeof value === "number" && !Number.isFinite(value)) throw new CodecError("malformed");
    if (typeof value === "string" && Buffer.byteLength(value) > LIMITS.text) throw new CodecError("too_large");
    if (Array.isArray(value)) {
      if (value.length > LIMITS.items) throw new CodecError("too_many_values");
      return value.map((item) => this.read(item, depth + 1));
    }
    if (!(value instanceof Map)) return value;
    if (value.size > LIMITS.items) throw new CodecError("too_many_values");
    const marker = value.get(MARKER);
    if (marker === "tensor") return this.#tensor(value);
    if (marker === "rgb") return this.#picture(value);
    if (marker !== undefined) throw new CodecError("bad_ndarray");
    return new Map([...value].map(([key, item]) => [key, this.read(item, depth + 1)]));
  }

  #tensor(record: Map<string, Unpacked>): NdArray {
    const [dtype, endian, data] = [record.get("dtype"), record.get("endianness"), record.get("data")];
    const pair = typeof dtype === "string" && Object.hasOwn(DTYPES, dtype) ? DTYPES[dtype] : undefined;
    if (pair === undefined || (endian !== "little" && endian !== "big")) throw new CodecError("bad_dtype");
    if (!Buffer.isBuffer(data)) throw new CodecError("bad_ndarray");
    if (data.length > LIMITS.tensor) throw new CodecError("too_large");
    this.#take(data.length);
    const tensor = new NdArray(pair[endian === "little" ? 0 : 1], shapeIn(record.get("shape")), data);
    mustBeFinite(tensor);
    return tensor;
  }

  #picture(record: Map<string, Unpacked>): RemotePicture {
    const [height, width, channels, ...more] = shapeIn(record.get("shape"));
    const [encoding, data] = [record.get("encoding"), record.get("data")];
    if (record.get("dtype") !== "uint8" || record.get("channel_order") !== "RGB") throw new CodecError("bad_dtype");
    if (encoding !== "raw" && encoding !== "jpeg") throw new CodecError("unsupported");
    if (!Buffer.isBuffer(data)) throw new CodecError("bad_ndarray");
    if (height === undefined || width === undefined || channels !== 3 || more.length > 0)
      throw new CodecError("bad_shape");
    const picture = new RemotePicture(height, width, encoding, data);
    this.#take(3 * height * width);
    return picture;
  }

  #take(bytes: number): void {
    this.#decoded += bytes;
    if (this.#decoded > LIMITS.decoded) throw new CodecError("too_large");
  }
}

function shapeIn(value: Unpacked | undefined): number[] {
  if (Array.isArray(value) && value.length <= LIMITS.rank && value.every(isDimension)) return value;
  throw new CodecError("bad_shape");
}

const isDimension = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) > 0 && Number(value) <= LIMITS.dimension;

function mustBeFinite(array: NdArray): void {
  if (array.dtype[1] === "f" && !array.toFloat64().every(Number.isFinite)) throw new CodecError("malformed");
}

function recordOf(value: NdArray | RemotePicture): Packable {
  if (value instanceof RemotePicture) {
    const { height, width, encoding, data } = value;
    const shape = [height, width, 3];
    return { [MARKER]: "rgb", encoding, shape, dtype: "uint8", channel_order: "RGB", data };
  }
  mustBeFinite(value);
  const endianness = value.dtype.startsWith(">") ? "big" : "little";
  return { [MARKER]: "tensor", dtype: remoteTypeOf(value), shape: value.shape, endianness, data: value.data };
}
