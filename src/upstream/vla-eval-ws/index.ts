/** vla-evaluation-harness's model servers: WebSocket and MessagePack, messages with a type, episodes. */
import { WireSession } from "../../../gen/limber/v1/supply_pb.ts";
import { episodeOf } from "../../contracts/contract.ts";
import { askHealth } from "../openpi-ws/exchange.ts";
import { partsOf } from "../payload/observe.ts";
import { type Profile, Profiles, picture, plainProfile, values } from "../payload/profile.ts";
import { readsOf } from "../payload/reads.ts";
import { type ServerReach, Servers } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { readAction } from "./decode.ts";
import { encodeEpisode, encodeObservation } from "./encode.ts";
import { openPool } from "./exchange.ts";

const SCHEMES: Readonly<Record<string, string>> = { "ws:": "ws:", "wss:": "wss:" };

/** The size that LIBERO's pictures have in the harness; servers resize themselves. */
const SIZE = { width: 256, height: 256 } as const;

/** Without a profile: a picture if there is one, all of the proprioception, the instruction. */
const PLAIN = plainProfile({
  frames: [picture("", "images.agentview", { ...SIZE, optional: true })],
  proprio: [values(0, undefined, "states")],
  instructionKey: "task_description",
});

/** As the harness sends it: its pictures are turned, as those of openpi's client for LIBERO. */
const LIBERO: Profile = {
  ...PLAIN,
  frames: [
    picture("agentview", "images.agentview", { ...SIZE, rotate180: true }),
    picture("wrist", "images.wrist", { ...SIZE, rotate180: true, optional: true }),
  ],
  proprio: [values(0, 8, "states")],
  proprioDim: 8,
};

const PROFILES = new Profiles(PLAIN, { "vla-eval/libero": LIBERO });

/** Opens the wire; connections are made on first use. */
export function vlaEvalWs(reach: ServerReach): Wire {
  const pools = new Servers(reach, SCHEMES, openPool);
  let numbered = 0;
  return {
    id: "vla-eval-ws",
    schemes: Object.keys(SCHEMES),
    profiles: PROFILES.names,
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    probes: [
      {
        name: "action_spec",
        required: false,
        async look(target, { signal }) {
          const { action } = await pools.of(target).metadata(signal);
          if (action.length === 0 || action.some(({ dims }) => dims === 0))
            return "it does not say how long an action is";
          const sum = action.reduce((total, { dims }) => total + dims, 0);
          const parts = action.map(({ name, dims }) => `${name} ${dims}`).join(", ");
          if (target.actionDim === undefined || target.actionDim === sum) return `an action has ${parts}`;
          throw new Error(`it says that an action has ${sum} numbers (${parts}), and ${target.actionDim} are declared`);
        },
      },
    ],
    async act(target, given, frames, { signal }) {
      const profile = PROFILES.of(target.profile);
      const sessionId = profile.session === WireSession.NONE ? undefined : given.sessionId;
      const { instruction, horizon } = given;
      const parts = await partsOf(profile, given, frames);
      const [start, seq] = [++numbered, ++numbered];
      const answer = await pools.of(target).exchange(sessionId, {
        async encode(_, room, isFirst) {
          const observation = encodeObservation(profile, parts, instruction, { seq, room });
          // A call of no session is an episode: what is left of another robot's chunk must not answer it.
          return isFirst || sessionId === undefined ? [encodeEpisode(instruction, start), observation] : observation;
        },
        opening: undefined,
        episode: episodeOf(given),
        signal,
      });
      return readAction(answer, profile, horizon, seq, target.actionDim);
    },
    async health(target, { signal }) {
      await askHealth(pools.addressOf(target), signal, "/health");
    },
    async close() {
      pools.close();
    },
  };
}
