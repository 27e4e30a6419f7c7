/** What the router knows at one moment: every offering as columns, and the lists that a plan starts from. Immutable. */
import { ACTION_SPACES } from "../contracts/action-spaces.ts";
import { Contract, PARAMETERS } from "../contracts/contract.ts";
import { ALIASES, type Alias } from "./aliases.ts";
import type { CatalogModel, Offering } from "./offering.ts";

/** What a snapshot is made from. */
export interface Supply {
  /** Every routable offering. */
  readonly offerings: readonly Offering[];
  /** Every model of the catalog, served or not. */
  readonly catalog: readonly CatalogModel[];
  /** Every provider's name, with or without offerings. */
  readonly providers: readonly string[];
}

/** The provider of placeholders for catalogued models that nobody serves. */
export const SIMULATED_PROVIDER = "simulated";

/** Numbers per step of a placeholder in a space that fixes none. */
const PLACEHOLDER_DIM = 7;

/** Bits of the column `flags`. */
export const Flag = { SIMULATED: 1, RETAINS_FRAMES: 2 } as const;

/**
 * One array per fact, one row per offering. Rows that a plan reads together lie together: live supply by contract and
 * action space first, placeholders last.
 */
export interface Columns {
  /** Codes of names: equal where the names are equal. */
  readonly model: Uint32Array;
  readonly provider: Uint32Array;
  readonly region: Uint32Array;
  /** Bits of `Flag`. */
  readonly flags: Uint32Array;
  /** Bits of the contracts and action spaces that are served: see `servesBits`. */
  readonly serves: Uint32Array;
  /** Bits of the parameters that are honoured: see `parameterBits`. */
  readonly parameters: Uint32Array;
  /** Advertised 95th percentile in milliseconds; Infinity when none is. */
  readonly p95Ms: Float64Array;
  readonly maxHorizon: Float64Array;
  /** Bits per number of the precision; 0 when it is not known. */
  readonly precisionBits: Float64Array;
  /** Micro-dollars that a wake-up costs. */
  readonly wakeMicro: Float64Array;
  /** Milliseconds of idleness after which it is cold; Infinity when it stays warm. */
  readonly warmMs: Float64Array;
  /** List price in nano-dollars per unit; one column per number of a contract. */
  readonly priceNano: readonly Float64Array[];
}

/** The bits of `serves` that an offering needs for a contract, in an action space where the contract has one. */
export function servesBits(contract: Contract, space: string | undefined): number {
  const index = space === undefined ? -1 : ACTION_SPACES.findIndex((known) => known.name === space);
  return (1 << contract) | (index < 0 ? 0 : 1 << (FIRST_SPACE_BIT + index));
}

const FIRST_SPACE_BIT = 8;

/** The bits of `parameters` that an offering needs to honour these. */
export function parameterBits(names: readonly string[]): number {
  let bits = 0;
  for (let i = 0; i < PARAMETERS.length; i++) if (names.includes(PARAMETERS[i]!)) bits |= 1 << i;
  return bits;
}

/** Names and their codes. */
export interface Codes {
  readonly names: readonly string[];
  /** The code of a name, or -1. */
  of(name: string): number;
}

/** A moment's supply, ready to plan from. */
export interface Snapshot {
  /** Every row's offering; placeholders for the catalog's unserved models follow the offerings that were given. */
  readonly offerings: readonly Offering[];
  readonly columns: Columns;
  /** Rows below are live or registered; rows from here on are the catalog's placeholders. */
  readonly registered: number;
  readonly models: Codes;
  readonly providers: Codes;
  readonly regions: Codes;
  readonly catalog: ReadonlyMap<string, CatalogModel>;
  /** Rows of a model, or undefined when no offering and no placeholder bears its slug. */
  rowsOfModel(slug: string): Uint32Array | undefined;
  /** Rows that an alias stands for. */
  rowsOfAlias(alias: Alias): Uint32Array;
  /** Those of them that serve all of `bits`; with placeholders or without. */
  rowsServing(alias: Alias, bits: number, simulated: boolean): Uint32Array;
  /** By model code: 1 where a key with these globs may use the model. */
  scopeOf(globs: readonly string[]): Uint8Array;
}

