/** The positions of images, proprioception and instruction in a server's observation, and of the action in its answer. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  ActionMeaningSchema,
  CameraRole,
  type CameraSpecSchema,
  InputContractSchema,
  type ProprioSpecSchema,
} from "../../../gen/limber/v1/input_contract_pb.ts";
import {
  type CoordinateConvention,
  type FrameMapping,
  ImageFit,
  NumberType,
  PixelForm,
  PixelLayout,
  type ProprioMapping,
  type ServerDialect,
  type WireProfile,
  WireReset,
  WireSession,
} from "../../../gen/limber/v1/supply_pb.ts";
import type { ProfileReads, Wants, WireLayout } from "../wire.ts";

/** An image of the observation. */
export interface FrameSlot
  extends Pick<FrameMapping, "camera" | "key" | "layout" | "width" | "height" | "fit" | "rotate180" | "form"> {
  /** Left out if the caller has no such image, instead of failing. */
  readonly optional: boolean;
}

/** A part of the proprioception; an undefined `end` takes all remaining values. */
export interface ProprioSlot extends Pick<ProprioMapping, "start" | "key" | "dtype"> {
  readonly end: number | undefined;
  /** Left out if the caller has too few values for it, instead of failing. */
  readonly optional?: boolean;
}

/** Constants of every request. */
export interface Constant {
  readonly key: string;
  readonly value: string | number;
}

/** A profile with all fields resolved. */
export interface Profile {
  readonly frames: readonly FrameSlot[];
  readonly proprio: readonly ProprioSlot[];
  readonly instructionKey: string;
  /** Empty for the default of the wire's servers. */
  readonly actionKeys: readonly string[];
  /** Columns of each of the action's keys; empty accepts the server's answer as it is. */
  readonly actionDims: readonly number[];
  readonly proprioDim: number | undefined;
  /** Undefined for the value in the server's metadata, or the wire's default. */
  readonly dialect: ServerDialect | undefined;
  readonly constants: readonly Constant[];
  readonly serverModel: string | undefined;
  readonly coordinates: CoordinateConvention | undefined;
  readonly session: WireSession;
  readonly reset: WireReset;
  /** The action semantics, if they belong to the profile. */
  readonly meaning?: MessageInitShape<typeof ActionMeaningSchema> | undefined;
}

/** An image at 224 by 224, padded, rows of RGB bytes, unless specified otherwise. */
export const picture = (camera: string, key: string, more: Partial<FrameSlot> = {}): FrameSlot => ({
  camera,
  key,
  layout: PixelLayout.HWC,
  width: 224,
  height: 224,
  fit: ImageFit.PAD,
  rotate180: false,
  form: PixelForm.U1,
  optional: false,
  ...more,
});

/** The values from `start` up to `end` under a key, doubles unless specified otherwise. */
export const values = (
  start: number,
  end: number | undefined,
  key: string,
  dtype: NumberType = NumberType.F8,
): ProprioSlot => ({ start, end, key, dtype });

/** A wire's default profile, with only the given fields. */
export const plainProfile = (more: Partial<Profile>): Profile => ({
  frames: [],
  proprio: [],
  instructionKey: "",
  actionKeys: [],
  actionDims: [],
  proprioDim: undefined,
  dialect: undefined,
  constants: [],
  serverModel: undefined,
  coordinates: undefined,
  session: WireSession.UNSPECIFIED,
  reset: WireReset.UNSPECIFIED,
  ...more,
});

/** The server's own name in a key: `ego_view` for `video.ego_view`. */
export const ownName = (key: string): string => key.replace(/^(?:(?:video|state)\.|observation\/)/, "");

/**
 * Returns the instruction under its key; nothing if the caller gave none, or the server has no key for it. An empty text would replace the
 * server's own default.
 */
export const instructionIn = (
  { instructionKey }: Pick<Profile, "instructionKey">,
  instruction: string,
): readonly (readonly [key: string, text: string])[] =>
  instruction === "" || instructionKey === "" ? [] : [[instructionKey, instruction]];

/** Returns the constants of every request by key. */
export const constantsIn = ({ constants }: Pick<Profile, "constants">): Readonly<Record<string, string | number>> =>
  Object.fromEntries(constants.map(({ key, value }) => [key, value]));

/** The profiles of one wire: its presets by name, and its default. */
export class Profiles {
  readonly #presets: Readonly<Record<string, Profile>>;
  readonly #plain: Profile;
  readonly #resolved = new WeakMap<WireProfile, Profile>();

  constructor(plain: Profile, presets: Readonly<Record<string, Profile>> = {}) {
    this.#plain = plain;
    this.#presets = presets;
  }

