/** How a snapshot is built: all at once, or in slices between which calls are served. */
import { atOnce, type Sliced } from "../ambient.ts";
import { ACTION_SPACES } from "../contracts/action-spaces.ts";
import { PARAMETERS } from "../contracts/contract.ts";
import { ALIASES, standsFor } from "./aliases.ts";
import { bodiesOf, NUMBERS, type Numbers, servedBits, traitsOf } from "./facts.ts";
import { Names } from "./names.ts";
import type { CatalogModel, Offering } from "./offering.ts";
import { patching } from "./patch.ts";
import { Serving } from "./serving.ts";
import {
  BODY_SETS,
  type Codes,
  type Columns,
  FIRST_PARAMETER_BIT,
  inScope,
  SIMULATED_PROVIDER,
  type Snapshot,
  type Supply,
} from "./snapshot.ts";
import { sorting } from "./sorting.ts";

/** Builds a snapshot. Takes time in proportion to the supply; planning from it does not. */
export const buildSnapshot = (supply: Supply): Snapshot => atOnce(buildingSnapshot(supply));

/** The same as sliced work, for whoever serves calls meanwhile: plans will ask it for what they asked of the one `before`. */
export function* buildingSnapshot(supply: Supply, before?: Snapshot): Sliced<Snapshot> {
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
  yield* add(providers, offerings, (offering) => offering.provider);
  const regions = new Names(offerings.length);
  yield* add(regions, offerings, (offering) => offering.region);
  const columns = yield* columnsOf(offerings, { models, providers, regions });
  const ids = new Names(offerings.length);
  yield* add(ids, offerings, (offering) => offering.id);
  const rowsOf = yield* groupRows(columns.model, models.names.length);
  const byAlias = yield* rowsByAlias(offerings);
  const serving = new Serving(columns, (alias) => byAlias.get(alias.id)!);
  if (before) yield* serving.warming(before.lists);
  const scopes = new WeakMap<readonly string[], Uint8Array>();

  return {
    source: { catalog: supply.catalog, providers: supply.providers },
    offerings,
    columns,
    registered: supply.offerings.length,
    models,
    providers,
    regions,
    catalogued: catalog.length,
    catalogModel: (slug) => catalog[models.of(slug)],
    rowOf: (id) => ids.of(id),
    rowsOfModel(slug) {
      const code = models.of(slug);
      return code < 0 ? undefined : rowsOf(code);
    },
    rowsOfAlias: (alias) => byAlias.get(alias.id)!,
    lists: serving,
    serving: (alias, bits, simulated) => serving.of(alias, bits, simulated),
    scopeOf(globs) {
      let allowed = scopes.get(globs);
      if (!allowed) {
        allowed = Uint8Array.from(models.names, (slug) => (inScope(globs, slug) ? 1 : 0));
        scopes.set(globs, allowed);
      }
      return allowed;
    },
  };
}

/** How many rows are looked at between two yields, and how many where a look is a number. */
const STRIDE = 128;
const STEPS = 1024;

const SERVES_BITS = FIRST_PARAMETER_BIT;

/**
 * Offerings in the order in which a plan reads them best: live supply before placeholders, then by what is served, then what
 * never sleeps, so that rows that are treated alike lie together. Then by model and id, whatever the order they came in.
 */
function* inLay(offerings: readonly Offering[]): Sliced<Offering[]> {
  const groups = new Uint32Array(offerings.length);
  for (let i = 0; i < offerings.length; i++) {
    const { simulated, contracts, actionSpaces, scaledownS } = offerings[i]!;
    const served = servedBits(contracts, actionSpaces);
    groups[i] = (simulated ? 2 ** (SERVES_BITS + 1) : 0) + 2 * served + (scaledownS === undefined ? 0 : 1);
    if (i % STRIDE === 0) yield;
  }
  const order = yield* sorting(offerings.length, (a, b) => {
    if (groups[a] !== groups[b]) return groups[a]! - groups[b]!;
    const [one, other] = [offerings[a]!, offerings[b]!];
    if (one.model !== other.model) return one.model < other.model ? -1 : 1;
    return one.id < other.id ? -1 : one.id > other.id ? 1 : 0;
  });
  const laid: Offering[] = [];
  for (let i = 0; i < order.length; i++) {
    laid.push(offerings[order[i]!]!);
    if (i % STRIDE === 0) yield;
  }
  return laid;
}

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

