/** Cog containers, the self-hosted form of Replicate's models: predictions as files. */

import { Profiles, picture, plainProfile } from "../payload/profile.ts";
import { readsOf } from "../payload/reads.ts";
import { dataUrlOf, newestPicture, VideoLengths } from "../payload/world-model.ts";
import { HTTP_SCHEMES, HttpServers } from "../transport/http.ts";
import type { ServerReach } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { readPrediction } from "./decode.ts";
import { encodePrediction } from "./encode.ts";
import { askHealth, inputsOf, predict } from "./exchange.ts";

const PROFILES = new Profiles(plainProfile({ frames: [picture("", "image")], instructionKey: "prompt" }));

/** Opens the wire; connections are made on first use. */
export function cog(reach: ServerReach): Wire {
  const servers = new HttpServers(reach, ["/predictions", "/health-check", "/openapi.json"]);
  const lengths = new VideoLengths();
  return {
    id: "cog",
    schemes: Object.keys(HTTP_SCHEMES),
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    probes: [
      {
        name: "inputs",
        required: true,
        async look(target, call) {
          const accepts = await inputsOf(servers, target, call);
          const { frames, instructionKey, constants } = PROFILES.of(target.profile);
          const keys = [frames[0]?.key ?? "image", instructionKey, ...constants.map(({ key }) => key)];
          const missing = keys.filter((key) => !accepts.has(key));
          if (missing.length > 0)
            throw new Error(`the model has no inputs named ${missing.join(", ")}; it has ${[...accepts].join(", ")}`);
          return `the model takes ${keys.join(", ")}`;
        },
      },
    ],
    async *predict(target, input, frames, call) {
      const given = await newestPicture(input, frames);
      const picture = dataUrlOf(given);
      const accepts = await inputsOf(servers, target, call);
      let made = 0;
      const make = async (pictures: number): Promise<Buffer[]> => {
        // A container answers one id once.
        const id = made++ === 0 ? call.requestId : `${call.requestId}-${made}`;
        const body = encodePrediction(PROFILES.of(target.profile), picture, { ...input, pictures }, accepts);
        return readPrediction(await predict(servers, target, id, body, call), id);
      };
      yield* lengths.predict(
        target,
        { ...input, given },
        call,
        make,
        input.actions.length > 0 || !accepts.has("num_frames"),
      );
    },
    health: (target, call) => askHealth(servers, target, call),
    close: () => servers.close(),
  };
}