/** Builds a snapshot. Takes time in proportion to the supply; planning from it does not. */
export function buildSnapshot(supply: Supply): Snapshot {
  const offerings = [...inLay(supply.offerings), ...placeholdersOf(supply)];
  const models = codesOf([
    ...supply.catalog.map((model) => model.slug),
    ...offerings.map((offering) => offering.model),
  ]);
  const providers = codesOf([...supply.providers, ...offerings.map((offering) => offering.provider)]);
  const regions = codesOf(offerings.map((offering) => offering.region));
  const columns = columnsOf(offerings, { models, providers, regions });
  const byModel = groupRows(offerings);
  const byAlias = new Map(ALIASES.map((alias) => [alias.id, rowsMatching(offerings, alias)]));
  const serving = new Map<string, Uint32Array>();
  const scopes = new WeakMap<readonly string[], Uint8Array>();

  return {
    offerings,
    columns,
    registered: supply.offerings.length,
    models,
    providers,
    regions,
    catalog: new Map(supply.catalog.map((model) => [model.slug, model])),
    rowsOfModel: (slug) => byModel.get(slug),
    rowsOfAlias: (alias) => byAlias.get(alias.id)!,
    rowsServing(alias, bits, simulated) {
      const key = `${alias.id} ${bits} ${simulated}`;
      let rows = serving.get(key);
      if (!rows) {
        const unwanted = simulated ? 0 : Flag.SIMULATED;
        rows = byAlias
          .get(alias.id)!
          .filter((row) => (columns.serves[row]! & bits) === bits && (columns.flags[row]! & unwanted) === 0);
        serving.set(key, rows);
      }
      return rows;
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

/** Whether a key with these globs may use a model: `owner/name` for one, `owner/*` for all of an owner, none for every model. */
export function inScope(globs: readonly string[], slug: string): boolean {
  return (
    globs.length === 0 ||
    globs.some((glob) => glob === slug || glob === "*" || (glob.endsWith("/*") && slug.startsWith(glob.slice(0, -1))))
  );
}

const layOf = (offering: Offering): string =>
  `${offering.simulated ? 1 : 0} ${offering.contracts.join()} ${offering.actionSpaces.join()} ${offering.model} ${offering.id}`;

function inLay(offerings: readonly Offering[]): Offering[] {
  const laid = offerings.map((offering) => ({ offering, lay: layOf(offering) }));
  laid.sort((a, b) => (a.lay < b.lay ? -1 : a.lay > b.lay ? 1 : 0));
  return laid.map(({ offering }) => offering);
}

function codesOf(all: readonly string[]): Codes {
  const codes = new Map<string, number>();
  for (const name of all) if (!codes.has(name)) codes.set(name, codes.size);
  return { names: [...codes.keys()], of: (name) => codes.get(name) ?? -1 };
}

function groupRows(offerings: readonly Offering[]): Map<string, Uint32Array> {
  const rows = new Map<string, number[]>();
  offerings.forEach((offering, row) => {
    const list = rows.get(offering.model);
    if (list) list.push(row);
    else rows.set(offering.model, [row]);
  });
  return new Map([...rows].map(([model, list]) => [model, Uint32Array.from(list)]));
}

function rowsMatching(offerings: readonly Offering[], { filter }: Alias): Uint32Array {
  const rows: number[] = [];
  offerings.forEach((offering, row) => {
    if (filter.contract !== undefined && !offering.contracts.includes(filter.contract)) return;
    if (filter.domain !== undefined && offering.domain !== filter.domain) return;
    if (filter.family !== undefined && offering.family !== filter.family) return;
    rows.push(row);
  });
  return Uint32Array.from(rows);
}

type NameCodes = Readonly<Record<"models" | "providers" | "regions", Codes>>;

function columnsOf(offerings: readonly Offering[], { models, providers, regions }: NameCodes): Columns {
  const words = (of: (offering: Offering) => number): Uint32Array => Uint32Array.from(offerings, of);
  const numbers = (of: (offering: Offering) => number): Float64Array => Float64Array.from(offerings, of);
  return {
    model: words((offering) => models.of(offering.model)),
    provider: words((offering) => providers.of(offering.provider)),
    region: words((offering) => regions.of(offering.region)),
    flags: words(
      (offering) => (offering.simulated ? Flag.SIMULATED : 0) | (offering.retainsFrames ? Flag.RETAINS_FRAMES : 0),
    ),
    serves: words((offering) => {
      let bits = 0;
      for (const contract of offering.contracts) bits |= servesBits(contract, undefined);
      for (const space of offering.actionSpaces) bits |= servesBits(Contract.UNSPECIFIED, space);
      return bits;
    }),
    parameters: words((offering) => parameterBits(offering.parameters)),
    p95Ms: numbers((offering) => offering.advertised.p95Ms ?? Number.POSITIVE_INFINITY),
    maxHorizon: numbers((offering) => offering.maxHorizon),
    precisionBits: numbers((offering) => precisionBits(offering.precision)),
    wakeMicro: numbers((offering) => Math.round((offering.coldTimeoutMs / 1000) * (offering.costNanoPerSecond / 1000))),
    warmMs: numbers((offering) =>
      offering.scaledownS === undefined ? Number.POSITIVE_INFINITY : offering.scaledownS * 1000,
    ),
    priceNano: Object.values(Contract).map((contract) => numbers((offering) => offering.priceNano[contract] ?? 0)),
  };
}

/** The bits of one number at a precision: `bf16` and `fp16` 16, `int8` 8. */
function precisionBits(precision: string): number {
  return Math.min(64, Number(/\d+/.exec(precision)?.[0] ?? 0));
}

/** One free, simulated offering for every model of the catalog that nothing live serves. */
function placeholdersOf(supply: Supply): Offering[] {
  const live = new Set(supply.offerings.filter((offering) => !offering.simulated).map((offering) => offering.model));
  return inLay(
    supply.catalog.filter((model) => !live.has(model.slug) && model.contracts.length > 0).map(placeholderOf),
  );
}

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
