/**
 * Messages of an Isaac-GR00T server, and its preset profiles by embodiment. Keys begin with their modality: `video.`, `state.`. N1.7 renamed
 * some embodiments; profiles of both names are equal. Source: NVIDIA/Isaac-GR00T, gr00t/configs/data/embodiment_configs.py of N1.6 and N1.7, and
 * the modality files of its examples.
 */
import { NumberType, ServerDialect } from "../../../gen/limber/v1/supply_pb.ts";
import { decodeGr00t, encodeGr00t, type Gr00tArrays } from "../../codecs/python/gr00t.ts";
import type { Packable, Unpacked } from "../../codecs/python/msgpack.ts";
import { NdArray } from "../../codecs/python/ndarray.ts";
import { type ActAnswer, AttemptFailure, UpstreamFailure } from "../../contracts/contract.ts";
import { chunkOf, sideBySide, tableIn } from "../payload/actions.ts";
import { arrayOf, type ObservationPart } from "../payload/observe.ts";
import {
  type FrameSlot,
  instructionIn,
  type Profile,
  Profiles,
  type ProprioSlot,
  picture,
  plainProfile,
  values,
} from "../payload/profile.ts";
import { failureOf, malformed, ownerText } from "../transport/failures.ts";

type Gr00tFields = Map<string, Packable<NdArray>>;

/** The permitted endpoints. `kill`, which stops the server, is not among them. */
type Endpoint = "ping" | "get_action" | "reset" | "get_modality_config" | "no_such_endpoint";

/** Writes a message to an endpoint, with the token if there is one. */
export function encodeCall(
  endpoint: Endpoint,
  data: Packable<NdArray> | undefined,
  token: string,
  arrays: Gr00tArrays = "npy",
): Buffer {
  const fields: Gr00tFields = new Map([["endpoint", endpoint]]);
  if (data !== undefined) fields.set("data", data);
  if (token !== "") fields.set("api_token", token);
  return encodeGr00t(fields, arrays);
}

/**
 * The layout of an observation. `bare`: N1.5, flat without an envelope. `nested`: a map for each modality. `flat`: a flat observation in the
 * envelope of later versions, for servers with `--use-sim-policy-wrapper`.
 */
export type Layout = "bare" | "nested" | "flat";

/** An observation with images [T, H, W, 3] and states [T, D], each under its profile's key. */
export interface Shown {
  readonly video: ReadonlyMap<string, NdArray>;
  readonly state: ReadonlyMap<string, NdArray>;
  readonly instructionKey: string;
  readonly instruction: string;
}

/** Returns the observation in the form of `get_action`. */
export function actionData({ constants }: Pick<Profile, "constants">, shown: Shown, layout: Layout): Packable<NdArray> {
  const fixed = constants.map(({ key, value }) => [key, value] as const);
  if (layout === "bare") return new Map<string, Packable<NdArray>>([...flat(shown, 0), ...fixed]);
  const observation = layout === "flat" ? flat(shown, 1) : nested(shown);
  return new Map<string, Packable<NdArray>>([
    ["observation", observation],
    ["options", fixed.length === 0 ? null : new Map(fixed)],
  ]);
}

/** Returns the observation of one moment. Throws an UpstreamFailure if the profile specifies files, while the wire has pixels. */
export function momentOf(
  { instructionKey }: Pick<Profile, "instructionKey">,
  parts: readonly ObservationPart[],
  instruction: string,
): Shown {
  const of = (kind: ObservationPart["kind"]): Map<string, NdArray> =>
    new Map(parts.filter((part) => part.kind === kind).map((part) => [part.key, widened(arrayOf(part), 1)]));
  return { video: of("frame"), state: of("proprio"), instructionKey, instruction };
}

/** Keys such as `video.ego_view`, with this many leading axes of one, and a list of one text. */
const flat = ({ video, state, instructionKey, instruction }: Shown, axes: number): Gr00tFields =>
  new Map<string, Packable<NdArray>>([
    ...[...video].map(([key, array]) => [dotted("video.", key), widened(array, axes)] as const),
    ...[...state].map(([key, array]) => [dotted("state.", key), widened(array, axes)] as const),
    ...instructionIn({ instructionKey }, instruction).map(([key, text]) => [key, [text]] as const),
  ]);

/** A map for each modality, with a batch axis. */
const nested = ({ video, state, instructionKey, instruction }: Shown): Gr00tFields =>
  new Map<string, Packable<NdArray>>([
    ["video", new Map([...video].map(([key, array]) => [withoutPrefix(key, "video."), widened(array, 1)]))],
    ["state", new Map([...state].map(([key, array]) => [withoutPrefix(key, "state."), widened(array, 1)]))],
    ...instructionIn({ instructionKey }, instruction).map(
      ([key, text]) => ["language", new Map([[withoutPrefix(key, "language."), [[text]]]])] as const,
    ),
  ]);

const dotted = (prefix: string, key: string): string => (key.startsWith(prefix) ? key : `${prefix}${key}`);

const withoutPrefix = (key: string, prefix: string): string =>
  key.startsWith(prefix) ? key.slice(prefix.length) : key;

/** The same numbers with leading axes of one. */
const widened = ({ dtype, shape, data }: NdArray, axes: number): NdArray =>
  new NdArray(dtype, [...Array<number>(axes).fill(1), ...shape], data);

type Gr00tValue = Unpacked<NdArray>;

