/** A partner's model that does its work honestly until a test scripts it: a server of `limber.policy.v1` with all three contracts. */
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type ActCall,
  type ActChunkSchema,
  ActRequestSchema,
  CallErrorCode,
  DescribeResponseSchema,
  type GroundRequest,
  GroundRequestSchema,
  GroundResponseSchema,
  type PredictRequest,
  PredictRequestSchema,
  PredictResponseSchema,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { ImageFormat } from "../../gen/limber/v1/observation_pb.ts";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import { centreOfRed } from "./centre-of-red.ts";
import { type PolicyServer, response, type Served, startPolicyServer } from "./policy-server.ts";

/** What a test may do with the calls to come; undefined leaves the honest answer. */
export interface Script {
  /** Gets each act; `answer` sends these steps under its id. */
  /** What it says of itself. */
  describe?: ((served: Served) => void) | undefined;
  act?:
    | ((
        call: ActCall,
        answer: (steps: readonly (readonly number[])[], more?: MessageInitShape<typeof ActChunkSchema>) => void,
        served: Served,
        /** Answers it by an error: the server's own, unless `code` is given. */
        fail: (message: string, code?: CallErrorCode) => void,
      ) => void)
    | undefined;
  predict?: ((call: PredictRequest, served: Served) => void | Promise<void>) | undefined;
  ground?: ((call: GroundRequest, served: Served) => void) | undefined;
}

/** The server, its script, and everything that it was asked. */
export interface Model {
  readonly endpoint: string;
  readonly script: Script;
  readonly acts: readonly ActCall[];
  readonly predicts: readonly PredictRequest[];
  readonly grounds: readonly GroundRequest[];
  /** How many acts and predictions the gateway called off. */
  readonly cancelled: () => number;
  close(): Promise<void>;
}

/** Steps that depend on what was observed: `horizon` of them, `dim` numbers each. */
export const honestSteps = ({ horizon, observations }: ActCall, dim: number): number[][] =>
  Array.from({ length: horizon }, (_, step) =>
    Array.from({ length: dim }, (_, i) => (observations.at(-1)?.proprio[0] ?? 0) + step / 100 + i / 1000),
  );

const DIMS: Readonly<Record<string, number>> = {
  base_twist_2d: 2,
  waypoint_se2: 3,
  ee_delta_6d_grip: 7,
  joint_pos_7: 7,
};

/** Starts a model on loopback. */
export async function startModel(script: Script = {}): Promise<Model> {
  const acts: ActCall[] = [];
  const predicts: PredictRequest[] = [];
  const grounds: GroundRequest[] = [];
  let cancelled = 0;

  const serveAct = (served: Served): void => {
    let read = 0;
    served.stream.on("grpc-message", () => {
      while (read < served.messages.length) {
        const { callId, body } = fromBinary(ActRequestSchema, served.messages[read++]!);
        if (body.case === "cancel") cancelled++;
        if (body.case !== "call") continue;
        const call = body.value;
        acts.push(call);
        const answer = (
          steps: readonly (readonly number[])[],
          more: MessageInitShape<typeof ActChunkSchema> = {},
        ): void => {
          const value = { steps: steps.map((values) => ({ values: [...values] })), gpuSeconds: 0.0025, ...more };
          served.send(response(callId, { case: "chunk", value }));
        };
        const fail = (message: string, code: CallErrorCode = CallErrorCode.INTERNAL): void =>
          served.send(response(callId, { case: "error", value: { code, message } }));
        if (script.act) script.act(call, answer, served, fail);
        else answer(honestSteps(call, DIMS[call.actionSpace] ?? 1));
      }
    });
  };

  const servePredict = async (served: Served): Promise<void> => {
    served.stream.once("close", () => {
      if (served.stream.rstCode !== 0) cancelled++;
    });
    await served.ended;
    const call = fromBinary(PredictRequestSchema, served.messages[0]!);
    predicts.push(call);
    if (script.predict) return script.predict(call, served);
    for (let index = 0; index < call.horizon; index++) served.send(await frameOf(call, index));
    served.send(summary());
    served.end();
  };

  const serveGround = async (served: Served): Promise<void> => {
    await served.ended;
    const call = fromBinary(GroundRequestSchema, served.messages[0]!);
    grounds.push(call);
    if (script.ground) return script.ground(call, served);
    const [frame] = call.observation?.frames ?? [];
    const at = (frame && (await centreOfRed(frame.data).catch(() => undefined))) ?? { x: 0.75, y: 0.25 };
    const points = [{ ...at, label: "square", confidence: 0.9, frame: 0, camera: "front" }];
    const answer = create(GroundResponseSchema, { points, inputTokens: 300, outputTokens: 20 });
    served.send(toBinary(GroundResponseSchema, answer));
    served.end();
  };

  const serveDescribe = (served: Served): void => {
    if (script.describe) script.describe(served);
    else {
      served.send(toBinary(DescribeResponseSchema, create(DescribeResponseSchema)));
      served.end();
    }
  };

  const server: PolicyServer = await startPolicyServer({
    methods: { Describe: serveDescribe, Act: serveAct, Predict: servePredict, Ground: serveGround },
  });
  return {
    endpoint: server.endpoint,
    script,
    acts,
    predicts,
    grounds,
    cancelled: () => cancelled,
    close: server.close,
  };
}

/** One frame of an honest prediction: a small picture that depends on what was observed. */
export async function frameOf({ observations }: PredictRequest, index: number): Promise<Uint8Array> {
  const seen = observations.at(-1)?.frames[0]?.data.length ?? 0;
  const frame = {
    index,
    tMs: (index + 1) * 50,
    camera: "front",
    width: 32,
    height: 32,
    format: ImageFormat.PNG,
    data: await redSquare(0.3 + (seen % 40) / 100, 0.5, 32),
  };
  return toBinary(PredictResponseSchema, create(PredictResponseSchema, { body: { case: "frame", value: frame } }));
}

/** The end of an honest prediction. */
export const summary = (): Uint8Array =>
  toBinary(
    PredictResponseSchema,
    create(PredictResponseSchema, { body: { case: "summary", value: { gpuSeconds: 0.01 } } }),
  );
