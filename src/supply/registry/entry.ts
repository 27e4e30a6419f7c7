/** A model as listings show it: what its record says, what the catalog knows, and what live supply adds. */
import { create } from "@bufbuild/protobuf";
import { type Model, ModelSchema } from "../../../gen/limber/v1/registry_pb.ts";
import { CONTRACT_WORDS, type Contract } from "../../contracts/contract.ts";
import { EMBODIMENTS } from "../../contracts/embodiments.ts";
import type { Offering } from "../../routing/index.ts";
import type { CatalogEntry } from "../../store/supply/catalog.ts";
import type { ModelRecord } from "../../store/supply/supply.ts";
import type { Facet } from "./facets.ts";
import { DOMAINS, ERAS, KINDS, TIERS, told, valuesIn, wordIn } from "./words.ts";

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
