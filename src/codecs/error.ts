/** The error of all codecs for malformed bytes. */

/** Why bytes were refused: a short, stable word without any of the bytes. */
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

/** The only error that a codec throws, for any input. */
export class CodecError extends Error {
  override readonly name = "CodecError";
  readonly reason: CodecReason;
  /** The key of the unreadable value, with dots between the keys of nested maps; undefined if no single value is at fault. */
  key: string | undefined;

  constructor(reason: CodecReason) {
    super(reason);
    this.reason = reason;
  }

  /** Adds the key of the value at fault. */
  under(key: string): void {
    if (VALUES.has(this.reason)) this.key = this.key === undefined ? key : `${key}.${this.key}`;
  }
}

/** Faults of one value in a message. */
const VALUES: ReadonlySet<CodecReason> = new Set(["bad_dtype", "bad_ndarray", "bad_shape", "bad_text"]);
