/**
 * A model that predicts frames as they come, over the native wire; and the same frames as server-sent events over HTTP, for a relay to
 * carry. What it is to predict it is told by the instruction: `1024 bytes every 20 ms`.
 */
import { createServer as createHttp, type ServerResponse } from "node:http";
import { createServer as createHttp2, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  DescribeResponseSchema,
  PredictRequestSchema,
  PredictResponseSchema,
} from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { Contract } from "../../../gen/limber/v1/contract_pb.ts";
import { ImageFormat } from "../../../gen/limber/v1/observation_pb.ts";
import { frameMessage, MessageReader } from "../../../src/codecs/grpc.ts";

const PNG = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];

interface Order {
  readonly bytes: number;
  readonly everyMs: number;
}

function orderIn(text: string): Order {
  const [, bytes = "64", everyMs = "0"] = /(\d+) bytes every (\d+) ms/.exec(text) ?? [];
  return { bytes: Number(bytes), everyMs: Number(everyMs) };
}

/** Something that looks like a picture; `seen` makes those of different questions differ. */
function pictureOf({ bytes }: Order, seen: number): Buffer {
  const picture = Buffer.alloc(bytes, seen % 251);
  picture.set(PNG);
  return picture;
}

/** Sends `count` frames at their pace, no faster than they are read. */
function send(
  stream: ServerHttp2Stream | ServerResponse,
  count: number,
  everyMs: number,
  textOf: (index: number) => string | Buffer,
  done: () => void,
): void {
  const began = performance.now();
  let index = 0;
  const go = (): void => {
    while (index < count) {
      if (stream.destroyed) return;
      const wait = began + index * everyMs - performance.now();
      if (everyMs > 0 && wait > 0) return void setTimeout(go, wait);
      if (!stream.write(textOf(index++))) return void stream.once("drain", go);
    }
    done();
  };
  go();
}

function predict(stream: ServerHttp2Stream, message: Buffer): void {
  const { instruction, horizon, observations } = fromBinary(PredictRequestSchema, message);
  const order = orderIn(instruction);
  const seen = observations[0]?.frames[0]?.data.reduce((sum, byte) => sum + byte, 0) ?? 0;
  const data = pictureOf(order, seen);
  const part = (index: number): Buffer => {
    const value = { index, tMs: index * 50, width: 16, height: 16, format: ImageFormat.PNG, data };
    return frameMessage(
      toBinary(PredictResponseSchema, create(PredictResponseSchema, { body: { case: "frame", value } })),
    );
  };
  send(stream, horizon, order.everyMs, part, () => {
    const summary = create(PredictResponseSchema, { body: { case: "summary", value: {} } });
    stream.end(frameMessage(toBinary(PredictResponseSchema, summary)));
  });
}

const describeServer = (): Buffer =>
  frameMessage(
    toBinary(
      DescribeResponseSchema,
      create(DescribeResponseSchema, {
        models: [{ slug: "bench/instant", name: "Frames", contracts: [Contract.PREDICT], dtMs: 50, maxHorizon: 256 }],
      }),
    ),
  );

const grpc = createHttp2({ settings: { maxConcurrentStreams: 1000 } });
grpc.on("stream", (stream, headers) => {
  stream.on("error", () => undefined);
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  let asked: Buffer = Buffer.alloc(0);
  const reader = new MessageReader(64 << 20, (message) => {
    asked = message;
  });
  stream.on("data", (chunk: Buffer) => reader.push(chunk));
  stream.on("end", () => {
    if (String(headers[":path"]).endsWith("/Describe")) stream.end(describeServer());
    else predict(stream, asked);
  });
});

const rest = createHttp((request, response) => {
  const pieces: Buffer[] = [];
  request.on("data", (piece: Buffer) => pieces.push(piece));
  request.on("end", () => {
    const { instruction, horizon } = JSON.parse(Buffer.concat(pieces).toString());
    const order = orderIn(instruction);
    const data = pictureOf(order, 0).toString("base64");
    response.writeHead(200, { "content-type": "text/event-stream" });
    const text = (index: number): string => {
      const frame = { index, t_ms: index * 50, camera: "", width: 16, height: 16, format: "png", data };
      return `event: frame\nid: ${index}\ndata: ${JSON.stringify(frame)}\n\n`;
    };
    send(response, horizon, order.everyMs, text, () => response.end("event: done\ndata: {}\n\n"));
  });
});

grpc.listen(0, "127.0.0.1", () =>
  rest.listen(0, "127.0.0.1", () => {
    const portOf = (server: typeof grpc | typeof rest): number => (server.address() as AddressInfo).port;
    console.log(JSON.stringify({ grpc: portOf(grpc), rest: portOf(rest) }));
  }),
);
process.on("SIGTERM", () => process.exit(0));
