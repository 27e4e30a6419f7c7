/** Tether: one HTTP route that acts, JSON with pictures in base64. */
import { NumberType, PixelForm } from "../../../gen/limber/v1/supply_pb.ts";
import { episodeOf } from "../../contracts/contract.ts";
import { partsOf } from "../payload/observe.ts";
import { Profiles, picture, plainProfile, values } from "../payload/profile.ts";
import { readsOf } from "../payload/reads.ts";
import { HTTP_SCHEMES, HttpServers } from "../transport/http.ts";
import type { ServerReach } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { readAction } from "./decode.ts";
import { encodeAct } from "./encode.ts";
import { askHealth, postAct } from "./exchange.ts";

/** The server resizes pictures itself, so each goes as its camera encoded it. */
const AS_IT_IS = { form: PixelForm.ENCODED } as const;

/** Without a profile: a picture if there is one, all of the proprioception, the instruction. */
const PLAIN = plainProfile({
  frames: [picture("", "image", { ...AS_IT_IS, optional: true })],
  proprio: [values(0, undefined, "state", NumberType.F8)],
  instructionKey: "instruction",
});

const PROFILES = new Profiles(PLAIN, {
  "tether/two-cameras": {
    ...PLAIN,
    frames: [picture("agentview", "image", AS_IT_IS), picture("wrist", "image_wrist", AS_IT_IS)],
  },
});

/** Opens the wire; connections are made on first use. */
export function tetherAct(reach: ServerReach): Wire {
  const servers = new HttpServers(reach, ["/act", "/health"]);
  return {
    id: "tether-act",
    schemes: Object.keys(HTTP_SCHEMES),
    profiles: PROFILES.names,
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    async act(target, input, frames, call) {
      const profile = PROFILES.of(target.profile);
      const parts = await partsOf(profile, input, frames);
      const { instruction, horizon } = input;
      // A call of no session is an episode of its own: nothing of another robot's chunk may be blended into its own.
      const about = { instruction, episode: episodeOf(input) ?? call.requestId, requestId: call.requestId };
      const answer = await postAct(servers, target, await encodeAct(profile, parts, about), call);
      const showed = parts.some(({ kind }) => kind === "frame");
      return readAction(answer, profile, horizon, { showed, dim: target.actionDim });
    },
    health: (target, call) => askHealth(servers, target, call),
    close: () => servers.close(),
  };
}
