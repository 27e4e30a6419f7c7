/** Every wire that acts, with the little that differs between them: what the shared suite is run over. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { NumberType, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import type { UpstreamTarget } from "../../src/upstream/wire.ts";
import type { ActServer } from "../support/act-server.ts";
import { startOpenpiServer } from "../support/openpi-server.ts";
import { startPolicyServer } from "../support/policy-server.ts";
import { startGr00tServer } from "../support/servers/gr00t.ts";
import { startDexboticServer, startTetherServer } from "../support/servers/json-acts.ts";
import { startGr00tHttpServer, startOpenvlaServer } from "../support/servers/json-numpy.ts";
import { startLerobotServer } from "../support/servers/lerobot.ts";
import { startRemoteServer } from "../support/servers/lerobot-remote.ts";
import { startOipGrpcServer, startOipRestServer } from "../support/servers/oip.ts";
import { startVlaEvalServer } from "../support/servers/vla-eval.ts";
import { startXPolicyServer } from "../support/servers/xpolicylab.ts";

/** One wire and a server of ours that speaks it. */
export interface ActWire {
  readonly id: string;
  readonly scheme: string;
  readonly start: () => Promise<ActServer>;
  /** What an offering of the server declares. */
  readonly told?: Partial<UpstreamTarget>;
  /** What an act of the suite's answer says of the work that it took. */
  readonly gpuSeconds: number;
  /** The credential as the server sees it: for an API key, a bearer token, and none. */
  readonly shows: readonly (string | undefined)[];
  /** The protocol has a place for the agent's name. */
  readonly namesAgent: boolean;
  /** How many acts the server gets at one time, at least. */
  readonly atOnce: number;
  /** Connections that acts one after the other take: undici opens a second one while the first comes to rest. */
  readonly connections: number;
  /** Its answers can hold numbers that aren't finite. */
  readonly carriesNaN: boolean;
  /** What is kept of a long traceback. */
  readonly says: RegExp;
  /** What odd answers fail with, where it isn't what it usually is. */
  readonly odd?: readonly string[];
}

const USUAL = {
  gpuSeconds: 0,
  shows: ["Api-Key sk-123", "Bearer sk-123", undefined],
  namesAgent: true,
  atOnce: 4,
  connections: 1,
  carriesNaN: true,
  says: /^ValueError: \[31mx{50,}$/,
} as const;

const HTTP = { ...USUAL, connections: 2 } as const;

const told = (profile: MessageInitShape<typeof WireProfileSchema>): Partial<UpstreamTarget> => ({
  profile: create(WireProfileSchema, profile),
});

const GR00T = {
  proprio: [{ start: 0, end: 3, key: "state.base" }],
  instructionKey: "annotation.task",
  actionKeys: ["base"],
};

/** All of them. */
export const ACT_WIRES: readonly ActWire[] = [
  { ...USUAL, id: "limber-policy", scheme: "grpc", start: startPolicyServer, gpuSeconds: 0.0025 },
  { ...USUAL, id: "openpi-ws", scheme: "ws", start: startOpenpiServer, gpuSeconds: 0.0025 },
  { ...USUAL, id: "vla-eval-ws", scheme: "ws", start: () => startVlaEvalServer() },
  {
    ...USUAL,
    id: "gr00t-zmq",
    scheme: "tcp",
    start: startGr00tServer,
    told: told(GR00T),
    shows: ["sk-123", "sk-123", undefined],
    namesAgent: false,
    atOnce: 1,
  },
  { ...HTTP, id: "gr00t-http", scheme: "http", start: startGr00tHttpServer, told: told(GR00T) },
  {
    ...HTTP,
    id: "openvla-act",
    scheme: "http",
    start: startOpenvlaServer,
    told: told({ proprio: [{ start: 0, end: 3, key: "state", dtype: NumberType.F8 }] }),
    says: /^the server answered "error"$/,
  },
  {
    ...HTTP,
    id: "dexbotic",
    scheme: "http",
    start: () => startDexboticServer(),
    carriesNaN: false,
    says: /^answered HTTP 500$/,
  },
  {
    ...HTTP,
    id: "tether-act",
    scheme: "http",
    start: () => startTetherServer(),
    carriesNaN: false,
    gpuSeconds: 0.0025,
  },
  {
    ...USUAL,
    id: "lerobot-async",
    scheme: "grpc",
    start: startLerobotServer,
    told: told({
      proprio: ["a", "b", "c"].map((key, start) => ({ start, end: start + 1, key, dtype: NumberType.F8 })),
      constants: [
        { key: "policy_type", text: "act" },
        { key: "pretrained_name_or_path", text: "acme/act" },
      ],
    }),
    atOnce: 1,
    says: /ValueError: \[31mx{50,}$/,
  },
  {
    ...USUAL,
    id: "lerobot-remote",
    scheme: "ws",
    start: () => startRemoteServer({ isMany: true }),
    atOnce: 1,
    carriesNaN: false,
  },
  { ...USUAL, id: "xpolicylab-ws", scheme: "ws", start: () => startXPolicyServer(), atOnce: 1 },
  { ...HTTP, id: "oip-v2-rest", scheme: "http", start: startOipRestServer },
  { ...USUAL, id: "oip-v2-grpc", scheme: "grpc", start: startOipGrpcServer, says: /ValueError: \[31mx{50,}$/ },
];
