/** The available scenarios: the built-in ones, and packs from a folder. */
import { createHash } from "node:crypto";
import { armReach } from "./builtin/arm-reach.ts";
import { baseNav } from "./builtin/base-nav.ts";
import { cartpoleBalance } from "./builtin/cartpole.ts";
import { pendulumSwingup } from "./builtin/pendulum.ts";
import { armPickPlace } from "./builtin/pick-place.ts";
import { pushT } from "./builtin/push-t.ts";
import { bimanualReach, humanoidReach } from "./builtin/reaches.ts";
import type { World } from "./engine.ts";
import { loadPacks, type RefusedPack, scenarioOfPack } from "./pack.ts";
import type { Scenario, ScenarioVariant } from "./scenario.ts";

/** The built-in scenarios. */
export const BUILT_IN: readonly Scenario[] = [
  cartpoleBalance,
  pendulumSwingup,
  armReach,
  armPickPlace,
  pushT,
  baseNav,
  bimanualReach,
  humanoidReach,
];

/** Version 1.0.0 of a scenario, which kept starts that need no policy. */
const asFirst = (scenario: Scenario): Scenario => {
  const [first, ...others] = scenario.variants.map((variant) => ({
    ...variant,
    play: (world: World) => ({ ...variant.play(world), isSolved: () => false }),
  }));
  return { ...scenario, version: "1.0.0", variants: [first!, ...others] };
};

/** Earlier versions of built-in scenarios, so that their scores can be recomputed. */
export const EARLIER: readonly Scenario[] = BUILT_IN.filter(({ version }) => version !== "1.0.0").map(asFirst);

/** Returns the built-in scenario with an id such as `arm-reach`, or with a version such as `arm-reach@1.0.0`. */
export const builtIn = (name: string): Scenario | undefined =>
  [...BUILT_IN, ...EARLIER].find(({ id, version }) => id === name || `${id}@${version}` === name);

/** A gateway's scenarios by id, and its refused packs. */
export interface LoadedScenarios {
  readonly scenarios: ReadonlyMap<string, Scenario>;
  readonly refused: readonly RefusedPack[];
}

/** Loads all available scenarios, with packs from `folder` if given. Rejects if the folder cannot be read. */
export async function loadScenarios(folder: string | undefined): Promise<LoadedScenarios> {
  const taken = new Set(BUILT_IN.map(({ id }) => id));
  const { packs, refused } = folder === undefined ? { packs: [], refused: [] } : await loadPacks(folder, taken);
  const all = [...BUILT_IN, ...packs.map(scenarioOfPack)];
  return { scenarios: new Map(all.map((scenario) => [scenario.id, scenario])), refused };
}

/** The action spaces of all scenarios. */
export const triedSpaces = (scenarios: Iterable<Scenario>): ReadonlySet<string> =>
  new Set([...scenarios].flatMap(({ variants }) => variants.map(({ actionSpace }) => actionSpace)));

/** Returns the scenario's variant for an action space, or its first; undefined if it has none for that space. */
export const variantFor = (scenario: Scenario, actionSpace: string | undefined): ScenarioVariant | undefined =>
  actionSpace === undefined
    ? scenario.variants[0]
    : scenario.variants.find((variant) => variant.actionSpace === actionSpace);

/**
 * Returns the digest of a scenario's variant: its model and its files, its numbers, cameras and words, and its rules: of a pack the complete
 * rules, of a built-in scenario its version. Scores are comparable only with equal digests.
 */
export function digestOf({ id, version, success, pack }: Scenario, variant: ScenarioVariant): string {
  const { mjcf, assets = new Map<string, Uint8Array>(), play: _, ...numbers } = variant;
  const hash = createHash("sha256");
  const files = [...assets].sort(([a], [b]) => (a < b ? -1 : 1));
  const sizes = files.map(([name, bytes]) => [name, bytes.length]);
  hash.update(JSON.stringify(sorted({ id, version, success, rules: pack?.rules, ...numbers, mjcf, sizes })));
  for (const [, bytes] of files) hash.update(bytes);
  return `sha256:${hash.digest("hex")}`;
}

/** The same value with the fields of every object in order. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(fields.map(([name, each]) => [name, sorted(each)]));
}
