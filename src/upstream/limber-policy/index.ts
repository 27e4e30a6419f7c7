/** The native wire: gRPC to a server of `limber.policy.v1`, which partners implement from generated stubs. */
import {
  DescribeResponseSchema,
  GroundRequestSchema,
  GroundResponseSchema,
  PolicyService,
  PredictRequestSchema,
  PredictResponseSchema,
  type ServedModel,
} from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { GRPC_SCHEMES, type GrpcExchange } from "../transport/grpc.ts";
import { type ServerReach, Servers } from "../transport/servers.ts";
import type { CallOptions, UpstreamTarget, Wire } from "../wire.ts";
import { encodeAct, loopEncoder, readMessage } from "./codec.ts";
import { groundAnswerOf, messageIn, predictPartOf } from "./decode.ts";
import { framed, framedDescribe, groundRequestOf, predictRequestOf } from "./encode.ts";
import { PolicyChannel } from "./exchange.ts";

/** The native wire, and the question that only it can ask. */
export interface LimberPolicyWire extends Wire {
  /** What the server serves; throws an UpstreamFailure. */
  describe(target: UpstreamTarget, call: CallOptions): Promise<ServedModel[]>;
}

/** Opens the wire; connections are made on first use. */
export function limberPolicy(reach: ServerReach): LimberPolicyWire {
  const channels = new Servers(reach, GRPC_SCHEMES, (address) => new PolicyChannel(reach.openGrpc(address)));

  const describe = async (target: UpstreamTarget, call: CallOptions): Promise<ServedModel[]> => {
    const bytes = await channels.of(target).unary(exchange("describe", call), framedDescribe());
    return messageIn(DescribeResponseSchema, bytes, readMessage).models;
  };

  return {
    id: "limber-policy",
    asksHorizon: true,
    schemes: Object.keys(GRPC_SCHEMES),
    describe,
    async act(target, input, frames, call) {
      const message = await encodeAct(target.model, input, frames, call);
      return await channels.of(target).act(PATH.act, message, call.signal);
    },
    line(target, input, { requestId }) {
      const messageOf = loopEncoder(target.model, input, requestId);
      return {
        ask(observations, budgetMs, signal, hearer) {
          channels.of(target).ask(PATH.act, messageOf(observations, budgetMs), signal, hearer);
        },
      };
    },
    predict(target, input, frames, call) {
      const encode = async () => framed(PredictRequestSchema, await predictRequestOf(target.model, input, frames));
      const read = (part: Buffer) => predictPartOf(messageIn(PredictResponseSchema, part, readMessage));
      return channels.of(target).stream(exchange("predict", call), encode, read);
    },
    async ground(target, input, frames, call) {
      const message = framed(GroundRequestSchema, await groundRequestOf(target.model, input, frames));
      const bytes = await channels.of(target).unary(exchange("ground", call), message);
      return groundAnswerOf(messageIn(GroundResponseSchema, bytes, readMessage));
    },
    async health(target, call) {
      await describe(target, call);
    },
    async close() {
      channels.close();
    },
  };
}

type PolicyMethod = keyof typeof PolicyService.method;

const pathOf = (method: PolicyMethod): string => `/${PolicyService.typeName}/${PolicyService.method[method].name}`;

const PATH: Readonly<Record<PolicyMethod, string>> = {
  describe: pathOf("describe"),
  act: pathOf("act"),
  predict: pathOf("predict"),
  ground: pathOf("ground"),
};

const exchange = (method: PolicyMethod, { signal, budgetMs, requestId, traceparent }: CallOptions): GrpcExchange => ({
  path: PATH[method],
  signal,
  budgetMs,
  requestId,
  traceparent,
});
