/**
 * A receiver of OTLP on loopback, over HTTP or gRPC, that answers as it is told and keeps every span that it got. It reads the bytes by
 * the field numbers of https://github.com/open-telemetry/opentelemetry-proto, for OpenTelemetry's own packages only write them.
 */
import { createServer } from "node:http";
import { createServer as createHttp2 } from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";

type Value = string | number | boolean;

/** A span as it came. */
export interface ReceivedSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly attributes: Readonly<Record<string, Value>>;
  /** 2: an error. */
  readonly status: number;
  readonly startNano: bigint;
  readonly endNano: bigint;
  readonly resource: Readonly<Record<string, Value>>;
}

/** The receiver. */
export interface OtlpReceiver {
  readonly url: string;
  readonly spans: readonly ReceivedSpan[];
  /** The headers and the path of every request, in order. */
  readonly requests: readonly { path: string; headers: Readonly<Record<string, unknown>> }[];
  /** Answers with this status from now on; over gRPC with a gRPC status, 0 for well. `hang` never answers. */
  answer(status: number | "hang"): void;
  /** The body of later responses over HTTP, whatever the request's type. */
  says?(type: string, body: Uint8Array | string): void;
  close(): Promise<void>;
}

/** Starts a receiver of OTLP over HTTP. */
export async function startOtlpReceiver(): Promise<OtlpReceiver> {
  const kept = keeper();
  let status: number | "hang" = 200;
  let own: { type: string; body: Uint8Array | string } | undefined;
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = Buffer.concat(chunks);
      const json = request.headers["content-type"] === "application/json";
      kept.requests.push({ path: request.url ?? "", headers: request.headers });
      if (status === "hang") return;
      if (status < 300) kept.spans.push(...(json ? readJson(body) : readRequest(body)));
      response
        .writeHead(status, { "content-type": own?.type ?? request.headers["content-type"] })
        .end(own?.body ?? (json ? "{}" : ""));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    ...kept,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    answer: (next) => {
      status = next;
    },
    says: (type, body) => {
      own = { type, body };
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Starts a receiver of OTLP over gRPC. */
export async function startOtlpGrpcReceiver(): Promise<OtlpReceiver> {
  const kept = keeper();
  const sockets = new Set<Socket>();
  let status: number | "hang" = 0;
  const server = createHttp2();
  server.on("connection", (socket: Socket) => sockets.add(socket));
  server.on("stream", (stream, headers) => {
    const chunks: Buffer[] = [];
    stream.on("error", () => undefined);
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.on("end", () => {
      kept.requests.push({ path: String(headers[":path"]), headers });
      if (status === "hang") return;
      if (status === 0) kept.spans.push(...readRequest(Buffer.concat(chunks).subarray(5)));
      const trailers = { "grpc-status": String(status) };
      stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
      stream.on("wantTrailers", () => stream.sendTrailers(trailers));
      stream.end(status === 0 ? Buffer.alloc(5) : undefined);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    ...kept,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    answer: (next) => {
      status = next;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

const keeper = (): { spans: ReceivedSpan[]; requests: { path: string; headers: Record<string, unknown> }[] } => ({
  spans: [],
  requests: [],
});

type Fields = Map<number, (Uint8Array | bigint | number)[]>;

function fieldsOf(bytes: Uint8Array): Fields {
  const reader = new BinaryReader(bytes);
  const fields: Fields = new Map();
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    const value =
      type === WireType.LengthDelimited
        ? reader.bytes()
        : type === WireType.Bit64
          ? BigInt(reader.fixed64())
          : type === WireType.Bit32
            ? reader.fixed32()
            : BigInt(reader.uint64());
    fields.set(field, [...(fields.get(field) ?? []), value]);
  }
  return fields;
}

const messages = (fields: Fields, field: number): Fields[] =>
  (fields.get(field) ?? []).map((bytes) => fieldsOf(bytes as Uint8Array));
const bytesAt = (fields: Fields, field: number): Buffer =>
  Buffer.from((fields.get(field)?.[0] as Uint8Array | undefined) ?? []);
const numberAt = (fields: Fields, field: number): bigint =>
  BigInt((fields.get(field)?.[0] as bigint | undefined) ?? 0n);

/** AnyValue: 1 string, 2 bool, 3 int, 4 double. */
function readValue(any: Fields): Value {
  if (any.has(1)) return bytesAt(any, 1).toString();
  if (any.has(2)) return numberAt(any, 2) === 1n;
  if (any.has(3)) return Number(numberAt(any, 3));
  const bits = Buffer.alloc(8);
  bits.writeBigUInt64LE(BigInt.asUintN(64, numberAt(any, 4)));
  return bits.readDoubleLE();
}

const attributesOf = (owner: Fields, field: number): Record<string, Value> =>
  Object.fromEntries(
    messages(owner, field).map((pair) => [bytesAt(pair, 1).toString(), readValue(messages(pair, 2)[0] ?? new Map())]),
  );

/** ExportTraceServiceRequest: resource_spans 1 {resource 1 {attributes 1}, scope_spans 2 {spans 2}}. */
function readRequest(body: Uint8Array): ReceivedSpan[] {
  return messages(fieldsOf(body), 1).flatMap((resourceSpans) => {
    const resource = attributesOf(messages(resourceSpans, 1)[0] ?? new Map(), 1);
    return messages(resourceSpans, 2)
      .flatMap((scopeSpans) => messages(scopeSpans, 2))
      .map((span) => ({
        traceId: bytesAt(span, 1).toString("hex"),
        spanId: bytesAt(span, 2).toString("hex"),
        parentSpanId: bytesAt(span, 4).toString("hex"),
        name: bytesAt(span, 5).toString(),
        startNano: numberAt(span, 7),
        endNano: numberAt(span, 8),
        attributes: attributesOf(span, 9),
        status: Number(numberAt(messages(span, 15)[0] ?? new Map(), 3)),
        resource,
      }));
  });
}

interface JsonPair {
  key: string;
  value: Record<string, Value>;
}

const fromPairs = (pairs: readonly JsonPair[]): Record<string, Value> =>
  Object.fromEntries(
    pairs.map(({ key, value: { stringValue, boolValue, intValue, doubleValue } }) => [
      key,
      stringValue ?? boolValue ?? (intValue === undefined ? (doubleValue as number) : Number(intValue)),
    ]),
  );

function readJson(body: Buffer): ReceivedSpan[] {
  // biome-ignore lint/suspicious/noExplicitAny: what the schema of OTLP says, read as it came.
  const { resourceSpans } = JSON.parse(body.toString()) as { resourceSpans: any[] };
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans
      // biome-ignore lint/suspicious/noExplicitAny: as above.
      .flatMap(({ spans }: any) => spans)
      // biome-ignore lint/suspicious/noExplicitAny: as above.
      .map((span: any) => ({
        traceId: span.traceId,
        spanId: span.spanId,
        parentSpanId: span.parentSpanId ?? "",
        name: span.name,
        startNano: BigInt(span.startTimeUnixNano),
        endNano: BigInt(span.endTimeUnixNano),
        attributes: fromPairs(span.attributes),
        status: span.status.code,
        resource: fromPairs(resource.attributes),
      })),
  );
}
