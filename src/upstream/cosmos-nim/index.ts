/** NVIDIA Cosmos NIM: a world model that answers one request with one video. */

import { Profiles, plainProfile } from "../payload/profile.ts";
import { readsOf } from "../payload/reads.ts";
import { dataUrlOf, newestPicture, VideoLengths } from "../payload/world-model.ts";
import { HTTP_SCHEMES, HttpServers } from "../transport/http.ts";
import type { ServerReach } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { readInfer } from "./decode.ts";
import { encodeInfer } from "./encode.ts";
import { askHealth, infer } from "./exchange.ts";

const PROFILES = new Profiles(plainProfile({}));

/** Opens the wire; connections are made on first use. */
export function cosmosNim(reach: ServerReach): Wire {
  const servers = new HttpServers(reach, ["/v1/infer", "/v1/health/ready"]);
  const lengths = new VideoLengths();
  return {
    id: "cosmos-nim",
    schemes: Object.keys(HTTP_SCHEMES),
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    async *predict(target, input, frames, call) {
      const given = await newestPicture(input, frames);
      const picture = dataUrlOf(given);
      const profile = PROFILES.of(target.profile);
      const make = async (pictures: number): Promise<Buffer[]> =>
        readInfer(await infer(servers, target, encodeInfer(profile, picture, { ...input, pictures }), call));
      yield* lengths.predict(target, { ...input, given }, call, make, input.actions.length > 0);
    },
    health: (target, call) => askHealth(servers, target, call),
    close: () => servers.close(),
  };
}
