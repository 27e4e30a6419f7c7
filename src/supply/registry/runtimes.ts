/** The wire protocols that the gateway can serve supply over, as `GET /v1/runtimes` lists them. */
import { create } from "@bufbuild/protobuf";
import { type Runtime, RuntimeSchema } from "../../../gen/limber/v1/registry_pb.ts";
import { Contract } from "../../contracts/contract.ts";
import type { Upstream } from "../../upstream/index.ts";
import type { Wire } from "../../upstream/wire.ts";

/** What a wire can't say of itself. */
type RuntimeFacts = Pick<
  Runtime,
  "name" | "transport" | "direction" | "encodings" | "auth" | "stateful" | "streaming" | "discovery"
>;

const ANY_AUTH = ["none", "bearer", "api_key"];
const WIRE_PROFILE = "/openapi.json#/components/schemas/WireProfile";

const TOLD: Readonly<Record<string, RuntimeFacts>> = {
  "limber-policy": {
    name: "Limber policy service (gRPC, limber.policy.v1)",
    transport: "grpc",
    direction: "gateway_dials",
    encodings: ["protobuf"],
    auth: ANY_AUTH,
    stateful: "session",
    streaming: true,
    discovery: "describe",
  },
  "limber-outbound": {
    name: "Limber policy service, dialed by the supplier (gRPC, limber.outbound.v1)",
    transport: "grpc",
    direction: "supplier_dials",
    encodings: ["protobuf"],
    auth: ["none"],
    stateful: "session",
    streaming: true,
    discovery: "none",
  },
  "openpi-ws": {
    name: "openpi policy server and its dialects",
    transport: "websocket",
    direction: "gateway_dials",
    encodings: ["msgpack"],
    auth: ANY_AUTH,
    stateful: "connection",
    streaming: false,
    discovery: "metadata",
  },
  "vla-eval-ws": {
    name: "vla-evaluation-harness model server",
    transport: "websocket",
    direction: "gateway_dials",
    encodings: ["msgpack"],
    auth: ANY_AUTH,
    stateful: "connection",
    streaming: false,
    discovery: "action_spec",
  },
  "gr00t-zmq": {
    name: "Isaac-GR00T inference service, N1.5 to N1.7",
    transport: "zmq",
    direction: "gateway_dials",
    encodings: ["msgpack", "npy"],
    auth: ANY_AUTH,
    stateful: "none",
    streaming: false,
    discovery: "modality_config",
  },
  "gr00t-http": {
    name: "Isaac-GR00T N1.5 over HTTP",
    transport: "http",
    direction: "gateway_dials",
    encodings: ["json", "json_numpy"],
    auth: ANY_AUTH,
    stateful: "none",
    streaming: false,
    discovery: "none",
  },
  "openvla-act": {
    name: "OpenVLA and OpenVLA-OFT",
    transport: "http",
    direction: "gateway_dials",
    encodings: ["json", "json_numpy"],
    auth: ANY_AUTH,
    stateful: "none",
    streaming: false,
    discovery: "none",
  },
  dexbotic: {
    name: "Dexbotic",
    transport: "http",
    direction: "gateway_dials",
    encodings: ["multipart", "json"],
    auth: ANY_AUTH,
    stateful: "none",
    streaming: false,
    discovery: "none",
  },
  "tether-act": {
    name: "Tether",
    transport: "http",
    direction: "gateway_dials",
    encodings: ["json", "base64"],
    auth: ANY_AUTH,
    stateful: "session",
    streaming: false,
    discovery: "none",
  },
  "lerobot-async": {
    name: "LeRobot asynchronous inference",
    transport: "grpc",
    direction: "gateway_dials",
    encodings: ["protobuf", "pickle", "safetensors"],
    auth: ANY_AUTH,
    stateful: "exclusive",
    streaming: false,
    discovery: "none",
  },
  "lerobot-remote": {
    name: "LeRobot remote inference, protocol version 1, by the carrier beside its server",
    transport: "websocket",
    direction: "gateway_dials",
    encodings: ["msgpack"],
    auth: ANY_AUTH,
    stateful: "exclusive",
    streaming: false,
    discovery: "descriptor",
  },
  "xpolicylab-ws": {
    name: "XPolicyLab policy server",
    transport: "websocket",
    direction: "gateway_dials",
    encodings: ["msgpack"],
    auth: ANY_AUTH,
    stateful: "exclusive",
    streaming: false,
    discovery: "hello",
  },
  "oip-v2-grpc": {
    name: "Open Inference Protocol v2 over gRPC (KServe, Triton)",
    transport: "grpc",
    direction: "gateway_dials",
    encodings: ["protobuf"],
    auth: ANY_AUTH,
    stateful: "none",
    streaming: false,
    discovery: "model_metadata",
  },
  "oip-v2-rest": {
    name: "Open Inference Protocol v2 over HTTP (KServe, Triton)",
    transport: "http",
    direction: "gateway_dials",
    encodings: ["json", "binary_tensor_data"],
    auth: ANY_AUTH,
    stateful: "none",
    streaming: false,
    discovery: "model_metadata",
  },
  "vllm-omni-videos": {
    name: "vLLM-Omni video jobs",
    transport: "http",
    direction: "gateway_dials",
    encodings: ["multipart", "mp4"],
    auth: ANY_AUTH,
    stateful: "none",
    streaming: false,
    discovery: "none",
  },
  "cosmos-nim": {
    name: "NVIDIA Cosmos NIM",
    transport: "http",
    direction: "gateway_dials",
    encodings: ["json", "mp4"],
    auth: ANY_AUTH,
    stateful: "none",
    streaming: false,
    discovery: "none",
  },
  cog: {
    name: "Cog containers",
    transport: "http",
    direction: "gateway_dials",
    encodings: ["json", "data_url"],
    auth: ANY_AUTH,
    stateful: "none",
    streaming: false,
    discovery: "openapi",
  },
  "openai-chat": {
    name: "OpenAI-compatible chat completions",
    transport: "http",
    direction: "gateway_dials",
    encodings: ["json"],
    auth: ANY_AUTH,
    stateful: "none",
    streaming: false,
    discovery: "models",
  },
  simulated: {
    name: "Placeholders for cataloged models without a deployment",
    transport: "none",
    direction: "gateway_dials",
    encodings: [],
    auth: ["none"],
    stateful: "none",
    streaming: true,
    discovery: "none",
  },
};

/** Every runtime that this gateway supports. Throws for a wire without a description: a new one gets its entry above. */
export function runtimesOf({ runtimes, wireOf }: Pick<Upstream, "runtimes" | "wireOf">): Runtime[] {
  return runtimes.map((id) => {
    const wire = wireOf(id);
    const told = TOLD[id];
    if (!wire || !told) throw new Error(`there is nothing to tell of the runtime ${id}`);
    return create(RuntimeSchema, {
      id,
      ...told,
      contracts: contractsOf(wire),
      urlSchemes: wire.schemes.map((scheme) => scheme.replace(":", "")),
      profiles: [...(wire.profiles ?? [])],
      ...((wire.wants ?? wire.faultOf) && { optionsSchema: WIRE_PROFILE }),
    });
  });
}

const contractsOf = ({ act, predict, ground }: Wire): Contract[] => [
  ...(act ? [Contract.ACT] : []),
  ...(predict ? [Contract.PREDICT] : []),
  ...(ground ? [Contract.GROUND] : []),
];
