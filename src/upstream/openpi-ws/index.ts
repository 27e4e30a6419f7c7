/** The openpi wire: WebSocket and MessagePack, as spoken by openpi and the many servers that follow it. */
import { ServerDialect, WireReset, WireSession } from "../../../gen/limber/v1/supply_pb.ts";
import { partsOf } from "../payload/observe.ts";
import { type ServerReach, Servers } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { readAnswer, readPrediction } from "./decode.ts";
import { encodeRequest, encodeReset } from "./encode.ts";
import { askHealth, OpenpiPool } from "./exchange.ts";
import { probesOf } from "./probes.ts";
import { PROFILES } from "./profiles.ts";

const SCHEMES: Readonly<Record<string, string>> = { "ws:": "ws:", "wss:": "wss:" };

/** Opens the wire; connections are made on first use. */
export function openpiWs(reach: ServerReach): Wire {
  const pools = new Servers(reach, SCHEMES, (address) => new OpenpiPool(address));
  return {
    id: "openpi-ws",
    schemes: Object.keys(SCHEMES),
    profiles: PROFILES.names,
    wants: ({ profile }) => PROFILES.wants(profile),
    dialects: [
      ServerDialect.OPENPI,
      ServerDialect.ROBOARENA,
      ServerDialect.VLLM_OMNI,
      ServerDialect.SGLANG,
      ServerDialect.COSMOS_ROBOLAB,
      ServerDialect.STARVLA,
    ],
    probes: probesOf(pools),
    async act(target, given, frames, { signal, requestId }) {
      const profile = PROFILES.of(target.profile);
      const input = profile.session === WireSession.NONE ? { ...given, sessionId: undefined } : given;
      const parts = await partsOf(profile, input, frames);
      const isReset = profile.reset === WireReset.MESSAGE && input.sessionId !== undefined;
      const answer = await pools.of(target).exchange(input.sessionId, {
        encode: (told, room) => encodeRequest({ profile, parts, input, requestId }, profile.dialect ?? told, room),
        opening: isReset ? encodeReset(input) : undefined,
        signal,
      });
      const { horizon, returnPrediction } = input;
      const chunk = readAnswer(answer, { profile, horizon, requestId });
      return returnPrediction ? { ...chunk, prediction: await readPrediction(answer, target.dtMs) } : chunk;
    },
    async health(target, { signal }) {
      await askHealth(pools.addressOf(target), signal);
    },
    async close() {
      pools.close();
    },
  };
}
