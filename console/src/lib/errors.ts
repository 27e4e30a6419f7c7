/** What a refusal says: the gateway's sentence, its word, and what would help. */
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema } from "#messages/google/rpc/error_details_pb.ts";
import { type ErrorDetails, ErrorDetailsSchema } from "#messages/limber/v1/error_pb.ts";
import type { Suggestion } from "#messages/limber/v1/plan_pb.ts";

/** A refusal, as a page shows it. */
export interface Said {
  readonly sentence: string;
  /** The word of the reason, such as `no_route_available`; undefined where the gateway gave none. */
  readonly code: string | undefined;
  readonly details: ErrorDetails | undefined;
  readonly requestId: string | undefined;
}

/** Reads a thrown error. */
export function saidBy(thrown: unknown): Said {
  const error = ConnectError.from(thrown);
  const [info] = error.findDetails(ErrorInfoSchema);
  const [details] = error.findDetails(ErrorDetailsSchema);
  const sentence =
    info === undefined && error.code === Code.Unknown ? "The gateway cannot be reached." : error.rawMessage;
  return {
    sentence,
    code: info?.reason.toLowerCase(),
    details,
    requestId: error.metadata.get("x-request-id") ?? undefined,
  };
}

/** A suggestion as a sentence: `Set provider.max_latency_ms to 400 to admit 2 offerings.` */
export function adviceOf({ change, field, value, admits }: Suggestion): string {
  const advice = change ?? (value === undefined ? `remove ${field}` : `set ${field} to ${value}`);
  return `${advice.charAt(0).toUpperCase()}${advice.slice(1)} to admit ${admits} offering${admits === 1 ? "" : "s"}.`;
}

/** Whether nobody is signed in. */
export const isSignedOut = (thrown: unknown): boolean => ConnectError.from(thrown).code === Code.Unauthenticated;
