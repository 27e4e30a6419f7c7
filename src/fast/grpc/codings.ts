/** The encodings of one gRPC call, from its head. */
import { type Coding, codingOf, encodingsFor, NAMES } from "../../edge/transports/grpc/compression.ts";
import { NotSpoken } from "../../edge/transports/grpc/status.ts";
import type { HeadFields } from "./call-stream.ts";

/** The encoding of the request's messages; undefined where they are plain. Throws `NotSpoken` for one that is not known. */
export function requestCoding({ "grpc-encoding": encoding }: HeadFields): Coding | undefined {
  if (encoding === undefined || encoding === null || encoding === "identity") return undefined;
  const found = codingOf(encoding);
  if (found === undefined) {
    throw new NotSpoken(`unknown compression "${encoding}": supported encodings are ${NAMES}`);
  }
  return found;
}

/** The first known encoding that the caller reads, or else the one that it writes. */
export function responseCoding(headers: HeadFields): Coding | undefined {
  const { "grpc-accept-encoding": accepted, "grpc-encoding": encoding } = headers;
  if (accepted === undefined || accepted === "") return encoding === undefined ? undefined : codingOf(encoding);
  for (const name of accepted.split(",")) {
    const found = codingOf(name.trim());
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Adds what an answer says of encodings to its fields: its own, and the known ones where the caller wrote in another. */
export function nameCodings(fields: string[], coding: Coding | undefined, headers: HeadFields): void {
  if (coding) fields.push("grpc-encoding", coding.name);
  const known = encodingsFor(headers["grpc-encoding"]);
  if (known !== undefined) fields.push("grpc-accept-encoding", known);
}
