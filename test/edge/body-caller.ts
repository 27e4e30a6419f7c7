/** Calls of every transport with bodies that are small on the wire and large in memory. */
import * as http2 from "node:http2";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { fromBinary } from "@bufbuild/protobuf";
import { expect } from "vitest";
import { BadRequestSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { StatusSchema } from "../../gen/google/rpc/status_pb.ts";
import { ActResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { GetHealthResponseSchema } from "../../gen/limber/v1/operations_service_pb.ts";
import { ListModelsResponseSchema } from "../../gen/limber/v1/registry_service_pb.ts";
import { frameMessage } from "../../src/codecs/grpc.ts";
import { eventually } from "../support/eventually.ts";
import { KEY, message, type TestGateway } from "./gateway.ts";

export const MIB = 1 << 20;
export const ACT = "/limber.v1.InferenceService/Act";
export const MODELS = "/limber.v1.RegistryService/ListModels";
export const RPCS = {
  GetHealth: () => message(GetHealthResponseSchema, {}),
  Act: () => message(ActResponseSchema, { id: "act_1" }),
  ListModels: () => message(ListModelsResponseSchema, {}),
};

export const repeated = (piece: string | Buffer, bytes: number): Buffer => Buffer.alloc(bytes, piece);

/** `{"observations":[{},{}, …]}` of so many bytes, and its like. */
export const list = (head: string, item: string, tail: string, bytes: number): Buffer => {
  const items = Math.floor((bytes - head.length - tail.length) / (item.length + 1));
  return Buffer.from(`${head}${Array(items).fill(item).join(",")}${tail}`);
};

/** How a caller is told no. */
export interface Told {
  readonly code: string;
  readonly status: number;
  readonly fields: readonly string[];
  readonly retryAfter: string | null;
}

export const PACKED = {
  gzip: (bytes: Buffer) => gzipSync(bytes, { level: 9 }),
  br: (bytes: Buffer) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } }),
  identity: (bytes: Buffer) => bytes,
} as const;

/** Large bodies are compressed once for all calls that send them. */
const packed = new Map<Encoding, WeakMap<Buffer, Buffer>>();
function pack(bytes: Buffer, encoding: Encoding): Buffer {
  const known = packed.get(encoding) ?? new WeakMap<Buffer, Buffer>();
  packed.set(encoding, known);
  const result = known.get(bytes) ?? PACKED[encoding](bytes);
  known.set(bytes, result);
  return result;
}

export type Encoding = keyof typeof PACKED;

/** A call of Connect over HTTP/1.1. */
export async function connect(
  gateway: TestGateway,
  path: string,
  type: string,
  bytes: Buffer,
  encoding: Encoding,
): Promise<Told> {
  const response = await fetch(gateway.base + path, {
    method: "POST",
    headers: {
      "content-type": type,
      authorization: `Bearer ${KEY}`,
      ...(encoding !== "identity" && { "content-encoding": encoding }),
    },
    body: pack(bytes, encoding) as Uint8Array<ArrayBuffer>,
  });
  const isJson = response.headers.get("content-type") === "application/json";
  const said = (isJson ? await response.json() : await response.bytes().then(() => ({}))) as {
    code?: string;
    details?: { type: string; value: string }[];
  };
  const detail = said.details?.find(({ type }) => type === "google.rpc.BadRequest");
  const violations = detail && fromBinary(BadRequestSchema, Buffer.from(detail.value, "base64")).fieldViolations;
  return {
    code: said.code ?? "ok",
    status: response.status,
    fields: (violations ?? []).map(({ field, description }) => `${field} ${description}`),
    retryAfter: response.headers.get("retry-after"),
  };
}

const GRPC_CODES: Readonly<Record<string, string>> = {
  "0": "ok",
  "3": "invalid_argument",
  "8": "resource_exhausted",
  "14": "unavailable",
};

/** A call of gRPC over HTTP/2. */
export async function grpc(gateway: TestGateway, path: string, bytes: Buffer, encoding: Encoding): Promise<Told> {
  // A client of Node's takes no answer while it holds more than this.
  const session = http2.connect(gateway.base, { maxSessionMemory: 256 });
  try {
    const stream = session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      te: "trailers",
      authorization: `Bearer ${KEY}`,
      ...(encoding !== "identity" && { "grpc-encoding": encoding }),
    });
    const told: Record<string, unknown> = {};
    stream.on("response", (head) => Object.assign(told, head));
    stream.on("trailers", (trailers) => Object.assign(told, trailers));
    stream.on("error", () => undefined).resume();
    stream.end(frameMessage(pack(bytes, encoding), encoding !== "identity"));
    await eventually(() => expect(told["grpc-status"]).toBeDefined());
    const status = Buffer.from(String(told["grpc-status-details-bin"] ?? ""), "base64");
    const detail = fromBinary(StatusSchema, status).details.find(({ typeUrl }) => typeUrl.endsWith("BadRequest"));
    const violations = detail && fromBinary(BadRequestSchema, detail.value).fieldViolations;
    return {
      code: GRPC_CODES[String(told["grpc-status"])] ?? String(told["grpc-status"]),
      status: 200,
      fields: (violations ?? []).map(({ field, description }) => `${field} ${description}`),
      retryAfter: (told["retry-after"] as string | undefined) ?? null,
    };
  } finally {
    session.destroy();
  }
}

/** A message of gRPC-Web over HTTP/1.1. */
export async function grpcWeb(gateway: TestGateway, path: string, bytes: Buffer, encoding: Encoding): Promise<Told> {
  const response = await fetch(gateway.base + path, {
    method: "POST",
    headers: {
      "content-type": "application/grpc-web+proto",
      authorization: `Bearer ${KEY}`,
      ...(encoding !== "identity" && { "grpc-encoding": encoding }),
    },
    body: frameMessage(pack(bytes, encoding), encoding !== "identity") as Uint8Array<ArrayBuffer>,
  });
  const text = Buffer.from(await response.arrayBuffer()).toString("latin1");
  const code = /grpc-status: (\d+)/.exec(text)?.[1] ?? "";
  return { code: GRPC_CODES[code] ?? code, status: response.status, fields: [], retryAfter: null };
}
