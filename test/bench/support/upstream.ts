/**
 * An instant policy server: answers 16x7 at once over the native wire, as JSON over HTTP/1.1, and as a plain unary gRPC call.
 * It stands beyond every measured program alike. The first number of each answer is taken from the picture, because a
 * server whose answers never change is a stub that the conformance probe rejects.
 */
import { createServer as createHttp } from "node:http";
import { createServer as createHttp2, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  ActRequestSchema,
  ActResponseSchema,
  DescribeResponseSchema,
} from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { Contract } from "../../../gen/limber/v1/contract_pb.ts";
import {
  ActStreamResponseSchema,
  ActResponseSchema as PublicActResponse,
} from "../../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage, MessageReader, PREFIX } from "../../../src/codecs/grpc.ts";

/** How long it takes; and the share of its calls that takes so many times as long. Told anew by `POST /pace?delay=50&share=0.02&times=20`. */
const pace = { delay: Number(process.argv[2] ?? 0), share: 0, times: 1 };
let calls = 0;
const STEPS = Array.from({ length: 16 }, (_, t) => ({
  values: Array.from({ length: 7 }, (_, d) => Math.fround((t * 7 + d) / 1000)),
}));
const jsonAnswer = Buffer.from(
  JSON.stringify({
    id: "act_1",
    object: "world.action",
    created: 1_790_000_000,
    model: "bench/instant",
    action: { space: "ee_delta_6d_grip", steps: STEPS.map((step) => step.values), dt_ms: 50, note: "" },
  }),
);
const grpcAnswer = frameMessage(
  toBinary(
    PublicActResponse,
    create(PublicActResponse, {
      id: "act_1",
      model: "bench/instant",
      action: { space: "ee_delta_6d_grip", steps: STEPS, dtMs: 50 },
    }),
  ),
);

/** What a relay of control loops carries back: a chunk for every message. */
const loopAnswer = frameMessage(
  toBinary(
    ActStreamResponseSchema,
    create(ActStreamResponseSchema, {
      event: {
        case: "chunk",
        value: {
          chunkId: "chunk_01M806P6CKNYG44W99EHAEHAGS-2097152",
          action: { space: "ee_delta_6d_grip", steps: STEPS, dtMs: 50 },
          startStep: 2_097_152,
          validUntilStep: 2_097_168,
          observationAgeMs: 0.5,
          usage: { actionSteps: 16, costUsd: 0.000016 },
        },
      },
    }),
  ),
);

function later(run: () => void): void {
  calls++;
  const { delay, share, times } = pace;
  const delayMs = delay * (share > 0 && Math.random() < share ? times : 1);
  if (delayMs > 0) setTimeout(run, delayMs);
  else run();
}

/** The answer to the call that every robot of the benchmarks makes, whose id has one byte, two, and so on. */
const plainAnswers = [1, 2 ** 7, 2 ** 14, 2 ** 21, 2 ** 28].map((callId) => answerOf(callId, STEPS));

function answerOf(callId: number, steps: { values: number[] }[]): Buffer {
  const body = { case: "chunk" as const, value: { steps, dtMs: 50 } };
  return frameMessage(toBinary(ActResponseSchema, create(ActResponseSchema, { callId, body })));
}

/** The same without reading the call or writing the answer: what stands beyond every measured program is not to be measured. */
function answerPlainly(message: Buffer): Buffer {
  let size = 1;
  while (message[size]! >= 0x80) size++;
  const answer = Buffer.from(plainAnswers[size - 1]!);
  message.copy(answer, PREFIX, 0, size + 1);
  return answer;
}

/** Sixteen steps, and no picture: a call that is answered plainly. */
const isPlain = (message: Buffer): boolean => message.includes(HORIZON_16) && !message.includes("PNG");
const HORIZON_16 = Buffer.from([0x30, 16]);

function answerCall(message: Buffer): Buffer | undefined {
  if (isPlain(message)) return answerPlainly(message);
  const request = fromBinary(ActRequestSchema, message);
  if (request.body.case !== "call") return undefined;
  const { horizon, observations } = request.body.value;
  const seen = observations[0]?.frames[0]?.data.reduce((sum, byte) => sum + byte, 0) ?? 0;
  const steps = Array.from({ length: horizon }, (_, t) => ({
    values: t === 0 ? [(seen % 1000) / 1000, ...STEPS[0]!.values.slice(1)] : STEPS[t % 16]!.values,
  }));
  return answerOf(request.callId, steps);
}

const TRAILERS = { "grpc-status": "0" };

function serve(stream: ServerHttp2Stream, path: string): void {
  stream.on("error", () => undefined);
  stream.on("wantTrailers", () => stream.sendTrailers(TRAILERS));
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  const isAct = path === "/limber.policy.v1.PolicyService/Act";
  const isLoop = path.endsWith("/ActStream");
  const reader = new MessageReader(64 << 20, (message) => {
    if (isLoop) later(() => stream.writable && stream.write(loopAnswer));
    if (!isAct) return;
    const answer = answerCall(message);
    if (answer) later(() => stream.writable && stream.write(answer));
  });
  stream.on("data", (chunk: Buffer) => reader.push(chunk));
  stream.on("end", () => {
    if (isAct || isLoop) stream.end();
    else if (path.endsWith("/Describe")) stream.end(frameMessage(toBinary(DescribeResponseSchema, describeServer())));
    else later(() => stream.end(grpcAnswer));
  });
}

const describeServer = () =>
  create(DescribeResponseSchema, {
    models: [
      {
        slug: "bench/instant",
        name: "Instant",
        contracts: [Contract.ACT],
        actionSpaces: ["ee_delta_6d_grip"],
        actionDim: 7,
        dtMs: 50,
        maxHorizon: 256,
      },
    ],
  });

const grpc = createHttp2({ settings: { initialWindowSize: 1 << 20, maxConcurrentStreams: 1000 } });
grpc.on("stream", (stream, headers) => serve(stream, String(headers[":path"])));
const rest = createHttp((request, response) => {
  request.resume();
  const { pathname, searchParams } = new URL(request.url ?? "/", "http://upstream");
  if (pathname === "/pace") {
    for (const [name, value] of searchParams) Object.assign(pace, { [name]: Number(value) });
    // Answers how often it was called so far.
    response.end(String(calls));
    return;
  }
  request.on("end", () =>
    later(() => {
      response.writeHead(200, { "content-type": "application/json", "content-length": jsonAnswer.length });
      response.end(jsonAnswer);
    }),
  );
});
grpc.listen(0, "127.0.0.1", () =>
  rest.listen(0, "127.0.0.1", () => {
    const ports = { grpc: (grpc.address() as AddressInfo).port, rest: (rest.address() as AddressInfo).port };
    console.log(JSON.stringify(ports));
  }),
);
process.on("SIGTERM", () => process.exit(0));
