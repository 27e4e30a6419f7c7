/** The supply at one time: every offering as columns, and the row lists that plans start from. Immutable. */

import type { Reach } from "../../call.ts";
import {
  ACTION_SPACES,
  Contract,
  DEFAULT_HORIZON,
  EMBODIMENTS,
  Embodiment,
  PARAMETERS,
} from "../../contracts/contract.ts";
import type { DeclaredInput } from "../../contracts/inputs.ts";
import { mayServe, type Standing, type Supplier } from "../../contracts/trust.ts";
import { atOnce, type Sliced } from "../../slices.ts";
import type { Alias, CatalogModel, Offering } from "../offering.ts";

/** The input of a snapshot. */
export interface RoutingSupply {
  /** Every routable offering. */
  readonly offerings: readonly Offering[];
  /** Every model of the catalog, served or not. */
  readonly catalog: readonly CatalogModel[];
  /** Every provider's name, with or without offerings. */
  readonly providers: readonly string[];
}

/** The provider of placeholders for cataloged models that no offering serves. */
export const SIMULATED_PROVIDER = "simulated";

/** Bits of the column `traits` beside those of `servesBits` and `parameterBits`. */
export const Flag = { SIGNED: 1 << 27, OWNS_NAME: 1 << 28, SIMULATED: 1 << 29, RETAINS_FRAMES: 1 << 30 } as const;

/**
 * One array per fact, one row per offering, and some rows to spare. Where a snapshot is built, rows that a plan reads together
 * lie together: live supply by contract and action space first, placeholders last. Those that patch it add theirs behind.
 */
export interface Columns {
  /** Codes of names: equal where the names are equal. */
  readonly model: Uint32Array;
  readonly provider: Uint32Array;
  readonly region: Uint32Array;
  /** Everything that is a yes or a no, so that one look answers every such question: see `Flag`, `servesBits`, `parameterBits`. */
  readonly traits: Uint32Array;
  /** Whose it is: see `supplierCode`. */
  readonly supplier: Uint32Array;
  /** The bodies that it is made for, a bit each: see `bodyBit`. */
  readonly bodies: Uint32Array;
  /** The code of what it says that it reads and that its actions mean; 0 where it says nothing: see `Ground.declared`. */
  readonly declared: Uint32Array;
  /** A code of provider, region, bodies and traits together: a plan that depends on these alone tests each kind once. */
  readonly kind: Uint32Array;
  readonly maxHorizon: Float64Array;
  /** Steps of its whole chunk; of one without a length of its own, those of a request that names none. */
  readonly chunk: Float64Array;
  /** Bits per number of the precision; 0 when it is not known. */
  readonly precisionBits: Float64Array;
  /** The number of published evaluations that count for its quality. */
  readonly measured: Float64Array;
  /** Micro-dollars that a wake-up costs. */
  readonly wakeMicro: Float64Array;
  /** Milliseconds of idleness after which it is cold; Infinity when it stays warm. */
  readonly warmMs: Float64Array;
  /** List price in nano-dollars per unit; one column per number of a contract. */
  readonly priceNano: readonly Float64Array[];
  /** What providers say of themselves, in the form in which it is measured: see `HealthView`. */
  readonly advertised: Readonly<
    Record<"p50Ms" | "p95Ms" | "coldMs" | "unitsPerS" | "uptime" | "judgedP95Ms" | "judgedUptime", Float64Array>
  >;
}

/** The bits of `traits` that an offering needs for a contract, in an action space where the contract has one. */
export function servesBits(contract: Contract, space: string | undefined): number {
  const index = space === undefined ? -1 : ACTION_SPACES.findIndex((known) => known.name === space);
  return (1 << contract) | (index < 0 ? 0 : 1 << (FIRST_SPACE_BIT + index));
}

/** Contracts have the bits below. */
const FIRST_SPACE_BIT = 5;
/** The bits below are what an offering serves. */
export const FIRST_PARAMETER_BIT = 17;

