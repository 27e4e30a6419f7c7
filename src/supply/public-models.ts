/**
 * Which models and providers everybody sees: models of the catalog, and declared ones from the first offering that passes its probe until the
 * last is gone; providers for as long as they have such an offering.
 */
import type { Sliced } from "../slices.ts";
import type { ModelRecord, OfferingStatus, ProviderRecord, SupplyRecord } from "../store/supply/supply.ts";

/** States of an offering that has not passed a probe yet, or is gone. */
const UNPROVEN: ReadonlySet<OfferingStatus> = new Set(["pending", "verifying", "rejected", "removed"]);

/** Models that are their declarers' alone: slugs by organisation. */
export type PrivateModels = ReadonlyMap<string, ReadonlySet<string>>;

/** What a model is that serves these contracts, where nobody says more of it. */
export const kindOf = ({ contracts }: { contracts: readonly string[] }): ModelRecord["kind"] =>
  contracts.includes("act") ? "policy" : contracts.includes("predict") ? "world-model" : "reasoning";

/** The providers that everybody sees. */
export function* provenProviders({ providers, offerings }: SupplyRecord): Sliced<ProviderRecord[]> {
  const proven = new Set<string>();
  for (let i = 0; i < offerings.length; i++) {
    const { provider, status } = offerings[i]!;
    if (!UNPROVEN.has(status)) proven.add(provider);
    if (i % 256 === 0) yield;
  }
  return providers.filter(({ name }) => proven.has(name));
}

/** Supply without the models that nobody but their declarers may see, and those. */
export function* dividing(known: SupplyRecord): Sliced<{ open: SupplyRecord; own: PrivateModels }> {
  const declared = new Set<string>();
  const models: ModelRecord[] = [];
  for (let i = 0; i < known.models.length; i++) {
    const { declaredBy, slug } = known.models[i]!;
    if (declaredBy !== undefined) declared.add(slug);
    if (i % 256 === 0) yield;
  }
  const own = new Map<string, Set<string>>();
  if (declared.size === 0) return { open: known, own };
  for (let i = 0; i < known.offerings.length; i++) {
    const { model, status } = known.offerings[i]!;
    if (!UNPROVEN.has(status)) declared.delete(model);
    if (i % 256 === 0) yield;
  }
  const belongs = (slug: string, orgId: string): void => {
    own.set(orgId, (own.get(orgId) ?? new Set()).add(slug));
  };
  for (let i = 0; i < known.models.length; i++) {
    const model = known.models[i]!;
    if (!declared.has(model.slug)) models.push(model);
    else if (model.declaredBy !== undefined) belongs(model.slug, model.declaredBy);
    if (i % 256 === 0) yield;
  }
  for (let i = 0; i < known.offerings.length; i++) {
    const { model, orgId } = known.offerings[i]!;
    if (declared.has(model)) belongs(model, orgId);
    if (i % 256 === 0) yield;
  }
  return { open: { ...known, models }, own };
}
