/** The safety bounds of a control loop: what no action may exceed. */
import type { SafetyBounds } from "../../../gen/limber/v1/control_loop_pb.ts";
import { violation } from "../../contracts/conflicts.ts";
import type { ActAnswer } from "../../contracts/contract.ts";

/** Refuses bounds that no action could keep, or that do not fit `dim` numbers per step where that is known. */
export function assertBounds(bounds: SafetyBounds | undefined, dim: number | undefined): void {
  if (!bounds) return;
  for (const side of ["lowest", "highest"] as const) {
    const { length } = bounds[side];
    if (length > 1 && dim !== undefined && length !== dim)
      throw violation(`open.bounds.${side}`, `needs one number, or one for each of ${dim}`, "length");
  }
  const { lowest, highest } = bounds;
  for (let i = 0; i < Math.max(lowest.length, highest.length); i++) {
    const [low, high] = [at(lowest, i), at(highest, i)];
    if (low !== undefined && high !== undefined && low > high)
      throw violation("open.bounds.lowest", "is above highest", "less_than_equal");
  }
}

/** Whether an answer exceeds the bounds. */
export function exceeds(bounds: SafetyBounds | undefined, { steps }: ActAnswer): boolean {
  if (!bounds) return false;
  const { lowest, highest, maxChange = Number.POSITIVE_INFINITY } = bounds;
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
