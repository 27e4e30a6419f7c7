/**
 * The messages of Isaac-GR00T's inference service: MessagePack with arrays as npy files (N1.5, N1.6, the first release of N1.7) or as
 * msgpack_numpy maps (N1.7 from 2026-05-07 on, some versions of which read no npy). Sources: NVIDIA/Isaac-GR00T, gr00t/policy/server_client.py
 * and its predecessors; lebedov/msgpack-numpy.
 */
import { CodecError } from "../error.ts";
import {
  decodeMsgpack,
  encodeMsgpack,
  type MsgpackBudget,
  type Packable,
  type Unpacked,
  type UnpackedMap,
  type UnpackLimits,
} from "./msgpack.ts";
import { fromMsgpackNumpy, isMsgpackNumpy, type NdArray, readNpy, writeNpy } from "./ndarray.ts";

type Gr00tWireValue = Unpacked<NdArray>;

/** The array format: npy files or msgpack_numpy maps. */
export type Gr00tArrays = "npy" | "numpy";

/** Reads a message. Throws CodecError. */
export const decodeGr00t = (bytes: Buffer, limits?: UnpackLimits): Gr00tWireValue => readGr00t(bytes, limits).value;

/** Reads a message with its array format; undefined without arrays. Throws CodecError. */
export function readGr00t(
  bytes: Buffer,
  limits?: UnpackLimits,
): { value: Gr00tWireValue; arrays: Gr00tArrays | undefined } {
  let arrays: Gr00tArrays | undefined;
  const revive = (map: UnpackedMap<NdArray>): Gr00tWireValue => {
    if (map.get("__ndarray_class__") === true) {
      const file = map.get("as_npy");
      if (!Buffer.isBuffer(file)) throw new CodecError("bad_ndarray");
      arrays = "npy";
      return readNpy(file);
    }
    if (!isMsgpackNumpy(map)) return map;
    arrays = "numpy";
    return fromMsgpackNumpy(map);
  };
  return { value: decodeMsgpack<NdArray>(bytes, revive, limits), arrays };
}

/** Writes a message, with arrays as npy files by default. */
export const encodeGr00t = (value: Packable<NdArray>, arrays: Gr00tArrays = "npy", room?: MsgpackBudget): Buffer =>
  encodeMsgpack(value, arrays === "npy" ? toNpy : toNumpy, room);

const toNpy = (array: NdArray): Packable =>
  new Map<string, Packable>([
    ["__ndarray_class__", true],
    ["as_npy", writeNpy(array)],
  ]);

/** Its keys are bytes, and its kind is empty: no structured type. */
const NUMPY = {
  nd: Buffer.from("nd"),
  type: Buffer.from("type"),
  kind: Buffer.from("kind"),
  shape: Buffer.from("shape"),
  data: Buffer.from("data"),
} as const;

const toNumpy = ({ dtype, shape, data }: NdArray): Packable =>
  new Map<Uint8Array, Packable>([
    [NUMPY.nd, true],
    [NUMPY.type, dtype],
    [NUMPY.kind, Buffer.alloc(0)],
    [NUMPY.shape, shape],
    [NUMPY.data, data],
  ]);
