/** The heads and trailers of gRPC answers. */
import { API_VERSION } from "../../brand.ts";

/** The head of an answer, names and values in turn; `pairs` are those of its own. */
export const headOf = (pairs: readonly string[]): string[] => [
  ":status",
  "200",
  "content-type",
  "application/grpc+proto",
  "x-api-version",
  API_VERSION,
  ...pairs,
];

/** The trailers of a call that went well. */
export const OK_TRAILERS = { "grpc-status": "0" } as const;
