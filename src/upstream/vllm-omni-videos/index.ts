/** vLLM-Omni's video jobs: world models that answer with a video once they're done. */
import { random } from "../../random.ts";
import { Profiles, plainProfile } from "../payload/profile.ts";
import { readsOf } from "../payload/reads.ts";
import { newestPicture, VideoLengths } from "../payload/world-model.ts";
import { HTTP_SCHEMES, HttpServers } from "../transport/http.ts";
import type { ServerReach } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { encodeJob } from "./encode.ts";
import { askHealth, run } from "./exchange.ts";

const PROFILES = new Profiles(plainProfile({}));

/** Opens the wire; connections are made on first use. */
export function vllmOmniVideos(reach: ServerReach): Wire {
  const servers = new HttpServers(reach, ["/v1/videos", "/v1/videos/sync", "/health"]);
  const lengths = new VideoLengths();
  return {
    id: "vllm-omni-videos",
    schemes: Object.keys(HTTP_SCHEMES),
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    async *predict(target, input, frames, call) {
      const boundary = `part-${random().toString(36).slice(2)}${random().toString(36).slice(2)}`;
      const picture = await newestPicture(input, frames);
      const make = async (pictures: number): Promise<Buffer[]> => [
        await run(
          servers,
          target,
          encodeJob(PROFILES.of(target.profile), picture, { ...input, pictures }, boundary),
          call,
        ),
      ];
      yield* lengths.predict(target, { ...input, given: picture }, call, make, input.actions.length > 0);
    },
    health: (target, call) => askHealth(servers, target, call),
    close: () => servers.close(),
  };
}
