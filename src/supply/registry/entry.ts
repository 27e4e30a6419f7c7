/** The entries of the registry: models, their facets, providers, literature, action layouts and scenarios. */

import { create, equals } from "@bufbuild/protobuf";
import {
  type ActionMeaning,
  ActionMeaningSchema,
  type ActionMeanings,
  ActionMeaningsSchema,
  type InputContract,
  InputContractSchema,
} from "../../../gen/limber/v1/input_contract_pb.ts";
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
  ModelEra,
  ModelKind,
  ModelSchema,
  ModelTier,
  type ProviderListing,
  ProviderListingSchema,
  type Scenario,
  ScenarioSchema,
} from "../../../gen/limber/v1/registry_pb.ts";
import type { ListModelsRequest } from "../../../gen/limber/v1/registry_service_pb.ts";
import { BRAND } from "../../brand.ts";
import { ACTION_SPACES, CONTRACT_WORDS, Contract, EMBODIMENTS } from "../../contracts/contract.ts";
import type { Offering, Snapshot } from "../../routing/index.ts";
import { BUILT_IN } from "../../scenarios/index.ts";
import type { Scenario as RunScenario } from "../../scenarios/scenario.ts";
import type { Sliced } from "../../slices.ts";
import type { CatalogEntry, LiteratureLine, ScenarioLine, Taxonomy } from "../../store/supply/catalog.ts";
import type { ModelRecord, ProviderRecord } from "../../store/supply/supply.ts";

/** Fields that something was made for. */
export const DOMAINS = {
  embodied: Domain.EMBODIED,
  driving: Domain.DRIVING,
  game: Domain.GAME,
  science: Domain.SCIENCE,
  general: Domain.GENERAL,
} as const;

/** What a model does. */
const KINDS = {
  "world-model": ModelKind.WORLD_MODEL,
  policy: ModelKind.POLICY,
  reasoning: ModelKind.REASONING,
} as const;

/** How near a model is to being served. */
const TIERS = {
  servable: ModelTier.SERVABLE,
  integration: ModelTier.INTEGRATION,
  catalog: ModelTier.CATALOG,
} as const;

/** Whether a newer model took a model's place. */
const ERAS = { current: ModelEra.CURRENT, classic: ModelEra.CLASSIC } as const;

/** What a piece of literature is. */
const LITERATURE_KINDS = {
  survey: LiteratureKind.SURVEY,
  position: LiteratureKind.POSITION,
  theory: LiteratureKind.THEORY,
  tutorial: LiteratureKind.TUTORIAL,
} as const;

/** The values of the words that a vocabulary has; unknown ones, which no filter can name, are left out. */
export function valuesIn<T>(vocabulary: Readonly<Record<string, T>>, words: readonly string[]): T[] {
  return words.flatMap((word) => (Object.hasOwn(vocabulary, word) ? [vocabulary[word] as T] : []));
}

/** The word of a value; undefined for none and for the unspecified one. */
function wordIn<T>(vocabulary: Readonly<Record<string, T>>, value: T | undefined): string | undefined {
  return Object.keys(vocabulary).find((word) => vocabulary[word] === value);
}

/** Messages leave out what is not known, where the store has null. */
const told = <T extends object>(facts: T): { [K in keyof T]?: Exclude<T[K], null> } =>
  Object.fromEntries(Object.entries(facts).filter(([, fact]) => fact !== null)) as {
    [K in keyof T]?: Exclude<T[K], null>;
  }; // nulls are gone

/** A model of the registry, and the words that filters find it by. */
export interface RegistryEntry {
  /** As listings show it; it is never changed. */
  readonly model: Model;
  readonly facets: Readonly<Record<Facet, readonly string[]>>;
}

const union = <T>(...lists: readonly (readonly T[])[]): T[] => [...new Set(lists.flat())];

