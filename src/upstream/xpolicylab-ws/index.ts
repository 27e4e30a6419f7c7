/** XPolicyLab's policy servers: WebSocket and MessagePack, one robot at a time. */
import { NumberType, WireSession } from "../../../gen/limber/v1/supply_pb.ts";
import { episodeOf } from "../../contracts/contract.ts";
import { askHealth } from "../openpi-ws/exchange.ts";
import { partsOf } from "../payload/observe.ts";
import { type Profile, Profiles, picture, plainProfile, values } from "../payload/profile.ts";
import { readsOf } from "../payload/reads.ts";
import type { ServerLeases } from "../transport/leases.ts";
import { type ServerReach, Servers } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { readActions } from "./decode.ts";
import { encodeInfer } from "./encode.ts";
import { XPolicyServer } from "./exchange.ts";

const SCHEMES: Readonly<Record<string, string>> = { "ws:": "ws:", "wss:": "wss:" };

/** The size of the pictures that XPolicyLab's own environments send; policies resize themselves. */
const SIZE = { width: 640, height: 480 } as const;

const color = (camera: string, optional = false) => picture(camera, `vision.${camera}.color`, { ...SIZE, optional });
const joints = (start: number, end: number | undefined, name: string) =>
  values(start, end, `state.${name}`, NumberType.F4);

/** Without a profile: a picture if there is one, all of the proprioception, the instruction. Actions are joints. */
const PLAIN = plainProfile({
  frames: [picture("", "vision.cam_head.color", { ...SIZE, optional: true })],
  proprio: [joints(0, undefined, "arm_joint_state")],
  instructionKey: "instruction",
});

/** Arms of six joints and a gripper each, as piper and arx_x5 are, packed arm by arm. */
const ARM: Profile = {
  ...PLAIN,
  frames: [color("cam_head"), color("cam_wrist", true)],
  proprio: [joints(0, 6, "arm_joint_state"), joints(6, 7, "ee_joint_state")],
  proprioDim: 7,
  actionKeys: ["arm_joint_state", "ee_joint_state"],
  actionDims: [6, 1],
};
const TWO_ARMS: Profile = {
  ...PLAIN,
  frames: [color("cam_head"), color("cam_left_wrist"), color("cam_right_wrist")],
  proprio: [
    joints(0, 6, "left_arm_joint_state"),
    joints(6, 7, "left_ee_joint_state"),
    joints(7, 13, "right_arm_joint_state"),
    joints(13, 14, "right_ee_joint_state"),
  ],
  proprioDim: 14,
  actionKeys: ["left_arm_joint_state", "left_ee_joint_state", "right_arm_joint_state", "right_ee_joint_state"],
  actionDims: [6, 1, 6, 1],
};

const PROFILES = new Profiles(PLAIN, { "xpolicylab/arm": ARM, "xpolicylab/two-arms": TWO_ARMS });

/** Opens the wire; connections are made on first use. */
export function xpolicylabWs(reach: ServerReach, leases: ServerLeases): Wire {
  const servers = new Servers(reach, SCHEMES, (address) => new XPolicyServer(address, leases));
  return {
    id: "xpolicylab-ws",
    schemes: Object.keys(SCHEMES),
    profiles: PROFILES.names,
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    layout: ({ profile }) => PROFILES.layout(profile),
    probes: [
      {
        name: "hello",
        required: true,
        async look(target, call) {
          const { server, instance } = await servers.of(target).hello(call);
          return `it is ${server || "a server without a name"}${instance === undefined ? "" : `, started as ${instance}`}`;
        },
      },
    ],
    async act(target, given, frames, call) {
      const profile = PROFILES.of(target.profile);
      const input =
        profile.session === WireSession.NONE ? { ...given, sessionId: undefined, episode: undefined } : given;
      const parts = await partsOf(profile, input, frames);
      const { instruction, horizon } = input;
      return servers.of(target).infer(
        { session: input.sessionId ?? "", episode: episodeOf(input) ?? "" },
        {
          encode: (ids, room) => encodeInfer(profile, parts, instruction, ids, room),
          read: (frame, messageId) => readActions(frame, profile, horizon, messageId, target.actionDim),
        },
        call,
      );
    },
    async health(target, { signal }) {
      await askHealth(servers.addressOf(target), signal);
    },
    async close() {
      servers.close();
    },
  };
}
