/** OpenVLA and OpenVLA-OFT: one HTTP route that acts, JSON with numpy arrays inside. */
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";
import { partsOf } from "../payload/observe.ts";
import { readsOf } from "../payload/reads.ts";
import { HTTP_SCHEMES, HttpServers } from "../transport/http.ts";
import type { ServerReach } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { readAction } from "./decode.ts";
import { encodeAct } from "./encode.ts";
import { askAlive, postAct } from "./exchange.ts";
import { PROFILES } from "./profiles.ts";

/** Opens the wire; connections are made on first use. */
export function openvlaAct(reach: ServerReach): Wire {
  const servers = new HttpServers(reach, ["/act", "/docs"]);
  return {
    id: "openvla-act",
    schemes: Object.keys(HTTP_SCHEMES),
    profiles: PROFILES.names,
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    probes: [
      {
        name: "refuses_no_picture",
        required: false,
        async look(target, call) {
          try {
            readAction(
              await postAct(servers, target, '{"instruction":"stand still"}', call),
              PROFILES.of(undefined),
              1,
              target.actionDim,
            );
          } catch (error) {
            if (!(error instanceof UpstreamFailure)) throw error;
            if (REFUSALS.includes(error.failure)) return "a request without a picture is refused";
            throw error;
          }
          throw new Error("a request without a picture is answered with an action: what did the model see?");
        },
      },
    ],
    async act(target, input, frames, call) {
      const profile = PROFILES.of(target.profile);
      const body = encodeAct(profile, await partsOf(profile, input, frames), input.instruction);
      return readAction(await postAct(servers, target, body, call), profile, input.horizon, target.actionDim);
    },
    health: (target, call) => askAlive(servers, target, call),
    close: () => servers.close(),
  };
}

const REFUSALS: readonly AttemptFailure[] = [AttemptFailure.UPSTREAM_ERROR, AttemptFailure.INPUT_REJECTED];
