/** gRPC clients that are programs of their own: what they understand of the gateway. */
import { existsSync } from "node:fs";
import { toBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { ActResponseSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { SERVICES } from "../../../src/app/services.ts";
import { Reason, refuse } from "../../../src/errors.ts";
import { type HouseOptions, KEY, openForTest as open, shareGateways } from "../../edge/gateway.ts";
import { ACT, CHUNK, frame, LARGE, REQUEST, STREAM_REQUEST } from "../../edge/grpc-caller.ts";
import { run } from "../../edge/run.ts";

shareGateways();

describe.each([
  ["by Connect", true],
  ["by the gateway's own transport", false],
])("gRPC %s", (_, byConnect) => {
  const openWith = (rpcs: NonNullable<HouseOptions["rpcs"]>) => open({ rpcs, byConnect });

  it("works with buf curl, whose only schema is from reflection", async () => {
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

  it.runIf(existsSync("/usr/lib/python3/dist-packages/grpc"))("works with Python's grpcio", async () => {
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
        "UNIMPLEMENTED method not found",
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

describe("gRPC reflection", () => {
  it.each(["grpc-v1", "grpc-v1alpha"])("lists the served services, by %s", async (version) => {
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
