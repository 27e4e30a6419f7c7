/** Reaching by joint targets: one or two hands to reachable goals. */
import { type Camera, distance, type Scenario, type ScenarioVariant } from "../scenario.ts";
import { type Hinge, SERVO_DEFAULTS, Servos, servos } from "./servo.ts";

/** The maximum distance of a hand (m), and the number of steps that it must stay. */
const CLOSE_M = 0.015;
const HOLD_STEPS = 5;
/** A start with every hand nearer to its goal (m) needs no policy. It is twice the success distance, because a hand at rest still sags. */
export const APART_M = 2 * CLOSE_M;
const DT_MS = 50;
const SUBSTEPS = 10;

/** A hand: its chain, its position on the last link (m), and its goal's names in proprio. */
export interface Hand {
  readonly name: string;
  readonly goal: string;
}

/** A body of a reaching scenario. */
export interface Reacher {
  readonly actionSpace: string;
  /** In the order of an action. */
  readonly hinges: readonly Hinge[];
  readonly hands: readonly Hand[];
  /** Action numbers without a hinge (grippers), by index, with their names. */
  readonly grippers: readonly { readonly at: number; readonly name: string }[];
  /** The bodies, as MJCF. */
  readonly bodies: string;
  readonly cameras: string;
  readonly shown: readonly Camera[];
  readonly maxSteps: number;
  readonly instruction: string;
}

/** A hand's geometry and its measured site. */
export const handAt = (name: string, place: readonly number[], rgba = ".9 .6 .2 1"): string => `
  <site name="${name}" pos="${place.join(" ")}" size=".01"/>
  <geom type="capsule" size=".025" fromto="0 0 0 ${place.join(" ")}" rgba="${rgba}" class="link"/>`;

const mjcfOf = (reacher: Reacher): string => `
<mujoco model="reach">
  <size memory="4M"/>
  <compiler angle="radian"/>
  <option timestep="${DT_MS / SUBSTEPS / 1000}" integrator="implicitfast"><flag contact="disable"/></option>
  <visual><headlight ambient=".5 .5 .5"/></visual>
  ${SERVO_DEFAULTS}
  <worldbody>
    ${reacher.cameras}
    <geom name="floor" type="plane" size="3 3 .1" pos="0 0 -1" rgba=".8 .82 .85 1" contype="0" conaffinity="0"/>
    ${reacher.bodies}
    ${reacher.hands
      .map(
        ({ name }) => `
    <body name="${name}_goal" mocap="true"><geom type="sphere" size=".03" rgba=".1 .75 .2 1" contype="0" conaffinity="0"/></body>`,
      )
      .join("")}
  </worldbody>
  <actuator>
    ${servos(reacher.hinges)}
  </actuator>
</mujoco>`;

const XYZ = ["x", "y", "z"];

/** This body's variant of the scenario. */
export function reaching(reacher: Reacher): ScenarioVariant {
  const { hinges, hands, grippers } = reacher;
  const fields = withGrippers(
    reacher,
    (hinge) => hinge.name,
    (name) => name,
  );
  return {
    actionSpace: reacher.actionSpace,
    fields,
    units:
      grippers.length === 0
        ? "rad, absolute joint targets"
        : "rad, absolute joint targets; grippers 0 closed to 1 open",
    bounds: {
      low: withGrippers(
        reacher,
        (hinge) => hinge.lower,
        () => 0,
      ),
      high: withGrippers(
        reacher,
        (hinge) => hinge.upper,
        () => 1,
      ),
    },
    proprioNames: [...fields, ...hands.flatMap(({ goal }) => XYZ.map((axis) => `${goal}${axis}`))],
    dtMs: DT_MS,
    maxSteps: reacher.maxSteps,
    cameras: reacher.shown,
    mjcf: mjcfOf(reacher),
    instruction: reacher.instruction,
    play(world) {
      const joints = new Servos(world, hinges);
      const opening = grippers.map(() => 1);
      let goals: [number, number, number][] = [];
      let first: number[] = [];
      let held = 0;
      let reachedAt: number | undefined;
      let steps = 0;
      const gaps = (): number[] => hands.map(({ name }, i) => distance(world.site(name), goals[i]!));
      return {
        reset(random) {
          const start = joints.posture(random);
          joints.place(joints.posture(random, start));
          world.forward();
          goals = hands.map(({ name }) => world.site(name));
          for (const [i, { name }] of hands.entries()) world.put(`${name}_goal`, goals[i]!);
          joints.place(start);
          world.forward();
          first = gaps();
          opening.fill(1);
          held = 0;
          steps = 0;
          reachedAt = undefined;
        },
        isSolved: () => first.every((gap) => gap < APART_M),
        observe() {
          const angles = joints.angles();
          return [
            ...withGrippers(
              reacher,
              (_, i) => angles[i]!,
              (_, i) => opening[i]!,
            ),
            ...goals.flat(),
          ];
        },
        step(action) {
          for (const [i, { at }] of grippers.entries()) opening[i] = action[at]!;
          joints.aim(action.filter((_, i) => grippers.every(({ at }) => at !== i)));
          world.step(SUBSTEPS);
          steps += 1;
          const all = gaps();
          const there = all.every((gap) => gap < CLOSE_M);
          held = there ? held + 1 : 0;
          const reward = -all.reduce((sum, gap) => sum + gap, 0);
          if (held < HOLD_STEPS) return { reward };
          reachedAt = steps;
          return { reward, ending: "success" };
        },
        measure() {
          const all = gaps();
          const progress =
            all.reduce((sum, gap, i) => sum + 1 - Math.min(1, gap / Math.max(first[i]!, CLOSE_M)), 0) / all.length;
          const metrics = Object.fromEntries(hands.map(({ name }, i) => [`${name}_distance_m`, all[i]!]));
          return { success: reachedAt !== undefined, progress, metrics };
        },
      };
    },
  };
}

/** One entry per action number: the hinges in order, with the grippers at their indexes. */
function withGrippers<T>(
  { hinges, grippers }: Reacher,
  ofHinge: (hinge: Hinge, index: number) => T,
  ofGripper: (name: string, index: number) => T,
): T[] {
  const all = hinges.map(ofHinge);
  for (const [i, { at, name }] of grippers.entries()) all.splice(at, 0, ofGripper(name, i));
  return all;
}

/** A scenario of reaching hands. */
export const reachScenario = (
  facts: Pick<Scenario, "id" | "title" | "description" | "topic">,
  ...variants: Scenario["variants"]
): Scenario => ({
  ...facts,
  version: "1.1.0",
  success: `Every hand is within ${CLOSE_M * 1000} mm of its goal for ${HOLD_STEPS} steps in a row.`,
  source: "",
  variants,
});
