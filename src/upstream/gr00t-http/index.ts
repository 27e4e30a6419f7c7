/** Isaac-GR00T N1.5 over HTTP: JSON with numpy arrays inside. */
import { Contract } from "../../../gen/limber/v1/contract_pb.ts";
import { PROFILES } from "../gr00t-zmq/profiles.ts";
import { partsOf } from "../payload/observe.ts";
import { readsOf } from "../payload/reads.ts";
import { HTTP_SCHEMES, HttpServers } from "../transport/http.ts";
import type { ServerReach } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { readAction } from "./decode.ts";
import { encodeAct } from "./encode.ts";
import { askHealth, postAct } from "./exchange.ts";

/** Opens the wire; connections are made on first use. */
export function gr00tHttp(reach: ServerReach): Wire {
  const servers = new HttpServers(reach, ["/act", "/health"]);
  return {
    id: "gr00t-http",
    schemes: Object.keys(HTTP_SCHEMES),
    profiles: PROFILES.names,
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    layout: ({ profile }) => PROFILES.layout(profile),
    faultOf(profile, contracts) {
      if (!contracts.includes(Contract.ACT) || PROFILES.of(profile).actionKeys.length > 0) return undefined;
      return { field: "action_keys", text: "is required: which parts of the answer, in which order, are the action?" };
    },
    async act(target, input, frames, call) {
      const profile = PROFILES.of(target.profile);
      const body = encodeAct(profile, await partsOf(profile, input, frames), input.instruction);
      return readAction(await postAct(servers, target, body, call), profile, input.horizon, target.actionDim);
    },
    health: (target, call) => askHealth(servers, target, call),
    close: () => servers.close(),
  };
}
