/** Who may serve a control loop: a robot never mixes two plans of motion inside an episode. */
import { type PlanStep, sameCheckpoint } from "../plan/plan.ts";

/**
 * Those of a plan's steps that may serve now, best first. `bound` is who served the episode last, or the model that did where no
 * more is known: it goes first, then its equals, then the models of the explicit chain `models`. Before anybody has served,
 * everyone may. The offering `late` is asked behind its equals.
 */
export function candidatesOf(
  steps: readonly PlanStep[],
  bound: PlanStep | string | undefined,
  models: readonly string[],
  late?: string,
): readonly PlanStep[] {
  const isLate = ({ offering }: PlanStep): boolean => offering.id === late;
  const inTime = (equals: readonly PlanStep[]): readonly PlanStep[] =>
    late === undefined ? equals : [...equals.filter((step) => !isLate(step)), ...equals.filter(isLate)];
  if (bound === undefined) return inTime(steps);
  const listed = (step: PlanStep): boolean => models.includes(step.offering.model);
  if (typeof bound === "string") {
    const same = steps.filter(({ offering }) => offering.model === bound);
    return [...inTime(same), ...steps.filter((step) => step.offering.model !== bound && listed(step))];
  }
  const isLast = ({ offering }: PlanStep): boolean => offering.id === bound.offering.id;
  // What it is asked of most, so that no list is built for every observation.
  if (steps[0] !== undefined && isLast(steps[0]) && steps.length === 1) return steps;
  const equals = steps.filter((step) => !isLast(step) && sameCheckpoint(step, bound));
  const others = steps.filter((step) => !isLast(step) && !sameCheckpoint(step, bound) && listed(step));
  return [...inTime([...steps.filter(isLast), ...equals]), ...others];
}
