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
  /** The key of the value that could not be read, with dots between those of maps in maps; undefined where no value alone is at fault. */
  key: string | undefined;

  constructor(reason: CodecReason) {
    super(reason);
    this.reason = reason;
  }

  /** Notes that the value at fault stands under this key. */
  under(key: string): void {
    if (VALUES.has(this.reason)) this.key = this.key === undefined ? key : `${key}.${this.key}`;
  }
}

/** Faults of one value in a message. */
const VALUES: ReadonlySet<CodecReason> = new Set(["bad_dtype", "bad_ndarray", "bad_shape", "bad_text"]);
