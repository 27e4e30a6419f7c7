/** The registry in memory: everything that its listings say, made once for each state of the supply and the catalog. */
import { create } from "@bufbuild/protobuf";
import { DataCollection } from "../../../gen/limber/v1/preferences_pb.ts";
import {
  type ActionSpaceLayout,
  ActionSpaceLayoutSchema,
  Domain,
  type FacetValues,
  FacetValuesSchema,
  type Literature,
  LiteratureKind,
  LiteratureSchema,
  type Model,
  ModelSchema,
  ModelTier,
  type ProviderListing,
  ProviderListingSchema,
  type Scenario,
} from "../../../gen/limber/v1/registry_pb.ts";
import type { ListModelsRequest, ListRoutesResponse } from "../../../gen/limber/v1/registry_service_pb.ts";
import { atOnce, type Sliced } from "../../ambient.ts";
import { ACTION_SPACES } from "../../contracts/action-spaces.ts";
import { CONTRACT_WORDS, type Contract } from "../../contracts/contract.ts";
import type { Offering, Snapshot } from "../../routing/index.ts";
import type { Scenario as RunScenario } from "../../scenarios/scenario.ts";
import {
  type Catalog,
  type CatalogEntry,
  type LiteratureLine,
  NO_CATALOG,
  type Taxonomy,
} from "../../store/catalog.ts";
import type { ModelRecord, OfferingRecord, ProviderRecord, Supply } from "../../store/supply.ts";
import type { LiveSupply } from "../supply/live.ts";
import { routesOf } from "./routes.ts";
import { runScenarioOf, scenarioOf } from "./scenarios.ts";
import { indexing, type SearchIndex } from "./search.ts";
import { DOMAINS, EMBODIMENTS, ERAS, KINDS, LITERATURE_KINDS, TIERS, told, valuesIn, wordIn } from "./words.ts";

/** A model of the registry, and the words that filters find it by. */
export interface Entry {
  /** As listings show it; nobody changes it. */
  readonly model: Model;
  readonly facets: Readonly<Record<Facet, readonly string[]>>;
}

/** The filters of `GET /v1/models` that compare words, and the facets of `GET /v1/taxonomy`. */
export type Facet = keyof typeof FACETS;

/** One facet: the word that a request asks for, its vocabulary, and where the catalog says what its words mean. */
interface FacetFacts {
  readonly asked: (request: ListModelsRequest) => string | undefined;
  /** The words that are known whether a model bears them or not. */
  readonly words: readonly string[];
  readonly terms?: (taxonomy: Taxonomy) => readonly { id: string; meaning: string }[];
}

const spaceTerms = ACTION_SPACES.map(({ name, meaning }) => ({ id: name, meaning }));

/** Every facet. */
export const FACETS = {
  domain: {
    asked: ({ domain }) => wordIn(DOMAINS, domain),
    words: Object.keys(DOMAINS),
    terms: ({ domains }) => domains,
  },
  family: { asked: ({ family }) => family, words: [], terms: ({ families }) => families },
  tier: { asked: ({ tier }) => wordIn(TIERS, tier), words: Object.keys(TIERS), terms: ({ tiers }) => tiers },
  contract: {
    asked: ({ contract }) => wordIn(CONTRACT_WORDS, contract),
    words: Object.keys(CONTRACT_WORDS),
    terms: ({ contracts }) => contracts,
  },
  embodiment: {
    asked: ({ embodiment }) => wordIn(EMBODIMENTS, embodiment),
    words: Object.keys(EMBODIMENTS),
    terms: ({ embodiments }) => embodiments,
  },
  action_space: {
    asked: ({ actionSpace }) => actionSpace,
    words: ACTION_SPACES.map(({ name }) => name),
    terms: () => spaceTerms,
  },
  era: { asked: ({ era }) => wordIn(ERAS, era), words: Object.keys(ERAS), terms: ({ eras }) => eras },
  kind: { asked: ({ kind }) => wordIn(KINDS, kind), words: Object.keys(KINDS), terms: ({ kinds }) => kinds },
  featured: { asked: ({ featured }) => featured?.toString(), words: ["true", "false"] },
} as const satisfies Record<string, FacetFacts>;