/** What a record says and live supply adds. */
const withLive = <T>(stated: readonly T[], live: readonly Offering[], of: (offering: Offering) => readonly T[]): T[] =>
  live.length === 0 ? [...stated] : union(stated, live.flatMap(of));

/** The entry of a model that these live offerings serve. */
export function entryOf(
  record: ModelRecord,
  facts: CatalogEntry | undefined,
  live: readonly Offering[],
): RegistryEntry {
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
  paramsB,
  license,
  arxiv,
  repo,
  weights,
  protocols,
  sources,
  servableCandidate,
}: CatalogEntry) {
  return {
    ...told({ year, paramsB, license, arxiv, repo, weights }),
    servableCandidate,
    protocols,
    sources,
  };
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

/** The words of each facet with their counts, those that the catalog gives a meaning first. */
export function* facetsOf(
  entries: readonly RegistryEntry[],
  taxonomy: Taxonomy | undefined,
): Sliced<Record<Facet, FacetValues>> {
  const listed: [Facet, FacetValues][] = [];
  for (const facet of FACET_NAMES) listed.push([facet, yield* facetOf(facet, entries, taxonomy)]);
  return Object.fromEntries(listed) as Record<Facet, FacetValues>; // one for each of the names
}

function* facetOf(
  facet: Facet,
  entries: readonly RegistryEntry[],
  taxonomy: Taxonomy | undefined,
): Sliced<FacetValues> {
  const { words, terms }: FacetFacts = FACETS[facet];
  const meanings = new Map((taxonomy && terms?.(taxonomy))?.map(({ id, meaning }) => [id, meaning]));
  const counts = new Map<string, { count: number; liveCount: number }>();
  const countOf = (value: string): { count: number; liveCount: number } => {
    const known = counts.get(value) ?? { count: 0, liveCount: 0 };
    counts.set(value, known);
    return known;
  };
  for (const value of [...words, ...meanings.keys()]) countOf(value);
  for (let i = 0; i < entries.length; i++) {
    const { model, facets } = entries[i]!;
    for (const value of facets[facet]) {
      const known = countOf(value);
      known.count++;
      if (model.tier === ModelTier.SERVABLE) known.liveCount++;
    }
    if (i % 128 === 0) yield;
  }
  const values = [...counts].map(([value, count]) => {
    const meaning = meanings.get(value);
    return { value, ...count, ...(meaning !== undefined && { meaning }) };
  });
  return create(FacetValuesSchema, { values });
}

/** As models are shown. */
interface SharedInput {
  readonly input?: InputContract;
  readonly actions?: ActionMeanings;
}

/** What all of them say; nothing of what one of them does not say, or says otherwise. */
export function sharedInput(offerings: readonly Pick<Offering, "declared">[]): SharedInput {
  const [first, ...others] = offerings.map(({ declared }) => declared);
  if (first === undefined) return {};
  const { input, actions } = first;
  const sameInput = others.every(
    (other) => other === first || (other?.input && input && equals(InputContractSchema, other.input, input)),
  );
  const sameActions = others.every((other) => other === first || (other && alike(other.actions, actions)));
  return {
    ...(input && sameInput && { input }),
    ...(sameActions && actions.length > 0 && { actions: create(ActionMeaningsSchema, { actions: [...actions] }) }),
  };
}

const alike = (one: readonly ActionMeaning[], other: readonly ActionMeaning[]): boolean =>
  one.length === other.length && one.every((each, i) => equals(ActionMeaningSchema, each, other[i]!));

/** Letters of a declaration's key beyond which listings of many models leave it out: each may have 64 KiB. */
const MOST_LISTED = 4_096;

/** The same for listings of many models: what is long is left out. */
export const listedInput = (offerings: readonly Pick<Offering, "declared">[]): SharedInput =>
  offerings.some(({ declared }) => (declared?.key.length ?? 0) > MOST_LISTED) ? {} : sharedInput(offerings);

/** Something made of each, in slices. */
export function* mapped<T, U>(all: readonly T[], of: (each: T) => U): Sliced<U[]> {
  const made: U[] = [];
  for (const each of all) {
    made.push(of(each));
    if (made.length % 16 === 0) yield;
  }
  return made;
}

/** What the live offerings of one provider come to. */
interface Served {
  offerings: number;
  readonly models: Set<string>;
  readonly contracts: Set<Contract>;
  readonly actionSpaces: Set<string>;
}

/** Every provider with what its live offerings come to. */
export function* providersOf(providers: readonly ProviderRecord[], snapshot: Snapshot): Sliced<ProviderListing[]> {
  const servedBy = new Map<string, Served>();
  for (const { name } of providers)
    servedBy.set(name, { offerings: 0, models: new Set(), contracts: new Set(), actionSpaces: new Set() });
  for (let place = 0; place < snapshot.registered; place++) {
    const { provider, model, contracts, actionSpaces } = snapshot.offerings[snapshot.order[place]!]!;
    const served = servedBy.get(provider);
    if (served) {
      served.offerings++;
      served.models.add(model);
      // It is the gateway that evaluates, no provider.
      for (const contract of contracts) if (contract !== Contract.EVALUATE) served.contracts.add(contract);
      for (const space of actionSpaces) served.actionSpaces.add(space);
    }
    if (place % 128 === 0) yield;
  }
  return yield* mapped(providers, (provider) => providerOf(provider, servedBy.get(provider.name)!));
}

function providerOf(
  { name, displayName, homepage, regions, retainsFrames }: ProviderRecord,
  { offerings, models, contracts, actionSpaces }: Served,
): ProviderListing {
  return create(ProviderListingSchema, {
    name,
    displayName,
    ...told({ homepage }),
    regions,
    dataCollection: retainsFrames ? DataCollection.ALLOW : DataCollection.DENY,
    models: [...models].sort(),
    contracts: [...contracts].sort((a, b) => a - b),
    actionSpaces: [...actionSpaces].sort(),
    liveOfferings: offerings,
  });
}

/** A piece of literature as it is listed. */
export function literatureOf({ slug, title, kind, year, domain, arxiv, repo, sources }: LiteratureLine): Literature {
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

/** Layouts as the catalog has them; before there is a catalog, what every space promises. */
export function layoutsOf(taxonomy: Taxonomy | undefined): ActionSpaceLayout[] {
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

/** A scenario that this gateway runs itself. All that it runs tries robots. */
export function runScenarioOf(scenario: RunScenario): Scenario {
  const { id, title, topic, description, success, version, source, variants } = scenario;
  return create(ScenarioSchema, {
    id,
    object: "scenario",
    name: title,
    // Packs are the operator's; earlier versions recorded no owner.
    vendor: BUILT_IN.includes(scenario) ? BRAND : "",
    target: Domain.EMBODIED,
    topic,
    runnable: true,
    runsHere: true,
    sources: [],
    summary: source === "" ? description : `${description} After ${source}.`,
    success,
    version,
    variants: variants.map(({ actionSpace, fields, units, proprioNames, dtMs, maxSteps }) => ({
      actionSpace,
      actionFields: [...fields],
      units,
      proprioNames: [...proprioNames],
      dtMs,
      maxSteps,
    })),
  });
}

/** A scenario of the catalog, which runs elsewhere. */
export function scenarioOf(line: ScenarioLine): Scenario {
  const { slug, name, owner, year, target, topic, runnable, sources, license, arxiv, repo } = line;
  const [domain] = valuesIn<Domain>(DOMAINS, [target]);
  return create(ScenarioSchema, {
    id: slug,
    object: "scenario",
    name,
    vendor: owner,
    year,
    target: domain ?? Domain.UNSPECIFIED,
    topic,
    runnable,
    ...told({ license, arxiv, repo }),
    sources,
  });
}
