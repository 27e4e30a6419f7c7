/** What a server of the protocol answers over HTTP. */
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { DTYPES, type ModelMetadata, type Tensor, type TensorMetadata, WRITES } from "../oip/tensors.ts";
import { malformed, ownerText } from "../transport/failures.ts";
import { isObject, readJson } from "../transport/http.ts";

const MAX_TENSORS = 256;
const MAX_RANK = 16;

/** Reads a model's metadata. Throws an UpstreamFailure. */
export function readMetadata(body: Buffer): ModelMetadata {
  const answer = readJson(body);
  if (!isObject(answer)) throw malformed("the model's metadata are not an object");
  return { inputs: tensorsIn(answer.inputs), outputs: tensorsIn(answer.outputs) };
}

const tensorsIn = (list: unknown): TensorMetadata[] => listIn(list).map(headOf);

function listIn(list: unknown): unknown[] {
  if (!Array.isArray(list) || list.length > MAX_TENSORS) throw malformed("there is no list of tensors");
  return list;
}

function headOf(tensor: unknown): TensorMetadata {
  const { name, datatype, shape } = isObject(tensor) ? tensor : {};
  if (typeof name !== "string" || typeof datatype !== "string" || !Array.isArray(shape) || shape.length > MAX_RANK)
    throw malformed("a tensor without name, datatype or shape");
  // Some servers write sizes as texts, as protobuf's JSON has 64-bit integers.
  const sizes = shape.map(Number);
  if (!sizes.every((size) => Number.isSafeInteger(size) && size >= -1)) throw malformed("a tensor of no shape");
  return { name, datatype, shape: sizes };
}

/** The outputs of one inference; raw tensors begin after `jsonBytes`, which a header gives. Throws an UpstreamFailure. */
export function readInfer(body: Buffer, id: string, jsonBytes: number | undefined): Tensor[] {
  if (jsonBytes !== undefined && !(jsonBytes >= 0 && jsonBytes <= body.length))
    throw malformed("a header beyond the body");
  const answer = readJson(jsonBytes === undefined ? body : body.subarray(0, jsonBytes));
  if (!isObject(answer)) throw malformed("the answer is not an object");
  if (typeof answer.error === "string")
    throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, ownerText(answer.error));
  if (typeof answer.id === "string" && answer.id !== "" && answer.id !== id)
    throw malformed("the answer is to another request");
  let at = jsonBytes ?? body.length;
  return listIn(answer.outputs).map((output) => {
    const head = headOf(output);
    const { data, parameters } = output as Record<string, unknown>; // headOf has looked
    const size = isObject(parameters) ? parameters.binary_data_size : undefined;
    if (size === undefined) return { ...head, data: dataOf(head, data) };
    if (typeof size !== "number" || !(size >= 0 && at + size <= body.length))
      throw malformed("raw bytes beyond the body");
    at += size;
    return { ...head, data: body.subarray(at - size, at) };
  });
}

/** Numbers of a JSON list, flat or nested like its shape, in the bytes of their type. */
function dataOf({ datatype, shape }: TensorMetadata, data: unknown): Uint8Array | Buffer[] {
  if (!Array.isArray(data)) throw malformed("an output without data");
  const flat: unknown[] = data.some(Array.isArray) ? data.flat(MAX_RANK) : data;
  const count = shape.reduce((product, size) => product * size, 1);
  if (flat.length !== count) throw malformed(`an output of shape [${shape}] with ${flat.length} elements`);
  if (datatype === "BYTES") return flat.map((each) => Buffer.from(String(each)));
  const write = datatype === "FP16" ? WRITE_FP16 : WRITES[datatype];
  if (DTYPES[datatype] === undefined || write === undefined) throw malformed("an output of a type that can't be read");
  if (!flat.every((each) => typeof each === "number" || typeof each === "boolean"))
    throw malformed("an element is no number");
  return new Uint8Array(write(flat.map(Number)));
}

/** JSON has a number for each; over gRPC they travel raw alone. */
const WRITE_FP16 = (values: readonly number[]): ArrayBuffer => Float16Array.from(values).buffer;
