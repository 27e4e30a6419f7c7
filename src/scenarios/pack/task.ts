/** Executes a pack's rules in its world. A pack contains no code. */
import { between, type Random } from "../chance.ts";
import type { World } from "../engine.ts";
import { clamp, distance, type Task } from "../scenario.ts";
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
  qpos_from: (world, _, first) => Array.from(world.qpos.subarray(Number(first))),
  qpos_rel: (world, { home }) => Array.from(world.qpos, (value, i) => value - home[i]!),
  qvel: (world) => Array.from(world.qvel),
  qvel_clipped: (world, _, most) => Array.from(world.qvel, (value) => clamp(value, -Number(most), Number(most))),
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
    // A part or a limited form of all positions or velocities has their names.
    const name = typeof argument === "string" ? `${word}.${argument}` : word.replace(/_(from|clipped)$/, "");
    const first = word === "qpos_from" ? Number(argument) : 0;
    return observed(world, now, term).map((_, i) => `${name}.${first + i}`);
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
  let total = 0;
  let reached = false;
  let fallen = false;
  const { reward = { alive: 1 } } = rules;
  const { speed, distance: apart } = reward;
  const moving = speed && world.qposAt(speed.joint);
  const bounds = (fail?.joint_outside ?? []).map(({ joint, low, high }) => ({ at: world.qposAt(joint), low, high }));
  const hasFallen = (): boolean => {
    const below = fail?.body_below;
    if (below && world.body(below.body)[2] < below.z) return true;
    return bounds.some(({ at, low, high }) => !(world.qpos[at]! > low && world.qpos[at]! < high));
  };
  const hasSucceeded = (): boolean => {
    const { site_near: near, return_at_least: least = Number.NEGATIVE_INFINITY } = success ?? {};
    return near
      ? distance(world.site(near.site), near.place) < near.within_m
      : steps >= rules.max_steps && total >= least;
  };
  const seconds = world.timestep * rules.substeps;
  /** The reward of a step in which the rewarded joint moved by `moved`. */
  const rewarded = (given: Float64Array, moved: number): number => {
    let sum = fallen ? 0 : (reward.alive ?? 0);
    if (speed) sum += (speed.weight * moved) / seconds;
    if (apart) sum += apart.weight * distance(world.site(apart.site), apart.place);
    if (reward.action) sum += reward.action * given.reduce((squares, value) => squares + value * value, 0);
    return sum;
  };
  const progress = (): number => {
    const least = success?.return_at_least ?? 0;
    return least > 0 ? clamp(total / least, 0, 1) : steps / rules.max_steps;
  };
  return {
    reset(random) {
      jitter(world.qpos, random, rules.reset?.qpos_noise ?? 0);
      jitter(world.qvel, random, rules.reset?.qvel_noise ?? 0);
      now.command = (rules.command ?? []).map(([low, high]) => between(random, low, high));
      now.last.fill(0);
      steps = 0;
      total = 0;
      reached = false;
      fallen = false;
    },
    observe: () => rules.obs.flatMap((term) => observed(world, now, term)),
    step(given) {
      for (const [i, value] of given.entries()) {
        world.ctrl[i] = (action.kind === "joint_target" ? controlled[i]! : 0) + action.scale * value;
      }
      now.last = given.slice();
      const before = moving === undefined ? 0 : world.qpos[moving]!;
      world.step(rules.substeps);
      steps += 1;
      fallen = hasFallen();
      const gained = rewarded(given, moving === undefined ? 0 : world.qpos[moving]! - before);
      total += gained;
      if (fallen) return { reward: gained, ending: "fell" };
      reached = hasSucceeded();
      return reached ? { reward: gained, ending: "success" } : { reward: gained };
    },
    measure: () => ({ success: reached, progress: reached ? 1 : progress(), metrics: { steps } }),
  };
}

function jitter(values: Float64Array, random: Random, most: number): void {
  if (most > 0) for (let i = 0; i < values.length; i++) values[i] = values[i]! + between(random, -most, most);
}
