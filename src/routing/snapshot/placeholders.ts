/** One free, simulated offering for every model of the catalog that nothing live serves. */

import { ACTION_SPACES } from "../../contracts/action-spaces.ts";
import { PARAMETERS } from "../../contracts/contract.ts";
import { OF_THE_GATEWAY } from "../../contracts/trust.ts";
import type { Sliced } from "../../slices.ts";
import type { CatalogModel, Offering } from "../offering.ts";
import type { Names } from "./names.ts";
import { SIMULATED_PROVIDER } from "./snapshot.ts";

/** How many offerings are looked at between two yields. */
const STRIDE = 128;

/** Those of a whole catalog, by the codes of its models. */
export function* placeholdersOf(
  catalog: readonly CatalogModel[],
  models: Names,
  offerings: readonly Offering[],
): Sliced<Offering[]> {
  const live = new Uint8Array(models.names.length);
  for (let i = 0; i < offerings.length; i++) {
    if (!offerings[i]!.simulated) live[models.of(offerings[i]!.model)] = 1;
    if (i % STRIDE === 0) yield;
  }
  const placeholders: Offering[] = [];
  for (let code = 0; code < catalog.length; code++) {
    const model = catalog[code]!;
    if (live[code] === 0 && hasPlaceholder(model)) placeholders.push(placeholderOf(model));
    if (code % STRIDE === 0) yield;
  }
  return placeholders;
}

/** Whether a placeholder could stand for a model. */
export const hasPlaceholder = ({ contracts }: CatalogModel): boolean => contracts.length > 0;

/** Numbers per step of a placeholder in a space that fixes none. */
const PLACEHOLDER_DIM = 7;

const FIXED_SPACES = ACTION_SPACES.filter((space) => space.dim !== undefined).map((space) => space.name);

/** The one of a model. */
export function placeholderOf(model: CatalogModel): Offering {
  return {
    id: `simulated/${model.slug}`,
    model: model.slug,
    provider: SIMULATED_PROVIDER,
    supplier: OF_THE_GATEWAY,
    region: SIMULATED_PROVIDER,
    precision: "none",
    contracts: model.contracts,
    // Where the catalog knows no action space, a placeholder of any fixed dimension is as valid as another.
    actionSpaces: model.actionSpaces.length > 0 ? model.actionSpaces : FIXED_SPACES,
    actionDim: PLACEHOLDER_DIM,
    embodiments: model.embodiments,
    domain: model.domain,
    family: model.family,
    simulated: true,
    priceNano: {},
    maxHorizon: 256,
    dtMs: 100,
    parameters: PARAMETERS,
    retainsFrames: false,
    advertised: { p50Ms: 1, p95Ms: 1, unitsPerS: undefined, uptime30d: 1 },
    costNanoPerSecond: 0,
    scaledownS: undefined,
    timeoutMs: 1000,
    coldTimeoutMs: 1000,
  };
}
