/** The reference provider on the native wire: `limber.policy.v1` over gRPC. */
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type ActCall,
  ActRequestSchema,
  ActResponseSchema,
  CallErrorCode,
  DescribeResponseSchema,
  GroundRequestSchema,
  GroundResponseSchema,
  PolicyService,
  PredictRequestSchema,
  PredictResponseSchema,
  type ServedModelSchema,
} from "../../gen/limber/policy/v1/policy_service_pb.ts";
import { Contract } from "../../gen/limber/v1/contract_pb.ts";
import type { ObservationSchema } from "../../gen/limber/v1/observation_pb.ts";
import type { ActionDeclaration } from "./act/types.ts";
import { act, ground, predict } from "./answers.ts";
import { type BidiMethod, type GrpcServer, Status, StatusError, type StreamMethod, serveGrpc } from "./grpc.ts";
import { UnreadableImage } from "./image.ts";
import { REFERENCE_MODELS, type ReferenceModel } from "./models.ts";
import { Busy, type Pictures } from "./pictures.ts";
import { inputOf, meaningsOf } from "./reads.ts";
import { UnsupportedObservation } from "./unsupported.ts";

/** A model served by another server. */
export interface ServedElsewhere {
  readonly slug: string;
  readonly actionSpace: string;
  readonly runtime: string;
  readonly endpoint: string;
  readonly maxHorizon: number;
}

/** Serves every reference model; `elsewhere` is only described. Port 0 selects a free one. */
export function servePolicies(
  listen: { readonly host: string; readonly port: number },
  pictures: Pictures,
  elsewhere: readonly ServedElsewhere[],
): Promise<GrpcServer> {
  const { typeName, method } = PolicyService;
  return serveGrpc(
    {
      [`/${typeName}/${method.describe.name}`]: describe(elsewhere),
      [`/${typeName}/${method.act.name}`]: acts,
      [`/${typeName}/${method.predict.name}`]: predictions(pictures),
      [`/${typeName}/${method.ground.name}`]: groundings(pictures),
    },
    listen,
  );
}

function describe(elsewhere: readonly ServedElsewhere[]): StreamMethod {
  const models = [...REFERENCE_MODELS.map((model) => cardOf(model)), ...elsewhere.map(cardElsewhere)];
  const answer = toBinary(DescribeResponseSchema, create(DescribeResponseSchema, { models }));
  return {
    kind: "stream",
    async *answer() {
      yield answer;
    },
  };
}

const CONTRACTS = { act: Contract.ACT, predict: Contract.PREDICT, ground: Contract.GROUND } as const;

/** Dimensions that the action space does not fix. */
const DECLARED_DIMS: readonly string[] = ["continuous_nd", "latent_action"];

function cardOf(model: ReferenceModel, actions = model.actions): MessageInitShape<typeof ServedModelSchema> {
  return {
    slug: model.slug,
    name: model.name,
    summary: model.summary,
    limits: model.limits.join(" "),
    contracts: model.contracts.map((contract) => CONTRACTS[contract]),
    actionSpaces: actions.map(({ space }) => space),
    actionDim: actions.find(({ space }) => DECLARED_DIMS.includes(space))?.dim ?? 0,
    embodiments: [...model.embodiments],
    family: model.family,
    dtMs: actions[0]?.dtMs ?? 0,
    maxHorizon: model.maxHorizon,
    proprioNames: [...(actions[0]?.proprioLayouts[0] ?? [])],
    parameters: [...model.parameters],
    samples: samplesOf(actions[0]),
    input: inputOf(model, actions),
    actions: meaningsOf(actions),
  };
}

/** Two observations with different answers; for models with vision their images differ. */
function samplesOf(declaration: ActionDeclaration | undefined): MessageInitShape<typeof ObservationSchema>[] {
  if (declaration === undefined) return [];
  const names = declaration.proprioLayouts[0] ?? [];
  return [0.3, 2].map((angle) => ({
    proprioNames: [...names],
    proprio: names.map((name, at) => sampleOf(name, at, angle, declaration.proprioScale)),
  }));
}

/** An angle is given by its cosine and sine; other numbers can be any small value of their scale. */
function sampleOf(name: string, at: number, angle: number, scale = 1): number {
  if (name.startsWith("cos_")) return Math.cos(angle);
  if (name.startsWith("sin_")) return Math.sin(angle);
  return scale * (0.1 + 0.02 * at + 0.1 * angle);
}

function cardElsewhere(served: ServedElsewhere): MessageInitShape<typeof ServedModelSchema> {
  const model = REFERENCE_MODELS.find(({ slug }) => slug === served.slug);
  if (model === undefined) throw new Error(`${served.slug} is not a reference model`);
  const card = cardOf(
    model,
    model.actions.filter(({ space }) => space === served.actionSpace),
  );
  const { runtime, endpoint, maxHorizon } = served;
  return { ...card, runtime, endpoint, maxHorizon };
}

/** The maximum of concurrent acts per client on one stream. */
const MAX_ACTS = 256;

const acts: BidiMethod = {
  kind: "bidi",
  open(answer, signal) {
    const running = new Set<number>();
    const say = (callId: number, body: ActBody): void => {
      if (running.delete(callId)) answer(toBinary(ActResponseSchema, create(ActResponseSchema, { callId, body })));
    };
    return (bytes) => {
      const { callId, body } = fromBinary(ActRequestSchema, bytes);
      if (body.case === "cancel") running.delete(callId);
      if (body.case !== "call" || signal.aborted) return;
      const isFull = running.size >= MAX_ACTS;
      running.add(callId);
      if (isFull) return say(callId, callError(CallErrorCode.BUSY, "too many concurrent acts"));
      void answerTo(body.value).then((chunk) => say(callId, chunk));
    };
  },
};

type ActBody = NonNullable<MessageInitShape<typeof ActResponseSchema>["body"]>;

/** A failed call is an answer: the stream continues. */
async function answerTo(call: ActCall): Promise<ActBody> {
  try {
    return { case: "chunk", value: await act(call) };
  } catch (error) {
    if (isInputError(error)) return callError(CallErrorCode.INVALID_INPUT, error.message);
    return callError(CallErrorCode.INTERNAL, String(error));
  }
}

const callError = (code: CallErrorCode, message: string): ActBody => ({ case: "error", value: { code, message } });

const predictions = (pictures: Pictures): StreamMethod => ({
  kind: "stream",
  async *answer(bytes) {
    try {
      for await (const response of predict(fromBinary(PredictRequestSchema, bytes), pictures)) {
        yield toBinary(PredictResponseSchema, response);
      }
    } catch (error) {
      throw statusOf(error);
    }
  },
});

const groundings = (pictures: Pictures): StreamMethod => ({
  kind: "stream",
  async *answer(bytes) {
    try {
      yield toBinary(GroundResponseSchema, await ground(fromBinary(GroundRequestSchema, bytes), pictures));
    } catch (error) {
      throw statusOf(error);
    }
  },
});

const isInputError = (error: unknown): error is Error =>
  error instanceof UnsupportedObservation || error instanceof UnreadableImage;

function statusOf(error: unknown): unknown {
  if (isInputError(error)) return new StatusError(Status.invalidArgument, error.message);
  return error instanceof Busy ? new StatusError(Status.resourceExhausted, error.message) : error;
}
