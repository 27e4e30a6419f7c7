/** LeRobot's asynchronous inference: gRPC around pickles, or around JSON and safetensors, for one robot at a time. The policy is the offering's, never the caller's. */
import { NumberType, ServerDialect } from "../../../gen/limber/v1/supply_pb.ts";
import { episodeOf } from "../../contracts/contract.ts";
import { partsOf } from "../payload/observe.ts";
import { Profiles, picture, plainProfile, values } from "../payload/profile.ts";
import { readsOf } from "../payload/reads.ts";
import { GRPC_SCHEMES } from "../transport/grpc.ts";
import type { ServerLeases } from "../transport/leases.ts";
import { type ServerReach, Servers } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import type { LerobotDialect } from "./dialect.ts";
import { encodeObservation, encodeSetup } from "./encode.ts";
import { Leased } from "./exchange.ts";
import * as pickles from "./pickles.ts";
import * as tensors from "./tensors.ts";

const MOTORS = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"];

/** Frames go by LeRobot's names of cameras, and each motor has one number under its own name. */
const PROFILES = new Profiles(plainProfile({ instructionKey: "task" }), {
  "lerobot/so101": plainProfile({
    frames: [
      picture("front", "front", { width: 640, height: 480 }),
      picture("wrist", "wrist", { width: 640, height: 480 }),
    ],
    proprio: MOTORS.map((name, i) => values(i, i + 1, `${name}.pos`, NumberType.F4)),
    proprioDim: MOTORS.length,
    instructionKey: "task",
  }),
});

/** Opens the wire; connections are made on first use. */
export function lerobotAsync(reach: ServerReach, leases: ServerLeases): Wire {
  const servers = new Servers(reach, GRPC_SCHEMES, (address) => new Leased(address, reach.openGrpc(address), leases));
  return {
    id: "lerobot-async",
    schemes: Object.keys(GRPC_SCHEMES),
    profiles: PROFILES.names,
    dialects: [ServerDialect.LEROBOT_SAFETENSORS],
    wants: async ({ profile }) => PROFILES.wants(profile),
    reads: (profile) => readsOf(PROFILES.of(profile), profile),
    faultOf(profile) {
      const { proprio, constants } = PROFILES.of(profile);
      const has = new Set(constants.map(({ key }) => key));
      if (!has.has("policy_type") || !has.has("pretrained_name_or_path"))
        return {
          field: "constants",
          text: "must name policy_type and pretrained_name_or_path: what shall the server load?",
        };
      if (proprio.length === 0)
        return { field: "proprio", text: "is required: one entry for each motor, under its name" };
      const wide = proprio.findIndex(({ start, end }) => end !== start + 1);
      return wide < 0 ? undefined : { field: `proprio.${wide}.end`, text: "must be start + 1: a motor has one number" };
    },
    probes: [
      {
        name: "silent_without_observation",
        required: false,
        async look(target, call) {
          const said = await servers.of(target).unasked(call);
          if (said === 0) return "without an observation there are no actions";
          throw new Error("the server has actions that nobody asked for: is another robot connected to it?");
        },
      },
    ],
    async act(target, input, frames, call) {
      const profile = PROFILES.of(target.profile);
      const dialect: LerobotDialect = profile.dialect === ServerDialect.LEROBOT_SAFETENSORS ? tensors : pickles;
      const parts = await partsOf(profile, input, frames);
      const { chunk, timestep } = await servers
        .of(target)
        .act(
          { session: input.sessionId ?? "", episode: episodeOf(input) ?? "" },
          encodeSetup(dialect.writeSetup(profile)),
          (step, timestamp) => encodeObservation(dialect.writeObservation(parts, input.instruction, step, timestamp)),
          call,
        );
      return dialect.readChunk(chunk, timestep, input.horizon);
    },
    async health(target, call) {
      await servers.of(target).ready(call);
    },
    async close() {
      servers.close();
    },
  };
}
