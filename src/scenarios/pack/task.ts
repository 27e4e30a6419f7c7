/** Executes a pack's rules in its world. A pack contains no code. */
import { between, type Random } from "../chance.ts";
import type { World } from "../engine.ts";
import { clamp, decay, distance, type Task } from "../scenario.ts";
import type { ObsTerm, PackRules, Place } from "./schema.ts";

type Point = readonly [number, number, number];

/** An episode's state beside the world. */
interface Now {
  readonly home: Float64Array;
  command: number[];
  target: Point;
  last: Float64Array;
}

/** Appends numbers to an observation. */
type Reader = (out: number[]) => void;

/** Returns the reader of an observation term. */
function readerOf(world: World, now: Now, [term, argument, factor]: ObsTerm): Reader {
  const [name, number] = [`${argument}`, Number(argument)];
  const readers: Readonly<Record<ObsTerm[0], Reader>> = {
    qpos: (out) => append(out, world.qpos),
    qpos_from: (out) => append(out, world.qpos, number),
    qpos_rel: (out) => append(out, world.qpos, 0, (value, i) => value - now.home[i]!),
    qpos_rel_from: (out) => append(out, world.qpos, number, (value, i) => value - now.home[i]!),
    qvel: (out) => append(out, world.qvel),
    qvel_from: (out) => append(out, world.qvel, number),
    qvel_clipped: (out) => append(out, world.qvel, 0, (value) => clamp(value, -number, number)),
    site: (out) => append(out, world.site(name)),
    gravity(out) {
      // The down direction in the site's frame.
      const turn = world.siteTurn(name);
      out.push(-turn[6]!, -turn[7]!, -turn[8]!);
    },
    sensor: (out) => append(out, world.sensor(name), 0, factor === undefined ? undefined : (value) => value * factor),
    command: (out) => append(out, now.command),
    target: (out) => append(out, now.target),
    last_action: (out) => append(out, now.last, 0, (value) => value * Number(argument ?? 1)),
  };
  return readers[term];
}

function append(
  out: number[],
  values: ArrayLike<number>,
  from = 0,
  changed?: (value: number, index: number) => number,
): void {
  for (let i = from; i < values.length; i++) out.push(changed ? changed(values[i]!, i) : values[i]!);
}

const keyframeOf = ({ reset }: PackRules, world: World): number | undefined =>
  reset?.keyframe === undefined ? undefined : world.id("key", reset.keyframe);

/** Brings the world to the pack's first state. */
function startOf(rules: PackRules, world: World): Now {
  world.reset(keyframeOf(rules, world));
  return {
    home: world.qpos.slice(),
    command: (rules.command ?? []).map(([low]) => low),
    target: [0, 0, 0],
    last: new Float64Array(rules.action_dim),
  };
}

/** Returns one name per observed number, such as `qpos.0` and `site.tip.2`. Throws `ScenarioError` for names that are not in the model. */
export function namesOf(rules: PackRules, world: World): string[] {
  const now = startOf(rules, world);
  return rules.obs.flatMap((term) => {
    const [word, argument] = term;
    // A part or a limited form of all positions or velocities has their names.
    const name = typeof argument === "string" ? `${word}.${argument}` : word.replace(/_(from|clipped)$/, "");
    const first = word.endsWith("_from") ? Number(argument) : 0;
    const numbers: number[] = [];
    readerOf(world, now, term)(numbers);
    return numbers.map((_, i) => `${name}.${first + i}`);
  });
}

