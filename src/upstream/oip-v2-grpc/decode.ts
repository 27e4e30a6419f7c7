/** What a server of the protocol answers over gRPC, read by field number. */
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { type ModelMetadata, type Tensor, type TensorMetadata, WRITES } from "../oip/tensors.ts";
import { malformed } from "../transport/failures.ts";

const MAX_TENSORS = 256;
const MAX_RANK = 16;
const MAX_ELEMENTS = 1_000_000;

/** ServerReadyResponse and ModelReadyResponse, whose one field is the same. Throws an UpstreamFailure. */
export function readReady(bytes: Buffer): boolean {
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

/** ModelInferResponse, its numbers raw or typed. Throws an UpstreamFailure, also for an answer to another request. */
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
  if (answered !== "" && answered !== id) throw malformed("the answer is to another request");
  if (raw.length > 0 && raw.length !== outputs.length) throw malformed("raw outputs without their heads");
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
  if (!shape.every((size) => Number.isSafeInteger(size) && size >= -1)) throw malformed("a tensor of no shape");
  return { name, datatype, shape };
}

/** InferTensorContents: numbers in the field of their type, put into the bytes of the tensor's. */
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
  if (write === undefined) throw malformed("an output of a type that can't be read");
  return new Uint8Array(write(values));
}

type Readers = Readonly<Record<number, (reader: BinaryReader, type: WireType) => void>>;

/** Whatever a reader throws is the server's fault. */
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
    throw malformed("a message that the protocol can't have", error);
  }
}

/** Numbers one by one, or many in one field. */
function packed(reader: BinaryReader, type: WireType, read: () => void): void {
  if (type !== WireType.LengthDelimited) {
    read();
    return;
  }
  const end = reader.uint32() + reader.pos;
  if (end > reader.len) throw malformed("a field beyond its message");
  while (reader.pos < end) read();
}

function push<T>(list: T[], item: T, most = MAX_TENSORS): void {
  if (list.length >= most) throw malformed("more than a model has");
  list.push(item);
}
