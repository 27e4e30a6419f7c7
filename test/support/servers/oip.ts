/** Servers of ours that speak the Open Inference Protocol, over HTTP and over gRPC: one model that acts. */
import { bytesField, fieldsIn, type GrpcActServer, numberField, startGrpcServer, varint } from "./grpc.ts";
import { type Body, type HttpActServer, JSON_BOMB, NOT_TEXT, startHttpServer } from "./http.ts";

type Steps = readonly (readonly number[])[];

/** What the model says of itself. */
export interface OipModel {
  readonly inputs: readonly { name: string; datatype: string; shape: readonly number[] }[];
  readonly outputs: readonly { name: string; datatype: string; shape: readonly number[] }[];
}

const BASE: OipModel = {
  inputs: [
    { name: "state", datatype: "FP32", shape: [-1, 3] },
    { name: "text", datatype: "BYTES", shape: [1] },
  ],
  outputs: [{ name: "actions", datatype: "FP32", shape: [-1, -1, -1] }],
};

const floats = (steps: Steps): Buffer => Buffer.from(Float32Array.from(steps.flat()).buffer);
const shapeOf = (steps: Steps): number[] => [1, steps.length, steps[0]?.length ?? 0];
const numbersIn = (raw: Buffer): number[] => [...new Float32Array(new Uint8Array(raw).buffer)];

/** An inference as a server read it: its inputs by name. */
export interface Inference {
  readonly inputs: ReadonlyMap<string, { datatype: string; shape: readonly number[]; data: Buffer | unknown[] }>;
}

interface Input {
  readonly name: string;
  readonly datatype: string;
  readonly shape: readonly number[];
  readonly data?: unknown[];
  readonly parameters?: { binary_data_size?: number };
}

/** A server over HTTP; `binary` makes it a Triton, which takes tensors raw. */
export async function startOipRestServer(
  model: OipModel = BASE,
  {
    binary = true,
    reply,
  }: { binary?: boolean; reply?: (id: string, steps: Steps) => { body: Buffer; json?: number } } = {},
): Promise<HttpActServer & { inferences: Inference[] }> {
  const inferences: Inference[] = [];
  let id = "";
  const json = (value: unknown): Body => ({ body: JSON.stringify(value) });
  const answer = (steps: Steps): Body => {
    if (reply) {
      const { body, json: length } = reply(id, steps);
      return { body, ...(length !== undefined && { headers: { "inference-header-content-length": String(length) } }) };
    }
    const head = { name: "actions", datatype: "FP32", shape: shapeOf(steps) };
    if (!binary) return json({ model_name: "model", id, outputs: [{ ...head, data: steps.flat() }] });
    const raw = floats(steps);
    const output = { ...head, parameters: { binary_data_size: raw.length } };
    const text = Buffer.from(JSON.stringify({ model_name: "model", id, outputs: [output] }));
    const headers = { "inference-header-content-length": String(text.length) };
    return { body: Buffer.concat([text, raw]), headers, type: "application/octet-stream" };
  };
  const output = (more: object): Body =>
    json({ outputs: [{ name: "actions", datatype: "FP32", shape: [1, 2, 2], ...more }] });
  const server = await startHttpServer({
    path: "/v2/models/model/infer",
    read: (body, headers) => {
      const length = headers["inference-header-content-length"];
      const text = length === undefined ? body : body.subarray(0, Number(length));
      let at = text.length;
      const request = JSON.parse(text.toString());
      ({ id } = request);
      const inputs = new Map(
        (request.inputs as Input[]).map(({ name, parameters, data, datatype, shape }) => {
          const size = parameters?.binary_data_size ?? 0;
          at += size;
          return [name, { datatype, shape, data: data ?? body.subarray(at - size, at) }];
        }),
      );
      inferences.push({ inputs });
      const state = inputs.get("state")?.data;
      const words = inputs.get("text")?.data;
      return {
        instruction: Buffer.isBuffer(words) ? words.subarray(4).toString() : String(words?.[0] ?? ""),
        proprio: Buffer.isBuffer(state) ? numbersIn(state) : ((state ?? []) as number[]),
        headers,
      };
    },
    answer,
    error: (text) => ({ body: JSON.stringify({ error: text }), status: 500 }),
    odd: {
      bomb: JSON_BOMB,
      text: NOT_TEXT,
      batch: json({ outputs: [{ name: "actions", datatype: "FP32", shape: [2, 2, 2], data: Array(8).fill(1) }] }),
      objects: output({ data: [{}, {}, {}, {}] }),
      short: output({ data: [1, 2] }),
    },
    others: {
      "GET /v2": () => json({ name: "triton", extensions: binary ? ["binary_tensor_data"] : [] }),
      "GET /v2/health/ready": () => ({ body: "" }),
      "GET /v2/models/model": () => json({ name: "model", ...model }),
      "GET /v2/models/model/ready": () => ({ body: "" }),
    },
  });
  return { ...server, inferences };
}

