/** What a refusal says: the gateway's sentence, its word, and what would help. */
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema } from "#messages/google/rpc/error_details_pb.ts";
import { type ErrorDetails, ErrorDetailsSchema } from "#messages/limber/v1/error_pb.ts";

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

/** Whether nobody is signed in. */
export const isSignedOut = (thrown: unknown): boolean => ConnectError.from(thrown).code === Code.Unauthenticated;
