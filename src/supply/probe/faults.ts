/** What a probe reports to a provider's owner: what is wrong, and how to mend it. */
import { AttemptFailure, UpstreamFailure } from "../../contracts/failure.ts";

/** A check found what it looks for to be missing. The message says what was seen. */
export class ProbeFault extends Error {}

/** What to do about a check that failed on what the server answered, by the check's name. */
const ADVICE: Readonly<Record<string, string>> = {
  region: "declare a region that the provider runs in, or add this one to the provider's regions",
  action_shape:
    "answer exactly as many steps as are asked for, each with the numbers of the declared action space, all finite",
  answers_differ: "check that the observation reaches the model: its keys, its pictures and its proprioception",
  steady: "check the server's log for what happened between one call and the next",
  seed_repeatable: "seed every source of chance of the model from the request, or leave seed out of parameters",
  longest_horizon: "declare the most steps of one answer as max_horizon",
  large_picture: "take pictures as cameras make them: allow messages of a few megabytes, and scale what is too large",
  input_contract: "answer all that the declared contract admits, or declare a narrower one",
  wrong_input_refused: "refuse observations that lack what the model needs, instead of filling them up",
  auth_enforced: "refuse calls without the declared secret: HTTP 401, or UNAUTHENTICATED over gRPC",
  latency: "advertise what callers can expect, or look for what slows the server down",
  frames: "answer exactly as many frames as are asked for, each a whole PNG, JPEG or WebP",
  square_found: "check the order and the unit of the coordinates, and the declared convention",
};

/** What to do about a call that failed on the way, by how it failed. */
const WAYS: Readonly<Partial<Record<AttemptFailure, string>>> = {
  [AttemptFailure.TIMEOUT]: "answer within timeout_s, or declare the time that a cold start takes as cold_timeout_s",
  [AttemptFailure.UNREACHABLE]: "check that the server runs, listens at the declared address, and lets the gateway in",
  [AttemptFailure.CONNECTION_LOST]: "check the server's log: it ended the connection before its answer was whole",
  [AttemptFailure.UPSTREAM_ERROR]: "check the server's log: it reported an error of its own",
  [AttemptFailure.UPSTREAM_AUTH]: "declare the secret that the server expects as auth",
  [AttemptFailure.UPSTREAM_BUSY]: "let the gateway have its share of the server, or try again when it is free",
  [AttemptFailure.INPUT_REJECTED]:
    "declare a profile that maps observations to what the server expects, or samples of them",
  [AttemptFailure.MALFORMED_ANSWER]: "check that the declared runtime and dialect are what the server speaks",
  [AttemptFailure.ANSWER_TOO_LARGE]: "answer less at one time",
};

/** The next step for the owner of an offering that failed a check. */
export function adviceFor(check: string, thrown: unknown): string {
  const way = thrown instanceof UpstreamFailure ? WAYS[thrown.failure] : undefined;
  return way ?? ADVICE[check] ?? "read what was seen, mend it, and verify again";
}

/** What is wrong with an answer, in a sentence. */
export function faultOf(failure: AttemptFailure, seen: number | undefined, wanted: number | undefined): string {
  switch (failure) {
    case AttemptFailure.ACTION_DIM_MISMATCH:
      return `the actions have ${seen} numbers per step; the action space has ${wanted}`;
    case AttemptFailure.NON_FINITE_ACTION:
      return "the answer holds a number that is not finite";
    case AttemptFailure.UNSAFE_ACTION:
      return "an action exceeds the declared bounds";
    case AttemptFailure.EMPTY_ANSWER:
      return "the answer is empty";
    case AttemptFailure.WRONG_STEP_COUNT:
      return "the answer has another number of units than was asked for";
    case AttemptFailure.UNREADABLE_FRAME:
      return "a frame of the answer cannot be read as a picture";
    default:
      return "the answer is not what the contract promises";
  }
}
