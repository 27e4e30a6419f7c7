/** The scenarios that can be run here: those that ship with the gateway, and packs from a folder. */
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

/** The scenarios that ship with the gateway. */
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

/** A scenario as its version 1.0.0 was: it kept starts that need no policy. */
const asFirst = (scenario: Scenario): Scenario => {
  const [first, ...others] = scenario.variants.map((variant) => ({
    ...variant,
    play: (world: World) => ({ ...variant.play(world), isSolved: () => false }),
  }));
  return { ...scenario, version: "1.0.0", variants: [first!, ...others] };
};

/** Earlier versions of built-in scenarios, so that their scores can be recomputed. */
export const EARLIER: readonly Scenario[] = BUILT_IN.filter(({ version }) => version !== "1.0.0").map(asFirst);

/** The built-in scenario of an id such as `arm-reach`, or of a certain version such as `arm-reach@1.0.0`. */
export const builtIn = (name: string): Scenario | undefined =>
  [...BUILT_IN, ...EARLIER].find(({ id, version }) => id === name || `${id}@${version}` === name);

/** The scenarios of a gateway, by id, and the packs that it refused. */
export interface LoadedScenarios {
  readonly scenarios: ReadonlyMap<string, Scenario>;
  readonly refused: readonly RefusedPack[];
}

/** Every scenario that can be run; packs come from `folder` when one is given. Rejects where the folder can't be read. */
export async function loadScenarios(folder: string | undefined): Promise<LoadedScenarios> {
  const taken = new Set(BUILT_IN.map(({ id }) => id));
  const { packs, refused } = folder === undefined ? { packs: [], refused: [] } : await loadPacks(folder, taken);
  const all = [...BUILT_IN, ...packs.map(scenarioOfPack)];
  return { scenarios: new Map(all.map((scenario) => [scenario.id, scenario])), refused };
}

/** The action spaces that a policy can be tried in. */
export const triedSpaces = (scenarios: Iterable<Scenario>): ReadonlySet<string> =>
  new Set([...scenarios].flatMap(({ variants }) => variants.map(({ actionSpace }) => actionSpace)));

/** The variant of a scenario for an action space, or its first; undefined where it has none for it. */
export const variantFor = (scenario: Scenario, actionSpace: string | undefined): ScenarioVariant | undefined =>
  actionSpace === undefined
    ? scenario.variants[0]
    : scenario.variants.find((variant) => variant.actionSpace === actionSpace);

/**
 * What a scenario's variant is, as a digest: its model and every file that this names, its numbers, its cameras and words, and its rules:
 * of a pack all that it says, of a built-in one their version. Scores compare only under one digest.
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
