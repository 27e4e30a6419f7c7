/** The wires to model servers: one protocol per runtime. */

import { cog } from "./cog.ts";
import { cosmosNim } from "./cosmos-nim.ts";
import { dexbotic } from "./dexbotic.ts";
import { gr00tHttp } from "./gr00t-http.ts";
import { gr00tZmq } from "./gr00t-zmq.ts";
import { lerobotAsync } from "./lerobot-async.ts";
import { lerobotRemote } from "./lerobot-remote.ts";
import { limberOutbound, OutboundHub } from "./limber-outbound.ts";
import { type LimberPolicyWire, limberPolicy } from "./limber-policy.ts";
import { oipV2Grpc } from "./oip-v2-grpc.ts";
import { oipV2Rest } from "./oip-v2-rest.ts";
import { openaiChat } from "./openai-chat.ts";
import { openpiWs } from "./openpi-ws.ts";
import { openvlaAct } from "./openvla-act.ts";
import { simulated } from "./simulated.ts";
import { tetherAct } from "./tether-act.ts";
import { localLeases, type ServerLeases } from "./transport/exclusive.ts";
import { guardedLookup } from "./transport/guard.ts";
import { FoundAddresses, type ServerReach } from "./transport/servers.ts";
import { vlaEvalWs } from "./vla-eval-ws.ts";
import { vllmOmniVideos } from "./vllm-omni-videos.ts";
import type { Wire } from "./wire.ts";
import { xpolicylabWs } from "./xpolicylab-ws.ts";

/** All wires, with their connections. */
export interface Upstream {
  /** The names of all runtimes. */
  readonly runtimes: readonly string[];
  /** The wire of a runtime; undefined if unknown. */
  wireOf(runtime: string): Wire | undefined;
  /** The native wire, which can also request a server's description. */
  readonly native: LimberPolicyWire;
  /** The address that served the last call to an endpoint, if its wire adds a path to it; undefined before the first response. */
  addressOf(endpoint: string): string | undefined;
  /** The hub of servers that dial the gateway. */
  readonly hub: OutboundHub;
  /** Closes all connections of all wires; running calls fail. */
  close(): Promise<void>;
}

/**
 * Opens the wires, which connect only where the options allow; connections are opened on first use. `leases` are those of all replicas, if there
 * are several.
 */
export function createUpstream(
  options: Omit<ServerReach, "lookup" | "found">,
  leases: ServerLeases = localLeases(),
): Upstream {
  const found = new FoundAddresses();
  const reach: ServerReach = { ...options, lookup: guardedLookup(options), found };
  const native = limberPolicy(reach);
  const hub = new OutboundHub();
  const wires = [
    native, // gRPC, partners' own servers
    openpiWs(reach), // openpi and its dialects
    vlaEvalWs(reach), // vla-evaluation-harness
    gr00tZmq(reach), // Isaac-GR00T
    gr00tHttp(reach), // its older form over HTTP
    openvlaAct(reach), // OpenVLA and OpenVLA-OFT
    dexbotic(reach), // Dexbotic
    tetherAct(reach), // Tether
    lerobotAsync(reach, leases), // LeRobot's asynchronous inference
    lerobotRemote(reach), // and its remote inference
    xpolicylabWs(reach, leases), // XPolicyLab
    oipV2Grpc(reach), // KServe and Triton
    oipV2Rest(reach), // and over HTTP
    vllmOmniVideos(reach), // world models, as jobs
    cosmosNim(reach), // world models, as one long answer
    cog(reach), // world models in containers
    openaiChat(reach), // ground, by servers that complete chats
    limberOutbound(hub), // partners' own servers that dial the gateway
    simulated(), // placeholders, where a caller allows them
  ];
  const byId = new Map<string, Wire>(wires.map((wire) => [wire.id, wire]));
  return {
    runtimes: [...byId.keys()],
    wireOf: (runtime) => byId.get(runtime),
    native,
    addressOf: (endpoint) => found.of(endpoint),
    hub,
    async close() {
      await Promise.all(wires.map((wire) => wire.close()));
    },
  };
}
