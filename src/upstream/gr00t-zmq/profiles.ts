/**
 * The ready-made profiles of Isaac-GR00T's registered embodiments. Keys begin with their modality: `video.`, `state.`.
 * Source: NVIDIA/Isaac-GR00T, gr00t/configs/data/embodiment_configs.py, and the modality files of its examples.
 */
import { NumberType, ServerDialect } from "../../../gen/limber/v1/supply_pb.ts";
import {
  type FrameSlot,
  type Profile,
  Profiles,
  type ProprioSlot,
  picture,
  plainProfile,
  values,
} from "../payload/profile.ts";

const video = (camera: string, key: string, more: Partial<FrameSlot> = {}): FrameSlot =>
  picture(camera, `video.${key}`, { width: 256, height: 256, ...more });

/** Parts of these sizes, one behind the other. */
function states(sizes: Readonly<Record<string, number>>): { proprio: ProprioSlot[]; proprioDim: number } {
  let start = 0;
  const proprio = Object.entries(sizes).map(([key, size]) => {
    start += size;
    return values(start - size, start, `state.${key}`, NumberType.F4);
  });
  return { proprio, proprioDim: start };
}

const actions = (sizes: Readonly<Record<string, number>>): Pick<Profile, "actionKeys" | "actionDims"> => ({
  actionKeys: Object.keys(sizes),
  actionDims: Object.values(sizes),
});

/** Without a profile nothing can be put together: the order of the action's parts has to be declared. */
const PLAIN = plainProfile({
  frames: [video("", "ego_view", { optional: true })],
  instructionKey: "annotation.human.task_description",
});

const TASK = { ...PLAIN, instructionKey: "annotation.human.action.task_description" };
const EE_DELTA = { x: 1, y: 1, z: 1, roll: 1, pitch: 1, yaw: 1, gripper: 1 };
const TURNED = { rotate180: true } as const;

const PRESETS: Readonly<Record<string, Profile>> = {
  "gr00t/libero": {
    ...TASK,
    frames: [video("agentview", "image", TURNED), video("wrist", "wrist_image", TURNED)],
    ...states({ x: 1, y: 1, z: 1, roll: 1, pitch: 1, yaw: 1, gripper: 2 }),
    ...actions(EE_DELTA),
  },
  "gr00t/widowx": {
    ...TASK,
    frames: [video("front", "image_0")],
    ...states({ x: 1, y: 1, z: 1, roll: 1, pitch: 1, yaw: 1, pad: 1, gripper: 1 }),
    ...actions(EE_DELTA),
  },
  "gr00t/google": {
    ...TASK,
    frames: [video("front", "image")],
    ...states({ x: 1, y: 1, z: 1, rx: 1, ry: 1, rz: 1, rw: 1, gripper: 1 }),
    ...actions(EE_DELTA),
  },
  "gr00t/droid": {
    ...PLAIN,
    frames: [video("exterior_1", "exterior_image_1_left"), video("wrist", "wrist_image_left")],
    instructionKey: "annotation.language.language_instruction",
    ...states({ joint_position: 7, gripper_position: 1 }),
    ...actions({ joint_position: 7, gripper_position: 1 }),
  },
  "gr00t/unitree_g1": {
    ...PLAIN,
    frames: [video("ego", "ego_view")],
    ...states({ left_leg: 6, right_leg: 6, waist: 3, left_arm: 7, right_arm: 7, left_hand: 7, right_hand: 7 }),
    ...actions({
      left_arm: 7,
      right_arm: 7,
      left_hand: 7,
      right_hand: 7,
      waist: 3,
      base_height_command: 1,
      navigate_command: 3,
    }),
  },
  "gr00t/gr1_arms_waist": {
    ...PLAIN,
    frames: [video("ego", "ego_view")],
    instructionKey: "annotation.human.coarse_action",
    ...states({ left_arm: 7, right_arm: 7, left_hand: 6, right_hand: 6, waist: 3 }),
    ...actions({ left_arm: 7, right_arm: 7, left_hand: 6, right_hand: 6, waist: 3 }),
    dialect: ServerDialect.GR00T_N1_5,
  },
};

/** What an offering of this wire may choose from. */
export const PROFILES = new Profiles(PLAIN, PRESETS);