const tensorMetadata = ({ name, datatype, shape }: OipModel["inputs"][number]): Buffer => {
  const sizes = shape.map((size) => (size === -1 ? Buffer.from([...Array(9).fill(0xff), 1]) : varint(size)));
  return Buffer.concat([bytesField(1, name), bytesField(2, datatype), bytesField(3, Buffer.concat(sizes))]);
};

/** How a gRPC server writes its outputs: raw, or typed as KServe's own servers do. */
export type OutputForm = "raw" | "typed";

const head = (shape: readonly number[], datatype = "FP32"): Buffer =>
  Buffer.concat([bytesField(1, "actions"), bytesField(2, datatype), bytesField(3, Buffer.concat(shape.map(varint)))]);

/** A server over gRPC. */
export async function startOipGrpcServer(
  model: OipModel = BASE,
  form: OutputForm = "raw",
): Promise<GrpcActServer & { inferences: Inference[] }> {
  const inferences: Inference[] = [];
  const response = (id: string, output: Buffer, raw?: Buffer): Buffer =>
    Buffer.concat([
      bytesField(1, "model"),
      bytesField(3, id),
      bytesField(5, output),
      ...(raw ? [bytesField(6, raw)] : []),
    ]);
  const idOf = (message: Buffer | undefined): string =>
    fieldsIn(message ?? Buffer.alloc(0))
      .find(([field]) => field === 3)?.[1]
      .toString() ?? "";
  const server = await startGrpcServer({
    method: "ModelInfer",
    read: ([message], headers) => {
      const fields = fieldsIn(message!);
      const raw = fields.filter(([field]) => field === 7).map(([, value]) => value);
      const inputs = new Map(
        fields
          .filter(([field]) => field === 5)
          .map(([, tensor], i) => {
            const at = new Map(fieldsIn(tensor));
            const shape = [...(at.get(3) ?? [])];
            return [at.get(1)!.toString(), { datatype: at.get(2)!.toString(), shape, data: raw[i]! }];
          }),
      );
      inferences.push({ inputs });
      const text = inputs.get("text")?.data;
      const state = inputs.get("state")?.data;
      return { instruction: text?.subarray(4).toString() ?? "", proprio: state ? numbersIn(state) : [], headers };
    },
    answer: (steps, [message]) => {
      const id = idOf(message);
      if (form === "raw") return response(id, head(shapeOf(steps)), floats(steps));
      return response(id, Buffer.concat([head(shapeOf(steps)), bytesField(5, bytesField(6, floats(steps)))]));
    },
    odd: {
      bomb: Buffer.alloc(10_000, 0x0b), // groups inside groups
      text: Buffer.from("<html>200 OK</html>"),
      batch: response("", head([2, 2, 2]), Buffer.alloc(32)),
      objects: response("", head([1, 2, 2], "BYTES"), Buffer.alloc(16)),
      short: response("", head([1, 2, 2]), Buffer.alloc(8)),
    },
    others: {
      ServerReady: () => numberField(1, 1),
      ModelReady: () => numberField(1, 1),
      ModelMetadata: () =>
        Buffer.concat([
          bytesField(1, "model"),
          ...model.inputs.map((each) => bytesField(4, tensorMetadata(each))),
          ...model.outputs.map((each) => bytesField(5, tensorMetadata(each))),
        ]),
    },
  });
  return { ...server, inferences };
}
