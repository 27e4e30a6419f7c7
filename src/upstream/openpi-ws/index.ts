/** The openpi wire: WebSocket and MessagePack, as spoken by openpi and the many servers that follow it. */
import { ServerDialect, WireReset, WireSession } from "../../../gen/limber/v1/supply_pb.ts";
import { episodeOf } from "../../contracts/contract.ts";
import { partsOf } from "../payload/observe.ts";
import { readsOf } from "../payload/reads.ts";
import { type ServerReach, Servers } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { type ImageSize, readAnswer, readMetadata, readPrediction } from "./decode.ts";
import { encodeRequest, encodeReset } from "./encode.ts";
import { askHealth, OpenpiPool } from "./exchange.ts";
import { probesOf } from "./probes.ts";
import { PROFILES, sized } from "./profiles.ts";

const SCHEMES: Readonly<Record<string, string>> = { "ws:": "ws:", "wss:": "wss:" };

/** Opens the wire; connections are made on first use. */
export function openpiWs(reach: ServerReach): Wire {
  const pools = new Servers(
    reach,
    SCHEMES,
    (address) => new OpenpiPool(address, { hello: undefined, read: readMetadata, tellsEpisodes: false }),
  );
  return {
    id: "openpi-ws",
    schemes: Object.keys(SCHEMES),
    profiles: PROFILES.names,
    wants: async ({ profile }) => PROFILES.wants(profile),
    pictureSize(target) {
      const ownFrames = (target.profile?.frames.length ?? 0) > 0;
      return ownFrames ? undefined : pools.of(target).told?.imageSize;
    },
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    layout: ({ profile }) => PROFILES.layout(profile),
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
      const input =
        profile.session === WireSession.NONE ? { ...given, sessionId: undefined, episode: undefined } : given;
      const pool = pools.of(target);
      const ownFrames = (target.profile?.frames.length ?? 0) > 0;
      const partsIn = (size: ImageSize | undefined) =>
        partsOf(ownFrames || !size ? profile : sized(profile, size), input, frames);
      // What does not fit is refused before a connection is taken for it.
      const size = pool.told?.imageSize;
      const parts = await partsIn(size);
      const episode = episodeOf(input);
      const isReset = profile.reset === WireReset.MESSAGE && input.sessionId !== undefined;
      let spoken: ServerDialect = ServerDialect.OPENPI;
      const answer = await pool.exchange(input.sessionId, {
        async encode({ dialect, imageSize }, room) {
          const isKnown = size?.width === imageSize?.width && size?.height === imageSize?.height;
          const fitting = isKnown ? parts : await partsIn(imageSize);
          spoken = profile.dialect ?? dialect;
          return encodeRequest({ profile, parts: fitting, input, episode, requestId }, spoken, room);
        },
        opening: isReset ? encodeReset(episode) : undefined,
        episode,
        signal,
      });
      const { horizon, returnPrediction } = input;
      const chunk = readAnswer(answer, { profile, horizon, dim: target.actionDim, requestId, dialect: spoken });
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
