/** Where pictures, proprioception and instruction go in a server's observation, and where the action is in its answer. */
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

/** A picture of the observation. */
export interface FrameSlot
  extends Pick<FrameMapping, "camera" | "key" | "layout" | "width" | "height" | "fit" | "rotate180" | "form"> {
  /** Left out when the caller has no such picture, instead of failing. */
  readonly optional: boolean;
}

/** A part of the proprioception; `end` undefined takes all that is left. */
export interface ProprioSlot extends Pick<ProprioMapping, "start" | "key" | "dtype"> {
  readonly end: number | undefined;
  /** Left out when the caller has too few values for it, instead of failing. */
  readonly optional?: boolean;
}

/** What every request carries as it stands. */
export interface Constant {
  readonly key: string;
  readonly value: string | number;
}

/** A profile with nothing left open. */
export interface Profile {
  readonly frames: readonly FrameSlot[];
  readonly proprio: readonly ProprioSlot[];
  readonly instructionKey: string;
  /** Empty: wherever the wire's servers put it. */
  readonly actionKeys: readonly string[];
  /** Columns of each of the action's keys; empty takes what the server answers. */
  readonly actionDims: readonly number[];
  readonly proprioDim: number | undefined;
  /** Undefined: the one of the server's metadata, or the wire's usual one. */
  readonly dialect: ServerDialect | undefined;
  readonly constants: readonly Constant[];
  readonly serverModel: string | undefined;
  readonly coordinates: CoordinateConvention | undefined;
  readonly session: WireSession;
  readonly reset: WireReset;
  /** What its actions mean, where that belongs to the profile. */
  readonly meaning?: MessageInitShape<typeof ActionMeaningSchema> | undefined;
}

/** A picture at 224 by 224, padded, rows of red, green and blue bytes, unless given otherwise. */
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

/** The values from `start` up to `end` under a key, doubles unless given otherwise. */
export const values = (
  start: number,
  end: number | undefined,
  key: string,
  dtype: NumberType = NumberType.F8,
): ProprioSlot => ({ start, end, key, dtype });

/** A wire's profile of an offering that declares none: nothing but what is given. */
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

/** A server's own name for what stands under a key: `video.ego_view` is `ego_view`. */
export const ownName = (key: string): string => key.replace(/^(?:(?:video|state)\.|observation\/)/, "");

/**
 * The instruction under its key; nothing where the caller gave none, or the server has no key for it. An empty text is an instruction: it would
 * take the place of the server's own default.
 */
export const instructionIn = (
  { instructionKey }: Pick<Profile, "instructionKey">,
  instruction: string,
): readonly (readonly [key: string, text: string])[] =>
  instruction === "" || instructionKey === "" ? [] : [[instructionKey, instruction]];

/** The values that every request carries, by their keys. */
export const constantsIn = ({ constants }: Pick<Profile, "constants">): Readonly<Record<string, string | number>> =>
  Object.fromEntries(constants.map(({ key, value }) => [key, value]));

/** The profiles of one wire: its ready-made ones by name, and the one that stands where an offering declares nothing. */
export class Profiles {
  readonly #presets: Readonly<Record<string, Profile>>;
  readonly #plain: Profile;
  readonly #resolved = new WeakMap<WireProfile, Profile>();

  constructor(plain: Profile, presets: Readonly<Record<string, Profile>> = {}) {
    this.#plain = plain;
    this.#presets = presets;
  }

  /** The names of the ready-made profiles. */
  get names(): string[] {
    return Object.keys(this.#presets);
  }

  /** What an offering's profile comes to: its preset, or the plain one, with its own fields in front. An unknown preset counts as none. */
  of(declared: WireProfile | undefined): Profile {
    if (declared === undefined) return this.#plain;
    const known = this.#resolved.get(declared) ?? this.#resolve(declared);
    this.#resolved.set(declared, known);
    return known;
  }

  /** What an observation needs for it. */
  wants(declared: WireProfile | undefined): Wants {
    return wantsOf(this.of(declared));
  }

  /** What a server with it sees and does, by its own names. */
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
      // Actions that are put together in another way are others.
      meaning: actionKeys.length > 0 ? undefined : base.meaning,
    };
  }
}

/** What an observation needs for a profile. */
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

/** Undefined where the offering chose no ready-made profile and names neither pictures nor proprioception. */
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
    // A picture that goes to the server as it came may have any size.
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

/** What its name says; robots of these profiles have their cameras where their names say. */
const roleOf = (words: string): CameraRole => ROLES.find(([word]) => word.test(words))?.[1] ?? CameraRole.UNSPECIFIED;

/** As many values as the profile fixes, or as many as its parts need at least. */
function proprioOf({ proprio, proprioDim }: Profile): MessageInitShape<typeof ProprioSpecSchema>[] {
  if (proprioDim !== undefined) return [{ dimension: proprioDim, names: namesOf(proprio, proprioDim) }];
  if (proprio.length === 0) return [{ dimension: 0, moreValues: true }];
  const needed = Math.max(0, ...proprio.map(({ start, end, optional }) => (optional ? 0 : (end ?? start))));
  return needed === 0 ? [] : [{ dimension: needed, moreValues: true, names: namesOf(proprio, needed) }];
}

/** Where each value has a key of its own, such as a motor's. */
function namesOf(proprio: Profile["proprio"], dim: number): string[] {
  const names = Array.from(
    { length: dim },
    (_, i) => proprio.find(({ start, end }) => start === i && end === i + 1)?.key,
  );
  const own = names.flatMap((name) => (name === undefined ? [] : ownName(name)));
  return own.length === dim && new Set(own).size === dim ? own : [];
}

/** Names from the answer's parts, where their sizes are known, beside what the profile itself says. */
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
