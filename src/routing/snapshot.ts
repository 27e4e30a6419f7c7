/** What the router knows at one moment: every offering as columns, and the lists that a plan starts from. Immutable. */
import { ACTION_SPACES } from "../contracts/action-spaces.ts";
import { type Contract, PARAMETERS } from "../contracts/contract.ts";
import { EMBODIMENTS, type Embodiment } from "../contracts/embodiments.ts";
import type { Alias } from "./aliases.ts";
import type { CatalogModel, Offering } from "./offering.ts";
import type { Serving } from "./serving.ts";

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

/** Bits of the column `traits` beside those of `servesBits` and `parameterBits`. */
export const Flag = { SIMULATED: 1 << 29, RETAINS_FRAMES: 1 << 30 } as const;

/**
 * One array per fact, one row per offering. Rows that a plan reads together lie together: live supply by contract and
 * action space first, placeholders last.
 */
export interface Columns {
  /** Codes of names: equal where the names are equal. */
  readonly model: Uint32Array;
  readonly provider: Uint32Array;
  readonly region: Uint32Array;
  /** Everything that is a yes or a no, so that one look answers every such question: see `Flag`, `servesBits`, `parameterBits`. */
  readonly traits: Uint32Array;
  /** The bodies that it is made for, a bit each: see `bodyBit`. */
  readonly bodies: Uint32Array;
  /** A code of provider, region, bodies and traits together: whoever asks for these alone need ask each kind but once. */
  readonly kind: Uint32Array;
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
  /** What providers say of themselves, in the form in which it is measured: see `HealthView`. */
  readonly advertised: Readonly<Record<"p50Ms" | "p95Ms" | "coldMs" | "unitsPerS" | "uptime", Float64Array>>;
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

/** A moment's supply, ready to plan from. */
export interface Snapshot {
  /** What it was made from beside offerings. */
  readonly source: Pick<Supply, "catalog" | "providers">;
  /** Every row's offering; placeholders for the catalog's unserved models follow the offerings that were given. */
  readonly offerings: readonly Offering[];
  readonly columns: Columns;
  /** Rows below are live or registered; rows from here on are the catalog's placeholders. */
  readonly registered: number;
  readonly models: Codes;
  readonly providers: Codes;
  readonly regions: Codes;
  /** How many models the catalog has. */
  readonly catalogued: number;
  /** What the catalog knows of a model. */
  catalogModel(slug: string): CatalogModel | undefined;
  /** The row of an offering, or -1. */
  rowOf(offeringId: string): number;
  /** Rows of a model, or undefined when no offering and no placeholder bears its slug. */
  rowsOfModel(slug: string): Uint32Array | undefined;
  /** Rows that an alias stands for. */
  rowsOfAlias(alias: Alias): Uint32Array;
  /** The lists that plans asked for. */
  readonly lists: Serving;
  /** Those of them that serve all of `bits`; with placeholders or without. */
  serving(alias: Alias, bits: number, simulated: boolean): Candidates;
  /** By model code: 1 where a key with these globs may use the model. */
  scopeOf(globs: readonly string[]): Uint8Array;
}

/** Whether a key with these globs may use a model: `owner/name` for one, `owner/*` for all of an owner, none for every model. */
export function inScope(globs: readonly string[], slug: string): boolean {
  return (
    globs.length === 0 ||
    globs.some((glob) => glob === slug || glob === "*" || (glob.endsWith("/*") && slug.startsWith(glob.slice(0, -1))))
  );
}
