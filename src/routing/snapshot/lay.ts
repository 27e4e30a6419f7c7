/** The order of offerings: the one in which a plan reads them best, and the same whatever order they came in. */
import type { Sliced } from "../../slices.ts";
import type { Offering } from "../offering.ts";
import { servedBits } from "./facts.ts";
import { FIRST_PARAMETER_BIT } from "./snapshot.ts";
import { sorting } from "./sorting.ts";

/** How many offerings are looked at between two yields. */
const STRIDE = 128;

/** Live supply before placeholders, then by what is served, then what never sleeps: rows that are treated alike lie together. */
function groupOf({ simulated, contracts, actionSpaces, scaledownS }: Offering): number {
  const served = servedBits(contracts, actionSpaces);
  return (simulated ? 2 ** (FIRST_PARAMETER_BIT + 1) : 0) + 2 * served + (scaledownS === undefined ? 0 : 1);
}

/** Within a group by model and id. */
function withinGroup(one: Offering, other: Offering): number {
  if (one.model !== other.model) return one.model < other.model ? -1 : 1;
  return one.id < other.id ? -1 : one.id > other.id ? 1 : 0;
}

/** Which of two offerings comes first. */
export const compareLay = (one: Offering, other: Offering): number =>
  groupOf(one) - groupOf(other) || withinGroup(one, other);

/** Offerings in their order. */
export function* inLay(offerings: readonly Offering[]): Sliced<Offering[]> {
  const groups = new Uint32Array(offerings.length);
  for (let i = 0; i < offerings.length; i++) {
    groups[i] = groupOf(offerings[i]!);
    if (i % STRIDE === 0) yield;
  }
  const order = yield* sorting(
    offerings.length,
    (a, b) => groups[a]! - groups[b]! || withinGroup(offerings[a]!, offerings[b]!),
  );
  const laid: Offering[] = [];
  for (let i = 0; i < order.length; i++) {
    laid.push(offerings[order[i]!]!);
    if (i % STRIDE === 0) yield;
  }
  return laid;
}
