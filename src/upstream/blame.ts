/**
 * Which failures a caller's input can cause, by wire. Servers without a word for bad input of their own answer an error for it, or nothing;
 * others have a word for it, and what they answer otherwise is theirs. A server that is not there, is too slow or answers another shape
 * than it declared is at fault whatever it was sent.
 */
import { AttemptFailure } from "../contracts/contract.ts";

/** An error in a server's own words, HTTP 500, INTERNAL and UNKNOWN; numbers that are not finite can follow from those that were sent. */
const EVERYWHERE: ReadonlySet<AttemptFailure> = new Set([
  AttemptFailure.UPSTREAM_ERROR,
  AttemptFailure.NON_FINITE_ACTION,
]);

/** What else it is at the servers of one wire. */
const BY_WIRE: Readonly<Record<string, readonly AttemptFailure[]>> = {
  // A policy that raises an error leaves the queue of actions empty.
  "lerobot-async": [AttemptFailure.EMPTY_ANSWER],
  // The length and form of a language model's response depend on the request.
  "openai-chat": [AttemptFailure.MALFORMED_ANSWER, AttemptFailure.ANSWER_TOO_LARGE, AttemptFailure.EMPTY_ANSWER],
  // A guard against unwanted pictures withholds the answer.
  "cosmos-nim": [AttemptFailure.MALFORMED_ANSWER],
  "vllm-omni-videos": [AttemptFailure.EMPTY_ANSWER],
};

/**
 * Whether the input of its caller can have caused a failure over a wire. Rejected input can where it met what the offering declares that it
 * reads (`met`): else it is no failure of the offering at all.
 */
export const mayBeInput = (wire: string, failure: AttemptFailure, met: boolean): boolean =>
  failure === AttemptFailure.INPUT_REJECTED
    ? met
    : EVERYWHERE.has(failure) || BY_WIRE[wire]?.includes(failure) === true;
