/** A request's body: the right type, no more than the limit, whole. */
import { Reason, refuse } from "../../../refusal.ts";
import type { PlainRequest } from "../../port/lane.ts";
import type { Request } from "./exchange.ts";

/** The largest body that REST takes where the schema names no other limit. */
export const MAX_BODY_BYTES = 32 << 20;

/**
 * The bytes of a body whose content type `wanted` matches; none where there is no body. Refuses other types with 415, naming
 * `named`, and larger bodies with 413, as early as the headers tell, and rejects when the caller leaves before the end. At once
 * where the body has come with the request.
 */
export function readBody(
  request: Request,
  wanted: RegExp,
  named: string,
  most = MAX_BODY_BYTES,
): Buffer | Promise<Buffer> {
  const { "content-type": type, "content-length": length, "content-encoding": coding } = request.headers;
  if (length === "0") return Buffer.alloc(0);
  if (type !== undefined && !wanted.test(type)) throw unsupported(`the body must be ${named} in UTF-8`);
  if (coding !== undefined && coding !== "identity") throw unsupported("the body must not be compressed");
  if (Number(length) > most) throw tooLarge(most);
  const typed = (bytes: Buffer): Buffer => {
    if (bytes.length > 0 && type === undefined) throw unsupported(`the body needs a content type: ${named}`);
    return bytes;
  };
  return "body" in request ? typed(request.body) : collect(request, most).then(typed);
}

const unsupported = (text: string) => refuse(Reason.UNSUPPORTED_MEDIA_TYPE, text);

const tooLarge = (most: number) => refuse(Reason.PAYLOAD_TOO_LARGE, `the body is larger than ${most >> 20} MiB`);

function collect(request: Exclude<Request, PlainRequest>, most: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    request.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size <= most) chunks.push(chunk);
      else if (chunks.length > 0) {
        // What still comes is read and dropped: a connection closed on unread bytes is reset before the answer is read.
        chunks.length = 0;
        reject(tooLarge(most));
      }
    });
    const left = (): void => reject(refuse(Reason.CLIENT_CLOSED_REQUEST, "the caller left before the body was whole"));
    request.once("end", () => {
      request.off("close", left); // every request closes; only an early one means that the caller left
      resolve(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks));
    });
    request.once("error", left);
    request.once("close", left);
  });
}
