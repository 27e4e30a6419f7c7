/** What the router knows of an offering, and the aliases and variants that stand for offerings. */

import { ALIAS_PREFIX } from "../brand.ts";
import { Contract } from "../contracts/contract.ts";
import type { DeclaredInput } from "../contracts/inputs.ts";
import type { Supplier } from "../contracts/trust.ts";

/** A published evaluation of an offering in one scenario. */
export interface Measured {
  readonly publicationId: string;
  readonly scenario: string;
  readonly actionSpace: string;
  /** The scenario's task family, such as `manipulation`. */
  readonly task: string;
  readonly successes: number;
  readonly episodes: number;
  /** Lower bound of the success rate. */
  readonly low: number;
}

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
  /** Steps of the chunk that its server always returns; absent if it returns the requested number. */
  readonly chunk?: number;
  readonly dtMs: number;
  /** Request parameters that it honors, such as `seed`. */
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
  /** Published evaluations that count for its quality, one per scenario; absent where there are none. */
  readonly measured?: readonly Measured[];
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

/** An axis that a plan can be ordered by. Every axis is "lower is better" inside. */
export type Axis = "price" | "latency" | "throughput" | "reliability" | "quality";

/** A router alias: a named job in place of a model. */
export interface Alias {
  readonly id: string;
  readonly description: string;
  /** What its offerings have in common; empty for all. */
  readonly filter: { readonly contract?: Contract; readonly domain?: string; readonly family?: string };
  /** How it orders unless the request says otherwise. */
  readonly sort?: Axis;
}

/** Each alias's task family: only evaluations of these tasks count for the quality of its offerings. */
const TASKS: ReadonlyMap<string, string> = new Map([[`${ALIAS_PREFIX}auto:manipulation`, "manipulation"]]);

/** The evaluations that count for an offering's quality in an action space, for an alias or a model. */
export function evaluationsOf(
  { measured = [] }: Offering,
  actionSpace: string | undefined,
  alias: Alias | undefined,
): readonly Measured[] {
  const task = alias && TASKS.get(alias.id);
  return measured.filter((each) => each.actionSpace === actionSpace && (task === undefined || each.task === task));
}

const alias = (name: string, description: string, filter: Alias["filter"] = {}, sort?: Axis): Alias => ({
  id: ALIAS_PREFIX + name,
  description,
  filter,
  ...(sort && { sort }),
});

/** Every router alias. Source: specification, "Router aliases". */
export const ALIASES: readonly Alias[] = [
  alias("auto", "The best offering for the request by contract, embodiment, action space and price"),
  alias("fastest", "The offering with the lowest measured latency", {}, "latency"),
  alias("cheapest", "The offering with the lowest price", {}, "price"),
  alias("ground", "Points and boxes in an image", { contract: Contract.GROUND }),
  alias("auto:embodied", "Models of the domain embodied", { domain: "embodied" }),
  alias("auto:general", "Models of the domain general", { domain: "general" }),
  alias("auto:foundation", "Models of the family foundation", { family: "foundation" }),
  alias("auto:manipulation", "Models of the family manipulation", { family: "manipulation" }),
  alias("auto:vla", "Vision-language-action models", { family: "vla" }),
  alias("auto:vision-3d", "Models of the family vision-3d", { family: "vision-3d" }),
];

/** Whether an alias stands for an offering. */
export function standsFor({ filter }: Alias, offering: Offering): boolean {
  return (
    (filter.contract === undefined || offering.contracts.includes(filter.contract)) &&
    (filter.domain === undefined || offering.domain === filter.domain) &&
    (filter.family === undefined || offering.family === filter.family)
  );
}

/** Whether an alias stands for every offering. */
export const standsForAll = ({ filter }: Alias): boolean => Object.keys(filter).length === 0;

/** A suffix to a slug or alias that orders the plan. */
export interface ModelVariant {
  /** With its colon, such as `:turbo`. */
  readonly suffix: string;
  readonly description: string;
  readonly axis: Axis;
}

/** Every variant suffix. Source: specification, "Model identifiers". */
export const VARIANTS: readonly ModelVariant[] = [
  { suffix: ":nitro", description: "Highest frames per second; for batch rollouts", axis: "throughput" },
  { suffix: ":turbo", description: "Lowest time to first frame; for closed-loop control", axis: "latency" },
  { suffix: ":floor", description: "Cheapest offering that can serve the request", axis: "price" },
  {
    suffix: ":quality",
    description: "Highest success in published evaluations, then precision and uptime; price ignored",
    axis: "quality",
  },
];

const aliasById = new Map(ALIASES.map((entry) => [entry.id, entry]));
const variantBySuffix = new Map(VARIANTS.map((entry) => [entry.suffix, entry]));

/** Finds an alias; undefined if unknown. */
export const aliasOf = (id: string): Alias | undefined => aliasById.get(id);

/** A model identifier, taken apart. */
interface ModelName {
  /** Slug or alias without the suffix. */
  readonly base: string;
  readonly variant: ModelVariant | undefined;
}

/** Takes a known suffix off the right; every other colon belongs to the name, as in `service/auto:vla:turbo`. */
export function parseModelName(name: string): ModelName {
  const colon = name.lastIndexOf(":");
  const variant = colon < 0 ? undefined : variantBySuffix.get(name.slice(colon));
  return variant ? { base: name.slice(0, colon), variant } : { base: name, variant: undefined };
}
