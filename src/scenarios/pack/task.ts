/** Executes a pack's rules in its world. A pack contains no code. */
import { between, type Random } from "../chance.ts";
import type { World } from "../engine.ts";
import { distance, type Task } from "../scenario.ts";
import type { ObsTerm, PackRules } from "./schema.ts";

/** An episode's state beside the world. */
interface Now {
  readonly home: Float64Array;
  command: number[];
  last: Float64Array;
}

/** The observation terms. */
const TERMS: Readonly<
  Record<ObsTerm[0], (world: World, now: Now, argument: string | number | undefined) => readonly number[]>
> = {
  qpos: (world) => Array.from(world.qpos),
  qpos_rel: (world, { home }) => Array.from(world.qpos, (value, i) => value - home[i]!),
  qvel: (world) => Array.from(world.qvel),
  site: (world, _, name) => world.site(`${name}`),
  gravity: (world, _, name) => {
    // The down direction in the site's frame.
    const turn = world.siteTurn(`${name}`);
    return [-turn[6]!, -turn[7]!, -turn[8]!];
  },
  sensor: (world, _, name) => {
    const id = world.id("sensor", `${name}`);
    const at = world.model.sensor_adr[id]!;
    return Array.from((world.data.sensordata as Float64Array).slice(at, at + world.model.sensor_dim[id]!));
  },
  command: (_, { command }) => command,
  last_action: (_, { last }, scale) => Array.from(last, (value) => value * Number(scale ?? 1)),
};

const observed = (world: World, now: Now, [term, argument]: ObsTerm): readonly number[] =>
  TERMS[term](world, now, argument);

const startOf = (rules: PackRules, world: World): Now => ({
  home: world.qpos.slice(),
  command: (rules.command ?? []).map(([low]) => low),
  last: new Float64Array(rules.action_dim),
});

/** Returns one name per observed number, such as `qpos.0` and `site.tip.2`. Throws `ScenarioError` for names that are not in the model. */
export function namesOf(rules: PackRules, world: World): string[] {
  const now = startOf(rules, world);
  return rules.obs.flatMap((term) => {
    const [word, argument] = term;
    const name = typeof argument === "string" ? `${word}.${argument}` : word;
    return observed(world, now, term).map((_, i) => `${name}.${i}`);
  });
}

/** Executes a pack's rules in its world. */
export function playing(rules: PackRules, world: World): Task {
  const { action, success, fail } = rules;
  const now = startOf(rules, world);
  const controlled = Array.from({ length: rules.action_dim }, (_, i) => {
    const joint = world.model.actuator_trnid[2 * i]!;
    return now.home[world.model.jnt_qposadr[joint]!] ?? 0;
  });
  let steps = 0;
  let reached = false;
  let fallen = false;
  const isThere = (): boolean => {
    const near = success?.site_near;
    return near !== undefined && distance(world.site(near.site), near.place) < near.within_m;
  };
  return {
    reset(random) {
      jitter(world.qpos, random, rules.reset?.qpos_noise ?? 0);
      jitter(world.qvel, random, rules.reset?.qvel_noise ?? 0);
      now.command = (rules.command ?? []).map(([low, high]) => between(random, low, high));
      now.last.fill(0);
      steps = 0;
      reached = false;
      fallen = false;
    },
    observe: () => rules.obs.flatMap((term) => observed(world, now, term)),
    step(given) {
      for (const [i, value] of given.entries()) {
        world.ctrl[i] = (action.kind === "joint_target" ? controlled[i]! : 0) + action.scale * value;
      }
      now.last = given.slice();
      world.step(rules.substeps);
      steps += 1;
      const below = fail?.body_below;
      fallen = below !== undefined && world.body(below.body)[2] < below.z;
      if (fallen) return { reward: 0, ending: "fell" };
      reached = success?.site_near ? isThere() : steps >= rules.max_steps;
      return reached ? { reward: 1, ending: "success" } : { reward: 1 };
    },
    measure: () => ({ success: reached, progress: reached ? 1 : steps / rules.max_steps, metrics: { steps } }),
  };
}

function jitter(values: Float64Array, random: Random, most: number): void {
  if (most > 0) for (let i = 0; i < values.length; i++) values[i] = values[i]! + between(random, -most, most);
}