/** The bits of all contracts. */
export const CONTRACT_BITS = (1 << FIRST_SPACE_BIT) - 1;

/** The bit of a body in the column `bodies`. */
export const bodyBit = (body: Embodiment): number => 1 << (body - 1);

/** The numbers of `bodies` are less than this. */
export const BODY_SETS = 1 << Object.keys(EMBODIMENTS).length;

/** The bits of `traits` that an offering needs to honor these. */
export function parameterBits(names: readonly string[]): number {
  let bits = 0;
  for (let i = 0; i < PARAMETERS.length; i++)
    if (names.includes(PARAMETERS[i]!)) bits |= 1 << (FIRST_PARAMETER_BIT + i);
  return bits;
}

/** Rows that a plan starts from, with their kinds: rows of one kind have the same provider, region, bodies and traits. */
export interface Candidates {
  readonly rows: Uint32Array;
  /** By place in `rows`: the number of its kind. */
  readonly kinds: Uint32Array;
  /** By the number of a kind: a row of it. */
  readonly samples: Uint32Array;
}

/** Names and their codes. */
export interface Codes {
  readonly names: readonly string[];
  /** The code of a name, or -1. */
  of(name: string): number;
}

/** What a snapshot is put together from. */
interface SnapshotParts {
  /** What it was made from beside offerings. */
  readonly source: Pick<RoutingSupply, "catalog" | "providers">;
  readonly ground: Ground;
  /** The catalog by the codes of its models, which are the first ones; the first providers are those that were listed. */
  readonly catalog: readonly CatalogModel[];
  readonly listed: number;
  /** By row. An offering that left its row is still there: `order` has those that are present. */
  readonly offerings: readonly Offering[];
  readonly columns: Columns;
  /** Every row, in the order in which a plan reads them best; placeholders for the catalog's unserved models come last. */
  readonly order: Uint32Array;
  /** By row: its place in `order`. */
  readonly place: Uint32Array;
  /** Places below are live or registered; those from here on are the catalog's placeholders. */
  readonly registered: number;
  /** By the number of an offering's id: its row, or -1. */
  readonly numbered: Int32Array;
  /** By code: the rows that bear it, in their order; undefined where none does. */
  readonly modelRows: RowsOfModel;
  /** The rows that each stands for. */
  readonly aliased: ReadonlyMap<Alias, Uint32Array>;
  /** The lists that plans asked for. */
  readonly lists: Serving;
}

/** The rows of a model, by its code. */
export type RowsOfModel = (code: number) => Uint32Array | undefined;

/** The supply at one time, ready for planning. */
export interface Snapshot extends SnapshotParts {
  readonly models: Codes;
  readonly providers: Codes;
  readonly regions: Codes;
  /** How many models the catalog has. */
  readonly catalogued: number;
  /** What the catalog knows of a model. */
  catalogModel(slug: string): CatalogModel | undefined;
  /** The row of an offering, or -1. */
  rowOf(offeringId: string): number;
  /** Whether a row is live or registered, and no placeholder of the catalog. */
  isRegistered(row: number): boolean;
  /** Rows of a model, or undefined when no offering and no placeholder bears its slug. */
  rowsOfModel(slug: string): Uint32Array | undefined;
  /** Rows that an alias stands for. */
  rowsOfAlias(alias: Alias): Uint32Array;
  /** Those of them that serve all of `bits`; with placeholders or without. */
  serving(alias: Alias, bits: number, simulated: boolean): Candidates;
  /** By model code: 1 if a key with these globs can use the model. */
  scopeOf(globs: readonly string[]): Uint8Array;
  /** By code of `columns.supplier`: 1 if its offerings can serve; undefined if all can. */
  trusted(caller: Caller): Uint8Array | undefined;
}

