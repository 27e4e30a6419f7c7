/** The Open Inference Protocol, version 2, over HTTP: KServe, Triton and others. */
import { AttemptFailure, UpstreamFailure } from "../contracts/contract.ts";
import {
  arrayOfTensor,
  type InferRequest,
  type ModelMetadata,
  type OipModelName,
  type OipTransport,
  oipWire,
  rawBytes,
  type Tensor,
  type TensorMetadata,
  WRITES,
} from "./oip.ts";
import { malformed, ownerText } from "./transport/failures.ts";
import { HTTP_SCHEMES, type HttpServer, HttpServers, isObject, readJson } from "./transport/http.ts";
import type { ServerReach } from "./transport/servers.ts";
import type { UpstreamTarget, Wire } from "./wire.ts";

/** Opens the wire; connections are made on first use. */
export const oipV2Rest = (reach: ServerReach): Wire =>
  oipWire("oip-v2-rest", Object.keys(HTTP_SCHEMES), restTransport(reach));

const LENGTH_HEADER = "inference-header-content-length";
const MAX_SERVERS = 1_024;
/** The paths that owners may have pasted with the address. */
const OPERATIONS = ["", "/infer", "/ready"]
  .flatMap((verb) => [`/v2/models/*${verb}`, `/v2/models/*/versions/*${verb}`])
  .concat("/v2/health/ready");

/** The protocol over HTTP/1.1; tensors are sent as raw bytes to servers that list the extension `binary_tensor_data`. */
function restTransport(reach: ServerReach): OipTransport {
  const servers = new HttpServers(reach, OPERATIONS);
  /** Whether each server reads raw tensors. */
  const binary = new Map<string, boolean>();

  const readsBinary = async ({ endpoint }: UpstreamTarget, server: HttpServer): Promise<boolean> => {
    const known = binary.get(endpoint);
    if (known !== undefined) return known;
    const about = readJson(await server.get("/v2"));
    const reads = isObject(about) && Array.isArray(about.extensions) && about.extensions.includes("binary_tensor_data");
    if (binary.size >= MAX_SERVERS) binary.clear();
    binary.set(endpoint, reads);
    return reads;
  };

  return {
    async serverReady(target, call) {
      await servers.at(target, call).get("/v2/health/ready");
    },
    async modelReady(target, model, call) {
      const body = await servers.at(target, call).get(`${pathOf(model)}/ready`);
      // KServe answers in the body, Triton only by the status.
      const state = body.length > 0 ? readJson(body) : undefined;
      if (isObject(state) && state.ready === false) throw malformed("the model is not ready");
    },
    metadata: async (target, model, call) => readMetadata(await servers.at(target, call).get(pathOf(model))),
    async infer(target, model, request, call) {
      const server = servers.at(target, call);
      const { body, jsonBytes } = encodeInfer(request, call.requestId, await readsBinary(target, server));
      const contentType = jsonBytes === undefined ? "application/json" : "application/octet-stream";
      const answer = await server.expect({
        method: "POST",
        path: `${pathOf(model)}/infer`,
        headers: jsonBytes === undefined ? {} : { [LENGTH_HEADER]: String(jsonBytes) },
        body: { body, contentType },
      });
      const length = answer.headers[LENGTH_HEADER];
      return readInfer(answer.body, call.requestId, length === undefined ? undefined : Number(length));
    },
    close: () => servers.close(),
  };
}

const pathOf = ({ name, version }: OipModelName): string => {
  const model = `/v2/models/${encodeURIComponent(name)}`;
  return version === "" ? model : `${model}/versions/${encodeURIComponent(version)}`;
};

/** A body; `jsonBytes` is the length of its JSON if raw tensors follow. */
interface InferBody {
  readonly body: Buffer;
  readonly jsonBytes: number | undefined;
}

/** The body of one inference. */
function encodeInfer({ inputs, outputs }: InferRequest, id: string, binary: boolean): InferBody {
  const raw = binary ? inputs.map(({ data }) => (data instanceof Uint8Array ? data : rawBytes(data))) : [];
  const json = Buffer.from(
    JSON.stringify({
      id,
      inputs: inputs.map((tensor, i) => ({
        name: tensor.name,
        shape: tensor.shape,
        datatype: tensor.datatype,
        ...(binary ? { parameters: { binary_data_size: raw[i]!.length } } : { data: listOf(tensor) }),
      })),
      ...(outputs.length > 0 && {
        outputs: outputs.map((name) => ({ name, ...(binary && { parameters: { binary_data: true } }) })),
      }),
    }),
  );
  return binary
    ? { body: Buffer.concat([json, ...raw]), jsonBytes: json.length }
    : { body: json, jsonBytes: undefined };
}

