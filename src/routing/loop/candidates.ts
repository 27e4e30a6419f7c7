/** Who may serve a control loop: a robot never mixes two plans of motion inside an episode. */
import { type PlanStep, sameCheckpoint } from "../plan.ts";

/**
 * Those of a plan's steps that may serve now, best first. `bound` is who served the episode last, or the model that did where no
 * more is known: it goes first, then its equals, then the models of the explicit chain `models`. Before anybody has served,
 * everyone may.
 */
export function candidatesOf(
  steps: readonly PlanStep[],
  bound: PlanStep | string | undefined,
  models: readonly string[],
): readonly PlanStep[] {
  if (bound === undefined) return steps;
  const listed = (step: PlanStep): boolean => models.includes(step.offering.model);
  if (typeof bound === "string") {
    const same = steps.filter(({ offering }) => offering.model === bound);
    return [...same, ...steps.filter((step) => step.offering.model !== bound && listed(step))];
  }
  const isLast = ({ offering }: PlanStep): boolean => offering.id === bound.offering.id;
  // What it is asked of most, so that no list is built for every observation.
  if (steps[0] !== undefined && isLast(steps[0]) && steps.length === 1) return steps;
  const equals = steps.filter((step) => !isLast(step) && sameCheckpoint(step, bound));
  const others = steps.filter((step) => !isLast(step) && !sameCheckpoint(step, bound) && listed(step));
  return [...steps.filter(isLast), ...equals, ...others];
}
