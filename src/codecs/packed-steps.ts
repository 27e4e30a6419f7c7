/** Steps of an action as a server sent them, which are handed on without being read. */

/** All of one length, all numbers finite. */
export interface PackedSteps {
  readonly count: number;
  /** Numbers in each. */
  readonly dim: number;
  /** One `limber.v1.ActionStep` after the other, each behind a tag of one byte and its length, all equally long. */
  readonly bytes: Buffer;
}

/** The packed steps of a message that may have some in place of its list. */
export function packedIn(message: object): PackedSteps | undefined {
  return (message as { readonly packed?: PackedSteps | undefined }).packed;
}

/** Copies steps to `to` in `target`, each behind another tag of one byte. */
export function copySteps({ bytes, count }: PackedSteps, target: Buffer, to: number, tag: number): void {
  bytes.copy(target, to);
  const size = bytes.length / count;
  for (let i = 0, at = to; i < count; i++, at += size) target[at] = tag;
}
