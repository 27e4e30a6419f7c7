/** HTTP/2 bodies that do not come: each has as long to arrive as one of HTTP/1, on every transport. */
import { once } from "node:events";
import * as http2 from "node:http2";
import { create, toBinary } from "@bufbuild/protobuf";
import { expect, it } from "vitest";
import { ActRequestSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { GetHealthResponseSchema } from "../../gen/limber/v1/operations_service_pb.ts";
import { frameMessage } from "../../src/codecs/grpc.ts";
import { KEY, message, openForTest, shareGateways } from "./gateway.ts";

shareGateways();

const GRPC = { "content-type": "application/grpc", te: "trailers", authorization: `Bearer ${KEY}` };
const ACT = { ":method": "POST", ":path": "/limber.v1.InferenceService/Act", ...GRPC };
const REST = {
  ":method": "POST",
  ":path": "/v1/act",
  "content-type": "application/json",
  authorization: `Bearer ${KEY}`,
};
const REFLECTION = { ...ACT, ":path": "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" };
const HALF = frameMessage(toBinary(ActRequestSchema, create(ActRequestSchema, { model: "o/n" }))).subarray(0, 6);

const SOON = { requestTimeoutMs: 300 };
const RPCS = { GetHealth: () => message(GetHealthResponseSchema, {}) };

it.each([
  ["on gRPC", false, ACT, { "grpc-status": "4" }],
  ["on gRPC by Connect", true, ACT, { "grpc-status": "4" }],
  ["on REST", false, REST, { ":status": 408 }],
])("a missing body is refused %s and its slot released", async (_, byConnect, headers, said) => {
  const gateway = await openForTest({ rpcs: RPCS, byConnect, port: SOON });
  const session = http2.connect(gateway.base);
  try {
    const conversation = session.request(REFLECTION, { endStream: false });
    conversation.on("error", () => undefined).resume();
    const request = session.request(headers, { endStream: false });
    request.on("error", () => undefined).resume();
    request.write(HALF);
    const [head] = await once(request, "response");
    expect(head).toMatchObject(said);
    if (!request.closed) await once(request, "close");
    await expect.poll(() => gateway.inside()).toBe(0);
    expect(gateway.lines).toHaveLength(1);
    // Conversations have no end that a clock would know.
    expect(conversation.closed).toBe(false);
    // The connection serves on.
    const next = session.request({ ":path": "/health" });
    const [answer] = await once(next.resume(), "response");
    expect(answer[":status"]).toBe(200);
  } finally {
    session.destroy();
  }
});

it.each([
  ["on gRPC", false, ACT],
  ["on gRPC by Connect", true, ACT],
  ["on REST", false, REST],
])("a call reset %s during the key lookup leaves no state", async (_, byConnect, headers) => {
  const { promise: lookUp, resolve: found } = Promise.withResolvers<void>();
  const gateway = await openForTest({ rpcs: RPCS, byConnect, lookUp });
  const session = http2.connect(gateway.base);
  try {
    const request = session.request(headers, { endStream: false });
    request.on("error", () => undefined).resume();
    request.write(HALF);
    await expect.poll(() => gateway.inside()).toBe(1);
    request.close(http2.constants.NGHTTP2_CANCEL);
    // The reset has reached the gateway when a later request is answered.
    await once(session.request({ ":path": "/health" }).resume(), "response");
    found();
    await expect.poll(() => gateway.inside()).toBe(0);
  } finally {
    session.destroy();
  }
});
