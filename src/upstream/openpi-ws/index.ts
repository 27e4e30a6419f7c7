/** The openpi wire: WebSocket and MessagePack, as spoken by openpi and the many servers that follow it. */
import { type Reach, Servers } from "../servers.ts";
import type { Wire } from "../wire.ts";
import { readAnswer } from "./decode.ts";
import { encodeObservation, observationOf } from "./encode.ts";
import { askHealth, Pool } from "./exchange.ts";
import { PRESETS, profileOf } from "./profiles.ts";

const SCHEMES: Readonly<Record<string, string>> = { "ws:": "ws:", "wss:": "wss:" };

/** Opens the wire; connections are made on first use. */
export function openpiWs(reach: Reach): Wire {
  const pools = new Servers(reach, SCHEMES, (address) => new Pool(address));
  return {
    id: "openpi-ws",
    schemes: Object.keys(SCHEMES),
    profiles: Object.keys(PRESETS),
    async act(target, input, frames, { signal }) {
      const profile = profileOf(target.profile);
      const observation = await observationOf(profile, input, frames);
      const pool = pools.of(target);
      const answer = await pool.exchange(
        input.sessionId,
        (dialect) => encodeObservation(observation, dialect, input),
        signal,
      );
      return readAnswer(answer, profile.actionKeys, input.horizon);
    },
    async health(target, { signal }) {
      await askHealth(pools.addressOf(target), signal);
    },
    async close() {
      pools.close();
    },
  };
}