/** The facets' names. */
export const FACET_NAMES = Object.keys(FACETS) as Facet[]; // the keys of the table itself

/** The registry as of one moment. Its parts are made when they are first asked for. */
export interface RegistryView {
  /** Every model, by slug. */
  readonly entries: readonly Entry[];
  /** The model of a slug. */
  find(slug: string): Entry | undefined;
  /** Models that bear every word of a query, best first. */
  search(query: string): Entry[];
  /** What the store has of a live offering. */
  record(offeringId: string): OfferingRecord | undefined;
  /** The words of each facet with their counts, those that the catalog gives a meaning first. */
  facets(): Readonly<Record<Facet, FacetValues>>;
  /** What can be routed to: of one contract, or of all. */
  routes(contract: Contract | undefined): ListRoutesResponse;
  /** By name. */
  providers(): readonly ProviderListing[];
  /** What this gateway runs itself, then the catalog; each by slug. */
  scenarios(): readonly Scenario[];
  /** By slug. */
  literature(): readonly Literature[];
  actionSpaces(): readonly ActionSpaceLayout[];
}

const NO_SUPPLY: Supply = { providers: [], models: [], offerings: [] };

/** The registry of this replica. */
export class RegistryShelf {
  readonly #supply: LiveSupply;
  readonly #here: readonly RunScenario[];
  readonly #made: Made = { entries: new WeakMap(), index: undefined };
  #catalog: Catalog = NO_CATALOG;
  #view: RegistryView;

  /** `here` are the scenarios that this gateway runs itself. */
  constructor(supply: LiveSupply, here: Iterable<RunScenario> = []) {
    this.#supply = supply;
    this.#here = [...here].sort((a, b) => (a.id < b.id ? -1 : 1));
    this.#view = atOnce(makingView(NO_SUPPLY, NO_CATALOG, supply.snapshot, this.#here, this.#made));
  }

  /** The catalog that is on the shelf. */
  get catalog(): Catalog {
    return this.#catalog;
  }

  /** Takes over to what the store has now, after `LiveSupply` did, in its last slice. */
  *adopting(known: Supply, catalog: Catalog): Sliced<void> {
    this.#view = yield* makingView(known, catalog, this.#supply.snapshot, this.#here, this.#made);
    this.#catalog = catalog;
  }

  /** Everything that listings say. */
  get view(): RegistryView {
    return this.#view;
  }
}

function* makingView(
  known: Supply,
  catalog: Catalog,
  snapshot: Snapshot,
  here: readonly RunScenario[],
  made: Made,
): Sliced<RegistryView> {
  const live: Offering[] = [];
  const liveOf = new Map<string, Offering[]>();
  for (let row = 0; row < snapshot.registered; row++) {
    const offering = snapshot.offerings[row]!;
    const others = liveOf.get(offering.model);
    if (others) others.push(offering);
    else liveOf.set(offering.model, [offering]);
    live.push(offering);
    if (row % 128 === 0) yield;
  }
  const entries: Entry[] = [];
  for (const record of known.models) {
    entries.push(madeEntry(made, record, catalog.entries.get(record.slug), liveOf.get(record.slug) ?? NONE));
    if (entries.length % 16 === 0) yield;
  }
  entries.sort((a, b) => (a.model.id < b.model.id ? -1 : 1));
  yield;
  const bySlug = new Map(entries.map((entry) => [entry.model.id, entry]));
  yield;
  const index = yield* madeIndex(made, known.models, catalog, entries);
  const records = once(() => new Map(known.offerings.map((record) => [record.id, record])));
  const routes = new Map<Contract | undefined, ListRoutesResponse>();
  const evaluated = new Set(here.flatMap(({ variants }) => variants.map(({ actionSpace }) => actionSpace)));
  const routeParts = { snapshot, modelOf: (slug: string) => bySlug.get(slug)?.model, evaluated };
  return {
    entries,
    find: (slug) => bySlug.get(slug),
    search: (query) => index.find(query).map((place) => entries[place]!),
    record: (id) => records().get(id),
    facets: once(() => facetsOf(entries, catalog.taxonomy)),
    routes(contract) {
      let listed = routes.get(contract);
      if (!listed) {
        listed = routesOf(routeParts, contract);
        routes.set(contract, listed);
      }
      return listed;
    },
    providers: once(() => providersOf(known.providers, live)),
    scenarios: once(() => [...here.map(runScenarioOf), ...catalog.scenarios.map(scenarioOf)]),
    literature: once(() => catalog.literature.map(literatureOf)),
    actionSpaces: once(() => layoutsOf(catalog.taxonomy)),
  };
}

