/** What the router knows of an offering: the facts that a plan is made from. */
import type { Contract } from "../contracts/contract.ts";
import type { DeclaredInput } from "../contracts/declared-input.ts";
import type { Supplier } from "../contracts/trust.ts";

/** One offering as a snapshot holds it. Immutable; a change makes a new snapshot. */
export interface Offering {
  readonly id: string;
  /** Slug of its model. */
  readonly model: string;
  /** Name of its provider. */
  readonly provider: string;
  readonly supplier: Supplier;
  readonly region: string;
  readonly precision: string;
  readonly contracts: readonly Contract[];
  readonly actionSpaces: readonly string[];
  /** Numbers per step in spaces that do not fix a dimension. */
  readonly actionDim: number | undefined;
  /** What it says that it reads, and that its actions mean; absent where it says neither. Equal ones are one object. */
  readonly declared?: DeclaredInput | undefined;
  /** The bodies that it is made for; empty where neither it nor its model says. */
  readonly embodiments: readonly string[];
  /** Domain and family of its model, for aliases. */
  readonly domain: string;
  readonly family: string;
  /** Answers with placeholders; never called, never live supply. */
  readonly simulated: boolean;
  /** List price per unit in nano-dollars, per contract that it serves: act per step, predict per frame, ground per token. */
  readonly priceNano: Readonly<Partial<Record<Contract, number>>>;
  /** Most units in one answer. */
  readonly maxHorizon: number;
  /** Steps of the chunk that its server always answers; absent where it answers as many as it is asked for. */
  readonly chunk?: number;
  readonly dtMs: number;
  /** Request parameters that it honours, such as `seed`. */
  readonly parameters: readonly string[];
  readonly retainsFrames: boolean;
  /** Its model's maker signed its checkpoint, its input contract and its bounds. */
  readonly signed?: boolean;
  /** The SHA-256 of the weights that it says it serves; absent where it declares no checkpoint. */
  readonly revision?: string;
  readonly advertised: {
    readonly p50Ms: number | undefined;
    readonly p95Ms: number | undefined;
    readonly unitsPerS: number | undefined;
    readonly uptime30d: number | undefined;
  };
  /** What its last probe measured; undefined where nothing was. The share is of probes since the last that passed, which counts. */
  readonly probed?: { readonly p95Ms: number | undefined; readonly uptime: number | undefined } | undefined;
  /** Cost of its accelerator, nano-dollars per second; what a wake-up is priced by. */
  readonly costNanoPerSecond: number;
  /** Seconds of idleness after which it is scaled to zero; undefined when nothing is paid or waited for then. */
  readonly scaledownS: number | undefined;
  /** Budget of one attempt in milliseconds. */
  readonly timeoutMs: number;
  /** Milliseconds that waking it takes at most: the budget of an attempt that does, and its price; undefined where none was declared. */
  readonly coldTimeoutMs: number | undefined;
}

/** A model of the catalog, served or not. */
export interface CatalogModel {
  readonly slug: string;
  readonly contracts: readonly Contract[];
  readonly actionSpaces: readonly string[];
  readonly embodiments: readonly string[];
  readonly domain: string;
  readonly family: string;
}
