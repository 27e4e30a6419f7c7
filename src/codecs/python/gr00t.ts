/**
 * The messages of Isaac-GR00T's inference service: MessagePack with arrays inside, in the codecs of N1.5 to N1.7. Written as npy
 * files, which every generation reads. Source: NVIDIA/Isaac-GR00T, gr00t/policy/server_client.py and its predecessors.
 */
import { CodecError } from "../error.ts";
import {
  decodeMsgpack,
  encodeMsgpack,
  type Packable,
  type Unpacked,
  type UnpackedMap,
  type UnpackLimits,
} from "./msgpack.ts";
import { isDType, NdArray } from "./ndarray.ts";
import { readNpy, writeNpy } from "./npy.ts";

type Gr00tWireValue = Unpacked<NdArray>;

/** The value of a message. Throws CodecError. */
export const decodeGr00t = (bytes: Buffer, limits?: UnpackLimits): Gr00tWireValue =>
  decodeMsgpack<NdArray>(bytes, revive, limits);

/** A value as a message. */
export const encodeGr00t = (value: Packable<NdArray>): Buffer => encodeMsgpack(value, toNpy);

const toNpy = (array: NdArray): Packable =>
  new Map<string, Packable>([
    ["__ndarray_class__", true],
    ["as_npy", writeNpy(array)],
  ]);

/** Arrays as npy files (N1.5, N1.6) or as msgpack_numpy writes them (N1.7). */
function revive(map: UnpackedMap<NdArray>): Gr00tWireValue {
  if (map.get("__ndarray_class__") === true) {
    const file = map.get("as_npy");
    if (!Buffer.isBuffer(file)) throw new CodecError("bad_ndarray");
    return readNpy(file);
  }
  return map.has("nd") && map.has("type") ? numpyOf(map) : map;
}

function numpyOf(map: UnpackedMap<NdArray>): NdArray {
  const [isArray, dtype, data] = [map.get("nd"), map.get("type"), map.get("data")];
  if (!Buffer.isBuffer(data)) throw new CodecError("bad_ndarray");
  if (!isDType(dtype)) throw new CodecError("bad_dtype");
  const shape = isArray === true ? map.get("shape") : [];
  if (!Array.isArray(shape) || !shape.every((size) => typeof size === "number")) throw new CodecError("bad_shape");
  return new NdArray(dtype, shape, data);
}
