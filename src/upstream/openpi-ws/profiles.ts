/**
 * The ready-made profiles of openpi and its dialects.
 * Sources: the observation keys of openpi's own policies (Physical-Intelligence/openpi, src/openpi/policies), of RoboArena's and
 * SGLang's servers, and of NVIDIA cosmos-framework's RoboLab server.
 */
import { ActionReference, RotationForm } from "../../../gen/limber/v1/input_contract_pb.ts";
import { NumberType, PixelLayout, ServerDialect } from "../../../gen/limber/v1/supply_pb.ts";
import { type Profile, Profiles, picture, plainProfile, values } from "../payload/profile.ts";
import type { ImageSize } from "./decode.ts";

const CHW = { layout: PixelLayout.CHW } as const;
const OPTIONAL = { optional: true } as const;

/** Without a profile: one picture if there is one, all of the proprioception, the instruction. */
const PLAIN = plainProfile({
  frames: [picture("", "observation/image", OPTIONAL)],
  proprio: [values(0, undefined, "observation/state", NumberType.F4)],
  instructionKey: "prompt",
});

const DROID: Profile = {
  ...PLAIN,
  frames: [
    picture("exterior_1", "observation/exterior_image_1_left"),
    picture("wrist", "observation/wrist_image_left"),
  ],
  proprio: [values(0, 7, "observation/joint_position"), values(7, 8, "observation/gripper_position")],
  proprioDim: 8,
};

const PRESETS: Readonly<Record<string, Profile>> = {
  "openpi/droid": DROID,
  "openpi/libero": {
    ...PLAIN,
    frames: [
      picture("agentview", "observation/image", { rotate180: true }),
      picture("wrist", "observation/wrist_image", { rotate180: true }),
    ],
    proprio: [values(0, 8, "observation/state")],
    proprioDim: 8,
    // The deltas that LIBERO's own controller takes: not metres and radians, but parts of its largest step.
    meaning: {
      reference: ActionReference.RELATIVE,
      rotation: RotationForm.AXIS_ANGLE,
      gripper: { indexes: [6], open: -1, closed: 1 },
    },
  },
  "openpi/aloha": {
    ...PLAIN,
    frames: [
      picture("cam_high", "images.cam_high", CHW),
      picture("cam_low", "images.cam_low", { ...CHW, ...OPTIONAL }),
      picture("cam_left_wrist", "images.cam_left_wrist", { ...CHW, ...OPTIONAL }),
      picture("cam_right_wrist", "images.cam_right_wrist", { ...CHW, ...OPTIONAL }),
    ],
    proprio: [values(0, 14, "state")],
    proprioDim: 14,
    meaning: { reference: ActionReference.ABSOLUTE, gripper: { indexes: [6, 13], open: 1, closed: 0 } },
  },
  "roboarena/droid": {
    ...DROID,
    frames: [
      picture("exterior_1", "observation/exterior_image_0_left"),
      picture("exterior_2", "observation/exterior_image_1_left", OPTIONAL),
      picture("wrist", "observation/wrist_image_left", OPTIONAL),
    ],
    dialect: ServerDialect.ROBOARENA,
  },
  "sglang/pi05": {
    ...PLAIN,
    frames: [
      picture("base", "observation.images.base_0_rgb"),
      picture("left_wrist", "observation.images.left_wrist_0_rgb", OPTIONAL),
      picture("right_wrist", "observation.images.right_wrist_0_rgb", OPTIONAL),
    ],
    proprio: [values(0, undefined, "observation.state", NumberType.F4)],
    dialect: ServerDialect.SGLANG,
  },
  "cosmos/robolab": { ...DROID, dialect: ServerDialect.COSMOS_ROBOLAB },
  starvla: {
    ...PLAIN,
    frames: [picture("", "image"), picture("", "image", OPTIONAL), picture("", "image", OPTIONAL)],
    proprio: [],
    instructionKey: "lang",
    dialect: ServerDialect.STARVLA,
  },
};

/** What an offering of this wire may choose from. */
export const PROFILES = new Profiles(PLAIN, PRESETS);

/** A profile whose pictures have the size that the server announces. An offering's own frames say theirs themselves. */
export const sized = (profile: Profile, { width, height }: ImageSize): Profile => ({
  ...profile,
  frames: profile.frames.map((frame) => ({ ...frame, width, height })),
});
