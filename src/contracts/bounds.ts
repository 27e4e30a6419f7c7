/** Safety bounds: what no action may exceed. */
import type { SafetyBounds } from "../../gen/limber/v1/action_pb.ts";
import { violation } from "./conflicts.ts";
import type { ActAnswer } from "./contract.ts";

/** Refuses bounds that no action could keep, or that do not fit `dim` numbers per step where that is known; `path` names their field. */
export function assertBounds(bounds: SafetyBounds | undefined, dim: number | undefined, path: string): void {
  if (!bounds) return;
  for (const side of ["lowest", "highest"] as const) {
    const { length } = bounds[side];
    if (length > 1 && dim !== undefined && length !== dim)
      throw violation(`${path}.${side}`, `needs one number, or one for each of ${dim}`, "length");
  }
  const { lowest, highest } = bounds;
  for (let i = 0; i < Math.max(lowest.length, highest.length); i++) {
    const [low, high] = [at(lowest, i), at(highest, i)];
    if (low !== undefined && high !== undefined && low > high)
      throw violation(`${path}.lowest`, "is above highest", "less_than_equal");
  }
}

/** Whether an answer exceeds the bounds. `pose` is where the robot is, in the terms of the action; undefined where that is not known. */
export function exceeds(
  bounds: SafetyBounds | undefined,
  answer: Pick<ActAnswer, "steps">,
  pose?: readonly number[],
): boolean {
  return bounds !== undefined && isBeyond(bounds, answer, pose);
}

function isBeyond(
  bounds: SafetyBounds,
  { steps }: Pick<ActAnswer, "steps">,
  pose: readonly number[] | undefined,
): boolean {
  const { lowest, highest, maxChange = Number.POSITIVE_INFINITY, maxStartJump } = bounds;
  const first = steps[0]?.values ?? [];
  if (pose && maxStartJump !== undefined && first.some((value, i) => Math.abs(value - pose[i]!) > maxStartJump))
    return true;
  let before: readonly number[] | undefined;
  for (const { values } of steps) {
    for (let i = 0; i < values.length; i++) {
      const value = values[i]!;
      if (value < (at(lowest, i) ?? Number.NEGATIVE_INFINITY)) return true;
      if (value > (at(highest, i) ?? Number.POSITIVE_INFINITY)) return true;
      if (before && Math.abs(value - before[i]!) > maxChange) return true;
    }
    before = values;
  }
  return false;
}

/** One number stands for every dimension. */
const at = (numbers: readonly number[], i: number): number | undefined =>
  numbers.length === 1 ? numbers[0] : numbers[i];

/** Where a robot is in the terms of its actions: only positions of joints can be compared with what it senses. */
export function poseOf(
  space: string,
  observations: readonly { readonly proprio: readonly number[] }[],
  dim: number | undefined,
): readonly number[] | undefined {
  const proprio = observations.at(-1)?.proprio ?? [];
  return space.startsWith("joint_pos") && dim !== undefined && proprio.length >= dim ? proprio : undefined;
}