/** Puts a snapshot together. */
export function snapshotOf(parts: SnapshotParts): Snapshot {
  const { ground, catalog, place, registered, numbered, modelRows, aliased, lists } = parts;
  const { models, providers, regions, ids } = ground;
  const suppliers = new TrustedSuppliers(parts);
  return {
    ...parts,
    models,
    providers,
    regions,
    catalogued: catalog.length,
    catalogModel: (slug) => catalog[models.of(slug)],
    rowOf(id) {
      const number = ids.of(id);
      return number < 0 ? -1 : numbered[number]!;
    },
    isRegistered: (row) => place[row]! < registered,
    rowsOfModel(slug) {
      const code = models.of(slug);
      return code < 0 ? undefined : modelRows(code);
    },
    rowsOfAlias: (alias) => aliased.get(alias)!,
    serving: (alias, bits, simulated) => lists.of(alias, bits, simulated),
    scopeOf: (globs) => ground.scopeOf(globs),
    trusted: (caller) => suppliers.trusted(caller),
  };
}

/** Whether a key with these globs can use a model: `owner/name` for one, `owner/*` for all of an owner, none for every model. */
export function inScope(globs: readonly string[], slug: string): boolean {
  return (
    globs.length === 0 ||
    globs.some((glob) => glob === slug || glob === "*" || (glob.endsWith("/*") && slug.startsWith(glob.slice(0, -1))))
  );
}

/** A number of each offering, by the name of its column. */
export type OfferingNumbers<K extends string> = Readonly<Record<K, (offering: Offering) => number>>;

const priceOf = (contract: Contract) => (offering: Offering) => offering.priceNano[contract] ?? 0;

/** Every column of numbers; what is not known is Infinity where less is better, and 0 where more is. */
export const NUMBERS: {
  readonly plain: OfferingNumbers<"maxHorizon" | "chunk" | "precisionBits" | "measured" | "wakeMicro" | "warmMs">;
  /** One for each contract, in their order. */
  readonly priceNano: readonly ((offering: Offering) => number)[];
  readonly advertised: OfferingNumbers<keyof Columns["advertised"]>;
} = {
  plain: {
    maxHorizon: ({ maxHorizon }) => maxHorizon,
    chunk: ({ chunk, maxHorizon }) => Math.min(chunk ?? DEFAULT_HORIZON, maxHorizon),
    precisionBits: ({ precision }) => precisionBits(precision),
    measured: ({ measured }) => measured?.length ?? 0,
    wakeMicro: ({ coldTimeoutMs, costNanoPerSecond }) =>
      Math.round(((coldTimeoutMs ?? 0) / 1000) * (costNanoPerSecond / 1000)),
    warmMs: ({ scaledownS }) => (scaledownS === undefined ? Number.POSITIVE_INFINITY : scaledownS * 1000),
  },
  priceNano: Object.values(Contract).map(priceOf),
  advertised: {
    p50Ms: ({ advertised }) => advertised.p50Ms ?? advertised.p95Ms ?? Number.POSITIVE_INFINITY,
    p95Ms: ({ advertised }) => advertised.p95Ms ?? advertised.p50Ms ?? Number.POSITIVE_INFINITY,
    // Waking that was not said to take time takes none.
    coldMs: ({ coldTimeoutMs, advertised }) =>
      coldTimeoutMs ?? advertised.p50Ms ?? advertised.p95Ms ?? Number.POSITIVE_INFINITY,
    unitsPerS: ({ advertised }) => advertised.unitsPerS ?? 0,
    uptime: ({ advertised }) => advertised.uptime30d ?? 0,
    judgedP95Ms: ({ advertised, probed }) => advertised.p95Ms ?? probed?.p95Ms ?? Number.POSITIVE_INFINITY,
    judgedUptime: ({ advertised, probed }) => advertised.uptime30d ?? probed?.uptime ?? 0,
  },
};

