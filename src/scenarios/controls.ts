/** Control policies: how a scenario is scored by a policy that does nothing, by chance, and by a known controller. */
import { plan } from "../reference/act/plan.ts";
import { REFERENCE_MODELS } from "../reference/models.ts";
import { between, seeded } from "./chance.ts";
import type { EpisodePolicy, Rules } from "./episode.ts";
import { restOf, type Scenario, type ScenarioVariant } from "./scenario.ts";

/** `zero` sends zeros, `random` draws each number evenly within its bounds, `reference` is the reference provider's controller. */
export type Control = "zero" | "random" | "reference";

/** Controls act without delay. */
export const CONTROL_RULES = { mode: "sync", replanSteps: 4 } as const satisfies Rules;

/** The most episodes of a control, and the most control steps of all its episodes at their longest. */
const MOST_EPISODES = 50;
export const MOST_CONTROL_STEPS = 12_000;

/** How many of an evaluation's episodes each control repeats, with at most `steps` control steps unless one episode takes more. */
export const controlEpisodes = (
  episodes: number,
  { maxSteps }: ScenarioVariant,
  steps: number = MOST_CONTROL_STEPS,
): number => Math.min(episodes, MOST_EPISODES, Math.max(1, Math.floor(Math.min(steps, MOST_CONTROL_STEPS) / maxSteps)));

/** The reference model for a built-in scenario's variant; undefined if there is none that reads its proprioception. */
export function referenceOf(
  { pack }: Scenario,
  { actionSpace, fields, proprioNames }: ScenarioVariant,
): string | undefined {
  if (pack) return undefined;
  const isSame = (layout: readonly string[]): boolean =>
    layout.length === proprioNames.length && layout.every((name) => proprioNames.includes(name));
  return REFERENCE_MODELS.find(({ actions }) =>
    actions.some(
      ({ space, dim, proprioLayouts }) => space === actionSpace && dim === fields.length && proprioLayouts.some(isSame),
    ),
  )?.slug;
}

/** The policy of a control in one episode. */
export function controlPolicy(
  control: Control,
  scenario: Scenario,
  variant: ScenarioVariant,
  seed: number,
): EpisodePolicy {
  const { bounds, actionSpace, proprioNames } = variant;
  if (control === "zero") return async () => ({ rows: [restOf(bounds)], latencyMs: 0 });
  if (control === "random") {
    const random = seeded(seed + RANDOM_SEEDS);
    return async () => ({ rows: [bounds.low.map((low, i) => between(random, low, bounds.high[i]!))], latencyMs: 0 });
  }
  const model = referenceOf(scenario, variant);
  if (model === undefined) throw new Error("this scenario has no reference controller");
  return async ({ proprio }) => {
    const asked = { actionSpace, horizon: CONTROL_RULES.replanSteps, proprio, proprioNames, frames: [] };
    const { steps, dim } = plan(asked, model);
    const rows = Array.from({ length: steps.length / dim }, (_, row) => steps.subarray(row * dim, (row + 1) * dim));
    return { rows, latencyMs: 0 };
  };
}

/** Beyond every episode's seed: the start and the actions of an episode must not be drawn from the same numbers. */
const RANDOM_SEEDS = 2 ** 40;
