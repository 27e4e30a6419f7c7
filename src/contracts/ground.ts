/** Ground: an observation and an instruction in, points and boxes in image space out. Billed on tokens. */
import type { GroundRequest } from "../../gen/limber/v1/inference_service_pb.ts";
import { ALIAS_PREFIX } from "../brand.ts";
import {
  AttemptFailure,
  Contract,
  chainOf,
  type GroundAnswer,
  type GroundInput,
  type Intent,
  isIndex,
  isShare,
  isTokenCount,
  refuseConflicts,
} from "./contract.ts";

/** The model that is meant when a ground request names none. */
const GROUND_ALIAS = `${ALIAS_PREFIX}ground`;

/** The fields of a ground request that its meaning hangs on. */
export type GroundFields = Pick<GroundRequest, "observations" | "instruction" | "model" | "provider">;

/** Tokens are only counted once they are there: what a picture, four letters and the longest usual answer come to. */
const TOKENS_PER_FRAME = 1024;
const LETTERS_PER_TOKEN = 4;
const ANSWER_TOKENS = 2048;

/** What the caller wants. Its units are the most tokens that the call is expected to use. */
export function intentOf(request: GroundFields): Intent {
  refuseConflicts(request.provider);
  const frames = request.observations.at(-1)?.frames.length ?? 0;
  return {
    contract: Contract.GROUND,
    model: request.model ?? GROUND_ALIAS,
    models: chainOf([], request.provider),
    preference: undefined,
    provider: request.provider,
    actionSpace: undefined,
    embodiment: undefined,
    seed: undefined,
    units: frames * TOKENS_PER_FRAME + Math.ceil(request.instruction.length / LETTERS_PER_TOKEN) + ANSWER_TOKENS,
    parameters: [],
    given:
      request.observations.length === 0
        ? undefined
        : { observations: request.observations, instruction: request.instruction },
  };
}

/** The input of the model: the last observation, with the frames to search. */
export function inputOf(request: GroundFields): GroundInput {
  const last = request.observations.at(-1);
  if (!last) throw new Error("the schema asks for at least one observation");
  return {
    observations: [last],
    instruction: request.instruction,
    seed: undefined,
    temperature: undefined,
    sessionId: request.provider?.sessionId,
  };
}

/**
 * Why an answer is not what the contract promises, or undefined when it is. `frames` is how many pictures were searched. Finding nothing is
 * an answer.
 */
export function checkAnswer(answer: GroundAnswer, frames: number): AttemptFailure | undefined {
  let sound = isTokenCount(answer.inputTokens) && isTokenCount(answer.outputTokens);
  for (const { x, y, confidence, frame } of answer.points) {
    if (!Number.isFinite(x + y + confidence)) return AttemptFailure.NON_FINITE_ACTION;
    sound &&= isShare(x) && isShare(y) && isShare(confidence) && isIndex(frame, Math.max(frames, 1));
  }
  for (const { xMin, yMin, xMax, yMax, confidence, frame } of answer.boxes) {
    if (!Number.isFinite(xMin + yMin + xMax + yMax + confidence)) return AttemptFailure.NON_FINITE_ACTION;
    sound &&= isShare(xMin) && isShare(yMin) && isShare(xMax) && isShare(yMax) && isShare(confidence);
    sound &&= xMin <= xMax && yMin <= yMax && isIndex(frame, Math.max(frames, 1));
  }
  return sound ? undefined : AttemptFailure.MALFORMED_ANSWER;
}

/** The tokens of an answer, read and written, which is what it is billed on. */
export const unitsOf = (answer: GroundAnswer): number => answer.inputTokens + answer.outputTokens;