/** What was made before, for as long as what it was made from is the same. */
interface Made {
  readonly entries: WeakMap<ModelRecord, { facts: CatalogEntry | undefined; live: readonly Offering[]; entry: Entry }>;
  index: { models: readonly ModelRecord[]; catalog: Catalog; index: SearchIndex } | undefined;
}

const NONE: readonly Offering[] = [];

const sameList = (one: readonly unknown[], other: readonly unknown[]): boolean =>
  one.length === other.length && one.every((each, i) => each === other[i]);

function madeEntry(
  { entries }: Made,
  record: ModelRecord,
  facts: CatalogEntry | undefined,
  live: readonly Offering[],
): Entry {
  const before = entries.get(record);
  if (before && before.facts === facts && sameList(before.live, live)) return before.entry;
  const entry = entryOf(record, facts, live);
  entries.set(record, { facts, live, entry });
  return entry;
}

/** What is searched is what the catalog says; live supply changes nothing of it. */
function* madeIndex(
  made: Made,
  models: readonly ModelRecord[],
  catalog: Catalog,
  entries: readonly Entry[],
): Sliced<SearchIndex> {
  if (made.index && made.index.catalog === catalog && sameList(made.index.models, models)) return made.index.index;
  const index = yield* indexing(entries.map(({ model }) => searchedOf(model)));
  made.index = { models, catalog, index };
  return index;
}

