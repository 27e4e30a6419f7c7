/**
 * Which failures a caller's input can cause, by wire. Some servers have no error for bad input, and answer another error or nothing; others have
 * one, so their other errors are their own. A server that is unreachable, too slow or answers another shape than declared is at fault for any
 * input.
 */
import { AttemptFailure } from "../contracts/contract.ts";

/** A server's own error, HTTP 500, INTERNAL and UNKNOWN; non-finite numbers can follow from the sent ones. */
const EVERYWHERE: ReadonlySet<AttemptFailure> = new Set([
  AttemptFailure.UPSTREAM_ERROR,
  AttemptFailure.NON_FINITE_ACTION,
]);

/** Additional failures at the servers of one wire. */
const BY_WIRE: Readonly<Record<string, readonly AttemptFailure[]>> = {
  // A policy that raises an error leaves the queue of actions empty.
  "lerobot-async": [AttemptFailure.EMPTY_ANSWER],
  // The length and form of a language model's response depend on the request.
  "openai-chat": [AttemptFailure.MALFORMED_ANSWER, AttemptFailure.ANSWER_TOO_LARGE, AttemptFailure.EMPTY_ANSWER],
  // A content filter for images withholds the answer.
  "cosmos-nim": [AttemptFailure.MALFORMED_ANSWER],
  "vllm-omni-videos": [AttemptFailure.EMPTY_ANSWER],
};

/**
 * Whether its caller's input can have caused a failure over a wire. A rejection of input that met the offering's declaration (`met`) can;
 * otherwise a rejection is not the offering's failure at all.
 */
export const mayBeInput = (wire: string, failure: AttemptFailure, met: boolean): boolean =>
  failure === AttemptFailure.INPUT_REJECTED
    ? met
    : EVERYWHERE.has(failure) || BY_WIRE[wire]?.includes(failure) === true;
