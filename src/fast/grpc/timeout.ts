/** The time that a gRPC caller gives its call. */
import { Reason, type Refusal, refuse } from "../../errors.ts";

/** Timers hold no more than 31 bits of milliseconds; a longer time is none at all, which is what clients mean by it. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

const UNIT_MS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1000, m: 1, u: 1e-3, n: 1e-6 };

/** A `grpc-timeout` in milliseconds; undefined where no timer can hold it, and not a number where it is no time. */
export function timeoutOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const [, amount, unit] = /^(\d{1,8})([HMSmun])$/.exec(text) ?? [];
  const timeoutMs = Number(amount) * (UNIT_MS[unit ?? ""] ?? Number.NaN);
  return timeoutMs > MAX_TIMEOUT_MS ? undefined : timeoutMs;
}

/** When a call that began at `startedAt` has to have ended; refuses a time that is none. */
export function deadlineOf(
  timeoutMs: number | undefined,
  startedAt: number,
  text: string | undefined,
): number | undefined {
  if (Number.isNaN(timeoutMs))
    throw refuse(Reason.MALFORMED_BODY, `protocol error: invalid grpc timeout value: ${text}`);
  return timeoutMs === undefined ? undefined : startedAt + timeoutMs;
}

/** The refusal of a call whose time is over. */
export const timedOut = (): Refusal => refuse(Reason.DEADLINE_EXCEEDED, "the operation timed out");
