/** How every codec says that bytes are not what they should be. */

/** Why bytes were refused: short, stable, and free of the bytes themselves. */
export type CodecReason =
  | "bad_dtype"
  | "bad_flag"
  | "bad_key"
  | "bad_ndarray"
  | "bad_shape"
  | "bad_text"
  | "duplicate_key"
  | "malformed"
  | "too_deep"
  | "too_large"
  | "too_many_values"
  | "trailing_bytes"
  | "truncated"
  | "unsupported";

/** The only error a codec throws, whatever the input: its reason says what was wrong. */
export class CodecError extends Error {
  override readonly name = "CodecError";
  readonly reason: CodecReason;

  constructor(reason: CodecReason) {
    super(reason);
    this.reason = reason;
  }
}
