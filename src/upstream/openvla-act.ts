/**
 * OpenVLA and OpenVLA-OFT: one HTTP route for acts, JSON with numpy arrays. Sources: openvla/openvla and moojink/openvla-oft,
 * vla-scripts/deploy.py.
 */
import { ImageFit } from "../../gen/limber/v1/supply_pb.ts";
import { encodeJsonNumpy } from "../codecs/python/json-numpy.ts";
import type { Packable } from "../codecs/python/msgpack.ts";
import type { NdArray } from "../codecs/python/ndarray.ts";
import { AttemptFailure, UpstreamFailure } from "../contracts/contract.ts";
import { httpWire } from "./http-wire.ts";
import { readJsonAction } from "./payload/actions.ts";
import { arrayOf, type ObservationPart } from "./payload/observe.ts";
import { instructionIn, type Profile, Profiles, picture, plainProfile, values } from "./payload/profile.ts";
import { statusFailure } from "./transport/http.ts";
import type { ServerReach } from "./transport/servers.ts";
import type { Wire } from "./wire.ts";

const STRETCH = { fit: ImageFit.STRETCH } as const;
const TURNED = { ...STRETCH, rotate180: true } as const;

/** Without a profile: an image if there is one, and the instruction. */
const PLAIN = plainProfile({
  frames: [picture("", "image", { ...STRETCH, optional: true })],
  instructionKey: "instruction",
});

/** The presets of this wire's offerings. */
export const PROFILES = new Profiles(PLAIN, {
  openvla: { ...PLAIN, frames: [picture("", "image", STRETCH)] },
  "openvla-oft/libero": {
    ...PLAIN,
    frames: [picture("agentview", "full_image", TURNED), picture("wrist", "wrist_image", TURNED)],
    proprio: [values(0, 8, "state")],
    proprioDim: 8,
  },
  "openvla-oft/aloha": {
    ...PLAIN,
    frames: [
      picture("cam_high", "full_image", STRETCH),
      picture("cam_left_wrist", "left_wrist_image", STRETCH),
      picture("cam_right_wrist", "right_wrist_image", STRETCH),
    ],
    proprio: [values(0, 14, "state")],
    proprioDim: 14,
  },
});

const REFUSALS: readonly AttemptFailure[] = [AttemptFailure.UPSTREAM_ERROR, AttemptFailure.INPUT_REJECTED];

/** Opens the wire; connections are made on first use. */
export const openvlaAct = (reach: ServerReach): Wire =>
  httpWire(reach, {
    id: "openvla-act",
    operations: ["/act", "/docs"],
    profiles: PROFILES,
    probes: [
      {
        name: "refuses_no_picture",
        required: false,
        async look(server, { actionDim }) {
          try {
            const body = await server.post("/act", '{"instruction":"stand still"}');
            readJsonAction(body, PROFILES.of(undefined), 1, actionDim);
          } catch (error) {
            if (error instanceof UpstreamFailure && REFUSALS.includes(error.failure))
              return "a request without an image is rejected";
            throw error;
          }
          throw new Error("a request without an image returns an action instead of an error");
        },
      },
    ],
    act: {
      path: "/act",
      encode: ({ profile, parts, input }) => encodeAct(profile, parts, input.instruction),
      // One array (OpenVLA), a list of them (OFT), or the text "error".
      decode: (body, { profile, input, target }) => readJsonAction(body, profile, input.horizon, target.actionDim),
    },
    health: {
      // A server without a documentation page answers 404, and is also healthy.
      path: "/docs",
      check(answer) {
        const { status } = answer;
        if (status >= 500 || status === 401 || status === 403) throw statusFailure(answer);
      },
    },
  });

/** Returns the body of one act: one flat object of arrays, the instruction, and the offering's constants. */
export function encodeAct(profile: Profile, parts: readonly ObservationPart[], instruction: string): string {
  const fields = new Map<string, Packable<NdArray>>(parts.map((part) => [part.key, arrayOf(part)]));
  for (const [key, text] of instructionIn(profile, instruction)) fields.set(key, text);
  for (const { key, value } of profile.constants) fields.set(key, value);
  return encodeJsonNumpy(fields);
}
