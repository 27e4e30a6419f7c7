/** Whatever bytes a server answers with, what comes of them is an answer or an UpstreamFailure. */
import { readFileSync } from "node:fs";
import { getHeapStatistics } from "node:v8";
import { create, toBinary } from "@bufbuild/protobuf";
import { expect, it } from "vitest";
import {
  ActResponseSchema,
  DescribeResponseSchema,
  GroundResponseSchema,
  PredictResponseSchema,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { ServerDialect } from "../../gen/limber/v1/supply_pb.ts";
import { ZmtpReader } from "../../src/codecs/zmtp.ts";
import { UpstreamFailure } from "../../src/contracts/contract.ts";
import { readPrediction } from "../../src/upstream/cog.ts";
import { readInfer as readCosmos } from "../../src/upstream/cosmos-nim.ts";
import { readAction, readModalityConfig } from "../../src/upstream/gr00t-zmq/messages.ts";
import { readPickledChunk, readTensorChunk } from "../../src/upstream/lerobot-async/messages.ts";
import { readActions } from "../../src/upstream/lerobot-async.ts";
import { readAct, readMessage } from "../../src/upstream/limber-policy/codec.ts";
import { groundAnswerOf, type HeardAct, messageIn, predictPartOf } from "../../src/upstream/limber-policy/messages.ts";
import { arrayOfTensor, type Tensor } from "../../src/upstream/oip.ts";
import { readInfer as readGrpcInfer, readMetadata as readGrpcMetadata } from "../../src/upstream/oip-v2-grpc.ts";
import { readInfer as readRestInfer, readMetadata as readRestMetadata } from "../../src/upstream/oip-v2-rest.ts";
import { readCompletion } from "../../src/upstream/openai-chat/completion.ts";
import { CONVENTIONS, readPlaces } from "../../src/upstream/openai-chat/places.ts";
import { readAnswer, readMetadata } from "../../src/upstream/openpi-ws/messages.ts";
import { readJsonAction } from "../../src/upstream/payload/actions.ts";
import { failureOf } from "../../src/upstream/transport/failures.ts";
import { MAX_MESSAGE_BYTES } from "../../src/upstream/transport/servers.ts";
import { readAction as readHarnessAction, readHello } from "../../src/upstream/vla-eval-ws.ts";
import { readJob } from "../../src/upstream/vllm-omni-videos.ts";
import { readActions as readXPolicyActions } from "../../src/upstream/xpolicylab-ws.ts";
import { f4 } from "../support/openpi-server.ts";
import { pack } from "../support/plain-msgpack.ts";
import { runs } from "../support/runs.ts";
import { completion } from "../support/servers/chat.ts";
import { bytesField } from "../support/servers/grpc.ts";
import { tree } from "../support/servers/vla-eval.ts";
import { nd } from "../support/servers/xpolicylab.ts";
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

/** What models say in every convention. */
const SAID = [
  '<point x="61.5" y="40.6" alt="cup">cup</point><points x1="10" y1="20" x2="30" y2="40">cups</points>',
  '```json\n[{"bbox_2d": [1, 2, 3, 4], "label": "a \\"b\\""}, {"point": [5, 6]}]\n```',
  "<|box_start|>(5,6),(7,8)<|box_end|> cup<loc_1><loc_2><loc_3><loc_4> [(0.1, 0.2)]",
  "<loc0256><loc0768><loc0512><loc1023> cube ; <loc0000><loc0000>",
  '<think>no</think><points coords="1 1 990 800 2 911 800">cups</points>',
].map((text) => Buffer.from(completion(text)));

const readChat = (bytes: Buffer): void => {
  const completion = readCompletion(bytes, 2_048);
  const failures = Object.values(CONVENTIONS).flatMap((convention) => {
    try {
      const seen = { width: 28, height: 28 };
      readPlaces(completion, { convention, seen, asked: "the cup" }, ["front"], 0);
      return [];
    } catch (error) {
      return [error];
    }
  });
  for (const failure of failures) if (!(failure instanceof UpstreamFailure)) throw failure;
};

/** What a model answers and what it says of itself, over gRPC. */
const TENSOR = [bytesField(1, "x"), bytesField(2, "FP32"), bytesField(3, Buffer.of(2, 2))];
const INFERRED = Buffer.concat([
  bytesField(3, ""),
  bytesField(5, Buffer.concat(TENSOR)),
  bytesField(6, Buffer.alloc(16)),
]);
const MODEL = Buffer.concat([bytesField(4, Buffer.concat(TENSOR)), bytesField(5, Buffer.concat(TENSOR))]);

const toArray = (tensor: unknown): void => {
  if (typeof tensor !== "object" || tensor === null || !("data" in tensor)) return;
  try {
    arrayOfTensor(tensor as Tensor);
  } catch (error) {
    throw failureOf(error);
  }
};

/** A greeting, a READY, a short message and a long one. */
const ZMTP = Buffer.concat([
  Buffer.from("ff00000000000000017f03014e554c4c".padEnd(128, "0"), "hex"),
  Buffer.from("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REP\x01\x00\x00\x03abc", "latin1"),
  Buffer.from(`01000200000000000001 2c${"61".repeat(300)}`.replace(" ", ""), "hex"),
]);

/** In two pieces, as a socket may give them. */
const readZmtp = (bytes: Buffer): void => {
  const ignore = (): void => undefined;
  const reader = new ZmtpReader(1_000, { onGreeting: ignore, onCommand: ignore, onMessage: ignore });
  try {
    reader.push(bytes.subarray(0, bytes.length >> 1));
    reader.push(bytes.subarray(bytes.length >> 1));
  } catch (error) {
    throw failureOf(error);
  }
};

const stepsOf = ({ answer }: HeardAct): unknown => {
  if (answer instanceof Error) throw answer;
  return answer.steps;
};

type Reader = [string, readonly Uint8Array[], (bytes: Buffer) => unknown];

const NATIVE: readonly Reader[] = [
  ["an act", [samples.act, samples.error], (bytes) => stepsOf(readAct(bytes))],
  [
    "a predicted frame",
    [samples.frame],
    (bytes) => predictPartOf(messageIn(PredictResponseSchema, bytes, readMessage)),
  ],
  ["a grounding", [samples.ground], (bytes) => groundAnswerOf(messageIn(GroundResponseSchema, bytes, readMessage))],
  ["a description", [samples.describe], (bytes) => messageIn(DescribeResponseSchema, bytes, readMessage).models],
];

const harness = (type: string, payload: object): Buffer => pack(tree({ type, payload, seq: 7, timestamp: 1.5 }));
const HARNESS_HELLO = harness("hello", { action_spec: { position: { name: "position", dims: 3 } } });
const HARNESS_ACTION = harness("action", {
  actions: f4([
    [1, 2],
    [3, 4],
  ]),
});

const XPOLICY_ACTIONS = pack(
  tree({
    message_type: "infer_result",
    message_id: "m-1",
    payload: { actions: [tree({ arm_joint_state: nd([1, 2]), ee_joint_state: nd([3]) })], latency_ms: 1 },
  }),
);

const READERS: readonly Reader[] = [
  ...NATIVE,
  ["openpi's metadata", [recorded("openpi_metadata")], readMetadata],
  [
    "openpi's answer",
    [recorded("openpi_response"), recorded("openpi_response_f16_scalar")],
    (bytes) => readAnswer(bytes, { ...expected([]), dialect: ServerDialect.VLLM_OMNI }),
  ],
  [
    "openpi's answer in parts",
    [recorded("openpi_response")],
    (bytes) => readAnswer(bytes, { ...expected(["actions", "actions"]), dialect: ServerDialect.OPENPI }),
  ],
  ["a harness's hello", [HARNESS_HELLO], readHello],
  [
    "a harness's answer",
    [HARNESS_ACTION],
    (bytes) => readHarnessAction(bytes, { actionKeys: [], actionDims: [] }, 2, 7),
  ],
  [
    "XPolicyLab's actions",
    [XPOLICY_ACTIONS],
    (bytes) => readXPolicyActions(bytes, { actionKeys: [], actionDims: [] }, 2, "m-1"),
  ],
  ["a chat's answer", SAID, readChat],
  [
    "GR00T's answer",
    [recorded("gr00t_n16_response"), recorded("gr00t_n17_response"), recorded("gr00t_error")],
    (bytes) => readAction(bytes, { actionKeys: ["left_arm"], actionDims: [] }, 2),
  ],
  ["GR00T's modalities", [recorded("gr00t_n16_modality_config")], readModalityConfig],
  [
    "OpenVLA's answer",
    [readFileSync(new URL("../golden/wire-samples/openvla_response.json", import.meta.url))],
    (bytes) => readJsonAction(bytes, { actionKeys: [], actionDims: [] }, 1),
  ],
  [
    "a model's tensors over gRPC",
    [INFERRED, MODEL],
    (bytes) => [readGrpcInfer(bytes, ""), readGrpcMetadata(bytes)].flat().map(toArray),
  ],
  [
    "a model's tensors over HTTP",
    [Buffer.from('{"id":"a","outputs":[{"name":"x","datatype":"FP32","shape":[2,2],"data":[[1,2],[3,4]]}]}')],
    (bytes) => readRestInfer(bytes, "a", undefined).map(toArray),
  ],
  [
    "a model's own description over HTTP",
    [
      Buffer.from(
        '{"name":"m","platform":"p","inputs":[{"name":"x","datatype":"FP32","shape":[-1,3]}],"outputs":[{"name":"y","datatype":"FP32","shape":[1,2,7]}]}',
      ),
    ],
    readRestMetadata,
  ],
  [
    "LeRobot's chunk",
    [readFileSync(new URL("../golden/wire-samples/lerobot_actions.pkl", import.meta.url))],
    (bytes) => readPickledChunk(bytes, 0, 1),
  ],
  [
    "LeRobot's chunk without pickles",
    [readFileSync(new URL("../golden/wire-samples/lerobot_actions_safe.bin", import.meta.url))],
    (bytes) => readTensorChunk(bytes, 3, 1),
  ],
  [
    "vLLM-Omni's job",
    [
      Buffer.from('{"id":"video-1","status":"queued","progress":0}'),
      Buffer.from('{"id":"a","status":"failed","error":{"message":"no"}}'),
    ],
    readJob,
  ],
  ["a Cosmos NIM's answer", [Buffer.from('{"b64_video":"AAAAGGZ0eXA=","seed":1}')], readCosmos],
  [
    "a Cog container's answer",
    [Buffer.from('{"id":"a","status":"succeeded","output":["data:image/png;base64,iVBORw0KGgo="]}')],
    (bytes) => readPrediction(bytes, "a"),
  ],
  ["LeRobot's message", [bytesField(1, "abc")], readActions],
  ["ZeroMQ's frames", [ZMTP], readZmtp],
];

it("the text patterns take linear time on adversarial text", () => {
  const bombs = [
    "<point ",
    '<points coords="',
    "(",
    "[{",
    '{"a":',
    "<loc_1>",
    "<loc0001>",
    "```",
    '"\\',
    "<|box_start|>",
    "</think>",
    "x =",
  ];
  const slow: string[] = [];
  for (const bomb of bombs) {
    const text = bomb.repeat(Math.floor(256_000 / bomb.length));
    const began = process.threadCpuUsage();
    try {
      readChat(Buffer.from(completion(text)));
    } catch (error) {
      if (!(error instanceof UpstreamFailure)) throw error;
    }
    const { user, system } = process.threadCpuUsage(began);
    if (user + system > 1_000_000) slow.push(bomb); // coarse: seven readers of 256 KiB each
  }
  expect(slow).toEqual([]);
});

/** What one damaged frame may cost, whatever it claims: of the thread's own time, and of memory. */
const MOST_CPU_US = 100_000;

const heldBytes = (): number => {
  const { external_memory, used_heap_size } = getHeapStatistics();
  return external_memory + used_heap_size;
};

it.each(READERS)(
  "%s parses damaged messages with no other error type, in bounded time, and within the memory of one message",
  (_, good, read) => {
    let failures = 0;
    const slow: string[] = [];
    const large: string[] = [];
    for (const bytes of mutations(
      good.map((each) => Buffer.from(each)),
      runs(2_000),
      7,
    )) {
      const held = heldBytes();
      const cpuUs = (): number => {
        const began = process.threadCpuUsage();
        try {
          read(bytes);
        } catch (error) {
          failures++;
          if (!(error instanceof UpstreamFailure))
            throw new Error(`${bytes.toString("hex")} made another error`, { cause: error });
        }
        const { user, system } = process.threadCpuUsage(began);
        return user + system;
      };
      // A collection of the whole process may fall into one reading, and not into three.
      if ([1, 2, 3].every(() => cpuUs() > MOST_CPU_US)) slow.push(bytes.toString("hex"));
      if (heldBytes() - held > MAX_MESSAGE_BYTES) large.push(bytes.toString("hex"));
    }
    expect(failures).toBeGreaterThan(20);
    expect([slow, large]).toEqual([[], []]);
  },
);
