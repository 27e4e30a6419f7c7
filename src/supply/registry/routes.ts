/** The route listing: which aliases live supply can serve, and with what. */
import { create } from "@bufbuild/protobuf";
import { Preference, SortAxis } from "../../../gen/limber/v1/preferences_pb.ts";
import {
  type AliasListing,
  AliasListingSchema,
  type Domain,
  type Model,
  type ModelSummary,
  ModelSummarySchema,
} from "../../../gen/limber/v1/registry_pb.ts";
import { type ListRoutesResponse, ListRoutesResponseSchema } from "../../../gen/limber/v1/registry_service_pb.ts";
import { ALIAS_PREFIX } from "../../brand.ts";
import type { Contract } from "../../contracts/contract.ts";
import {
  ALIASES,
  type Alias,
  type Axis,
  type Offering,
  type Snapshot,
  standsFor,
  VARIANTS,
} from "../../routing/index.ts";
import type { Sliced } from "../../slices.ts";
import { listedInput } from "./shared-input.ts";
import { DOMAINS, valuesIn } from "./words.ts";

const PREFERENCES = [
  { value: Preference.BALANCED, description: "Spreads load across healthy offerings, weighted toward cheaper ones" },
  { value: Preference.FASTEST, description: "Lowest measured latency first" },
  { value: Preference.CHEAPEST, description: "Lowest cost per action step or frame first" },
  { value: Preference.RELIABLE, description: "Highest uptime and precision first; price ignored" },
];

const SORTS: Readonly<Record<Axis, SortAxis>> = {
  price: SortAxis.PRICE,
  latency: SortAxis.LATENCY,
  throughput: SortAxis.THROUGHPUT,
  reliability: SortAxis.QUALITY,
  quality: SortAxis.QUALITY,
};

const NOTE =
  "Only live supply serves calls. The other models of the catalog answer with placeholders, and only where provider.allow_simulated asks for them.";

/** A model and its offerings, from which a route listing is made. */
export interface Routable {
  readonly model: Model;
  readonly live: readonly Offering[];
  /** What listings said of it, by their contract. */
  readonly routed: Map<Contract | undefined, RoutedOffering | undefined>;
}

/** How a listing sums a model up: as a whole, and as each alias stands for it, in the order of `ALIASES`. */
interface RoutedOffering {
  readonly whole: ModelSummary;
  readonly byAlias: readonly (ModelSummary | undefined)[];
}

/** What a route listing is made from. */
interface RouteParts {
  snapshot: Snapshot;
  /** Every model of the registry, by slug. */
  models: readonly Routable[];
}

/** The route listing of a snapshot: of one contract, or of all. */
export function* routesOf(deps: RouteParts, contract: Contract | undefined): Sliced<ListRoutesResponse> {
  const { snapshot, models } = deps;
  const resolved = ALIASES.map((alias) => ({ alias, resolvesTo: [] as ModelSummary[] }));
  const served: ModelSummary[] = [];
  for (let i = 0; i < models.length; i++) {
    const each = models[i]!;
    if (!each.routed.has(contract)) each.routed.set(contract, routedOf(each, contract));
    const routed = each.routed.get(contract);
    if (routed) {
      served.push(routed.whole);
      for (let j = 0; j < resolved.length; j++) {
        const summary = routed.byAlias[j];
        if (summary) resolved[j]!.resolvesTo.push(summary);
      }
    }
    if (i % 16 === 0) yield;
  }
  const aliases = resolved
    .filter(({ resolvesTo }) => resolvesTo.length > 0)
    .map(({ alias, resolvesTo }) => aliasListing(alias, resolvesTo));
  yield;
  return create(ListRoutesResponseSchema, {
    object: "list",
    aliases,
    variants: VARIANTS.map(({ suffix, description }) => ({
      suffix,
      description,
      example: `${ALIAS_PREFIX}auto${suffix}`,
    })),
    preferences: PREFERENCES,
    live: {
      models: served.map(({ id }) => id),
      providers: sorted(served, (model) => model.providers),
      contracts: sorted(served, (model) => model.contracts),
      actionSpaces: sorted(served, (model) => model.actionSpaces),
      catalogModels: snapshot.catalogued,
      note: NOTE,
    },
    data: aliases,
  });
}

/** Of a model that nothing live serves there is nothing to say. */
function routedOf({ model, live }: Routable, contract: Contract | undefined): RoutedOffering | undefined {
  const serving = live.filter(({ contracts }) => contract === undefined || contracts.includes(contract));
  if (serving.length === 0) return undefined;
  const whole = summaryOf(model, serving);
  const byAlias = ALIASES.map((alias) => {
    const some = serving.filter((offering) => standsFor(alias, offering));
    if (some.length === 0) return undefined;
    return some.length === serving.length ? whole : summaryOf(model, some);
  });
  return { whole, byAlias };
}

const summaryOf = ({ id, name, vendor }: Model, served: readonly Offering[]): ModelSummary =>
  create(ModelSummarySchema, {
    id,
    name,
    vendor,
    contracts: sorted(served, ({ contracts }) => contracts),
    actionSpaces: sorted(served, ({ actionSpaces }) => actionSpaces),
    providers: sorted(served, ({ provider }) => [provider]),
    ...listedInput(served),
  });

function aliasListing({ id, description, filter, sort }: Alias, resolvesTo: ModelSummary[]): AliasListing {
  const { contract, domain, family } = filter;
  const [known] = valuesIn<Domain>(DOMAINS, domain === undefined ? [] : [domain]);
  return create(AliasListingSchema, {
    id,
    description,
    filter: {
      ...(contract !== undefined && { contract }),
      ...(known !== undefined && { domain: known }),
      ...(family !== undefined && { family }),
    },
    ...(sort && { sort: SORTS[sort] }),
    resolvesTo,
  });
}

/** Everything that some have, each once: numbers by size, words by letter. */
function sorted<T, U extends string | number>(all: readonly T[], of: (each: T) => readonly U[]): U[] {
  const each = new Set<U>();
  for (const one of all) for (const value of of(one)) each.add(value);
  return [...each].sort((a, b) => (a < b ? -1 : 1));
}