/** Executes a pack's rules in its world. */
export function playing(rules: PackRules, world: World): Task {
  const { success, fail, target } = rules;
  const keyframe = keyframeOf(rules, world);
  const now = startOf(rules, world);
  const readers = rules.obs.map((term) => readerOf(world, now, term));
  const apply = actuation(rules, world, now);
  const { reward = { alive: 1 } } = rules;
  const { speed, distance: apart, far, track = [] } = reward;
  const moving = speed && world.qposAt(speed.joint);
  const errors = track.map(() => 0);
  let steps = 0;
  let total = 0;
  let first = 0;
  let reached = false;
  let fallen = false;
  let draw: Random = () => 0;
  const bounds = (fail?.joint_outside ?? []).map(({ joint, low, high }) => ({ at: world.qposAt(joint), low, high }));
  const hasFallen = (): boolean => {
    const below = fail?.body_below;
    if (below && world.body(below.body)[2] < below.z) return true;
    if (fail?.tilted && world.siteTurn(fail.tilted.site)[8]! < fail.tilted.below) return true;
    const { qpos } = world;
    return bounds.some(({ at, low, high }) => !(qpos[at]! > low && qpos[at]! < high));
  };
  const gap = ({ site, place }: { readonly site: string; readonly place: Place }): number =>
    distance(world.site(site), place === "target" ? now.target : place);
  const near = success?.site_near;
  const isDrawn = near?.place === "target";
  const isNear = (): boolean => near !== undefined && gap(near) < near.within_m;
  const least = success?.return_at_least;
  const hasSucceeded = (): boolean =>
    near ? isNear() : steps >= rules.max_steps && total >= (least ?? Number.NEGATIVE_INFINITY);
  const seconds = world.timestep * rules.substeps;
  /** The reward of a step in which the rewarded joint moved by `moved`. */
  const rewarded = (given: Float64Array, moved: number): number => {
    let sum = fallen ? 0 : (reward.alive ?? 0);
    if (speed) sum += (speed.weight * moved) / seconds;
    if (apart) sum += apart.weight * gap(apart);
    if (far && gap(far) > far.within_m) sum += far.weight;
    for (const [i, { sensor, values, command, weight, sigma }] of track.entries()) {
      const measured = world.sensor(sensor);
      const squares = values.reduce((squares, value, j) => {
        const error = now.command[command[j]!]! - measured[value]!;
        return squares + error * error;
      }, 0);
      sum += weight * decay(squares / sigma);
      errors[i]! += Math.sqrt(squares);
    }
    if (reward.action) sum += reward.action * given.reduce((squares, value) => squares + value * value, 0);
    return sum;
  };
  const progress = (): number => {
    if (reached) return 1;
    if (near && isDrawn) return 1 - clamp(gap(near) / first, 0, 1);
    return least !== undefined && least > 0 ? clamp(total / least, 0, 1) : steps / rules.max_steps;
  };
  const commanded = (): number[] => (rules.command ?? []).map(([low, high]) => between(draw, low, high));
  return {
    reset(random) {
      draw = random;
      if (keyframe !== undefined) world.reset(keyframe);
      jitter(world.qpos, random, rules.reset?.qpos_noise ?? 0);
      jitter(world.qvel, random, rules.reset?.qvel_noise ?? 0);
      now.command = commanded();
      if (target) {
        world.forward();
        const middle = target.around === undefined ? [0, 0, 0] : world.site(target.around);
        const [x, y, z] = target.box.map(([low, high], axis) => middle[axis]! + between(random, low, high));
        now.target = [x!, y!, z!];
        if (target.marker !== undefined) world.put(target.marker, now.target);
      }
      now.last.fill(0);
      errors.fill(0);
      steps = 0;
      total = 0;
      first = near && isDrawn ? gap(near) : 0;
      reached = false;
      fallen = false;
    },
    isSolved: () => isDrawn && isNear(),
    observe() {
      const out: number[] = [];
      for (const read of readers) read(out);
      return out;
    },
    step(given) {
      apply(given);
      now.last = given.slice();
      const before = moving === undefined ? 0 : world.qpos[moving]!;
      world.step(rules.substeps);
      steps += 1;
      fallen = hasFallen();
      const gained = rewarded(given, moving === undefined ? 0 : world.qpos[moving]! - before);
      total += gained;
      if (rules.command_every !== undefined && steps % rules.command_every === 0) now.command = commanded();
      if (fallen) return { reward: gained, ending: "fell" };
      reached = hasSucceeded();
      return reached ? { reward: gained, ending: "success" } : { reward: gained };
    },
    measure: () => ({
      success: reached,
      progress: progress(),
      metrics: {
        steps,
        ...(near && isDrawn && { target_distance_m: gap(near) }),
        ...Object.fromEntries(track.map(({ sensor }, i) => [`${sensor}_error`, errors[i]! / Math.max(1, steps)])),
      },
    }),
  };
}

/** Returns what an action does to the world's controls and mocap bodies. */
function actuation({ action, action_dim: dim }: PackRules, world: World, { home }: Now): (given: Float64Array) => void {
  const { kind, scale, mocap = "", body = "", gripper } = action;
  if (kind === "mocap_delta") {
    const fingers = (gripper?.actuators ?? []).map((name) => world.id("actuator", name));
    return (given) => {
      const [x, y, z] = world.body(body);
      world.put(mocap, [x + scale * given[0]!, y + scale * given[1]!, z + scale * given[2]!]);
      for (const finger of fingers) world.ctrl[finger] = gripper!.scale * given[3]!;
    };
  }
  const from = Array.from({ length: dim }, (_, i) => {
    if (kind === "control") return 0;
    return home[world.model.jnt_qposadr[world.model.actuator_trnid[2 * i]!]!] ?? 0;
  });
  return (given) => {
    const { ctrl } = world;
    for (let i = 0; i < given.length; i++) ctrl[i] = from[i]! + scale * given[i]!;
  };
}

function jitter(values: Float64Array, random: Random, most: number): void {
  if (most > 0) for (let i = 0; i < values.length; i++) values[i] = values[i]! + between(random, -most, most);
}