function once<T>(make: () => T): () => T {
  let made: { value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

const union = <T>(...lists: readonly (readonly T[])[]): T[] => [...new Set(lists.flat())];

/** What a record says and live supply adds. */
const withLive = <T>(stated: readonly T[], live: readonly Offering[], of: (offering: Offering) => readonly T[]): T[] =>
  live.length === 0 ? [...stated] : union(stated, live.flatMap(of));

function entryOf(record: ModelRecord, facts: CatalogEntry | undefined, live: readonly Offering[]): Entry {
  // What is not served is not servable, whatever the record says.
  const tier = live.length > 0 ? "servable" : record.tier === "servable" ? "integration" : record.tier;
  const contracts = withLive(valuesIn<Contract>(CONTRACT_WORDS, record.contracts), live, (each) => each.contracts);
  const actionSpaces = withLive(record.actionSpaces, live, (each) => each.actionSpaces);
  const embodiments = valuesIn(
    EMBODIMENTS,
    withLive(record.embodiments, live, (each) => each.embodiments),
  );
  const { slug, name, summary, limits, family, featured } = record;
  const model = create(ModelSchema, {
    id: slug,
    object: "model",
    name,
    vendor: facts?.owner ?? slug.slice(0, slug.indexOf("/")),
    summary,
    limits,
    kind: KINDS[record.kind],
    domain: DOMAINS[record.domain],
    family,
    tier: TIERS[tier],
    era: ERAS[record.era],
    contracts,
    embodiments,
    actionSpaces,
    featured,
    providers: union(live.map((offering) => offering.provider)).sort(),
    ...(record.sunsetAt !== undefined && { deprecatedAt: record.deprecatedAt, sunsetAt: record.sunsetAt }),
    ...(facts && factsOf(facts)),
  });
  const facets = {
    domain: [record.domain],
    family: family === "" ? [] : [family],
    tier: [tier],
    contract: contracts.flatMap((contract) => wordIn(CONTRACT_WORDS, contract) ?? []),
    embodiment: embodiments.flatMap((body) => wordIn(EMBODIMENTS, body) ?? []),
    action_space: actionSpaces,
    era: [record.era],
    kind: [record.kind],
    featured: [String(featured)],
  };
  return { model, facets };
}

function factsOf({
  year,
  params_b,
  license,
  arxiv,
  repo,
  weights,
  protocols,
  sources,
  servable_candidate,
}: CatalogEntry) {
  return {
    ...told({ year, paramsB: params_b, license, arxiv, repo, weights }),
    servableCandidate: servable_candidate,
    protocols,
    sources,
  };
}

function searchedOf({ id, name, vendor, family, summary }: Model) {
  const [owner = "", slug = ""] = id.split("/");
  return { name, slug, owner: `${vendor} ${owner}`, family, summary };
}

function facetsOf(entries: readonly Entry[], taxonomy: Taxonomy | undefined): Record<Facet, FacetValues> {
  const listed = FACET_NAMES.map((facet) => [facet, facetOf(facet, entries, taxonomy)] as const);
  return Object.fromEntries(listed) as Record<Facet, FacetValues>; // one for each of the names
}

function facetOf(facet: Facet, entries: readonly Entry[], taxonomy: Taxonomy | undefined): FacetValues {
  const { words, terms }: FacetFacts = FACETS[facet];
  const meanings = new Map((taxonomy && terms?.(taxonomy))?.map(({ id, meaning }) => [id, meaning]));
  const counts = new Map<string, { count: number; liveCount: number }>();
  for (const value of [...words, ...meanings.keys()]) counts.set(value, { count: 0, liveCount: 0 });
  for (const { model, facets } of entries) {
    for (const value of facets[facet]) {
      const { count, liveCount } = counts.get(value) ?? { count: 0, liveCount: 0 };
      counts.set(value, { count: count + 1, liveCount: liveCount + (model.tier === ModelTier.SERVABLE ? 1 : 0) });
    }
  }
  const values = [...counts].map(([value, count]) => {
    const meaning = meanings.get(value);
    return { value, ...count, ...(meaning !== undefined && { meaning }) };
  });
  return create(FacetValuesSchema, { values });
}

function providersOf(providers: readonly ProviderRecord[], live: readonly Offering[]): ProviderListing[] {
  const liveOf = Map.groupBy(live, ({ provider }) => provider);
  return providers.map(({ name, displayName, homepage, regions, retainsFrames }) => {
    const offerings = liveOf.get(name) ?? [];
    return create(ProviderListingSchema, {
      name,
      displayName,
      ...told({ homepage }),
      regions,
      dataCollection: retainsFrames ? DataCollection.ALLOW : DataCollection.DENY,
      models: union(offerings.map(({ model }) => model)).sort(),
      contracts: union(offerings.flatMap(({ contracts }) => contracts)).sort((a, b) => a - b),
      actionSpaces: union(offerings.flatMap(({ actionSpaces }) => actionSpaces)).sort(),
      liveOfferings: offerings.length,
    });
  });
}

function literatureOf({ slug, title, kind, year, domain, arxiv, repo, sources }: LiteratureLine): Literature {
  const [about] = valuesIn<Domain>(DOMAINS, [domain]);
  const [what] = valuesIn<LiteratureKind>(LITERATURE_KINDS, [kind]);
  return create(LiteratureSchema, {
    id: slug,
    object: "literature",
    title,
    kind: what ?? LiteratureKind.UNSPECIFIED,
    year,
    domain: about ?? Domain.UNSPECIFIED,
    ...told({ arxiv, repo }),
    sources,
  });
}

/** As the catalog has them; before there is a catalog, what every space promises. */
function layoutsOf(taxonomy: Taxonomy | undefined): ActionSpaceLayout[] {
  if (!taxonomy) {
    return ACTION_SPACES.map(({ name, dim, meaning }) =>
      create(ActionSpaceLayoutSchema, { id: name, note: meaning, ...(dim !== undefined && { dims: dim }) }),
    );
  }
  return taxonomy.action_spaces.map(({ id, dims, dims_rule, units, reference, fields, other_layouts, note }) =>
    create(ActionSpaceLayoutSchema, {
      id,
      units,
      note,
      fields,
      otherLayouts: other_layouts ?? [],
      ...told({ dims }),
      ...(dims_rule !== undefined && { dimsRule: dims_rule }),
      ...(reference !== undefined && { reference }),
    }),
  );
}
