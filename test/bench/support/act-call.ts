/** The act call that benchmarks make: one picture of one pixel and 14 joints, for 16 steps of 7. */
import { create, toBinary } from "@bufbuild/protobuf";
import { ActRequestSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage } from "../../../src/codecs/grpc.ts";

const PROPRIO = Array.from({ length: 14 }, (_, i) => i / 16);
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const ASKED = { model: "bench/instant", instruction: "pick up the cup" };

/** Where the call goes over gRPC. */
export const GRPC_PATH = "/limber.v1.InferenceService/Act";

/** The body of the call over REST. */
export const actJson = Buffer.from(
  JSON.stringify({
    ...ASKED,
    observations: [{ frames: [{ camera: "front", url: `data:image/png;base64,${PIXEL}` }], proprio: PROPRIO }],
  }),
);

/** The one framed message of the call over gRPC. */
export const actFrame = frameMessage(
  toBinary(
    ActRequestSchema,
    create(ActRequestSchema, {
      ...ASKED,
      observations: [{ frames: [{ camera: "front", data: Buffer.from(PIXEL, "base64") }], proprio: PROPRIO }],
    }),
  ),
);
