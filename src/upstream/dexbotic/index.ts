/** Dexbotic: one HTTP route that acts, a form with pictures as files. It keeps nothing from one call to the next. */
import { NumberType, PixelForm } from "../../../gen/limber/v1/supply_pb.ts";
import { random } from "../../random.ts";
import { partsOf } from "../payload/observe.ts";
import { Profiles, picture, plainProfile, values } from "../payload/profile.ts";
import { readsOf } from "../payload/reads.ts";
import { HTTP_SCHEMES, HttpServers } from "../transport/http.ts";
import type { ServerReach } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { readAction } from "./decode.ts";
import { encodeAct } from "./encode.ts";
import { askAlive, PATH, postAct } from "./exchange.ts";

/** The server resizes pictures itself, so each goes as its camera encoded it. */
const AS_IT_IS = { form: PixelForm.ENCODED, optional: true } as const;

/** Without a profile: up to three pictures in their order, all of the proprioception, the instruction. */
const PROFILES = new Profiles(
  plainProfile({
    frames: [picture("", "image", AS_IT_IS), picture("", "image", AS_IT_IS), picture("", "image", AS_IT_IS)],
    proprio: [values(0, undefined, "states", NumberType.F8)],
    instructionKey: "text",
  }),
);

/** Opens the wire; connections are made on first use. */
export function dexbotic(reach: ServerReach): Wire {
  const servers = new HttpServers(reach, [PATH]);
  return {
    id: "dexbotic",
    schemes: Object.keys(HTTP_SCHEMES),
    profiles: PROFILES.names,
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    async act(target, input, frames, call) {
      const profile = PROFILES.of(target.profile);
      const boundary = `part-${random().toString(36).slice(2)}${random().toString(36).slice(2)}`;
      const form = await encodeAct(profile, await partsOf(profile, input, frames), input.instruction, boundary);
      return readAction(await postAct(servers, target, form, call), profile, input.horizon, target.actionDim);
    },
    health: (target, call) => askAlive(servers, target, call),
    close: () => servers.close(),
  };
}
