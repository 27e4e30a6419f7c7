/**
 * Where pictures, proprioception and instruction go in a server's observation, and where the action is in its answer.
 * Source of the presets: the observation keys of openpi's own policies (Physical-Intelligence/openpi, src/openpi/policies).
 */
import {
  type FrameMapping,
  ImageFit,
  NumberType,
  PixelLayout,
  type ProprioMapping,
  type WireProfile,
} from "../../../gen/limber/v1/supply_pb.ts";

/** A picture of the observation. */
export interface FrameSlot
  extends Pick<FrameMapping, "camera" | "key" | "layout" | "width" | "height" | "fit" | "rotate180"> {
  /** Left out when the caller has no such picture, instead of failing. */
  readonly optional: boolean;
}

/** A part of the proprioception; `end` undefined takes all that is left. */
export interface ProprioSlot extends Pick<ProprioMapping, "start" | "key" | "dtype"> {
  readonly end: number | undefined;
}

/** A profile with nothing left open. */
export interface Profile {
  readonly frames: readonly FrameSlot[];
  readonly proprio: readonly ProprioSlot[];
  readonly instructionKey: string;
  /** Empty: wherever openpi and its dialects put it. */
  readonly actionKeys: readonly string[];
  readonly proprioDim: number | undefined;
}

const picture = (camera: string, key: string, more: Partial<FrameSlot> = {}): FrameSlot => ({
  camera,
  key,
  layout: PixelLayout.HWC,
  width: 224,
  height: 224,
  fit: ImageFit.PAD,
  rotate180: false,
  optional: false,
  ...more,
});

const values = (
  start: number,
  end: number | undefined,
  key: string,
  dtype: NumberType = NumberType.F8,
): ProprioSlot => ({
  start,
  end,
  key,
  dtype,
});

const CHW = { layout: PixelLayout.CHW } as const;
const OPTIONAL_CHW = { layout: PixelLayout.CHW, optional: true } as const;

/** Without a profile: one picture if there is one, all of the proprioception, the instruction. */
const PLAIN: Profile = {
  frames: [picture("", "observation/image", { optional: true })],
  proprio: [values(0, undefined, "observation/state", NumberType.F4)],
  instructionKey: "prompt",
  actionKeys: [],
  proprioDim: undefined,
};

/** The ready-made profiles, by name. */
export const PRESETS: Readonly<Record<string, Profile>> = {
  "openpi/droid": {
    ...PLAIN,
    frames: [
      picture("exterior_1", "observation/exterior_image_1_left"),
      picture("wrist", "observation/wrist_image_left"),
    ],
    proprio: [values(0, 7, "observation/joint_position"), values(7, 8, "observation/gripper_position")],
    proprioDim: 8,
  },
  "openpi/libero": {
    ...PLAIN,
    frames: [
      picture("agentview", "observation/image", { rotate180: true }),
      picture("wrist", "observation/wrist_image", { rotate180: true }),
    ],
    proprio: [values(0, 8, "observation/state")],
    proprioDim: 8,
  },
  "openpi/aloha": {
    ...PLAIN,
    frames: [
      picture("cam_high", "images.cam_high", CHW),
      picture("cam_low", "images.cam_low", OPTIONAL_CHW),
      picture("cam_left_wrist", "images.cam_left_wrist", OPTIONAL_CHW),
      picture("cam_right_wrist", "images.cam_right_wrist", OPTIONAL_CHW),
    ],
    proprio: [values(0, 14, "state")],
    proprioDim: 14,
  },
};

const resolved = new WeakMap<WireProfile, Profile>();

/** What an offering's profile comes to: its preset, or the plain one, with its own fields in front. An unknown preset counts as none. */
export function profileOf(declared: WireProfile | undefined): Profile {
  if (declared === undefined) return PLAIN;
  const known = resolved.get(declared) ?? resolve(declared);
  resolved.set(declared, known);
  return known;
}

function resolve({ preset, frames, proprio, instructionKey, actionKeys, proprioDim }: WireProfile): Profile {
  const base = (preset === undefined ? undefined : PRESETS[preset]) ?? PLAIN;
  return {
    frames: frames.length > 0 ? frames.map((frame) => ({ ...frame, optional: false })) : base.frames,
    proprio: proprio.length > 0 ? proprio : base.proprio,
    instructionKey: instructionKey ?? base.instructionKey,
    actionKeys: actionKeys.length > 0 ? actionKeys : base.actionKeys,
    // A layout of one's own has a length of one's own.
    proprioDim: proprioDim ?? (proprio.length > 0 ? undefined : base.proprioDim),
  };
}
