/** NVIDIA Cosmos NIM: a world model that answers one request with one video. */

import { Profiles, plainProfile } from "../payload/profile.ts";
import { readsOf } from "../payload/reads.ts";
import { dataUrlOf, newestPicture, partsOfFiles } from "../payload/world-model.ts";
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
  return {
    id: "cosmos-nim",
    schemes: Object.keys(HTTP_SCHEMES),
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    async *predict(target, input, frames, call) {
      const picture = dataUrlOf(await newestPicture(input, frames));
      const answer = await infer(servers, target, encodeInfer(PROFILES.of(target.profile), picture, input), call);
      yield* partsOfFiles(readInfer(answer), target, input, call);
    },
    health: (target, call) => askHealth(servers, target, call),
    close: () => servers.close(),
  };
}