  /** The names of the presets. */
  get names(): string[] {
    return Object.keys(this.#presets);
  }

  /** Resolves an offering's profile: its own fields over its preset, or over the default. An unknown preset counts as none. */
  of(declared: WireProfile | undefined): Profile {
    if (declared === undefined) return this.#plain;
    const known = this.#resolved.get(declared) ?? this.#resolve(declared);
    this.#resolved.set(declared, known);
    return known;
  }

  /** The observation that the profile requires. */
  wants(declared: WireProfile | undefined): Wants {
    return wantsOf(this.of(declared));
  }

  /** The inputs and actions of a server with this profile, by its own names. */
  layout(declared: WireProfile | undefined): WireLayout {
    const { frames, proprio, actionKeys, actionDims, instructionKey } = this.of(declared);
    return {
      video: frames.map(({ key }) => ownName(key)),
      state: proprio.map(({ key, start, end, optional = false }) => ({ name: ownName(key), start, end, optional })),
      action: actionKeys.flatMap((key, i) => (actionDims[i] === undefined ? [] : [[key, actionDims[i]] as const])),
      language: instructionKey,
    };
  }

  #resolve(declared: WireProfile): Profile {
    const { preset, frames, proprio, actionKeys, actionDims, constants } = declared;
    const base = (preset === undefined ? undefined : this.#presets[preset]) ?? this.#plain;
    return {
      frames: frames.length > 0 ? frames.map((frame) => ({ ...frame, optional: false })) : base.frames,
      proprio: proprio.length > 0 ? proprio : base.proprio,
      instructionKey: declared.instructionKey ?? base.instructionKey,
      actionKeys: actionKeys.length > 0 ? actionKeys : base.actionKeys,
      actionDims: actionDims.length > 0 ? actionDims : actionKeys.length > 0 ? [] : base.actionDims,
      // An offering's own layout has its own length.
      proprioDim: declared.proprioDim ?? (proprio.length > 0 ? undefined : base.proprioDim),
      dialect: declared.dialect ?? base.dialect,
      constants: constants.length > 0 ? constants.map(constantOf) : base.constants,
      serverModel: declared.serverModel ?? base.serverModel,
      coordinates: declared.coordinates ?? base.coordinates,
      session: declared.session ?? base.session,
      reset: declared.reset ?? base.reset,
      // Actions that are composed differently have other semantics.
      meaning: actionKeys.length > 0 ? undefined : base.meaning,
    };
  }
}

/** Returns the input contract of a profile. */
export function wantsOf({ frames, proprio, proprioDim }: Profile): Wants {
  const ends = proprio.map(({ end }) => end).filter((end) => end !== undefined);
  return {
    cameras: frames.map(({ camera }) => camera),
    proprioDim: proprioDim ?? (ends.length > 0 ? Math.max(...ends) : undefined),
  };
}

const constantOf = ({ key, text, number }: WireProfile["constants"][number]): Constant => ({
  key,
  value: text ?? number ?? "",
});

/** Undefined if the offering has no preset and declares neither images nor proprioception. */
export function readsOf(profile: Profile, declared: WireProfile): ProfileReads | undefined {
  const { preset, frames, proprio, proprioDim, actionKeys } = declared;
  const says = preset !== undefined || frames.length > 0 || proprio.length > 0 || proprioDim !== undefined;
  const meanings = preset !== undefined || actionKeys.length > 0 ? actionsOf(profile) : [];
  if (!says && meanings.length === 0) return undefined;
  const input = create(InputContractSchema, {
    cameras: { cameras: profile.frames.map(cameraOf) },
    otherCameras: true,
    proprio: proprioOf(profile),
  });
  return { input: says ? input : undefined, actions: meanings };
}

function cameraOf({
  camera,
  key,
  width,
  height,
  form,
  optional,
}: FrameSlot): MessageInitShape<typeof CameraSpecSchema> {
  const other = new Set([key, ownName(key)]);
  other.delete(camera);
  return {
    name: camera,
    aliases: camera === "" ? [] : [...other],
    role: roleOf(`${camera} ${key}`),
    // An image that is sent unchanged can have any size.
    ...(form !== PixelForm.ENCODED && { width, height }),
    anySize: true,
    required: !optional,
  };
}

const ROLES: readonly (readonly [RegExp, CameraRole])[] = [
  [/wrist|hand/, CameraRole.WRIST],
  [/ego|head/, CameraRole.HEAD],
  [/cam_high|overhead|top/, CameraRole.OVERHEAD],
  [/exterior|agentview|front|side|base|cam_low/, CameraRole.SCENE],
];

/** Derives the camera position from its name, as is valid for the presets' robots. */
const roleOf = (words: string): CameraRole => ROLES.find(([word]) => word.test(words))?.[1] ?? CameraRole.UNSPECIFIED;

/** The fixed number of values of the profile, or the minimum that its parts need. */
function proprioOf({ proprio, proprioDim }: Profile): MessageInitShape<typeof ProprioSpecSchema>[] {
  if (proprioDim !== undefined) return [{ dimension: proprioDim, names: namesOf(proprio, proprioDim) }];
  if (proprio.length === 0) return [{ dimension: 0, moreValues: true }];
  const needed = Math.max(0, ...proprio.map(({ start, end, optional }) => (optional ? 0 : (end ?? start))));
  return needed === 0 ? [] : [{ dimension: needed, moreValues: true, names: namesOf(proprio, needed) }];
}

/** If each value has its own key, such as a motor's. */
function namesOf(proprio: Profile["proprio"], dim: number): string[] {
  const names = Array.from(
    { length: dim },
    (_, i) => proprio.find(({ start, end }) => start === i && end === i + 1)?.key,
  );
  const own = names.flatMap((name) => (name === undefined ? [] : ownName(name)));
  return own.length === dim && new Set(own).size === dim ? own : [];
}

/** Names from the answer's parts, if their sizes are known, besides the profile's own declarations. */
function actionsOf({ meaning, actionKeys, actionDims }: Profile) {
  const isKnown = actionKeys.length > 0 && actionDims.length === actionKeys.length;
  if (meaning === undefined && !isKnown) return [];
  const names = isKnown
    ? actionKeys.flatMap((key, i) =>
        actionDims[i] === 1 ? key : Array.from({ length: actionDims[i]! }, (_, place) => `${key}.${place}`),
      )
    : [];
  return [create(ActionMeaningSchema, { ...meaning, names })];
}
