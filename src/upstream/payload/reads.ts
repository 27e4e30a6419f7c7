/** What a profile says that its server reads, as an input contract: pictures are made to fit, and what the profile does not name is left out. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  ActionMeaningSchema,
  CameraRole,
  type CameraSpecSchema,
  InputContractSchema,
  type ProprioSpecSchema,
} from "../../../gen/limber/v1/input_contract_pb.ts";
import { PixelForm, type WireProfile } from "../../../gen/limber/v1/supply_pb.ts";
import type { ProfileReads } from "../wire.ts";
import { type FrameSlot, ownName, type Profile } from "./profile.ts";

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
