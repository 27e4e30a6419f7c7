/** Messages of robots that cannot be read, as the refusals that their clients get. */
import type { CodecError, CodecReason } from "../../codecs/error.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";

const WORDS: Readonly<Partial<Record<CodecReason, string>>> = {
  bad_dtype: "an array of a type that is not read; booleans, integers, floats and texts are",
  bad_ndarray: "an array without its bytes",
  bad_shape: "an array whose bytes are not what its type and shape say",
  bad_text: "a text that is not UTF-8",
};

/** The refusal of a message that a codec did not read; it names the key whose value is at fault. `otherwise` is what is said of all else. */
export function unreadable(thrown: CodecError, otherwise: string): Refusal {
  const { key, reason } = thrown;
  const words = WORDS[reason];
  if (key === undefined || words === undefined) return refuse(Reason.MALFORMED_BODY, otherwise, {}, { cause: thrown });
  const param = key.slice(0, MOST_ECHOED);
  return refuse(Reason.MALFORMED_BODY, `${param}: ${words}`, {}, { param, cause: thrown });
}

const MOST_ECHOED = 128;