/** By code: the rows that bear it, in their order; undefined where none does. */
function* groupRows(column: Uint32Array, codes: number): Sliced<(code: number) => Uint32Array | undefined> {
  const ends = new Uint32Array(codes + 1);
  for (let row = 0; row < column.length; row++) {
    ends[column[row]! + 1]!++;
    if (row % STEPS === 0) yield;
  }
  for (let code = 0; code < codes; code++) {
    ends[code + 1]! += ends[code]!;
    if (code % STEPS === 0) yield;
  }
  const places = ends.slice();
  const rows = new Uint32Array(column.length);
  for (let row = 0; row < column.length; row++) {
    rows[places[column[row]!]!++] = row;
    if (row % STEPS === 0) yield;
  }
  return (code) => (ends[code] === ends[code + 1] ? undefined : rows.subarray(ends[code], ends[code + 1]));
}

function* rowsByAlias(offerings: readonly Offering[]): Sliced<Map<string, Uint32Array>> {
  const byAlias = new Map<string, Uint32Array>();
  for (const alias of ALIASES) {
    const rows = new Uint32Array(offerings.length);
    let count = 0;
    for (let row = 0; row < offerings.length; row++) {
      if (standsFor(alias, offerings[row]!)) rows[count++] = row;
      if (row % STEPS === 0) yield;
    }
    byAlias.set(alias.id, rows.slice(0, count));
    yield;
  }
  return byAlias;
}

type NameCodes = Readonly<Record<"models" | "providers" | "regions", Codes>>;

function* columnsOf(offerings: readonly Offering[], { models, providers, regions }: NameCodes): Sliced<Columns> {
  const rows = offerings.length;
  const words = (): Uint32Array => new Uint32Array(rows);
  const codes = { model: words(), provider: words(), region: words(), traits: words(), bodies: words(), kind: words() };
  const kinds = new Kinds();
  yield;
  for (let row = 0; row < rows; row++) {
    const offering = offerings[row]!;
    codes.model[row] = models.of(offering.model);
    codes.provider[row] = providers.of(offering.provider);
    codes.region[row] = regions.of(offering.region);
    codes.traits[row] = traitsOf(offering);
    codes.bodies[row] = bodiesOf(offering);
    const place = codes.provider[row]! * regions.names.length + codes.region[row]!;
    codes.kind[row] = kinds.of(place * BODY_SETS + codes.bodies[row]!, codes.traits[row]!);
    if (row % STRIDE === 0) yield;
  }
  const priceNano: Float64Array[] = [];
  for (const price of NUMBERS.priceNano) priceNano.push(yield* columnOf(offerings, price));
  return {
    ...codes,
    ...(yield* eachColumn(offerings, NUMBERS.plain)),
    priceNano,
    advertised: yield* eachColumn(offerings, NUMBERS.advertised),
  };
}

function* eachColumn<K extends string>(
  offerings: readonly Offering[],
  numbers: Numbers<K>,
): Sliced<Record<K, Float64Array>> {
  const columns = {} as Record<K, Float64Array>;
  for (const name of Object.keys(numbers) as K[]) columns[name] = yield* columnOf(offerings, numbers[name]);
  return columns;
}

function* columnOf(offerings: readonly Offering[], numberOf: (offering: Offering) => number): Sliced<Float64Array> {
  const column = new Float64Array(offerings.length);
  for (let row = 0; row < column.length; row++) {
    column[row] = numberOf(offerings[row]!);
    if (row % STEPS === 0) yield;
  }
  return column;
}

/** Numbers each place and set of bodies with each set of traits. */
class Kinds {
  private readonly byTraits = new Map<number, Map<number, number>>();
  private count = 0;

  /** The kind of a place and bodies with these traits. */
  of(place: number, traits: number): number {
    let known = this.byTraits.get(traits);
    if (!known) {
      known = new Map();
      this.byTraits.set(traits, known);
    }
    let kind = known.get(place);
    if (kind === undefined) {
      kind = this.count++;
      known.set(place, kind);
    }
    return kind;
  }
}

/** One free, simulated offering for every model of the catalog that nothing live serves. */
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
    if (live[code] === 0 && model.contracts.length > 0) placeholders.push(placeholderOf(model));
    if (code % STRIDE === 0) yield;
  }
  return placeholders;
}

/** Numbers per step of a placeholder in a space that fixes none. */
const PLACEHOLDER_DIM = 7;

const FIXED_SPACES = ACTION_SPACES.filter((space) => space.dim !== undefined).map((space) => space.name);

function placeholderOf(model: CatalogModel): Offering {
  return {
    id: `simulated/${model.slug}`,
    model: model.slug,
    provider: SIMULATED_PROVIDER,
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
