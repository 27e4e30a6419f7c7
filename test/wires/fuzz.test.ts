/** Whatever bytes a server answers with, what comes of them is an answer or an UpstreamFailure. */
import { readFileSync } from "node:fs";
import { create, toBinary } from "@bufbuild/protobuf";
import { expect, it } from "vitest";
import {
  ActResponseSchema,
  DescribeResponseSchema,
  GroundResponseSchema,
  PredictResponseSchema,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { UpstreamFailure } from "../../src/contracts/failure.ts";
import {
  actAnswerOf,
  readAct,
  readDescribe,
  readGround,
  readPredict,
} from "../../src/upstream/limber-policy/decode.ts";
import { readAnswer, readMetadata } from "../../src/upstream/openpi-ws/decode.ts";
import { mutations } from "../unit/codecs/fuzz.ts";

const recorded = (name: string): Buffer =>
  readFileSync(new URL(`../golden/wire-samples/${name}.msgpack`, import.meta.url));

const chunk = {
  steps: [{ values: [1, 2, 3] }, { values: [4, 5, 6] }],
  note: "a note",
  prediction: [{ data: Buffer.alloc(9) }],
};
const point = { x: 0.5, y: 0.5, label: "cube" };
const samples = {
  act: toBinary(ActResponseSchema, create(ActResponseSchema, { callId: 300, body: { case: "chunk", value: chunk } })),
  error: toBinary(ActResponseSchema, create(ActResponseSchema, { body: { case: "error", value: { message: "no" } } })),
  frame: toBinary(
    PredictResponseSchema,
    create(PredictResponseSchema, { body: { case: "frame", value: { index: 3 } } }),
  ),
  ground: toBinary(GroundResponseSchema, create(GroundResponseSchema, { points: [point], boxes: [{ xMax: 1 }] })),
  describe: toBinary(
    DescribeResponseSchema,
    create(DescribeResponseSchema, { models: [{ slug: "a/b", cameras: ["c"] }] }),
  ),
};

const expected = (actionKeys: string[]) => ({
  profile: { actionKeys, actionDims: [] },
  horizon: 2,
  requestId: "req_1",
});

const READERS: readonly [string, readonly Uint8Array[], (bytes: Buffer) => unknown][] = [
  ["an act", [samples.act, samples.error], (bytes) => actAnswerOf(readAct(bytes))],
  ["a predicted frame", [samples.frame], readPredict],
  ["a grounding", [samples.ground], readGround],
  ["a description", [samples.describe], readDescribe],
  ["openpi's metadata", [recorded("openpi_metadata")], readMetadata],
  [
    "openpi's answer",
    [recorded("openpi_response"), recorded("openpi_response_f16_scalar")],
    (bytes) => readAnswer(bytes, expected([])),
  ],
  [
    "openpi's answer in parts",
    [recorded("openpi_response")],
    (bytes) => readAnswer(bytes, expected(["actions", "actions"])),
  ],
];

it.each(READERS)("reads 10,000 damaged forms of %s without any other error", (_, good, read) => {
  let failures = 0;
  for (const bytes of mutations(
    good.map((each) => Buffer.from(each)),
    10_000,
    7,
  )) {
    try {
      read(bytes);
    } catch (error) {
      failures++;
      if (!(error instanceof UpstreamFailure))
        throw new Error(`${bytes.toString("hex")} made another error`, { cause: error });
    }
  }
  expect(failures).toBeGreaterThan(100);
});