/** Columns with so many rows and nothing in them. */
export function* emptyColumns(rows: number): Sliced<Columns> {
  const codes = ["model", "provider", "region", "traits", "supplier", "bodies", "declared", "kind"] as const;
  const words = {} as Record<(typeof codes)[number], Uint32Array>;
  for (const name of codes) words[name] = new Uint32Array(rows);
  yield;
  const priceNano: Float64Array[] = [];
  for (const _ of NUMBERS.priceNano) priceNano.push(new Float64Array(rows));
  yield;
  const plain = emptyEach(NUMBERS.plain, rows);
  yield;
  return { ...words, ...plain, priceNano, advertised: emptyEach(NUMBERS.advertised, rows) };
}

function emptyEach<K extends string>(numbers: OfferingNumbers<K>, rows: number): Record<K, Float64Array> {
  const columns = {} as Record<K, Float64Array>;
  for (const name of Object.keys(numbers) as K[]) columns[name] = new Float64Array(rows);
  return columns;
}

/** Writes all columns of an offering into a row that was not read yet. */
export function writeRow(columns: Columns, ground: Ground, row: number, offering: Offering): void {
  const provider = ground.providers.of(offering.provider);
  const region = ground.regions.add(offering.region);
  const traits = traitsOf(offering);
  const bodies = bodiesOf(offering);
  columns.model[row] = ground.models.of(offering.model);
  columns.provider[row] = provider;
  columns.region[row] = region;
  columns.traits[row] = traits;
  columns.supplier[row] = supplierCode(provider, offering.supplier);
  columns.bodies[row] = bodies;
  columns.declared[row] = ground.declaredOf(offering.declared);
  columns.kind[row] = ground.kindOf(provider, region, bodies, traits);
  writeNumbers(columns, NUMBERS.plain, row, offering);
  writeNumbers(columns.advertised, NUMBERS.advertised, row, offering);
  for (let i = 0; i < columns.priceNano.length; i++) columns.priceNano[i]![row] = NUMBERS.priceNano[i]!(offering);
}

function writeNumbers<K extends string>(
  columns: Readonly<Record<K, Float64Array>>,
  numbers: OfferingNumbers<K>,
  row: number,
  offering: Offering,
): void {
  for (const name in numbers) columns[name][row] = numbers[name](offering);
}

/** The bits of one number at a precision: `bf16` and `fp16` 16, `int8` 8. */
function precisionBits(precision: string): number {
  return Math.min(64, Number(/\d+/.exec(precision)?.[0] ?? 0));
}

/** Everything about an offering that is a yes or a no. */
export function traitsOf({
  contracts,
  actionSpaces,
  parameters,
  simulated,
  retainsFrames,
  supplier,
  signed,
}: Offering): number {
  const bits =
    parameterBits(parameters) |
    (signed ? Flag.SIGNED : 0) |
    (supplier.ownsName ? Flag.OWNS_NAME : 0) |
    (simulated ? Flag.SIMULATED : 0) |
    (retainsFrames ? Flag.RETAINS_FRAMES : 0);
  return bits | servedBits(contracts, actionSpaces);
}

/** The bodies that an offering is made for. One for any body is one for each. */
export function bodiesOf({ embodiments }: Offering): number {
  let bits = 0;
  for (const word of embodiments) bits |= BODIES.get(word) ?? 0;
  return bits;
}

/** The bits of a word. Without a body there is nothing that `agnostic` would stand for. */
const BODIES: ReadonlyMap<string, number> = new Map(
  Object.entries(EMBODIMENTS).map(([word, body]) => [
    word,
    body === Embodiment.AGNOSTIC ? BODY_SETS - 1 - bodyBit(Embodiment.NONE) : bodyBit(body),
  ]),
);

/** The part of it that says what it serves. */
export function servedBits(contracts: readonly Contract[], actionSpaces: readonly string[]): number {
  let bits = 0;
  for (const contract of contracts) bits |= servesBits(contract, undefined);
  for (const space of actionSpaces) bits |= servesBits(Contract.UNSPECIFIED, space);
  return bits;
}

/** For every eighth row there is a spare one, and some for a supply that is small. */
const roomFor = (rows: number): number => rows + (rows >> 3) + 64;

