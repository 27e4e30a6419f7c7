/** What the numbers of actions mean: two models whose actions mean different things never stand in for one another. */
import type { ActionMeaning, GripperMeaning } from "../../gen/limber/v1/input_contract_pb.ts";

/** What is declared of the actions in an action space: what is said of that space, else of every one; undefined where nothing is. */
export function meaningIn(meanings: readonly ActionMeaning[], space: string | undefined): ActionMeaning | undefined {
  let general: ActionMeaning | undefined;
  for (const meaning of meanings) {
    if (!meaning.actionSpace) general ??= meaning;
    else if (meaning.actionSpace === space) return meaning;
  }
  return general;
}

/**
 * In what two meanings differ, such as `units`; undefined where they do not. They differ where both state a thing and do not state the same.
 * Pure.
 */
export function differenceOf(one: ActionMeaning | undefined, other: ActionMeaning | undefined): string | undefined {
  if (one === undefined || other === undefined || one === other) return undefined;
  if (differ(one.names, other.names)) return "names";
  if (unitsDiffer(one, other)) return "units";
  if (contradict(one.reference, other.reference)) return "reference";
  if (contradict(one.referenceFrame, other.referenceFrame)) return "reference_frame";
  if (contradict(one.rotation, other.rotation)) return "rotation";
  return grippersDiffer(one.gripper, other.gripper) ? "gripper" : undefined;
}

/** Neither the unspecified value nor an empty word says anything. */
const contradict = (one: string | number | undefined, other: string | number | undefined): boolean =>
  !!one && !!other && one !== other;

/** Lists of which one is empty say nothing. */
const differ = <T>(one: readonly T[], other: readonly T[]): boolean =>
  one.length > 0 && other.length > 0 && (one.length !== other.length || one.some((each, i) => each !== other[i]));

/** One unit stands for all numbers. */
function unitsDiffer({ units: one }: ActionMeaning, { units: other }: ActionMeaning): boolean {
  if (one.length === 1 && other.length > 0) return other.some((unit) => unit !== one[0]);
  if (other.length === 1) return one.some((unit) => unit !== other[0]);
  return differ(one, other);
}

const grippersDiffer = (one: GripperMeaning | undefined, other: GripperMeaning | undefined): boolean =>
  one !== undefined &&
  other !== undefined &&
  (one.open !== other.open || one.closed !== other.closed || differ(one.indexes, other.indexes));
