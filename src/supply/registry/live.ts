/** Who serves a model now. */
import type { Offering, Snapshot } from "../../routing/index.ts";

const NONE: readonly Offering[] = [];
const NO_ROWS = new Uint32Array(0);

/** The live offerings of a model, placeholders apart. */
export function liveOf(snapshot: Snapshot, slug: string): readonly Offering[] {
  const live: Offering[] = [];
  for (const row of snapshot.rowsOfModel(slug) ?? NO_ROWS) {
    if (snapshot.isRegistered(row)) live.push(snapshot.offerings[row]!);
  }
  return live.length === 0 ? NONE : live;
}