/** Rows and codes. A used row is never reassigned, so that a snapshot in use does not change. */
export class Ground {
  /** How many rows there are, taken or not: the length of every column. */
  readonly room: number;
  /** Every model and every provider there may be. */
  readonly models: Names;
  readonly providers: Names;
  readonly regions: Names;
  /** Of offerings. */
  readonly ids: Names;
  /** What offerings say that they read, by code; the first says nothing. */
  readonly declared: (DeclaredInput | undefined)[] = [undefined];
  readonly #declared = new Map<string, number>();
  readonly #kinds = new Map<number, Map<number, number>>();
  #kindCount = 0;
  #taken: number;
  readonly #scopes = new WeakMap<readonly string[], Uint8Array>();

  /** The ground of a snapshot with so many rows. */
  constructor(rows: number, models: Names, providers: Names) {
    this.room = roomFor(rows);
    this.models = models;
    this.providers = providers;
    this.regions = new Names(this.room);
    this.ids = new Names(this.room);
    this.#taken = rows;
  }

  /** How many rows are left to take. */
  get spare(): number {
    return this.room - this.#taken;
  }

  /** Returns an unused row. Throws a RangeError if none is left. */
  take(): number {
    if (this.spare === 0) throw new RangeError("no row is left");
    return this.#taken++;
  }

  /** The code of what an offering says that it reads; 0 where it says nothing. */
  declaredOf(declared: DeclaredInput | undefined): number {
    if (declared === undefined) return 0;
    const known = this.#declared.get(declared.key);
    if (known !== undefined) return known;
    const code = this.declared.push(declared) - 1;
    this.#declared.set(declared.key, code);
    return code;
  }

  /** The kind of a provider and a region, by their codes, with these bodies and traits. */
  kindOf(provider: number, region: number, bodies: number, traits: number): number {
    let known = this.#kinds.get(traits);
    if (!known) {
      known = new Map();
      this.#kinds.set(traits, known);
    }
    const place = (provider * this.room + region) * BODY_SETS + bodies;
    let kind = known.get(place);
    if (kind === undefined) {
      kind = this.#kindCount++;
      known.set(place, kind);
    }
    return kind;
  }

  /** By model code: 1 where a key with these globs may use the model. */
  scopeOf(globs: readonly string[]): Uint8Array {
    let allowed = this.#scopes.get(globs);
    if (!allowed) {
      allowed = Uint8Array.from(this.models.names, (slug) => (inScope(globs, slug) ? 1 : 0));
      this.#scopes.set(globs, allowed);
    }
    return allowed;
  }
}

interface List {
  readonly alias: Alias;
  /** What every row in it serves, plus the placeholder flag if placeholders are unwanted; the flag is not among the requested bits. */
  readonly wanted: number;
  readonly candidates: Candidates;
  /** A plan has started with it. */
  asked: boolean;
}

/** How many rows are looked at between two yields. */
const STEPS = 4096;

/** Lists of one snapshot: made when a plan asks for them first, or beforehand. */
export class Serving {
  readonly #columns: Pick<Columns, "traits" | "kind">;
  readonly #aliased: ReadonlyMap<Alias, Uint32Array>;
  readonly #lists = new Map<string, Map<number, List>>();

  constructor(columns: Pick<Columns, "traits" | "kind">, aliased: ReadonlyMap<Alias, Uint32Array>) {
    this.#columns = columns;
    this.#aliased = aliased;
  }

