/** Builds snapshots, from scratch or from the one before: at once, or in slices between which calls are served. */

import { ACTION_SPACES, PARAMETERS } from "../../contracts/contract.ts";
import { OF_THE_GATEWAY } from "../../contracts/trust.ts";
import { atOnce, type Sliced } from "../../slices.ts";
import { ALIASES, type Alias, type CatalogModel, type Offering, standsFor, standsForAll } from "../offering.ts";
import {
  bitsOf,
  bodiesOf,
  type Columns,
  emptyColumns,
  FIRST_PARAMETER_BIT,
  Ground,
  Names,
  NUMBERS,
  type OfferingNumbers,
  type RoutingSupply,
  type RowsOfModel,
  Serving,
  SIMULATED_PROVIDER,
  type Snapshot,
  servedBits,
  snapshotOf,
  traitsOf,
  writeRow,
} from "./snapshot.ts";

/** Builds a snapshot. Takes time in proportion to the supply; planning from it does not. */
export const buildSnapshot = (supply: RoutingSupply): Snapshot => atOnce(buildingSnapshot(supply));

/** The same as sliced work, for a process that serves calls meanwhile: plans will use the same columns as of the one `before`. */
export function* buildingSnapshot(supply: RoutingSupply, before?: Snapshot): Sliced<Snapshot> {
  const patched = before && (yield* patching(supply, before));
  if (patched) return patched;
  const offerings = yield* inLay(supply.offerings);
  const models = new Names(supply.catalog.length + offerings.length);
  const catalog = yield* catalogOf(supply.catalog, models);
  yield* add(models, offerings, (offering) => offering.model);
  for (const placeholder of yield* inLay(yield* placeholdersOf(catalog, models, offerings)))
    offerings.push(placeholder);
  const providers = new Names(supply.providers.length + offerings.length);
  yield* add(providers, supply.providers, (name) => name);
  const listed = providers.names.length;
  yield* add(providers, offerings, (offering) => offering.provider);
  const ground = new Ground(offerings.length, models, providers);
  yield* add(ground.regions, offerings, (offering) => offering.region);
  yield* add(ground.ids, offerings, (offering) => offering.id);
  const columns = yield* columnsOf(offerings, ground);
  const order = yield* counting(offerings.length);
  const aliased = yield* rowsByAlias(offerings, order);
  const lists = new Serving(columns, aliased);
  if (before) yield* lists.warming(before.lists);
  // Where a snapshot is built, the row of an offering, its place and the number of its id are one.
  const numbered = new Int32Array(ground.room).fill(-1);
  numbered.set(order);
  return snapshotOf({
    source: { catalog: supply.catalog, providers: supply.providers },
    ground,
    catalog,
    listed,
    offerings,
    registered: supply.offerings.length,
    columns,
    order,
    place: order,
    numbered,
    modelRows: yield* groupRows(columns.model, order, models.names.length),
    aliased,
    lists,
  });
}

/** How many rows are looked at between two yields, and how many where a look is a number. */
const STRIDE = 128;
const STEPS = 1024;

function* add<T>(names: Names, all: readonly T[], nameOf: (each: T) => string): Sliced<void> {
  for (let i = 0; i < all.length; i++) {
    names.add(nameOf(all[i]!));
    if (i % STRIDE === 0) yield;
  }
}

/** The models of the catalog by their codes, which are the first ones. */
function* catalogOf(catalog: readonly CatalogModel[], models: Names): Sliced<CatalogModel[]> {
  const byCode: CatalogModel[] = [];
  for (let i = 0; i < catalog.length; i++) {
    byCode[models.add(catalog[i]!.slug)] = catalog[i]!;
    if (i % STRIDE === 0) yield;
  }
  return byCode;
}

