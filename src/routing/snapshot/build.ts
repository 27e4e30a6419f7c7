/** How a snapshot is built: all at once, or in slices between which calls are served. */
import { atOnce, type Sliced } from "../../slices.ts";
import { ALIASES, type Alias, standsFor, standsForAll } from "../aliases.ts";
import type { CatalogModel, Offering } from "../offering.ts";
import { Ground } from "./base-table.ts";
import { emptyColumns, writeRow } from "./facts.ts";
import { inLay } from "./lay.ts";
import { Names } from "./names.ts";
import { patching } from "./patch.ts";
import { placeholdersOf } from "./placeholders.ts";
import { counting, groupRows } from "./rows.ts";
import { Serving } from "./serving.ts";
import { type Columns, type RoutingSupply, type Snapshot, snapshotOf } from "./snapshot.ts";

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
