/** The registry in memory: everything that its listings say, made once for each state of the supply and the catalog. */

import { create } from "@bufbuild/protobuf";
import { Preference, SortAxis } from "../../../gen/limber/v1/preferences_pb.ts";
import {
  type ActionSpaceLayout,
  type AliasListing,
  AliasListingSchema,
  type Domain,
  type FacetValues,
  type Literature,
  type Model,
  type ModelSummary,
  ModelSummarySchema,
  type ProviderListing,
  type Scenario,
} from "../../../gen/limber/v1/registry_pb.ts";
import { type ListRoutesResponse, ListRoutesResponseSchema } from "../../../gen/limber/v1/registry_service_pb.ts";
import { ALIAS_PREFIX } from "../../brand.ts";
import type { Contract } from "../../contracts/contract.ts";
import {
  ALIASES,
  type Alias,
  type Axis,
  Names,
  naming,
  type Offering,
  type Snapshot,
  sorting,
  standsFor,
  VARIANTS,
} from "../../routing/index.ts";
import type { Scenario as RunScenario } from "../../scenarios/scenario.ts";
import { atOnce, inSlices, pause, type Sliced } from "../../slices.ts";
import { type Catalog, type CatalogEntry, NO_CATALOG } from "../../store/supply/catalog.ts";
import type { ModelRecord, SupplyRecord } from "../../store/supply/supply.ts";
import type { LiveSupply } from "../live-supply.ts";
import {
  DOMAINS,
  entryOf,
  type Facet,
  facetsOf,
  layoutsOf,
  listedInput,
  literatureOf,
  mapped,
  providersOf,
  type RegistryEntry,
  runScenarioOf,
  scenarioOf,
  valuesIn,
} from "./entry.ts";
import { indexing, type SearchIndex } from "./search.ts";

/** The registry as of one moment. What answers with a promise is made when it is first asked for, in slices. */
export interface RegistryView {
  /** Every model, by slug. */
  readonly entries: readonly RegistryEntry[];
  /** The model of a slug. */
  find(slug: string): RegistryEntry | undefined;
  /** Models that bear every word of a query, best first. */
  search(query: string): RegistryEntry[];
  /** The words of each facet with their counts, those that the catalog gives a meaning first. */
  facets(): Promise<Readonly<Record<Facet, FacetValues>>>;
  /** What can be routed to: of one contract, or of all. */
  routes(contract: Contract | undefined): Promise<ListRoutesResponse>;
  /** By name. */
  providers(): Promise<readonly ProviderListing[]>;
  /** What this gateway runs itself, then the catalog; each by slug. */
  scenarios(): Promise<readonly Scenario[]>;
  /** By slug. */
  literature(): Promise<readonly Literature[]>;
  actionSpaces(): readonly ActionSpaceLayout[];
}

const NO_SUPPLY: SupplyRecord = { providers: [], models: [], offerings: [] };

/** The registry of this replica. */
export class Registry {
  readonly #supply: LiveSupply;
  readonly #here: readonly RunScenario[];
  readonly #made: Made = { slugs: new Names(0), entries: [], index: undefined, kept: new Map() };
  #catalog: Catalog = NO_CATALOG;
  #view: RegistryView;

  /** `here` are the scenarios that this gateway runs itself. */
  constructor(supply: LiveSupply, here: Iterable<RunScenario> = []) {
    this.#supply = supply;
    this.#here = [...here].sort((a, b) => (a.id < b.id ? -1 : 1));
    this.#view = atOnce(makingView(NO_SUPPLY, NO_CATALOG, supply.snapshot, this.#here, this.#made));
  }

  /** The catalog that is on the registry view. */
  get catalog(): Catalog {
    return this.#catalog;
  }

  /** Takes over to what the store has now, after `LiveSupply` did, in its last slice. */
  *adopting(known: SupplyRecord, catalog: Catalog): Sliced<void> {
    this.#view = yield* makingView(known, catalog, this.#supply.snapshot, this.#here, this.#made);
    this.#catalog = catalog;
  }

  /** Everything that listings say. */
  get view(): RegistryView {
    return this.#view;
  }
}

function* makingView(
  known: SupplyRecord,
  catalog: Catalog,
  snapshot: Snapshot,
  here: readonly RunScenario[],
  made: Made,
): Sliced<RegistryView> {
  const { models } = known;
  const order = yield* sorting(models.length, (a, b) => (models[a]!.slug < models[b]!.slug ? -1 : 1));
  const slugs = yield* naming(order, (place) => models[place]!.slug, made.slugs);
  const all: MadeEntry[] = [];
  const entries: RegistryEntry[] = [];
  for (const place of order) {
    const record = models[place]!;
    const one = madeEntry(made, record, catalog.entries.get(record.slug), liveOf(snapshot, record.slug));
    all.push(one);
    entries.push(one.entry);
    if (entries.length % 16 === 0) yield;
  }
  const find = (slug: string): RegistryEntry | undefined => entries[slugs.of(slug)];
  const index = yield* madeIndex(made, models, catalog, entries);
  made.slugs = slugs;
  made.entries = all;
  const { providers } = known;
  const { taxonomy, scenarios, literature } = catalog;
  const routes = kept(made, "routes", [[snapshot], all], () => routesBy({ snapshot, models: all }));
  return {
    entries,
    find,
    search: (query) => index.find(query).map((place) => entries[place]!),
    facets: kept(made, "facets", [[taxonomy], entries], () => lazily(() => facetsOf(entries, taxonomy))),
    routes,
    providers: kept(made, "providers", [[snapshot], providers], () => lazily(() => providersOf(providers, snapshot))),
    scenarios: kept(made, "scenarios", [here, scenarios], () =>
      lazily(function* () {
        return [...here.map(runScenarioOf), ...(yield* mapped(scenarios, scenarioOf))];
      }),
    ),
    literature: kept(made, "literature", [literature], () => lazily(() => mapped(literature, literatureOf))),
    actionSpaces: once(() => layoutsOf(taxonomy)),
  };
}

