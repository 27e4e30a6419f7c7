/** Starts of scenarios, tried by a policy that does nothing. */
import { Arena, type EpisodePolicy } from "../../src/scenarios/episode.ts";
import { PolicyFailure } from "../../src/scenarios/failure.ts";
import type { ScenarioVariant } from "../../src/scenarios/scenario.ts";

/** More steps than a scenario asks a policy to stay in success. */
const STAY_STEPS = 6;

/** Stays where it is: the present joints as targets, no shift, no twist, no force. */
function stayingIn({ actionSpace, fields, proprioNames }: ScenarioVariant, steps: number): EpisodePolicy {
  let calls = 0;
  return async ({ proprio, first }) => {
    calls = first ? 1 : calls + 1;
    if (calls > steps) throw new PolicyFailure("policy_error", "enough");
    const isJoints = actionSpace.startsWith("joint_pos");
    const row = fields.map((name) => (isJoints ? (proprio[proprioNames.indexOf(name)] ?? 0) : 0));
    return { rows: [row], latencyMs: 0 };
  };
}

/** The seeds of a variant whose start succeeds by staying there; a free pendulum is followed for its whole episode. */
export async function solvedStarts(variant: ScenarioVariant, seeds: Iterable<number>): Promise<number[]> {
  const steps = variant.fields[0] === "torque" ? variant.maxSteps : STAY_STEPS;
  const arena = await Arena.of(variant);
  const solved: number[] = [];
  try {
    for (const seed of seeds) {
      const { success } = await arena.run(seed, stayingIn(variant, steps), { mode: "sync", replanSteps: 1 });
      if (success) solved.push(seed);
    }
  } finally {
    arena.close();
  }
  return solved;
}
