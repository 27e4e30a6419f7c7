/** The shorter lists of the registry: providers, literature, layouts of action spaces. */
import { create } from "@bufbuild/protobuf";
import { DataCollection } from "../../../gen/limber/v1/preferences_pb.ts";
import {
  type ActionSpaceLayout,
  ActionSpaceLayoutSchema,
  Domain,
  type Literature,
  LiteratureKind,
  LiteratureSchema,
  type ProviderListing,
  ProviderListingSchema,
} from "../../../gen/limber/v1/registry_pb.ts";
import { ACTION_SPACES } from "../../contracts/action-spaces.ts";
import { Contract } from "../../contracts/contract.ts";
import type { Snapshot } from "../../routing/index.ts";
import type { Sliced } from "../../slices.ts";
import type { LiteratureLine, Taxonomy } from "../../store/supply/catalog.ts";
import type { ProviderRecord } from "../../store/supply/supply.ts";
import { DOMAINS, LITERATURE_KINDS, told, valuesIn } from "./words.ts";

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
