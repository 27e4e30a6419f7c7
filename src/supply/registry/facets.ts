/** What models can be filtered by, and how many bear each word. */
import { create } from "@bufbuild/protobuf";
import { type FacetValues, FacetValuesSchema, ModelTier } from "../../../gen/limber/v1/registry_pb.ts";
import type { ListModelsRequest } from "../../../gen/limber/v1/registry_service_pb.ts";
import { ACTION_SPACES } from "../../contracts/action-spaces.ts";
import { CONTRACT_WORDS } from "../../contracts/contract.ts";
import { EMBODIMENTS } from "../../contracts/embodiments.ts";
import type { Sliced } from "../../slices.ts";
import type { Taxonomy } from "../../store/supply/catalog.ts";
import type { RegistryEntry } from "./entry.ts";
import { DOMAINS, ERAS, KINDS, TIERS, wordIn } from "./words.ts";

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