  /** How many lists are made. */
  get size(): number {
    return [...this.#lists.values()].reduce((sum, lists) => sum + lists.size, 0);
  }

  /** The rows of an alias that serve all of `bits`, with or without placeholders. */
  of(alias: Alias, bits: number, simulated: boolean): Candidates {
    const wanted = simulated ? bits : bits | Flag.SIMULATED;
    const list = this.#lists.get(alias.id)?.get(wanted) ?? atOnce(this.#listing(alias, wanted));
    list.asked = true;
    return list.candidates;
  }

  /** Builds the lists that plans requested on another snapshot, so that no plan on this one has to build them first. */
  *warming(before: Serving): Sliced<void> {
    yield* this.taking(before, () => true);
  }

  /** The same, where lists that are not `touched` hold what they held. */
  *taking(before: Serving, touched: (alias: Alias, wanted: number) => boolean): Sliced<void> {
    for (const lists of before.#lists.values()) {
      for (const list of lists.values()) {
        const { alias, wanted, asked } = list;
        if (!asked || this.#lists.get(alias.id)?.has(wanted)) continue;
        if (touched(alias, wanted)) yield* this.#listing(alias, wanted);
        else this.#keep({ ...list, asked: false });
      }
    }
  }

  /** Rows and their kinds, numbered as they come. */
  *#listing(alias: Alias, wanted: number): Sliced<List> {
    const { traits, kind } = this.#columns;
    const all = this.#aliased.get(alias)!;
    const bits = bitsOf(wanted);
    let count = 0;
    for (let i = 0; i < all.length; i++) {
      if (i % STEPS === STEPS - 1) yield;
      if ((traits[all[i]!]! & wanted) === bits) count++;
    }
    const rows = new Uint32Array(count);
    const kinds = new Uint32Array(count);
    const numbers = new Map<number, number>();
    const samples: number[] = [];
    let place = 0;
    for (let i = 0; i < all.length; i++) {
      if (i % STEPS === STEPS - 1) yield;
      const row = all[i]!;
      if ((traits[row]! & wanted) !== bits) continue;
      let number = numbers.get(kind[row]!);
      if (number === undefined) {
        number = samples.push(row) - 1;
        numbers.set(kind[row]!, number);
      }
      rows[place] = row;
      kinds[place++] = number;
    }
    const list = { alias, wanted, candidates: { rows, kinds, samples: Uint32Array.from(samples) }, asked: false };
    this.#keep(list);
    yield;
    return list;
  }

  #keep(list: List): void {
    const lists = this.#lists.get(list.alias.id);
    if (lists) lists.set(list.wanted, list);
    else this.#lists.set(list.alias.id, new Map([[list.wanted, list]]));
  }
}

/** Required bits among the checked ones. */
export const bitsOf = (wanted: number): number => wanted & ~Flag.SIMULATED;

/** The calling organization, and how far its request reaches. */
interface Caller {
  /** Its organization. */
  readonly orgId: string;
  readonly reach: Reach;
  /** Whether it names a model exactly, not an alias. */
  readonly isNamed: boolean;
  /** Named providers whose community supply can therefore serve it; absent if it must not or names none. */
  readonly providers?: readonly string[] | undefined;
}

/** Codes of one provider. */
const CODES = 8;
const STANDINGS: readonly Standing[] = ["community", "verified", "rejected"];

/** The code of a supplier, by the code of its provider. */
const supplierCode = (provider: number, { standing, ownsName }: Supplier): number =>
  provider * CODES + STANDINGS.indexOf(standing) * 2 + (ownsName ? 1 : 0);

/** Marks of one snapshot, made when they are first asked for. */
class TrustedSuppliers {
  readonly #parts: Pick<SnapshotParts, "ground" | "offerings" | "order" | "columns">;
  /** By code, an offering of that supplier; made once. */
  #samples: Map<number, Offering> | undefined;
  /** By organization: codes of its own suppliers. */
  readonly #own = new Map<string, number[]>();
  /** By reach and whether models are named: what an organization without own supply can use; undefined for everything. */
  readonly #strangers = new Map<number, Uint8Array | undefined>();

  constructor(parts: Pick<SnapshotParts, "ground" | "offerings" | "order" | "columns">) {
    this.#parts = parts;
  }

