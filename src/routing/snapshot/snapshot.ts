/** What the router knows at one moment: every offering as columns, and the lists that a plan starts from. Immutable. */
import { ACTION_SPACES } from "../../contracts/action-spaces.ts";
import { type Contract, PARAMETERS } from "../../contracts/contract.ts";
import { EMBODIMENTS, type Embodiment } from "../../contracts/embodiments.ts";
import type { Alias } from "../aliases.ts";
import type { CatalogModel, Offering } from "../offering.ts";
import type { Ground } from "./base-table.ts";
import type { Serving } from "./serving.ts";
import { type Caller, TrustedSuppliers } from "./suppliers.ts";

/** What a snapshot is made from. */
export interface RoutingSupply {
  /** Every routable offering. */
  readonly offerings: readonly Offering[];
  /** Every model of the catalog, served or not. */
  readonly catalog: readonly CatalogModel[];
  /** Every provider's name, with or without offerings. */
  readonly providers: readonly string[];
}

/** The provider of placeholders for catalogued models that no offering serves. */
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

/** The bits of `traits` that an offering needs to honour these. */
export function parameterBits(names: readonly string[]): number {
  let bits = 0;
  for (let i = 0; i < PARAMETERS.length; i++)
    if (names.includes(PARAMETERS[i]!)) bits |= 1 << (FIRST_PARAMETER_BIT + i);
  return bits;
}

/** Rows that a plan starts from, and of which kinds they are: rows of one kind have one provider, one region, the same bodies and the same traits. */
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
export interface SnapshotParts {
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

/** A moment's supply, ready to plan from. */
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
  /** By model code: 1 where a key with these globs may use the model. */
  scopeOf(globs: readonly string[]): Uint8Array;
  /** Whose offerings may serve: by code of `columns.supplier` 1 where they may; undefined where all may. */
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

/** Whether a key with these globs may use a model: `owner/name` for one, `owner/*` for all of an owner, none for every model. */
export function inScope(globs: readonly string[], slug: string): boolean {
  return (
    globs.length === 0 ||
    globs.some((glob) => glob === slug || glob === "*" || (glob.endsWith("/*") && slug.startsWith(glob.slice(0, -1))))
  );
}
