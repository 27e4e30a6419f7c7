import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { describe, expect, it } from "vitest";
import { Health, HealthCheckResponse_ServingStatus as Serving } from "../../gen/grpc/health/v1/health_pb.ts";
import { InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import { type HouseOptions, openForTest as open, shareGateways, type TestGateway } from "./gateway.ts";
import { AUTH, CHUNK, call, codeOf, envelope, frame, REQUEST, reasonOf } from "./grpc-caller.ts";

shareGateways();

describe.each([
  ["by Connect", true],
  ["by the gateway's own transport", false],
])("gRPC %s", (_, byConnect) => {
  const openWith = (rpcs: NonNullable<HouseOptions["rpcs"]>) => open({ rpcs, byConnect });

  it("works with its own client", async () => {
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
});

describe("an unknown method", () => {
  it("is unimplemented, with trailers only", async () => {
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

  it("reports every change and the end to a watcher", async () => {
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
