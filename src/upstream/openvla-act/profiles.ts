/** The ready-made profiles of OpenVLA and OpenVLA-OFT. Sources: openvla/openvla and moojink/openvla-oft, vla-scripts/deploy.py. */
import { ImageFit } from "../../../gen/limber/v1/supply_pb.ts";
import { type Profile, Profiles, picture, plainProfile, values } from "../payload/profile.ts";

const STRETCH = { fit: ImageFit.STRETCH } as const;

/** Without a profile: a picture if there is one, and the instruction. */
const PLAIN = plainProfile({
  frames: [picture("", "image", { ...STRETCH, optional: true })],
  instructionKey: "instruction",
});

const TURNED = { ...STRETCH, rotate180: true } as const;

const PRESETS: Readonly<Record<string, Profile>> = {
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
};

/** What an offering of this wire may choose from. */
export const PROFILES = new Profiles(PLAIN, PRESETS);
