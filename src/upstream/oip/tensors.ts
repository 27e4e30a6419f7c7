/** Tensors of the Open Inference Protocol, version 2. Source: kserve/open-inference-protocol, specification/protocol. */
import { type DType, NdArray } from "../../codecs/python/ndarray.ts";
import { malformed } from "../transport/failures.ts";

/** A named array. Bytes are little-endian and row-major; texts and files are BYTES. */
export interface Tensor {
  readonly name: string;
  readonly datatype: string;
  readonly shape: readonly number[];
  /** Numbers, or the elements of a BYTES tensor. */
  readonly data: Uint8Array | readonly Buffer[];
}

/** One of a model's inputs or outputs in its metadata; -1 stands for any size. */
export interface TensorMetadata {
  readonly name: string;
  readonly datatype: string;
  readonly shape: readonly number[];
}

/** A model's metadata. */
export interface ModelMetadata {
  readonly inputs: readonly TensorMetadata[];
  readonly outputs: readonly TensorMetadata[];
}

/** The protocol's name of each element type that we read. BF16 isn't among them. */
export const DTYPES: Readonly<Record<string, DType>> = {
  BOOL: "|b1",
  UINT8: "|u1",
  INT8: "|i1",
  UINT16: "<u2",
  INT16: "<i2",
  UINT32: "<u4",
  INT32: "<i4",
  UINT64: "<u8",
  INT64: "<i8",
  FP16: "<f2",
  FP32: "<f4",
  FP64: "<f8",
};

/** Numbers as the bytes of a tensor, for element types whose numbers travel one by one. Those of 64 bits do not: no number of JavaScript has all of them. */
export const WRITES: Readonly<Record<string, (values: readonly number[]) => ArrayBuffer>> = {
  BOOL: (values) => Uint8Array.from(values).buffer,
  UINT8: (values) => Uint8Array.from(values).buffer,
  INT8: (values) => Int8Array.from(values).buffer,
  UINT16: (values) => Uint16Array.from(values).buffer,
  INT16: (values) => Int16Array.from(values).buffer,
  UINT32: (values) => Uint32Array.from(values).buffer,
  INT32: (values) => Int32Array.from(values).buffer,
  FP32: (values) => Float32Array.from(values).buffer,
  FP64: (values) => Float64Array.from(values).buffer,
};

/** A tensor of numbers as an array. Throws an UpstreamFailure for texts and unknown element types; CodecError where shape and bytes differ. */
export function arrayOfTensor({ name, datatype, shape, data }: Tensor): NdArray {
  const dtype = DTYPES[datatype];
  if (dtype === undefined || !(data instanceof Uint8Array))
    throw malformed(`the output ${name} is of type ${datatype.slice(0, 20)}`);
  return new NdArray(dtype, shape, data);
}

/** Elements of a BYTES tensor as they travel raw: each behind its length in four bytes. */
export function rawBytes(elements: readonly Buffer[]): Buffer {
  const pieces = elements.flatMap((element) => {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(element.length);
    return [length, element];
  });
  return Buffer.concat(pieces);
}
