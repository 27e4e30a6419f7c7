/** A snapshot in which some offerings are new, gone or lie elsewhere: they alone take rows, and only lists that they are in are copied. */
import type { Sliced } from "../../slices.ts";
import { ALIASES, type Alias, standsFor, standsForAll } from "../aliases.ts";
import type { Offering } from "../offering.ts";
import { writeRow } from "./facts.ts";
import { compareLay } from "./lay.ts";
import { hasPlaceholder, placeholderOf } from "./placeholders.ts";
import { type Arrival, groupRows, placing, spliced } from "./rows.ts";
import { bitsOf, Serving } from "./serving.ts";
import { type Snapshot, snapshotOf } from "./snapshot.ts";

/** Offerings that come and go. */
interface RowMove {
  /** Rows that are left, those of placeholders too. */
  readonly left: readonly number[];
  readonly fresh: readonly Offering[];
  readonly placeholders: readonly Offering[];
}

/**
 * The snapshot in which what lies in the rows of `left` is gone and `fresh` is there; undefined where it has to be built. `before`
 * is one whose `offerings` are not shared: they are added to.
 */
export function* moving(
  before: Snapshot,
  left: readonly number[],
  fresh: readonly Offering[],
): Sliced<Snapshot | undefined> {
  const move = withPlaceholders(before, left, fresh);
  if (!move) return undefined;
  const { ground, columns, offerings } = before;
  const gone = new Uint8Array(ground.room);
  for (const row of move.left) gone[row] = 1;
  const arrivals = yield* arriving(before, move);
  const order = yield* spliced(before.order, before.place, gone, arrivals);
  const aliased = new Map<Alias, Uint32Array>();
  for (const alias of ALIASES) {
    const rows = before.rowsOfAlias(alias);
    const here = arrivals.filter(({ row }) => standsFor(alias, offerings[row]!));
    aliased.set(alias, standsForAll(alias) ? order : yield* spliced(rows, before.place, gone, here));
  }
  const lists = new Serving(columns, aliased);
  const moved = [...move.left, ...arrivals.map(({ row }) => row)];
  yield* lists.taking(before.lists, (alias, wanted) =>
    moved.some((row) => (columns.traits[row]! & wanted) === bitsOf(wanted) && standsFor(alias, offerings[row]!)),
  );
  return snapshotOf({
    ...before,
    order,
    place: yield* placing(order, ground.room),
    registered: before.registered + fresh.length - left.length,
    numbered: numbering(before, move.left, arrivals),
    aliased,
    lists,
    modelRows: yield* groupRows(columns.model, order, ground.models.names.length),
  });
}

/** The move with what it does to placeholders; undefined where there are names that would come or go with it. */
function withPlaceholders(before: Snapshot, left: readonly number[], fresh: readonly Offering[]): RowMove | undefined {
  const { catalog, ground, offerings, listed, order, registered } = before;
  const leaving = new Set(left);
  const served = new Set(fresh.filter(({ simulated }) => !simulated).map(({ model }) => model));
  const codes = new Set<number>();
  for (const { model, provider } of [...left.map((row) => offerings[row]!), ...fresh]) {
    const [code, place] = [ground.models.of(model), ground.providers.of(provider)];
    if (code < 0 || code >= catalog.length || place < 0 || place >= listed) return undefined;
    codes.add(code);
  }
  const placeholders: Offering[] = [];
  let needless = 0;
  for (const code of codes) {
    const model = catalog[code]!;
    const rows = before.modelRows(code) ?? [];
    const stays = (row: number): boolean => before.isRegistered(row) && !leaving.has(row) && !offerings[row]!.simulated;
    const isServed = served.has(model.slug) || rows.some(stays);
    const placeholder = rows.find((row) => !before.isRegistered(row));
    if (isServed && placeholder !== undefined) needless = leaving.add(placeholder).size - left.length;
    else if (!isServed && placeholder === undefined && hasPlaceholder(model)) placeholders.push(placeholderOf(model));
  }
  const [had, has] = [order.length - registered, order.length - registered - needless + placeholders.length];
  if ((had === 0) !== (has === 0) || fresh.length + placeholders.length > ground.spare) return undefined;
  return { left: [...leaving], fresh, placeholders };
}

/** Gives what comes rows of its own, and says where it comes into lists. In order. */
function* arriving(before: Snapshot, { fresh, placeholders }: RowMove): Sliced<Arrival[]> {
  const { ground, columns, order, registered } = before;
  const offerings = before.offerings as Offering[];
  const arrivals: Arrival[] = [];
  const parts = [
    { coming: fresh, from: 0, to: registered },
    { coming: placeholders, from: registered, to: order.length },
  ];
  for (const { coming, from, to } of parts) {
    for (const offering of coming.toSorted(compareLay)) {
      const row = ground.take();
      const ahead = placeOf(before, offering, from, to);
      ground.ids.add(offering.id);
      writeRow(columns, ground, row, offering);
      offerings[row] = offering;
      arrivals.push({ row, ahead });
      if (arrivals.length % 16 === 0) yield;
    }
  }
  return arrivals;
}

/** Of the places from `from` to `to` the first one whose offering comes after this one. */
function placeOf({ offerings, order }: Snapshot, offering: Offering, from: number, to: number): number {
  let [low, high] = [from, to];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compareLay(offerings[order[middle]!]!, offering) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

function numbering(before: Snapshot, left: readonly number[], arrivals: readonly Arrival[]): Int32Array {
  const { ground, offerings } = before;
  const numbered = before.numbered.slice();
  for (const row of left) numbered[ground.ids.of(offerings[row]!.id)] = -1;
  for (const { row } of arrivals) numbered[ground.ids.of(offerings[row]!.id)] = row;
  return numbered;
}