/** What can be routed to: of each contract, and of all. */
function routesBy(deps: Parameters<typeof routesOf>[0]): RegistryView["routes"] {
  const routes = new Map<Contract | undefined, () => Promise<ListRoutesResponse>>();
  return (contract) => {
    const listed = routes.get(contract) ?? lazily(() => routesOf(deps, contract));
    routes.set(contract, listed);
    return listed();
  };
}

/** An entry, and what it was made from. */
interface MadeEntry extends Routable {
  readonly record: ModelRecord;
  readonly facts: CatalogEntry | undefined;
  readonly entry: RegistryEntry;
}

/** What was made before, for as long as what it was made from is the same. */
interface Made {
  slugs: Names;
  /** By the numbers of their slugs. */
  entries: readonly MadeEntry[];
  index:
    | { models: readonly ModelRecord[]; facts: readonly (CatalogEntry | undefined)[]; index: SearchIndex }
    | undefined;
  /** Listings with what each is made from. */
  readonly kept: Map<Listing, { deps: ViewParts; list: RegistryView[Listing] }>;
}

type Listing = "facets" | "routes" | "providers" | "scenarios" | "literature";
type ViewParts = readonly (readonly unknown[])[];

/** The listing that was made before, where that was from the same parts. */
function kept<L extends Listing>(made: Made, name: L, deps: ViewParts, make: () => RegistryView[L]): RegistryView[L] {
  const before = made.kept.get(name);
  if (before && deps.every((part, i) => sameList(part, before.deps[i]!))) return before.list as RegistryView[L];
  const list = make();
  made.kept.set(name, { deps, list });
  return list;
}

const sameList = (one: readonly unknown[], other: readonly unknown[]): boolean =>
  one.length === other.length && one.every((each, i) => each === other[i]);

function madeEntry(
  { slugs, entries }: Made,
  record: ModelRecord,
  facts: CatalogEntry | undefined,
  live: readonly Offering[],
): MadeEntry {
  const before = entries[slugs.of(record.slug)];
  if (before?.record === record && before.facts === facts && sameList(before.live, live)) return before;
  const entry = entryOf(record, facts, live);
  return { record, facts, live, entry, model: entry.model, routed: new Map() };
}

/** What is searched is what the catalog says; live supply changes nothing of it. */
function* madeIndex(
  made: Made,
  models: readonly ModelRecord[],
  catalog: Catalog,
  entries: readonly RegistryEntry[],
): Sliced<SearchIndex> {
  const facts = models.map(({ slug }) => catalog.entries.get(slug));
  if (made.index && sameList(made.index.facts, facts) && sameList(made.index.models, models)) return made.index.index;
  const index = yield* indexing(entries.length, (place) => searchedOf(entries[place]!.model));
  made.index = { models, facts, index };
  return index;
}

function once<T>(make: () => T): () => T {
  let made: { value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** Made in slices for the first request; later ones wait for the same. */
function lazily<T>(making: () => Sliced<T>): () => Promise<T> {
  return once(() => inSlices(making(), pause));
}

function searchedOf({ id, name, vendor, family, summary }: Model) {
  const [owner = "", slug = ""] = id.split("/");
  return { name, slug, owner: `${vendor} ${owner}`, family, summary };
}

const NONE: readonly Offering[] = [];
const NO_ROWS = new Uint32Array(0);

/** The live offerings of a model, placeholders apart. */
function liveOf(snapshot: Snapshot, slug: string): readonly Offering[] {
  const live: Offering[] = [];
  for (const row of snapshot.rowsOfModel(slug) ?? NO_ROWS) {
    if (snapshot.isRegistered(row)) live.push(snapshot.offerings[row]!);
  }
  return live.length === 0 ? NONE : live;
}

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
interface Routable {
  readonly model: Model;
  readonly live: readonly Offering[];
  /** What listings said of it, by their contract. */
  readonly routed: Map<Contract | undefined, RoutedOffering | undefined>;
}

/** A listing's summary of a model: in total, and for each alias, in the order of `ALIASES`. */
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
function* routesOf(deps: RouteParts, contract: Contract | undefined): Sliced<ListRoutesResponse> {
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
