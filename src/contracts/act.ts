/** Act: observations in, an action chunk in a declared action space out. Billed per action step. */
import type { Action, SafetyBounds } from "../../gen/limber/v1/action_pb.ts";
import type { ActRequest } from "../../gen/limber/v1/inference_service_pb.ts";
import {
  type ActAnswer,
  type ActInput,
  AttemptFailure,
  Contract,
  chainOf,
  DEFAULT_ACTION_SPACE,
  DEFAULT_HORIZON,
  type Intent,
  isActionValue,
  isGpuSeconds,
  isStepMs,
  knownActionSpace,
  LONGEST_HORIZON,
  type PackedSteps,
  type Parameter,
  refuseConflicts,
  seedOf,
  violation,
} from "./contract.ts";
import type { GivenInput } from "./inputs.ts";
import { checkFrames } from "./predict.ts";

/** The fields of an act request that its meaning hangs on; a preview carries them too. */
export type ActFields = Pick<
  ActRequest,
  | "model"
  | "models"
  | "observations"
  | "preference"
  | "provider"
  | "seed"
  | "instruction"
  | "goalImage"
  | "actionSpace"
  | "embodiment"
  | "horizon"
  | "wholeChunk"
  | "temperature"
  | "returnPrediction"
>;

/** What the caller wants, with the defaults filled in. Refuses what contradicts itself and unknown action spaces. */
export function intentOf(request: ActFields): Intent {
  refuseConflicts(request.provider);
  return {
    contract: Contract.ACT,
    model: request.model,
    models: chainOf(request.models, request.provider),
    preference: request.preference,
    provider: request.provider,
    actionSpace: knownActionSpace(request.actionSpace ?? DEFAULT_ACTION_SPACE),
    embodiment: request.embodiment || undefined, // the unspecified body is none
    seed: seedOf(request.seed),
    units: unitsAsked(request),
    extent: extentOf(request),
    parameters: parametersOf(request),
    given: request.observations.length === 0 ? undefined : givenOf(request),
  };
}

const givenOf = ({
  observations,
  instruction,
  goalImage,
  actionSpace = DEFAULT_ACTION_SPACE,
}: ActFields): GivenInput => ({
  observations,
  instruction,
  goalImage,
  actionSpace,
});

/** The steps of a request: as named, else the most of a chunk where all of it is wanted, else the default. */
const unitsAsked = ({ horizon, wholeChunk }: Pick<ActFields, "horizon" | "wholeChunk">): number =>
  horizon ?? (wholeChunk ? LONGEST_HORIZON : DEFAULT_HORIZON);

/** A named horizon is a contract, the default is a wish, and of a whole chunk it is the most. */
function extentOf({ horizon, wholeChunk }: Pick<ActFields, "horizon" | "wholeChunk">): Intent["extent"] {
  if (horizon !== undefined) return wholeChunk ? "wish" : undefined;
  return wholeChunk ? "chunk" : "wish";
}

function parametersOf(request: ActFields): Parameter[] {
  const set: Parameter[] = [];
  if (request.seed !== undefined) set.push("seed");
  if (request.temperature !== undefined) set.push("temperature");
  if (request.goalImage !== undefined) set.push("goal_image");
  if (request.returnPrediction) set.push("return_prediction");
  return set;
}

/** The model's request; its horizon is that of the called offering. */
export function inputOf(request: ActFields): Omit<ActInput, "horizon"> {
  return {
    observations: request.observations,
    instruction: request.instruction ?? "",
    seed: seedOf(request.seed),
    temperature: request.temperature,
    sessionId: request.provider?.sessionId,
    actionSpace: request.actionSpace ?? DEFAULT_ACTION_SPACE,
    returnPrediction: request.returnPrediction ?? false,
  };
}

/** What no action of an answer may exceed, and where the robot is. */
export interface ActLimits {
  readonly bounds: SafetyBounds | undefined;
  readonly pose: readonly number[] | undefined;
}

/**
 * Why a response violates the contract; undefined if it does not. `units` is the requested number of steps. `dim` is the number of values
 * per step fixed by the action space or the offering; if neither does, every step must be as long as the first.
 */
export function checkAnswer(
  answer: ActAnswer,
  expected: { units: number; dim: number | undefined },
  limits: readonly ActLimits[] = NO_LIMITS,
): AttemptFailure | undefined {
  const { packed } = answer;
  const failure = packed ? faultOfPacked(packed, expected.dim) : faultOfSteps(answer.steps, expected.dim);
  if (failure !== undefined) return failure;
  if (!isStepMs(answer.dtMs) || !isGpuSeconds(answer.gpuSeconds)) return AttemptFailure.MALFORMED_ANSWER;
  const unreadable = checkFrames(answer.prediction);
  if (unreadable !== undefined) return unreadable;
  if (unitsOf(answer) !== expected.units) return AttemptFailure.WRONG_STEP_COUNT;
  for (const { bounds, pose } of limits) if (exceeds(bounds, answer, pose)) return AttemptFailure.UNSAFE_ACTION;
  return undefined;
}

const NO_LIMITS: readonly ActLimits[] = [];

function faultOfSteps(steps: ActAnswer["steps"], known: number | undefined): AttemptFailure | undefined {
  const dim = known ?? steps[0]?.values.length ?? 0;
  if (steps.length === 0 || dim === 0) return AttemptFailure.EMPTY_ANSWER;
  for (const { values } of steps) {
    if (values.length !== dim) return AttemptFailure.ACTION_DIM_MISMATCH;
    for (const value of values) if (!isActionValue(value)) return AttemptFailure.NON_FINITE_ACTION;
  }
  return undefined;
}

/** The same for steps whose numbers and length were checked where they were read. */
function faultOfPacked({ count, dim }: PackedSteps, known = dim): AttemptFailure | undefined {
  if (count === 0 || known === 0) return AttemptFailure.EMPTY_ANSWER;
  return dim === known ? undefined : AttemptFailure.ACTION_DIM_MISMATCH;
}

/** The action steps of an answer, which is what it is billed on. */
export const unitsOf = (answer: ActAnswer): number => answer.packed?.count ?? answer.steps.length;

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

/** The steps of an answer as they came: the quick writers of REST and gRPC write packed ones without reading them into lists. */
export class SentAction implements Action {
  readonly $typeName = "limber.v1.Action";
  readonly space: string;
  readonly dtMs: number;
  readonly #answer: ActAnswer;

  constructor(space: string, answer: ActAnswer, dtMs: number) {
    this.space = space;
    this.dtMs = dtMs;
    this.#answer = answer;
  }

  get packed(): PackedSteps | undefined {
    return this.#answer.packed;
  }

  get steps(): ActAnswer["steps"] {
    return this.#answer.steps;
  }

  get note(): string {
    return this.#answer.note;
  }
}
