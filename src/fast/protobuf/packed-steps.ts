/** Steps of an action as a server sent them, which are handed on without being read. */

/** All of one length, all numbers finite. */
export interface PackedStepsWriter {
  readonly count: number;
  /** Numbers in each. */
  readonly dim: number;
  /** Where one `limber.v1.ActionStep` stands after the other, each behind a tag of one byte and its length, all equally long. */
  readonly source: Buffer;
  readonly from: number;
  readonly to: number;
}

/** The packed steps of a message that may have some in place of its list. */
export function packedIn(message: object): PackedStepsWriter | undefined {
  return (message as { readonly packed?: PackedStepsWriter | undefined }).packed;
}

/** Copies steps to `to` in `target`, each behind another tag of one byte. */
export function copySteps(packed: PackedStepsWriter, target: Buffer, to: number, tag: number): void {
  const { source, from, count } = packed;
  source.copy(target, to, from, packed.to);
  const size = (packed.to - from) / count;
  for (let i = 0, at = to; i < count; i++, at += size) target[at] = tag;
}
