/** The scenarios that can be run here: those that ship with the gateway, and packs from a folder. */
import { createHash } from "node:crypto";
import { armReach } from "./builtin/arm-reach.ts";
import { baseNav } from "./builtin/base-nav.ts";
import { cartpoleBalance } from "./builtin/cartpole.ts";
import { pendulumSwingup } from "./builtin/pendulum.ts";
import { armPickPlace } from "./builtin/pick-place.ts";
import { pushT } from "./builtin/push-t.ts";
import { bimanualReach, humanoidReach } from "./builtin/reaches.ts";
import { loadPacks } from "./pack.ts";
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

/** Every scenario that can be run, by id; packs come from `folder` when one is given. Throws `ScenarioError`. */
export function loadScenarios(folder: string | undefined): ReadonlyMap<string, Scenario> {
  const packs = folder === undefined ? [] : loadPacks(folder);
  return new Map([...BUILT_IN, ...packs].map((scenario) => [scenario.id, scenario]));
}

/** The action spaces that a policy can be tried in. */
export const triedSpaces = (scenarios: Iterable<Scenario>): ReadonlySet<string> =>
  new Set([...scenarios].flatMap(({ variants }) => variants.map(({ actionSpace }) => actionSpace)));

/** The variant of a scenario for an action space, or its first; undefined where it has none for it. */
export const variantFor = (scenario: Scenario, actionSpace: string | undefined): ScenarioVariant | undefined =>
  actionSpace === undefined
    ? scenario.variants[0]
    : scenario.variants.find((variant) => variant.actionSpace === actionSpace);

/** What a scenario's variant is, as a digest: its model, its numbers and its rules' version. Scores compare only under one digest. */
export function digestOf(scenario: Scenario, variant: ScenarioVariant): string {
  const { actionSpace, fields, bounds, proprioNames, dtMs, maxSteps, mjcf } = variant;
  const { id, version, success } = scenario;
  const hash = createHash("sha256");
  hash.update(
    JSON.stringify({ id, version, success, actionSpace, fields, bounds, proprioNames, dtMs, maxSteps, mjcf }),
  );
  for (const [name, bytes] of variant.assets ?? []) hash.update(name).update(bytes);
  return `sha256:${hash.digest("hex")}`;
}
