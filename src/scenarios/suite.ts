/** Suites: weighted tasks, each bound to the digest of its scenario. */
import { createHash } from "node:crypto";
import { builtIn, digestOf, variantFor } from "./index.ts";
import { canonical } from "./published.ts";
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

/** The digest of a suite's tasks, in their order. Its title does not count. */
export const suiteDigestOf = (tasks: readonly SuiteTask[]): string =>
  `sha256:${createHash("sha256")
    .update(canonical(tasks.map(taskFacts)))
    .digest("hex")}`;

/** What of a task counts. */
const taskFacts = ({ actionSpace, instruction, ...task }: SuiteTask) => ({
  ...{ scenario: task.scenario, version: task.version, digest: task.digest, action_space: actionSpace },
  ...(instruction !== undefined && { instruction }),
  ...{ episodes: task.episodes, seed: task.seed, weight: task.weight },
});

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