  trusted({ orgId, reach, isNamed, providers }: Caller): Uint8Array | undefined {
    const shared = this.#ofStrangers(reach, isNamed);
    if (shared === undefined) return undefined;
    const own = this.#own.get(orgId);
    if (own === undefined && !providers?.length) return shared;
    const marks = shared.slice();
    for (const code of own ?? []) marks[code] = 1;
    for (const name of providers ?? []) {
      const provider = this.#parts.ground.providers.of(name);
      if (provider < 0) continue;
      for (const ownsName of [false, true])
        marks[supplierCode(provider, { orgId: "", standing: "community", ownsName })] = 1;
    }
    return marks;
  }

  #ofStrangers(reach: Reach, isNamed: boolean): Uint8Array | undefined {
    const name = reach * 2 + Number(isNamed);
    if (this.#strangers.has(name)) return this.#strangers.get(name);
    const samples = this.#sampled();
    const marks = new Uint8Array(this.#parts.ground.providers.names.length * CODES);
    let isWhole = true;
    for (const [code, { supplier }] of samples) {
      if (mayServe(supplier, NO_ORG, reach, isNamed)) marks[code] = 1;
      else isWhole = false;
    }
    const made = isWhole ? undefined : marks;
    this.#strangers.set(name, made);
    return made;
  }

  #sampled(): ReadonlyMap<number, Offering> {
    if (this.#samples) return this.#samples;
    const { order, columns, offerings } = this.#parts;
    const samples = new Map<number, Offering>();
    for (const row of order) {
      const code = columns.supplier[row]!;
      if (samples.has(code)) continue;
      const offering = offerings[row]!;
      samples.set(code, offering);
      const { orgId } = offering.supplier;
      const own = this.#own.get(orgId);
      if (own) own.push(code);
      else this.#own.set(orgId, [code]);
    }
    this.#samples = samples;
    return samples;
  }
}

/** Stands for an organization without supply. */
const NO_ORG = "-";

/** Names numbered from 0 in the order in which they came; equal names have one number. */
export class Names {
  /** By number. Written only here. */
  readonly names: string[] = [];
  /** By hash: a name's number plus one, at its place or at the next free one behind it; 0 is free. */
  readonly #slots: Uint32Array;
  readonly #mask: number;

  /** Takes up to `most` names. */
  constructor(most: number) {
    const slots = 2 ** Math.ceil(Math.log2(2 * most + 2));
    this.#slots = new Uint32Array(slots);
    this.#mask = slots - 1;
  }

  /** The number of a name, or -1. */
  of(name: string): number {
    return this.#slots[this.#placeOf(name)]! - 1;
  }

  /** Returns the number of a name and assigns one if needed. Throws a RangeError if no number is left. */
  add(name: string): number {
    const place = this.#placeOf(name);
    const known = this.#slots[place]!;
    if (known > 0) return known - 1;
    if (this.names.length > this.#mask >> 1) throw new RangeError("more names than there is room for");
    const count = this.names.push(name);
    this.#slots[place] = count;
    return count - 1;
  }

  #placeOf(name: string): number {
    let place = hashOf(name) & this.#mask;
    for (;;) {
      const slot = this.#slots[place]!;
      if (slot === 0 || this.names[slot - 1] === name) return place;
      place = (place + 1) & this.#mask;
    }
  }
}

/** How many names are looked at between two yields. */
const STRIDE = 128;

/** The numbers of the names of `all`, in order: those of `before` itself where they are the same. */
export function* naming<T>(all: ArrayLike<T>, nameOf: (each: T) => string, before: Names): Sliced<Names> {
  let same = before.names.length === all.length;
  for (let i = 0; same && i < all.length; i++) {
    same = before.names[i] === nameOf(all[i]!);
    if (i % STRIDE === 0) yield;
  }
  if (same) return before;
  const names = new Names(all.length);
  for (let i = 0; i < all.length; i++) {
    names.add(nameOf(all[i]!));
    if (i % STRIDE === 0) yield;
  }
  return names;
}

/** FNV-1a over the letters, its upper bits folded into those that count. */
function hashOf(name: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return hash ^ (hash >>> 15);
}
