/** The route listing: which aliases live supply can serve, and with what. */
import { create } from "@bufbuild/protobuf";
import { Preference, SortAxis } from "../../../gen/limber/v1/preferences_pb.ts";
import { type AliasListing, AliasListingSchema, type Domain, type Model } from "../../../gen/limber/v1/registry_pb.ts";
import { type ListRoutesResponse, ListRoutesResponseSchema } from "../../../gen/limber/v1/registry_service_pb.ts";
import { ALIAS_PREFIX } from "../../brand.ts";
import { Contract } from "../../contracts/contract.ts";
import { ALIASES, type Alias, type Axis, type Offering, type Snapshot, VARIANTS } from "../../routing/index.ts";
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

/** What a route listing is made from. */
interface RouteParts {
  snapshot: Snapshot;
  /** The registry's entry of a slug. */
  modelOf(slug: string): Model | undefined;
  /** Action spaces that a scenario is here for: what acts in one can be evaluated. */
  evaluated: ReadonlySet<string>;
}

/** The route listing of a snapshot: of one contract, or of all. */
export function routesOf(parts: RouteParts, contract: Contract | undefined): ListRoutesResponse {
  const { snapshot } = parts;
  const serves = (offering: Offering): boolean =>
    contract === undefined || contractsOf(offering, parts).includes(contract);
  const live = snapshot.offerings.slice(0, snapshot.registered).filter(serves);
  const aliases = ALIASES.map((alias) =>
    aliasListing(alias, offeringsOf(snapshot, alias).filter(serves), parts),
  ).filter(({ resolvesTo }) => resolvesTo.length > 0);
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
      models: sorted(live.map(({ model }) => model)),
      providers: sorted(live.map(({ provider }) => provider)),
      ...servedBy(live, parts),
      catalogModels: snapshot.catalog.size,
      note: NOTE,
    },
    data: aliases,
  });
}

/** The live offerings that an alias stands for. */
function offeringsOf(snapshot: Snapshot, alias: Alias): Offering[] {
  const rows = [...snapshot.rowsOfAlias(alias)].filter((row) => row < snapshot.registered);
  return rows.map((row) => snapshot.offerings[row]!);
}

function aliasListing(
  { id, description, filter, sort }: Alias,
  offerings: readonly Offering[],
  parts: RouteParts,
): AliasListing {
  const { contract, domain, family } = filter;
  const [known] = valuesIn<Domain>(DOMAINS, domain === undefined ? [] : [domain]);
  const byModel = [...Map.groupBy(offerings, ({ model }) => model)].sort(([a], [b]) => (a < b ? -1 : 1));
  return create(AliasListingSchema, {
    id,
    description,
    filter: {
      ...(contract !== undefined && { contract }),
      ...(known !== undefined && { domain: known }),
      ...(family !== undefined && { family }),
    },
    ...(sort && { sort: SORTS[sort] }),
    resolvesTo: byModel.map(([slug, served]) => ({
      id: slug,
      name: parts.modelOf(slug)?.name ?? slug,
      vendor: parts.modelOf(slug)?.vendor ?? "",
      ...servedBy(served, parts),
      providers: sorted(served.map(({ provider }) => provider)),
    })),
  });
}

/** What an offering can be asked for; the gateway itself evaluates what acts. */
function contractsOf({ contracts, actionSpaces }: Offering, { evaluated }: RouteParts): readonly Contract[] {
  const isTried = contracts.includes(Contract.ACT) && actionSpaces.some((space) => evaluated.has(space));
  return isTried ? [...contracts, Contract.EVALUATE] : contracts;
}

const servedBy = (offerings: readonly Offering[], parts: RouteParts) => ({
  contracts: [...new Set(offerings.flatMap((each) => contractsOf(each, parts)))].sort((a, b) => a - b),
  actionSpaces: sorted(offerings.flatMap(({ actionSpaces }) => actionSpaces)),
});

const sorted = (words: readonly string[]): string[] => [...new Set(words)].sort();
