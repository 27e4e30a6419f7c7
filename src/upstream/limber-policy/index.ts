/** The native wire: gRPC to a server of `limber.policy.v1`, which partners implement from generated stubs. */
import { PolicyService, type ServedModel } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { GRPC_SCHEMES, type GrpcExchange } from "../transport/grpc.ts";
import { type ServerReach, Servers } from "../transport/servers.ts";
import type { CallOptions, UpstreamTarget, Wire } from "../wire.ts";
import { readDescribe, readGround, readPredict } from "./decode.ts";
import {
  type ActMessage,
  AskedAct,
  encodeCommon,
  encodeDescribe,
  encodeGround,
  encodePredict,
  prepareAct,
} from "./encode.ts";
import { PolicyChannel } from "./exchange.ts";

/** The native wire, and the question that only it can ask. */
export interface LimberPolicyWire extends Wire {
  /** What the server serves; throws an UpstreamFailure. */
  describe(target: UpstreamTarget, call: CallOptions): Promise<ServedModel[]>;
}

/** Opens the wire; connections are made on first use. */
export function limberPolicy(reach: ServerReach): LimberPolicyWire {
  const channels = new Servers(reach, GRPC_SCHEMES, (address) => new PolicyChannel(address));

  const describe = async (target: UpstreamTarget, call: CallOptions): Promise<ServedModel[]> =>
    readDescribe(await channels.of(target).unary(exchange("describe", call), encodeDescribe()));

  return {
    id: "limber-policy",
    schemes: Object.keys(GRPC_SCHEMES),
    describe,
    // Without a promise of its own where nothing is waited for: calls in a control loop come this way.
    act(target, input, frames, call) {
      const ask = (prepared: ActMessage) => channels.of(target).act(PATH.act, prepared, call.signal);
      try {
        const preparing = prepareAct(target.model, input, frames, call);
        return preparing instanceof Promise ? preparing.then(ask) : ask(preparing);
      } catch (thrown) {
        return Promise.reject(thrown);
      }
    },
    line(target, input, { requestId }) {
      const common = encodeCommon(target.model, input, requestId);
      return {
        ask(observations, budgetMs, signal, hearer) {
          channels.of(target).ask(PATH.act, new AskedAct(common, observations, budgetMs), signal, hearer);
        },
      };
    },
    predict(target, input, frames, call) {
      const encode = () => encodePredict(target.model, input, frames);
      return channels.of(target).stream(exchange("predict", call), encode, readPredict);
    },
    async ground(target, input, frames, call) {
      const message = await encodeGround(target.model, input, frames);
      return readGround(await channels.of(target).unary(exchange("ground", call), message));
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
