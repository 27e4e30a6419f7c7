/**
 * The ready-made profiles of Isaac-GR00T's registered embodiments. Keys begin with their modality: `video.`, `state.`. N1.7 renamed some of
 * its tags; a profile of each name is the same. Source: NVIDIA/Isaac-GR00T, gr00t/configs/data/embodiment_configs.py of N1.6 and N1.7, and the
 * modality files of its examples.
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

const LIBERO: Profile = {
  ...TASK,
  frames: [video("agentview", "image", TURNED), video("wrist", "wrist_image", TURNED)],
  ...states({ x: 1, y: 1, z: 1, roll: 1, pitch: 1, yaw: 1, gripper: 2 }),
  ...actions(EE_DELTA),
};
const WIDOWX: Profile = {
  ...TASK,
  frames: [video("front", "image_0")],
  ...states({ x: 1, y: 1, z: 1, roll: 1, pitch: 1, yaw: 1, pad: 1, gripper: 1 }),
  ...actions(EE_DELTA),
};
const GOOGLE: Profile = {
  ...TASK,
  frames: [video("front", "image")],
  ...states({ x: 1, y: 1, z: 1, rx: 1, ry: 1, rz: 1, rw: 1, gripper: 1 }),
  ...actions(EE_DELTA),
};
const GR1_ARMS_WAIST = { left_arm: 7, right_arm: 7, left_hand: 6, right_hand: 6, waist: 3 };
const G1_BODY = { left_leg: 6, right_leg: 6, waist: 3, left_arm: 7, right_arm: 7, left_hand: 7, right_hand: 7 };

const PRESETS: Readonly<Record<string, Profile>> = {
  "gr00t/libero": LIBERO,
  "gr00t/libero_sim": LIBERO,
  "gr00t/widowx": WIDOWX,
  "gr00t/simpler_env_widowx": WIDOWX,
  "gr00t/google": GOOGLE,
  "gr00t/simpler_env_google": GOOGLE,
  "gr00t/droid": {
    ...PLAIN,
    frames: [video("exterior_1", "exterior_image_1_left"), video("wrist", "wrist_image_left")],
    instructionKey: "annotation.language.language_instruction",
    // N1.7 wants the pose of the hand too, x, y, z and two columns of its rotation; N1.6 does without.
    proprio: [
      values(0, 7, "state.joint_position", NumberType.F4),
      values(7, 8, "state.gripper_position", NumberType.F4),
      { ...values(8, 17, "state.eef_9d", NumberType.F4), optional: true },
    ],
    ...actions({ joint_position: 7, gripper_position: 1 }),
  },
  "gr00t/robocasa_panda_omron": {
    ...TASK,
    frames: [
      video("left", "res256_image_side_0"),
      video("right", "res256_image_side_1"),
      video("wrist", "res256_image_wrist_0"),
    ],
    ...states({
      end_effector_position_relative: 3,
      end_effector_rotation_relative: 4,
      gripper_qpos: 2,
      base_position: 3,
      base_rotation: 4,
    }),
    ...actions({
      end_effector_position: 3,
      end_effector_rotation: 3,
      gripper_close: 1,
      base_motion: 4,
      control_mode: 1,
    }),
  },
  // The name of its camera is that of N1.6's own checkpoint for this robot.
  "gr00t/robocasa_gr1_tabletop": {
    ...PLAIN,
    frames: [video("ego", "ego_view_bg_crop_pad_res256_freq20")],
    instructionKey: "task",
    ...states(GR1_ARMS_WAIST),
    ...actions(GR1_ARMS_WAIST),
  },
  "gr00t/unitree_g1": {
    ...PLAIN,
    frames: [video("ego", "ego_view")],
    ...states(G1_BODY),
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
  "gr00t/unitree_g1_sonic": {
    ...PLAIN,
    frames: [video("ego", "ego_view")],
    ...states({ ...G1_BODY, projected_gravity: 3 }),
    ...actions({ motion_token: 64, left_hand_joints: 7, right_hand_joints: 7 }),
  },
  "gr00t/gr1_arms_waist": {
    ...PLAIN,
    frames: [video("ego", "ego_view")],
    instructionKey: "annotation.human.coarse_action",
    ...states(GR1_ARMS_WAIST),
    ...actions(GR1_ARMS_WAIST),
    dialect: ServerDialect.GR00T_N1_5,
  },
};

/** What an offering of this wire may choose from. */
export const PROFILES = new Profiles(PLAIN, PRESETS);
