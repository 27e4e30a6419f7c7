/** How a snapshot is built: all at once, or in slices between which calls are served. */
import { atOnce, type Sliced } from "../ambient.ts";
import { ACTION_SPACES } from "../contracts/action-spaces.ts";
import { Contract, PARAMETERS } from "../contracts/contract.ts";
import { ALIASES, type Alias } from "./aliases.ts";
import type { CatalogModel, Offering } from "./offering.ts";
import {
  type Candidates,
  type Codes,
  type Columns,
  Flag,
  inScope,
  parameterBits,
  SIMULATED_PROVIDER,
  type Snapshot,
  type Supply,
  servesBits,
} from "./snapshot.ts";

/** Builds a snapshot. Takes time in proportion to the supply; planning from it does not. */
export const buildSnapshot = (supply: Supply): Snapshot => atOnce(buildingSnapshot(supply));

/** The same as sliced work, for whoever serves calls meanwhile. */
export function* buildingSnapshot(supply: Supply): Sliced<Snapshot> {
  const offerings = yield* inLay(supply.offerings);
  for (const placeholder of yield* inLay(yield* placeholdersOf(supply))) offerings.push(placeholder);
  const models = yield* codesOf(supply.catalog, (model) => model.slug);
  yield* models.add(offerings, (offering) => offering.model);
  const providers = yield* codesOf(supply.providers, (name) => name);
  yield* providers.add(offerings, (offering) => offering.provider);
  const regions = yield* codesOf(offerings, (offering) => offering.region);
  const columns = yield* columnsOf(offerings, { models, providers, regions });
  const rowById = new Map<string, number>();
  for (let row = 0; row < offerings.length; row++) {
    rowById.set(offerings[row]!.id, row);
    if (row % STRIDE === 0) yield;
  }
  const byModel = yield* groupRows(columns.model, models.names);
  const byAlias = yield* rowsByAlias(offerings);
  const catalog = new Map<string, CatalogModel>();
  for (const model of supply.catalog) {
    catalog.set(model.slug, model);
    if (catalog.size % STRIDE === 0) yield;
  }
  const serving = new Map<string, Map<number, Candidates>>();
  const scopes = new WeakMap<readonly string[], Uint8Array>();

  return {
    offerings,
    columns,
    registered: supply.offerings.length,
    models,
    providers,
    regions,
    catalog,
    rowOf: (id) => rowById.get(id) ?? -1,
    rowsOfModel: (slug) => byModel.get(slug),
    rowsOfAlias: (alias) => byAlias.get(alias.id)!,
    serving(alias, bits, simulated) {
      const unwanted = simulated ? 0 : Flag.SIMULATED;
      let lists = serving.get(alias.id);
      if (!lists) {
        lists = new Map();
        serving.set(alias.id, lists);
      }
      // The flag of placeholders is none of the bits that are asked for.
      let list = lists.get(bits | unwanted);
      if (!list) {
        const rows = byAlias.get(alias.id)!.filter((row) => (columns.traits[row]! & (bits | unwanted)) === bits);
        list = candidatesOf(rows, columns.kind);
        lists.set(bits | unwanted, list);
      }
      return list;
    },
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

/** Rows and their kinds, numbered as they come. */
function candidatesOf(rows: Uint32Array, kind: Uint32Array): Candidates {
  const numbers = new Map<number, number>();
  const samples: number[] = [];
  const kinds = rows.map((row) => {
    let number = numbers.get(kind[row]!);
    if (number === undefined) {
      number = samples.push(row) - 1;
      numbers.set(kind[row]!, number);
    }
    return number;
  });
  return { rows, kinds, samples: Uint32Array.from(samples) };
}

/** How many rows are looked at between two yields. */
const STRIDE = 128;

/** Live supply before placeholders, then by what is served, then what never sleeps: rows that a plan reads together and treats alike. */
const layOf = ({ simulated, contracts, actionSpaces, scaledownS, model, id }: Offering): string =>
  `${simulated ? 1 : 0} ${contracts.join()} ${actionSpaces.join()} ${scaledownS === undefined ? 0 : 1} ${model} ${id}`;

interface Laid {
  readonly offering: Offering;
  readonly lay: string;
}

/** A merge sort, because the language's own can't be put down. */
function* inLay(offerings: readonly Offering[]): Sliced<Offering[]> {
  let from: Laid[] = [];
  for (let start = 0; start < offerings.length; start += STRIDE) {
    const run = offerings.slice(start, start + STRIDE).map((offering) => ({ offering, lay: layOf(offering) }));
    run.sort((a, b) => (a.lay < b.lay ? -1 : a.lay > b.lay ? 1 : 0));
    for (const laid of run) from.push(laid);
    yield;
  }
  let to: Laid[] = [...from];
  yield;
  for (let width = STRIDE; width < from.length; width *= 2) {
    for (let start = 0; start < from.length; start += 2 * width) yield* mergeRuns(from, to, start, width);
    [from, to] = [to, from];
  }
  const laid: Offering[] = [];
  for (let i = 0; i < from.length; i++) {
    laid.push(from[i]!.offering);
    if (i % 1024 === 0) yield;
  }
  return laid;
}

/** Merges two sorted runs of `width` from `start` on; the first one's rows stay before equal ones of the second. */
function* mergeRuns(from: readonly Laid[], to: Laid[], start: number, width: number): Sliced<void> {
  const [middle, end] = [Math.min(start + width, from.length), Math.min(start + 2 * width, from.length)];
  let left = start;
  let right = middle;
  for (let place = start; place < end; place++) {
    const takeLeft = left < middle && (right >= end || from[left]!.lay <= from[right]!.lay);
    to[place] = takeLeft ? from[left++]! : from[right++]!;
    if (place % 1024 === 0) yield;
  }
  yield;
}

/** Codes that more names can be added to while they are made. */
class GrowingCodes implements Codes {
  readonly names: string[] = [];
  private readonly codes = new Map<string, number>();

  of(name: string): number {
    return this.codes.get(name) ?? -1;
  }

  *add<T>(all: readonly T[], nameOf: (each: T) => string): Sliced<void> {
    for (let i = 0; i < all.length; i++) {
      const name = nameOf(all[i]!);
      if (!this.codes.has(name)) {
        this.codes.set(name, this.names.length);
        this.names.push(name);
      }
      if (i % STRIDE === 0) yield;
    }
  }
}

function* codesOf<T>(all: readonly T[], nameOf: (each: T) => string): Sliced<GrowingCodes> {
  const codes = new GrowingCodes();
  yield* codes.add(all, nameOf);
  return codes;
}

/** By the name of a code: the rows that bear it, in their order. */
function* groupRows(column: Uint32Array, names: readonly string[]): Sliced<Map<string, Uint32Array>> {
  const counts = new Uint32Array(names.length);
  for (const code of column) counts[code]!++;
  yield;
  const groups: (Uint32Array | undefined)[] = [];
  for (let row = 0; row < column.length; row++) {
    const code = column[row]!;
    groups[code] ??= new Uint32Array(counts[code]!);
    const group = groups[code];
    group[group.length - counts[code]!--] = row;
    if (row % STRIDE === 0) yield;
  }
  const byName = new Map<string, Uint32Array>();
  for (let code = 0; code < groups.length; code++) {
    if (groups[code]) byName.set(names[code]!, groups[code]!);
    if (code % STRIDE === 0) yield;
  }
  return byName;
}

function* rowsByAlias(offerings: readonly Offering[]): Sliced<Map<string, Uint32Array>> {
  const rows = ALIASES.map((): number[] => []);
  for (let row = 0; row < offerings.length; row++) {
    for (let i = 0; i < ALIASES.length; i++) if (isOf(ALIASES[i]!, offerings[row]!)) rows[i]!.push(row);
    if (row % STRIDE === 0) yield;
  }
  const byAlias = new Map<string, Uint32Array>();
  for (let i = 0; i < ALIASES.length; i++) {
    byAlias.set(ALIASES[i]!.id, Uint32Array.from(rows[i]!));
    yield;
  }
  return byAlias;
}

function isOf({ filter }: Alias, offering: Offering): boolean {
  return (
    (filter.contract === undefined || offering.contracts.includes(filter.contract)) &&
    (filter.domain === undefined || offering.domain === filter.domain) &&
    (filter.family === undefined || offering.family === filter.family)
  );
}

type NameCodes = Readonly<Record<"models" | "providers" | "regions", Codes>>;

function* columnsOf(offerings: readonly Offering[], { models, providers, regions }: NameCodes): Sliced<Columns> {
  const rows = offerings.length;
  const words = (): Uint32Array => new Uint32Array(rows);
  const numbers = (): Float64Array => new Float64Array(rows);
  const contracts = Object.values(Contract);
  const columns: Columns = {
    model: words(),
    provider: words(),
    region: words(),
    traits: words(),
    kind: words(),
    p95Ms: numbers(),
    maxHorizon: numbers(),
    precisionBits: numbers(),
    wakeMicro: numbers(),
    warmMs: numbers(),
    priceNano: contracts.map(numbers),
    advertised: { p50Ms: numbers(), p95Ms: numbers(), coldMs: numbers(), unitsPerS: numbers(), uptime: numbers() },
  };
  const kinds = new Kinds();
  yield;
  for (let row = 0; row < rows; row++) {
    const offering = offerings[row]!;
    const { advertised, coldTimeoutMs, scaledownS } = offering;
    columns.model[row] = models.of(offering.model);
    columns.provider[row] = providers.of(offering.provider);
    columns.region[row] = regions.of(offering.region);
    columns.traits[row] = traitsOf(offering);
    columns.kind[row] = kinds.of(
      columns.provider[row]! * regions.names.length + columns.region[row]!,
      columns.traits[row]!,
    );
    columns.p95Ms[row] = advertised.p95Ms ?? Number.POSITIVE_INFINITY;
    columns.maxHorizon[row] = offering.maxHorizon;
    columns.precisionBits[row] = precisionBits(offering.precision);
    columns.wakeMicro[row] = Math.round((coldTimeoutMs / 1000) * (offering.costNanoPerSecond / 1000));
    columns.warmMs[row] = scaledownS === undefined ? Number.POSITIVE_INFINITY : scaledownS * 1000;
    for (let i = 0; i < contracts.length; i++) columns.priceNano[i]![row] = offering.priceNano[contracts[i]!] ?? 0;
    columns.advertised.p50Ms[row] = advertised.p50Ms ?? advertised.p95Ms ?? Number.POSITIVE_INFINITY;
    columns.advertised.p95Ms[row] = advertised.p95Ms ?? advertised.p50Ms ?? Number.POSITIVE_INFINITY;
    columns.advertised.coldMs[row] = coldTimeoutMs;
    columns.advertised.unitsPerS[row] = advertised.unitsPerS ?? 0;
    columns.advertised.uptime[row] = advertised.uptime30d ?? 0;
    if (row % STRIDE === 0) yield;
  }
  return columns;
}

/** Numbers each place with each set of traits. */
class Kinds {
  private readonly byTraits = new Map<number, Map<number, number>>();
  private count = 0;

  /** The kind of a place with these traits. */
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

function traitsOf({ contracts, actionSpaces, parameters, simulated, retainsFrames }: Offering): number {
  let bits = parameterBits(parameters) | (simulated ? Flag.SIMULATED : 0) | (retainsFrames ? Flag.RETAINS_FRAMES : 0);
  for (const contract of contracts) bits |= servesBits(contract, undefined);
  for (const space of actionSpaces) bits |= servesBits(Contract.UNSPECIFIED, space);
  return bits;
}

/** The bits of one number at a precision: `bf16` and `fp16` 16, `int8` 8. */
function precisionBits(precision: string): number {
  return Math.min(64, Number(/\d+/.exec(precision)?.[0] ?? 0));
}

/** One free, simulated offering for every model of the catalog that nothing live serves. */
function* placeholdersOf(supply: Supply): Sliced<Offering[]> {
  const live = new Set<string>();
  for (let i = 0; i < supply.offerings.length; i++) {
    if (!supply.offerings[i]!.simulated) live.add(supply.offerings[i]!.model);
    if (i % STRIDE === 0) yield;
  }
  const placeholders: Offering[] = [];
  for (let i = 0; i < supply.catalog.length; i++) {
    const model = supply.catalog[i]!;
    if (!live.has(model.slug) && model.contracts.length > 0) placeholders.push(placeholderOf(model));
    if (i % STRIDE === 0) yield;
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
    embodiments: [],
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