function* rowsByAlias(offerings: readonly Offering[], order: Uint32Array): Sliced<Map<Alias, Uint32Array>> {
  const aliased = new Map<Alias, Uint32Array>();
  for (const alias of ALIASES) {
    if (standsForAll(alias)) {
      aliased.set(alias, order);
      continue;
    }
    const rows = new Uint32Array(offerings.length);
    let count = 0;
    for (let row = 0; row < offerings.length; row++) {
      if (standsFor(alias, offerings[row]!)) rows[count++] = row;
      if (row % STEPS === 0) yield;
    }
    aliased.set(alias, rows.slice(0, count));
    yield;
  }
  return aliased;
}

function* columnsOf(offerings: readonly Offering[], ground: Ground): Sliced<Columns> {
  const { room } = ground;
  const columns = yield* emptyColumns(room);
  for (let row = 0; row < offerings.length; row++) {
    writeRow(columns, ground, row, offerings[row]!);
    if (row % STRIDE === 0) yield;
  }
  return columns;
}

/**
 * The snapshot of `supply` where every offering that lies as it lay keeps its row, which is the one before itself where nothing
 * changed; undefined where it has to be built.
 */
function* patching({ offerings, catalog, providers }: RoutingSupply, before: Snapshot): Sliced<Snapshot | undefined> {
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
function* moving(before: Snapshot, left: readonly number[], fresh: readonly Offering[]): Sliced<Snapshot | undefined> {
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
const compareLay = (one: Offering, other: Offering): number => groupOf(one) - groupOf(other) || withinGroup(one, other);

/** Offerings in their order. */
function* inLay(offerings: readonly Offering[]): Sliced<Offering[]> {
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

/** Those of a whole catalog, by the codes of its models. */
function* placeholdersOf(
  catalog: readonly CatalogModel[],
  models: Names,
  offerings: readonly Offering[],
): Sliced<Offering[]> {
  const live = new Uint8Array(models.names.length);
  for (let i = 0; i < offerings.length; i++) {
    if (!offerings[i]!.simulated) live[models.of(offerings[i]!.model)] = 1;
    if (i % STRIDE === 0) yield;
  }
  const placeholders: Offering[] = [];
  for (let code = 0; code < catalog.length; code++) {
    const model = catalog[code]!;
    if (live[code] === 0 && hasPlaceholder(model)) placeholders.push(placeholderOf(model));
    if (code % STRIDE === 0) yield;
  }
  return placeholders;
}

/** Whether a placeholder could stand for a model. */
const hasPlaceholder = ({ contracts }: CatalogModel): boolean => contracts.length > 0;

/** Numbers per step of a placeholder in a space that fixes none. */
const PLACEHOLDER_DIM = 7;

const FIXED_SPACES = ACTION_SPACES.filter((space) => space.dim !== undefined).map((space) => space.name);

/** The one of a model. */
function placeholderOf(model: CatalogModel): Offering {
  return {
    id: `simulated/${model.slug}`,
    model: model.slug,
    provider: SIMULATED_PROVIDER,
    supplier: OF_THE_GATEWAY,
    region: SIMULATED_PROVIDER,
    precision: "none",
    contracts: model.contracts,
    // Where the catalog knows no action space, a placeholder of any fixed dimension is as valid as another.
    actionSpaces: model.actionSpaces.length > 0 ? model.actionSpaces : FIXED_SPACES,
    actionDim: PLACEHOLDER_DIM,
    embodiments: model.embodiments,
    domain: model.domain,
    family: model.family,
    simulated: true,
    priceNano: {},
    maxHorizon: 256,
    dtMs: 100,
    parameters: PARAMETERS,
    retainsFrames: false,
    advertised: { p50Ms: 1, p95Ms: 1, unitsPerS: undefined, uptime30d: 1 },
    costNanoPerSecond: 0,
    scaledownS: undefined,
    timeoutMs: 1000,
    coldTimeoutMs: 1000,
  };
}

/** The numbers from 0 on. */
function* counting(count: number): Sliced<Uint32Array> {
  const numbers = new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    numbers[i] = i;
    if (i % STEPS === 0) yield;
  }
  return numbers;
}

/** By code: the rows that bear it, in their order; undefined where none does. */
function* groupRows(column: Uint32Array, order: Uint32Array, codes: number): Sliced<RowsOfModel> {
  const ends = new Uint32Array(codes + 1);
  for (let i = 0; i < order.length; i++) {
    ends[column[order[i]!]! + 1]!++;
    if (i % STEPS === 0) yield;
  }
  for (let code = 0; code < codes; code++) {
    ends[code + 1]! += ends[code]!;
    if (code % STEPS === 0) yield;
  }
  const places = ends.slice();
  const rows = new Uint32Array(order.length);
  for (let i = 0; i < order.length; i++) {
    const row = order[i]!;
    rows[places[column[row]!]!++] = row;
    if (i % STEPS === 0) yield;
  }
  return (code) => (ends[code] === ends[code + 1] ? undefined : rows.subarray(ends[code], ends[code + 1]));
}

/** By row: its place in `order`. */
function* placing(order: Uint32Array, room: number): Sliced<Uint32Array> {
  const place = new Uint32Array(room);
  for (let i = 0; i < order.length; i++) {
    place[order[i]!] = i;
    if (i % STEPS === 0) yield;
  }
  return place;
}

/** A row that comes into lists, ahead of the row that has this place and of all behind it. */
interface Arrival {
  readonly row: number;
  readonly ahead: number;
}

/**
 * A list in the order of `place`, without the rows that are `gone` and with those that arrive, which come in their order, too. The
 * list itself where it has none of them.
 */
function* spliced(
  list: Uint32Array,
  place: Uint32Array,
  gone: Uint8Array,
  arrivals: readonly Arrival[],
): Sliced<Uint32Array> {
  let leaving = 0;
  for (let i = 0; i < list.length; i++) {
    leaving += gone[list[i]!]!;
    if (i % STEPS === 0) yield;
  }
  if (leaving + arrivals.length === 0) return list;
  const to = new Uint32Array(list.length - leaving + arrivals.length);
  let [at, next] = [0, 0];
  for (let i = 0; i < list.length; i++) {
    const row = list[i]!;
    while (next < arrivals.length && arrivals[next]!.ahead <= place[row]!) to[at++] = arrivals[next++]!.row;
    if (gone[row] === 0) to[at++] = row;
    if (i % STEPS === 0) yield;
  }
  while (next < arrivals.length) to[at++] = arrivals[next++]!.row;
  return to;
}

const RUN = 128;

/**
 * The numbers below `count`, ordered by `compare`; those that are equal stay in their order. A merge sort over numbers alone:
 * what is in order already costs one comparison per run.
 */
export function* sorting(count: number, compare: (a: number, b: number) => number): Sliced<Uint32Array> {
  let from = new Uint32Array(count);
  for (let start = 0; start < count; start += RUN) {
    const run = from.subarray(start, start + RUN);
    for (let i = 0; i < run.length; i++) run[i] = start + i;
    run.sort(compare);
    yield;
  }
  let to = new Uint32Array(count);
  for (let width = RUN; width < count; width *= 2) {
    for (let start = 0; start < count; start += 2 * width) yield* merging(from, to, start, width, compare);
    [from, to] = [to, from];
  }
  return from;
}

/** Merges two ordered runs of `width` from `start` on; the first one's stay before equal ones of the second. */
function* merging(
  from: Uint32Array,
  to: Uint32Array,
  start: number,
  width: number,
  compare: (a: number, b: number) => number,
): Sliced<void> {
  const [middle, end] = [Math.min(start + width, from.length), Math.min(start + 2 * width, from.length)];
  if (middle === end || compare(from[middle - 1]!, from[middle]!) <= 0) {
    to.set(from.subarray(start, end), start);
    yield;
    return;
  }
  let left = start;
  let right = middle;
  for (let place = start; place < end; place++) {
    const takeLeft = left < middle && (right >= end || compare(from[left]!, from[right]!) <= 0);
    to[place] = takeLeft ? from[left++]! : from[right++]!;
    if (place % STEPS === 0) yield;
  }
  yield;
}