/** Reads the answer of any endpoint. Throws an UpstreamFailure for the server's own error and for unreadable answers. */
export function readReply(bytes: Buffer): Gr00tValue {
  if (bytes.equals(FATAL)) throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, "the server returned ERROR");
  const reply = decode(bytes);
  const said = reply instanceof Map && reply.size === 1 ? reply.get("error") : undefined;
  if (said === undefined) return reply;
  const text = ownerText(String(said));
  const failure = text.startsWith("Unauthorized") ? AttemptFailure.UPSTREAM_AUTH : AttemptFailure.UPSTREAM_ERROR;
  throw new UpstreamFailure(failure, text);
}

const FATAL = Buffer.from("ERROR");

/**
 * Returns the first `horizon` rows of the named parts, concatenated, from a map (N1.5) or the first item of `[actions, info]` (N1.6 and later).
 * A part can be named `left_arm` or `action.left_arm`. Throws an UpstreamFailure.
 */
export function readAction(
  bytes: Buffer,
  { actionKeys, actionDims }: Pick<Profile, "actionKeys" | "actionDims">,
  horizon: number,
  dim?: number,
): ActAnswer {
  const reply = readReply(bytes);
  const actions = Array.isArray(reply) ? reply[0] : reply;
  if (!(actions instanceof Map)) throw malformed("the response contains no map of actions");
  const tables = actionKeys.map((key) => {
    const part = actions.get(key) ?? actions.get(`action.${key}`);
    return tableIn(part, `there is no array of actions named ${key}`);
  });
  return chunkOf(sideBySide(tables, { dims: actionDims, dim }), horizon);
}

/** The names of the server's modalities and their moments, without prefixes such as `video.`. */
export interface ModalityConfig {
  readonly video: readonly string[];
  readonly state: readonly string[];
  readonly action: readonly string[];
  readonly language: readonly string[];
  /** The moments of its images in control steps, 0 for now: `[-15, 0]` requires two images of each camera. */
  readonly moments: readonly number[];
  /** The required number of state moments. */
  readonly stateMoments: number;
  /** Steps of its chunks. */
  readonly chunk: number | undefined;
  /** The class of the server's configuration, which identifies its generation; undefined if it is not stated. */
  readonly tag: ModalityTag | undefined;
}

/** `json`: N1.5. `class`: N1.6 and the first release of N1.7. `config`: N1.7 from 2026-05-07 on. */
export type ModalityTag = "json" | "class" | "config";

/** The maximum number of moments that a server can require of one modality. */
const MOST_MOMENTS = 16;

/** Reads the answer of `get_modality_config`. Throws an UpstreamFailure. */
export function readModalityConfig(bytes: Buffer): ModalityConfig {
  const reply = readReply(bytes);
  if (!(reply instanceof Map)) throw malformed("the modality configuration is not a map");
  const names = (modality: string): string[] =>
    textsIn(fieldOf(reply.get(modality), "modality_keys")).map((key) => key.replace(`${modality}.`, ""));
  const steps = fieldOf(reply.get("action"), "delta_indices");
  return {
    video: names("video"),
    state: names("state"),
    action: names("action"),
    language: textsIn(fieldOf(reply.get("language"), "modality_keys")),
    moments: momentsIn(fieldOf(reply.get("video"), "delta_indices")),
    stateMoments: momentsIn(fieldOf(reply.get("state"), "delta_indices")).length,
    chunk: Array.isArray(steps) ? steps.length : undefined,
    tag: tagOf(reply.get("action")) ?? tagOf(reply.get("video")),
  };
}

/** Returns offsets in control steps; only the present if there are none. Throws an UpstreamFailure for more than any model requires. */
function momentsIn(value: unknown): number[] {
  if (!Array.isArray(value)) return [0];
  const offsets = value.filter((each): each is number => Number.isSafeInteger(each));
  if (value.length > MOST_MOMENTS || offsets.length !== value.length) throw malformed("unsupported time offsets");
  return offsets.length === 0 ? [0] : offsets;
}

function tagOf(modality: Gr00tValue | undefined): ModalityTag | undefined {
  if (!(modality instanceof Map)) return undefined;
  if (modality.has("__ModalityConfig__")) return "config";
  if (!modality.has("__ModalityConfig_class__")) return undefined;
  return typeof modality.get("as_json") === "string" ? "json" : "class";
}

const textsIn = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];

/** A modality is a map, or JSON of one (N1.5), under a tag of the server's class. */
function fieldOf(modality: Gr00tValue | undefined, name: string): unknown {
  const inner = modality instanceof Map ? (modality.get("as_json") ?? modality) : undefined;
  if (inner instanceof Map) return inner.get(name);
  if (typeof inner !== "string" || inner.length > MAX_JSON) return undefined;
  try {
    return JSON.parse(inner)?.[name];
  } catch {
    return undefined;
  }
}

const MAX_JSON = 1 << 20;

function decode(bytes: Buffer): Gr00tValue {
  try {
    return decodeGr00t(bytes);
  } catch (error) {
    throw failureOf(error);
  }
}

const video = (camera: string, key: string, more: Partial<FrameSlot> = {}): FrameSlot =>
  picture(camera, `video.${key}`, { width: 256, height: 256, ...more });

/** Consecutive parts of these sizes. */
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

/** The profile is required, because it declares the order of the action's parts. */
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
    // N1.7 also requires the hand's pose: x, y, z and two columns of its rotation. N1.6 does not.
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
  // The camera name is that of N1.6's own checkpoint for this robot.
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

/** The presets of this wire's offerings. */
export const PROFILES = new Profiles(PLAIN, PRESETS);

/** A server's encoding of messages. */
export interface Speech {
  readonly arrays: Gr00tArrays;
  readonly layout: Layout;
  /** The server's required input; undefined if it was not queried or did not answer. */
  readonly config: ModalityConfig | undefined;
}
