/** The bytes of an answer, made before it is charged. */
import type { Message } from "@bufbuild/protobuf";

/**
 * Encodes an answer once: the bill calls it before it charges, so that an answer that can't be encoded costs nothing, and the transport calls it
 * again for the bytes that it sends.
 */
export function encodedOnce<T>(encode: (answer: Message) => T): (answer: Message) => T {
  let last: { readonly answer: Message; readonly encoded: T } | undefined;
  return (answer) => {
    if (last?.answer !== answer) last = { answer, encoded: encode(answer) };
    return last.encoded;
  };
}
