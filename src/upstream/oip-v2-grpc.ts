/** The Open Inference Protocol, version 2, over gRPC: KServe, Triton and others. */
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { frameMessage } from "../codecs/grpc.ts";
import {
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
import { malformed } from "./transport/failures.ts";
import { GRPC_SCHEMES, GrpcClient } from "./transport/grpc.ts";
import { type ServerReach, Servers } from "./transport/servers.ts";
import type { CallOptions, UpstreamTarget, Wire } from "./wire.ts";

/** Opens the wire; connections are made on first use. */
export const oipV2Grpc = (reach: ServerReach): Wire =>
  oipWire("oip-v2-grpc", Object.keys(GRPC_SCHEMES), grpcTransport(reach));

type OipMethod = "ServerReady" | "ModelReady" | "ModelMetadata" | "ModelInfer";

/** The protocol over gRPC. */
function grpcTransport(reach: ServerReach): OipTransport {
  const servers = new Servers(reach, GRPC_SCHEMES, (address) => new GrpcClient(address));
  const ask = async (target: UpstreamTarget, method: OipMethod, message: Buffer, call: CallOptions): Promise<Buffer> =>
    servers.of(target).unary({ ...call, path: `/inference.GRPCInferenceService/${method}` }, message);
  return {
    async serverReady(target, call) {
      if (!readReady(await ask(target, "ServerReady", encodeNothing(), call)))
        throw malformed("the server is not ready");
    },
    async modelReady(target, model, call) {
      if (!readReady(await ask(target, "ModelReady", encodeModel(model), call)))
        throw malformed("the model is not ready");
    },
    async metadata(target, model, call) {
      return readMetadata(await ask(target, "ModelMetadata", encodeModel(model), call));
    },
    async infer(target, model, request, call) {
      const message = encodeInfer(model, request, call.requestId);
      return readInfer(await ask(target, "ModelInfer", message, call), call.requestId);
    },
    async close() {
      servers.close();
    },
  };
}

/** A message without fields. */
const encodeNothing = (): Buffer => frameMessage(new Uint8Array());

/** ModelReadyRequest and ModelMetadataRequest, which have the same fields. */
const encodeModel = ({ name, version }: OipModelName): Buffer =>
  frameMessage(text(text(new BinaryWriter(), 1, name), 2, version).finish());

/** Writes a ModelInferRequest with raw numbers: the typed fields cannot carry half floats. */
function encodeInfer({ name, version }: OipModelName, { inputs, outputs }: InferRequest, id: string): Buffer {
  const writer = text(text(text(new BinaryWriter(), 1, name), 2, version), 3, id);
  for (const tensor of inputs) {
    writer.tag(5, WireType.LengthDelimited).fork();
    text(text(writer, 1, tensor.name), 2, tensor.datatype)
      .tag(3, WireType.LengthDelimited)
      .fork();
    for (const size of tensor.shape) writer.int64(size);
    writer.join().join();
  }
  for (const output of outputs) text(writer.tag(6, WireType.LengthDelimited).fork(), 1, output).join();
  for (const { data } of inputs) {
    writer.tag(7, WireType.LengthDelimited).bytes(data instanceof Uint8Array ? data : rawBytes(data));
  }
  return frameMessage(writer.finish());
}

const text = (writer: BinaryWriter, field: number, value: string): BinaryWriter =>
  value === "" ? writer : writer.tag(field, WireType.LengthDelimited).string(value);

const MAX_TENSORS = 256;
const MAX_RANK = 16;
const MAX_ELEMENTS = 1_000_000;

/** Reads a ServerReadyResponse or ModelReadyResponse, which have the same single field. Throws an UpstreamFailure. */
function readReady(bytes: Buffer): boolean {
  let ready = false;
  eachField(bytes, {
    1: (reader) => {
      ready = reader.bool();
    },
  });
  return ready;
}

/** ModelMetadataResponse. Throws an UpstreamFailure. */
export function readMetadata(bytes: Buffer): ModelMetadata {
  const inputs: TensorMetadata[] = [];
  const outputs: TensorMetadata[] = [];
  eachField(bytes, {
    4: (reader) => push(inputs, headIn(reader.bytes())),
    5: (reader) => push(outputs, headIn(reader.bytes())),
  });
  return { inputs, outputs };
}

/** Reads a ModelInferResponse, with raw or typed numbers. Throws an UpstreamFailure, also for an answer to another request. */
export function readInfer(bytes: Buffer, id: string): Tensor[] {
  const outputs: { head: TensorMetadata; contents: Uint8Array | undefined }[] = [];
  const raw: Uint8Array[] = [];
  let answered = "";
  eachField(bytes, {
    3: (reader) => {
      answered = reader.string();
    },
    5: (reader) => {
      const message = reader.bytes();
      let contents: Uint8Array | undefined;
      eachField(message, {
        5: (inner) => {
          contents = inner.bytes();
        },
      });
      push(outputs, { head: headIn(message), contents });
    },
    6: (reader) => push(raw, reader.bytes()),
  });
  if (answered !== "" && answered !== id) throw malformed("the response is for another request");
  if (raw.length > 0 && raw.length !== outputs.length) throw malformed("the raw outputs have no descriptions");
  return outputs.map(({ head, contents }, i) => ({ ...head, data: raw[i] ?? typedIn(head, contents) }));
}

function headIn(bytes: Uint8Array): TensorMetadata {
  const shape: number[] = [];
  let [name, datatype] = ["", ""];
  eachField(bytes, {
    1: (reader) => {
      name = reader.string();
    },
    2: (reader) => {
      datatype = reader.string();
    },
    3: (reader, type) => packed(reader, type, () => push(shape, Number(reader.int64()), MAX_RANK)),
  });
  if (!shape.every((size) => Number.isSafeInteger(size) && size >= -1))
    throw malformed("a tensor has an invalid shape");
  return { name, datatype, shape };
}

/** Reads InferTensorContents: numbers in the field of their type, converted to the tensor's bytes. */
function typedIn({ datatype }: TensorMetadata, contents: Uint8Array | undefined): Uint8Array {
  const values: number[] = [];
  const take =
    (read: (reader: BinaryReader) => number | bigint | boolean | string) => (reader: BinaryReader, type: WireType) =>
      packed(reader, type, () => push(values, Number(read(reader)), MAX_ELEMENTS));
  if (contents !== undefined) {
    eachField(contents, {
      1: take((reader) => reader.bool()),
      2: take((reader) => reader.int32()),
      3: take((reader) => reader.int64()),
      4: take((reader) => reader.uint32()),
      5: take((reader) => reader.uint64()),
      6: take((reader) => reader.float()),
      7: take((reader) => reader.double()),
    });
  }
  const write = WRITES[datatype];
  if (write === undefined) throw malformed("an output has an unsupported type");
  return new Uint8Array(write(values));
}

type Readers = Readonly<Record<number, (reader: BinaryReader, type: WireType) => void>>;

/** Converts any error of a reader to the server's failure. */
function eachField(bytes: Uint8Array, readers: Readers): void {
  try {
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) {
      const [field, type] = reader.tag();
      const read = readers[field];
      if (read === undefined) reader.skip(type, field);
      else read(reader, type);
    }
  } catch (error) {
    throw malformed("the message violates the protocol", error);
  }
}

/** Numbers in separate fields, or many in one field. */
function packed(reader: BinaryReader, type: WireType, read: () => void): void {
  if (type !== WireType.LengthDelimited) {
    read();
    return;
  }
  const end = reader.uint32() + reader.pos;
  if (end > reader.len) throw malformed("a field extends beyond its message");
  while (reader.pos < end) read();
}

function push<T>(list: T[], item: T, most = MAX_TENSORS): void {
  if (list.length >= most) throw malformed("too many tensors");
  list.push(item);
}
