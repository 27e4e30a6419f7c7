/** The input contracts and action semantics of the reference models, for the native wire. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type ActionMeaningSchema,
  ActionReference,
  type InputContractSchema,
  InputNeed,
  type ProprioSpecSchema,
  RotationForm,
} from "../../gen/limber/v1/input_contract_pb.ts";
import type { ActionDeclaration, ActionSpace } from "./act/types.ts";
import type { ReferenceModel } from "./models.ts";

/**
 * Returns the input contract of a model in these action spaces. Unread images and words are not violations. A model that needs an image only
 * with some proprio layouts declares nothing about images and words, because a contract cannot state the condition.
 */
export function inputOf(
  { cameras, contracts }: ReferenceModel,
  actions: readonly ActionDeclaration[],
): MessageInitShape<typeof InputContractSchema> {
  const acts = contracts.includes("act");
  const depends = actions.some(({ visualLayouts }) => visualLayouts.length > 0);
  return {
    proprio: acts ? layoutsOf(actions) : [],
    goalImage: { need: acts ? InputNeed.NONE : InputNeed.IGNORED },
    ...(!depends && {
      cameras: { cameras: Array.from({ length: cameras.most }, (_, i) => ({ required: i < cameras.least })) },
      otherCameras: true,
      language: contracts.includes("ground")
        ? { need: InputNeed.REQUIRED, languages: ["en"] }
        : { need: InputNeed.IGNORED },
    }),
  };
}

/** Layouts shared by all action spaces are listed once. */
function layoutsOf(actions: readonly ActionDeclaration[]): MessageInitShape<typeof ProprioSpecSchema>[] {
  const [first, ...others] = actions;
  const layout = (names: readonly string[], actionSpace?: ActionSpace) => ({
    names: [...names],
    dimension: names.length,
    anyOrder: true,
    ...(actionSpace && { actionSpace }),
  });
  if (first === undefined) return [];
  if (others.every(({ proprioLayouts }) => sameLayouts(proprioLayouts, first.proprioLayouts)))
    return first.proprioLayouts.map((names) => layout(names));
  return actions.flatMap(({ space, proprioLayouts }) => proprioLayouts.map((names) => layout(names, space)));
}

const sameLayouts = (one: ActionDeclaration["proprioLayouts"], other: ActionDeclaration["proprioLayouts"]): boolean =>
  JSON.stringify(one) === JSON.stringify(other);

/** For spaces with one meaning for every proprio layout. */
const MEANINGS: Readonly<
  Partial<Record<ActionSpace, Omit<MessageInitShape<typeof ActionMeaningSchema>, "$typeName">>>
> = {
  base_twist_2d: { units: ["m/s", "rad/s"], reference: ActionReference.VELOCITY, referenceFrame: "base" },
  waypoint_se2: {
    units: ["m", "m", "rad"],
    reference: ActionReference.RELATIVE_TO_OBSERVATION,
    referenceFrame: "base",
  },
  ee_delta_6d_grip: {
    units: ["m", "m", "m", "rad", "rad", "rad", "1"],
    reference: ActionReference.RELATIVE,
    referenceFrame: "base",
    rotation: RotationForm.AXIS_ANGLE,
  },
  joint_pos_7: { reference: ActionReference.ABSOLUTE },
  joint_pos_14: { reference: ActionReference.ABSOLUTE },
  joint_pos_23: { reference: ActionReference.ABSOLUTE },
  joint_pos_29: { reference: ActionReference.ABSOLUTE },
};

/** Numbers that depend on the layout have no names: with a block and its mark, the last one of `joint_pos_7` is the gripper. */
const NAMELESS: ReadonlySet<ActionSpace> = new Set(["joint_pos_7"]);

/** Returns the action semantics of these spaces. */
export function meaningsOf(actions: readonly ActionDeclaration[]): MessageInitShape<typeof ActionMeaningSchema>[] {
  return actions.flatMap(({ space, fields, gripper }) => {
    const meaning = MEANINGS[space];
    if (meaning === undefined) return [];
    return {
      ...meaning,
      actionSpace: space,
      names: NAMELESS.has(space) ? [] : [...fields],
      ...(gripper && { gripper: { indexes: [...gripper.indices], open: gripper.open, closed: gripper.closed } }),
    };
  });
}
