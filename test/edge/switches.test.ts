/** The hand-written paths of the edge, each switched off alone and all of them: what callers hear is the same. */

import { fromBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { ActResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { readConfig } from "../../src/config.ts";
import { callRest } from "../support/app.ts";
import { type HouseOptions, KEY, openForTest } from "./gateway.ts";
import { ACT, CHUNK, call, envelope, REQUEST } from "./grpc-caller.ts";

const BODY = { model: "o/n", observations: [{ proprio: [1] }] };

describe.each<[string, HouseOptions]>([
  ["everything on", { fastPath: true }],
  ["the lane of HTTP/1 off", { fastPath: true, port: { lane: undefined } }],
  ["gRPC's own framing off", { port: { findTaker: () => undefined } }],
  ["sessions of our own off", {}],
  ["shared reads off", { fastPath: true, port: { sharedReads: false } }],
  ["everything off", { port: { lane: undefined, sharedReads: false } }],
])("with %s", (_, options) => {
  it("an act is answered, and one without a key is refused, over REST, Connect and gRPC", async () => {
    const gateway = await openForTest({ ...options, rpcs: { Act: () => CHUNK } });
    for (const path of ["/v1/act", ACT]) {
      for (let nth = 0; nth < 3; nth++) {
        const { status, body } = await callRest(gateway.base, path, BODY, { key: KEY });
        expect([path, status, body.id]).toEqual([path, 200, "act_1"]);
      }
      expect((await callRest(gateway.base, path, BODY)).status).toBe(401);
    }
    const { status, body } = await call(gateway, ACT, envelope(REQUEST));
    expect(status["grpc-status"]).toBe("0");
    expect(fromBinary(ActResponseSchema, body.subarray(5)).id).toBe("act_1");
    const refused = await call(gateway, ACT, envelope(REQUEST), { authorization: "Bearer other" });
    expect(refused.status["grpc-status"]).toBe("16");
  });
});

it.each([
  ["LIMBER_HTTP1_FAST_PATH", "http1FastPath"],
  ["LIMBER_HTTP2_FAST_PATH", "http2FastPath"],
  ["LIMBER_GRPC_FAST_PATH", "grpcFastPath"],
  ["LIMBER_SHARED_READS", "sharedReads"],
] as const)("%s is on, and can be off", (name, field) => {
  expect(readConfig({})[field]).toBe(true);
  expect(readConfig({ [name]: "off" })[field]).toBe(false);
});
