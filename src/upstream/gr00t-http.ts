/** Isaac-GR00T N1.5 over HTTP: JSON with numpy arrays inside. Source: NVIDIA/Isaac-GR00T N1.5, scripts/http_server.py. */
import { Contract } from "../../gen/limber/v1/contract_pb.ts";
import { encodeJsonNumpy } from "../codecs/python/json-numpy.ts";
import { actionData, momentOf, PROFILES } from "./gr00t-zmq/messages.ts";
import { httpWire } from "./http-wire.ts";
import { readJsonAction } from "./payload/actions.ts";
import { malformed } from "./transport/failures.ts";
import { expectSuccess, isObject, readJson } from "./transport/http.ts";
import type { ServerReach } from "./transport/servers.ts";
import type { Wire } from "./wire.ts";

/** Opens the wire; connections are made on first use. */
export const gr00tHttp = (reach: ServerReach): Wire =>
  httpWire(reach, {
    id: "gr00t-http",
    operations: ["/act", "/health"],
    profiles: PROFILES,
    layout: ({ profile }) => PROFILES.layout(profile),
    faultOf(profile, contracts) {
      if (!contracts.includes(Contract.ACT) || PROFILES.of(profile).actionKeys.length > 0) return undefined;
      return {
        field: "action_keys",
        text: "is required: list the parts of the response that form the action, in order",
      };
    },
    act: {
      path: "/act",
      // A flat observation.
      encode({ profile, parts, input }) {
        const observation = actionData(profile, momentOf(profile, parts, input.instruction), "bare");
        return encodeJsonNumpy(new Map([["observation", observation]]));
      },
      // A map of parts, each an array or a list of rows, or the text "error".
      decode: (body, { profile, input, target }) => readJsonAction(body, profile, input.horizon, target.actionDim),
    },
    health: {
      path: "/health",
      check(answer) {
        expectSuccess(answer);
        const health = readJson(answer.body);
        if (!isObject(health) || health.status !== "healthy")
          throw malformed("the server does not report that it is healthy");
      },
    },
  });
