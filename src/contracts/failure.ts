/** How an attempt at an upstream fails: one of the gateway's own words, never the upstream's. */
import { AttemptFailure, AttemptFailureSchema } from "../../gen/limber/v1/route_pb.ts";

export { AttemptFailure };

/** The word of a failure as callers read it, such as `input_rejected`; undefined where there was none. */
export const failureWord = (failure: AttemptFailure | undefined): string | undefined =>
  failure === undefined
    ? undefined
    : AttemptFailureSchema.value[failure]?.name.slice("ATTEMPT_FAILURE_".length).toLowerCase();

/** The failure that a word stands for; undefined for a word of another version. */
export const failureOf = (word: string): AttemptFailure | undefined =>
  AttemptFailureSchema.values.find(({ number }) => failureWord(number as AttemptFailure) === word)?.number as // its own values
    | AttemptFailure
    | undefined;

/** An attempt that failed. `message` is for the log and for the provider's owner; callers see only `failure` and `lack`. */
export class UpstreamFailure extends Error {
  readonly failure: AttemptFailure;
  /** What the gateway itself found the input to lack; undefined where it was the upstream that found something. */
  readonly lack: string | undefined;
  /** The address that was asked, without its query; for the log and the provider's owner. Undefined where the endpoint says it. */
  address: string | undefined;
  /** How long the server asked to be left alone, in milliseconds. */
  retryAfterMs: number | undefined;

  constructor(failure: AttemptFailure, message: string, cause?: unknown, lack?: string) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "UpstreamFailure";
    this.failure = failure;
    this.lack = lack;
  }
}
