/** A snapshot of supply of which little changed: what says the same is shared with the one before, and nothing of that is made again. */
import type { Sliced } from "../../slices.ts";
import { ALIASES, standsFor } from "../aliases.ts";
import type { Offering } from "../offering.ts";
import { bodiesOf, NUMBERS, type OfferingNumbers, traitsOf } from "./facts.ts";
import { moving } from "./move.ts";
import { type Columns, type RoutingSupply, type Snapshot, snapshotOf } from "./snapshot.ts";

/** How many offerings are looked at between two yields. */
const STRIDE = 128;

/**
 * The snapshot of `supply` where every offering that lies as it lay keeps its row, which is the one before itself where nothing
 * changed; undefined where it has to be built.
 */
export function* patching(
  { offerings, catalog, providers }: RoutingSupply,
  before: Snapshot,
): Sliced<Snapshot | undefined> {
  const { source } = before;
  if (!sameList(source.catalog, catalog) || !sameList(source.providers, providers)) return undefined;
  const changed: { row: number; offering: Offering }[] = [];
  const fresh: Offering[] = [];
  const stays = new Uint8Array(before.ground.room);
  for (let i = 0; i < offerings.length; i++) {
    const offering = offerings[i]!;
    const row = before.rowOf(offering.id);
    if (row >= 0 && liesAlike(before.offerings[row]!, offering)) {
      stays[row] = 1;
      if (before.offerings[row] !== offering) changed.push({ row, offering });
    } else if (fresh.push(offering) > before.ground.spare) return undefined;
    if (i % STRIDE === 0) yield;
  }
  const left: number[] = [];
  for (let place = 0; place < before.registered; place++) {
    if (stays[before.order[place]!] === 0) left.push(before.order[place]!);
    if (place % STRIDE === 0) yield;
  }
  if (changed.length + fresh.length + left.length === 0) return before;
  const rows = before.offerings.slice();
  yield;
  for (const { row, offering } of changed) rows[row] = offering;
  const columns = yield* patchedColumns(before.columns, changed);
  const patched = snapshotOf({ ...before, offerings: rows, columns });
  return fresh.length + left.length === 0 ? patched : yield* moving(patched, left, fresh);
}

const sameList = (one: readonly unknown[], other: readonly unknown[]): boolean =>
  one.length === other.length && one.every((each, i) => each === other[i]);

/** Whether one takes the other's place, and they differ in numbers at most. */
const liesAlike = (one: Offering, other: Offering): boolean =>
  one === other ||
  (one.model === other.model &&
    one.provider === other.provider &&
    one.region === other.region &&
    one.supplier.orgId === other.supplier.orgId &&
    one.supplier.standing === other.supplier.standing &&
    (one.scaledownS === undefined) === (other.scaledownS === undefined) &&
    one.declared?.key === other.declared?.key &&
    traitsOf(one) === traitsOf(other) &&
    bodiesOf(one) === bodiesOf(other) &&
    ALIASES.every((alias) => standsFor(alias, one) === standsFor(alias, other)));

type Changed = readonly { readonly row: number; readonly offering: Offering }[];

function* patchedColumns(columns: Columns, changed: Changed): Sliced<Columns> {
  const priceNano: Float64Array[] = [];
  for (const [i, price] of NUMBERS.priceNano.entries())
    priceNano.push(yield* patchedColumn(columns.priceNano[i]!, price, changed));
  const advertised = yield* patchedEach(columns.advertised, NUMBERS.advertised, changed);
  return { ...columns, ...(yield* patchedEach(columns, NUMBERS.plain, changed)), priceNano, advertised };
}

/** The columns themselves where no number of them changed. */
function* patchedEach<K extends string>(
  columns: Readonly<Record<K, Float64Array>>,
  numbers: OfferingNumbers<K>,
  changed: Changed,
): Sliced<Readonly<Record<K, Float64Array>>> {
  const patched = {} as Record<K, Float64Array>;
  let same = true;
  for (const name of Object.keys(numbers) as K[]) {
    patched[name] = yield* patchedColumn(columns[name], numbers[name], changed);
    same &&= patched[name] === columns[name];
  }
  return same ? columns : patched;
}

/** A copy with the numbers that changed, or the column itself where none did. */
function* patchedColumn(
  column: Float64Array,
  numberOf: (offering: Offering) => number,
  changed: Changed,
): Sliced<Float64Array> {
  let patched = column;
  for (let i = 0; i < changed.length; i++) {
    if (i % STRIDE === 0) yield;
    const { row, offering } = changed[i]!;
    const number = numberOf(offering);
    if (column[row] === number) continue;
    if (patched === column) patched = column.slice();
    patched[row] = number;
  }
  return patched;
}
