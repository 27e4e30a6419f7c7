import { existsSync } from "node:fs";
import { toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { describe, expect, it } from "vitest";
import { Health, HealthCheckResponse_ServingStatus as Serving } from "../../gen/grpc/health/v1/health_pb.ts";
import { ActResponseSchema, InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import { SERVICES } from "../../src/app/services.ts";
import { Reason, refuse } from "../../src/errors.ts";
import { ALL_FAST, PLAIN } from "../support/fast.ts";
import { type HouseOptions, KEY, openForTest as open, shareGateways, type TestGateway } from "./gateway.ts";
import {
  ACT,
  AUTH,
  CHUNK,
  call,
  codeOf,
  envelope,
  frame,
  LARGE,
  REQUEST,
  reasonOf,
  STREAM_REQUEST,
} from "./grpc-caller.ts";
import { run } from "./run.ts";

describe.each([
  ["by Connect", PLAIN],
  ["by the fast layer", ALL_FAST],
])("gRPC %s", (_, fast) => {
  const openWith = (rpcs: NonNullable<HouseOptions["rpcs"]>) => open({ rpcs, fast });

  it("speaks with the client of its own kind", async () => {
    const gateway = await openWith({
      Act: () => CHUNK,
      PredictStream: async function* () {
        yield* [frame(0), frame(1)];
      },
    });
    const client = createClient(InferenceService, createGrpcTransport({ baseUrl: gateway.base }));
    const answer = await client.act({ model: "o/n", observations: [{}] }, { headers: AUTH });
    expect(answer).toEqual(CHUNK);
    const frames: number[] = [];
    for await (const { event } of client.predictStream(
      { predict: { model: "m", observations: [{}] } },
      { headers: AUTH },
    )) {
      if (event.case === "frame") frames.push(event.value.index);
    }
    expect(frames).toEqual([0, 1]);
    const refused = await client.act({ model: "o/n" }, { headers: AUTH }).catch(ConnectError.from);
    expect(refused).toMatchObject({ code: Code.InvalidArgument });
  });

  it("speaks with buf curl, which has no schema but what reflection tells it", async () => {
    const gateway = await openWith({ Act: () => CHUNK });
    for (const protocol of ["grpc", "grpcweb", "connect"]) {
      const { code, out } = await run("node_modules/.bin/buf", [
        "curl",
        "--http2-prior-knowledge",
        "--protocol",
        protocol,
        "-H",
        `authorization: Bearer ${KEY}`,
        "-d",
        '{"model":"o/n","observations":[{"proprio":[1]}]}',
        `${gateway.base}${ACT}`,
      ]);
      expect(out).toContain('"id": "act_1"');
      expect(code).toBe(0);
    }
  });

  it.runIf(existsSync("/usr/lib/python3/dist-packages/grpc"))("speaks with Python's grpcio", async () => {
    const gateway = await openWith({
      Act: () => LARGE,
      PredictStream: async function* () {
        yield* [frame(0), frame(1)];
        throw refuse(Reason.DEADLINE_EXCEEDED, "zu spät");
      },
    });
    const { out, code } = await run("/usr/bin/python3", [
      "-c",
      PYTHON,
      `127.0.0.1:${gateway.port}`,
      KEY,
      hex(REQUEST),
      hex(STREAM_REQUEST),
    ]);
    expect([code, out.trim().split("\n")]).toEqual([
      0,
      [
        `act ${toBinary(ActResponseSchema, LARGE).length}`,
        "gzip ok",
        "frame",
        "frame",
        "DEADLINE_EXCEEDED zu spät",
        "UNAUTHENTICATED",
        "UNIMPLEMENTED there is no such method",
      ],
    ]);
  });
});

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

const PYTHON = `
import grpc, sys
target, key, request, stream = sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3]), bytes.fromhex(sys.argv[4])
channel = grpc.insecure_channel(target)
meta = [("authorization", "Bearer " + key)]
same = lambda b: b
act = channel.unary_unary("/limber.v1.InferenceService/Act", same, same)
print("act", len(act(request, metadata=meta, timeout=10)))
act(request, metadata=meta, compression=grpc.Compression.Gzip)
print("gzip ok")
try:
    for m in channel.unary_stream("/limber.v1.InferenceService/PredictStream", same, same)(stream, metadata=meta): print("frame")
except grpc.RpcError as e: print(e.code().name, e.details())
try: act(request)
except grpc.RpcError as e: print(e.code().name)
try: channel.unary_unary("/limber.v1.InferenceService/Nope", same, same)(request)
except grpc.RpcError as e: print(e.code().name, e.details())
`;

shareGateways();

describe("an unknown method", () => {
  it("is unimplemented, in trailers that stand alone", async () => {
    const gateway = await open({});
    const outcome = await call(gateway, "/limber.v1.InferenceService/Nope", envelope(REQUEST));
    expect(outcome.head).toMatchObject({ ":status": 200, "content-type": "application/grpc", "grpc-status": "12" });
    expect(reasonOf(outcome)).toBe("method_not_allowed");
    expect(codeOf(await call(gateway, "/no.Such/Service", envelope(REQUEST)))).toBe(Code.Unimplemented);
  });
});

describe("health", () => {
  it("follows readiness, for the server and for each service", async () => {
    let ready = true;
    const gateway = await open({ ready: () => ready });
    const client = createClient(Health, createGrpcTransport({ baseUrl: gateway.base }));
    const status = async (service: string) => (await client.check({ service })).status;
    expect(await status("")).toBe(Serving.SERVING);
    expect(await status("limber.v1.InferenceService")).toBe(Serving.SERVING);
    expect(await client.check({ service: "no.Such" }).catch(ConnectError.from)).toMatchObject({ code: Code.NotFound });
    expect((await client.list({})).statuses[""]).toMatchObject({ status: Serving.SERVING });
    ready = false;
    expect(await status("")).toBe(Serving.NOT_SERVING);
  });

  it("tells a watcher of every change, and of the end", async () => {
    let ready = true;
    const gateway = await open({ ready: () => ready });
    const client = createClient(Health, createGrpcTransport({ baseUrl: gateway.base }));
    const seen: number[] = [];
    try {
      for await (const { status } of client.watch({ service: "" })) {
        seen.push(status);
        if (ready) ready = false;
        else void gateway.server.drain(0);
      }
    } catch (thrown) {
      expect(ConnectError.from(thrown).code).toBe(Code.Unavailable);
    }
    expect(seen).toEqual([Serving.SERVING, Serving.NOT_SERVING]);
    for await (const { status } of watchOnce(await open({}))) expect(status).toBe(Serving.SERVICE_UNKNOWN);
  });
});

async function* watchOnce(gateway: TestGateway) {
  const client = createClient(Health, createGrpcTransport({ baseUrl: gateway.base }));
  for await (const response of client.watch({ service: "no.Such" })) {
    yield response;
    return;
  }
}

describe("reflection", () => {
  it.each(["grpc-v1", "grpc-v1alpha"])("lists what the server serves, by %s", async (version) => {
    const gateway = await open({});
    const { out } = await run("node_modules/.bin/buf", [
      "curl",
      "--http2-prior-knowledge",
      "--reflect-protocol",
      version,
      "--list-services",
      gateway.base,
    ]);
    expect(out.trim().split("\n")).toEqual([
      "grpc.health.v1.Health",
      "grpc.reflection.v1.ServerReflection",
      "grpc.reflection.v1alpha.ServerReflection",
      ...SERVICES.map(({ typeName }) => typeName).sort(),
    ]);
  });
});
