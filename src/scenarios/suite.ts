/** Suites: weighted tasks, each bound to the digest of its scenario. */
import { canonical, sha256Of } from "./canonical.ts";
import { builtIn, digestOf, variantFor } from "./index.ts";
import type { Scenario } from "./scenario.ts";

/** A task of a suite. */
export interface SuiteTask {
  /** Scenario id, without its version. */
  readonly scenario: string;
  readonly version: string;
  readonly digest: string;
  readonly actionSpace: string;
  /** Replaces the scenario's instruction. */
  readonly instruction?: string | undefined;
  readonly episodes: number;
  /** Seed of the first episode. */
  readonly seed: number;
  /** Positive; relative to the other tasks. */
  readonly weight: number;
}

/** The share of each task in the overall score: all are 1 together. */
export function sharesOf(tasks: readonly Pick<SuiteTask, "weight">[]): number[] {
  const all = tasks.reduce((sum, { weight }) => sum + weight, 0);
  return tasks.map(({ weight }) => weight / all);
}

/** A task as published documents have it. */
export type TaskFacts = ReturnType<typeof taskFacts>;

export const taskFacts = ({ actionSpace, instruction, ...task }: SuiteTask) => ({
  ...{ scenario: task.scenario, version: task.version, digest: task.digest, action_space: actionSpace },
  ...(instruction !== undefined && { instruction }),
  ...{ episodes: task.episodes, seed: task.seed, weight: task.weight },
});

/** The task of published facts. */
export const taskOfFacts = ({ action_space: actionSpace, ...task }: TaskFacts): SuiteTask => ({ ...task, actionSpace });

/** The digest of a suite's tasks, in their order. Its title does not count. */
export const suiteDigestOf = (tasks: readonly TaskFacts[]): string => sha256Of(canonical(tasks));

/**
 * The name under which a task's scenario runs: its id, or `id@version` if the scenario has a later version. Undefined if the scenario was
 * removed or has another digest.
 */
export function runnableName(
  scenarios: ReadonlyMap<string, Scenario>,
  { scenario: id, version, digest, actionSpace }: SuiteTask,
): string | undefined {
  for (const name of [id, `${id}@${version}`]) {
    const scenario = scenarios.get(name) ?? builtIn(name);
    const variant = scenario && variantFor(scenario, actionSpace);
    if (scenario && variant && digestOf(scenario, variant) === digest) return name;
  }
  return undefined;
}