/** Returns the elements, flat. In JSON, files look like text, so they are sent as base64, which image servers accept. */
function listOf(tensor: Tensor): (string | number)[] {
  if (tensor.data instanceof Uint8Array) return Array.from(arrayOfTensor(tensor).toFloat64());
  return tensor.data.map((element) => (isText(element) ? element.toString("utf8") : element.toString("base64")));
}

const isText = (element: Buffer): boolean => Buffer.from(element.toString("utf8")).equals(element);

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
  if (!Array.isArray(list) || list.length > MAX_TENSORS) throw malformed("the list of tensors is missing");
  return list;
}

function headOf(tensor: unknown): TensorMetadata {
  const { name, datatype, shape } = isObject(tensor) ? tensor : {};
  if (typeof name !== "string" || typeof datatype !== "string" || !Array.isArray(shape) || shape.length > MAX_RANK)
    throw malformed("a tensor has no name, datatype or shape");
  // Some servers write sizes as texts, as protobuf's JSON does for 64-bit integers.
  const sizes = shape.map(Number);
  if (!sizes.every((size) => Number.isSafeInteger(size) && size >= -1))
    throw malformed("a tensor has an invalid shape");
  return { name, datatype, shape: sizes };
}

/** Reads the outputs of one inference; raw tensors begin after `jsonBytes`, from a header. Throws an UpstreamFailure. */
export function readInfer(body: Buffer, id: string, jsonBytes: number | undefined): Tensor[] {
  if (jsonBytes !== undefined && !(jsonBytes >= 0 && jsonBytes <= body.length))
    throw malformed("the header extends beyond the body");
  const answer = readJson(jsonBytes === undefined ? body : body.subarray(0, jsonBytes));
  if (!isObject(answer)) throw malformed("the response is not an object");
  if (typeof answer.error === "string")
    throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, ownerText(answer.error));
  if (typeof answer.id === "string" && answer.id !== "" && answer.id !== id)
    throw malformed("the response is for another request");
  let at = jsonBytes ?? body.length;
  return listIn(answer.outputs).map((output) => {
    const head = headOf(output);
    const { data, parameters } = output as Record<string, unknown>; // checked by headOf
    const size = isObject(parameters) ? parameters.binary_data_size : undefined;
    if (size === undefined) return { ...head, data: dataOf(head, data) };
    if (typeof size !== "number" || !(size >= 0 && at + size <= body.length))
      throw malformed("the raw bytes extend beyond the body");
    at += size;
    return { ...head, data: body.subarray(at - size, at) };
  });
}

/**
 * Converts numbers of a JSON list, flat or nested like its shape, to the bytes of their type. A tensor of an unsupported type has no elements: it
 * fails only if it is read.
 */
function dataOf({ datatype, shape }: TensorMetadata, data: unknown): Uint8Array | Buffer[] {
  if (!Array.isArray(data)) throw malformed("an output has no data");
  const flat: unknown[] = data.some(Array.isArray) ? data.flat(MAX_RANK) : data;
  const count = shape.reduce((product, size) => product * size, 1);
  if (flat.length !== count) throw malformed(`an output of shape [${shape}] with ${flat.length} elements`);
  if (datatype === "BYTES") return flat.map((each) => Buffer.from(String(each)));
  const write = JSON_WRITES[datatype] ?? WRITES[datatype];
  if (write === undefined) return [];
  if (!flat.every((each) => typeof each === "number" || typeof each === "boolean"))
    throw malformed("an element is not a number");
  return new Uint8Array(write(flat.map(Number)));
}

/** JSON has a number for each type; over gRPC these are only sent raw. */
const JSON_WRITES: Readonly<Record<string, (values: readonly number[]) => ArrayBuffer>> = {
  FP16: (values) => Float16Array.from(values).buffer,
  INT64: (values) => BigInt64Array.from(values, wholeIn).buffer,
  UINT64: (values) => BigUint64Array.from(values, wholeIn).buffer,
};

function wholeIn(value: number): bigint {
  if (!Number.isSafeInteger(value)) throw malformed("an element is not a whole number");
  return BigInt(value);
}
