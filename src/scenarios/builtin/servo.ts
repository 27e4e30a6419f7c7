/** Joints with position servos, for every scenario with joint targets. */
import { between, type Random } from "../chance.ts";
import type { World } from "../engine.ts";
import { clamp } from "../scenario.ts";

/** One hinge of a body: its position in the parent body (m), its axis, its limits (rad), its servo's stiffness (N m/rad). */
export interface Hinge {
  readonly name: string;
  readonly offset: readonly [number, number, number];
  readonly axis: "x" | "y" | "z";
  readonly lower: number;
  readonly upper: number;
  readonly stiffness: number;
  /** Held joints keep the angle of the episode's start. */
  readonly held?: true;
}

const AXIS = { x: "1 0 0", y: "0 1 0", z: "0 0 1" } as const;

/** A number in MJCF's format. */
const text = (value: number): string => `${Math.round(value * 1e6) / 1e6}`;

/**
 * A serial chain as nested bodies, each a hinge and a capsule to the next; `tip` is the content of the last body (its hand). Bodies are named
 * like their hinges. Gravity is compensated, as in the modeled arms.
 */
export function chainBodies(hinges: readonly Hinge[], tip: string, look: { rgba: string; radius: number }): string {
  const [hinge, ...rest] = hinges;
  if (!hinge) return tip;
  const next = rest[0]?.offset;
  const link = next?.some((part) => part !== 0)
    ? `<geom type="capsule" size="${look.radius}" fromto="0 0 0 ${next.map(text).join(" ")}" rgba="${look.rgba}" class="link"/>`
    : `<geom type="sphere" size="${look.radius}" rgba="${look.rgba}" class="link"/>`;
  return `
    <body name="${hinge.name}" pos="${hinge.offset.map(text).join(" ")}" gravcomp="1">
      <joint name="${hinge.name}" type="hinge" axis="${AXIS[hinge.axis]}" range="${text(hinge.lower)} ${text(hinge.upper)}" class="servo"/>
      ${link}
      ${chainBodies(rest, tip, look)}
    </body>`;
}

/** One position servo per hinge, in order. */
export const servos = (hinges: readonly Hinge[]): string =>
  hinges
    .map(
      ({ name, stiffness, lower, upper }) =>
        `<position name="${name}" joint="${name}" kp="${stiffness}" dampratio="1" ctrlrange="${text(lower)} ${text(upper)}"/>`,
    )
    .join("\n    ");

/** Defaults of the worlds with servos. Links have no contacts: these scenarios measure where a hand goes, not collisions on the way. */
export const SERVO_DEFAULTS = `
  <default>
    <default class="servo"><joint armature="0.1" damping="1"/></default>
    <default class="link"><geom contype="0" conaffinity="0" mass="0.5"/></default>
  </default>`;

/** A set of hinges in a world: reads, places and drives them. */
export class Servos {
  readonly #world: World;
  readonly #hinges: readonly Hinge[];
  readonly #at: readonly number[];
  readonly #ctrl: readonly number[];

  constructor(world: World, hinges: readonly Hinge[]) {
    this.#world = world;
    this.#hinges = hinges;
    this.#at = hinges.map(({ name }) => world.qposAt(name));
    this.#ctrl = hinges.map(({ name }) => world.id("actuator", name));
  }

  /** The angles now, in order (rad). */
  angles(): number[] {
    return this.#at.map((at) => this.#world.qpos[at]!);
  }

  /** Sets the joints to these angles, at rest, with their servos there. */
  place(angles: readonly number[]): void {
    for (const [i, at] of this.#at.entries()) this.#world.qpos[at] = angles[i]!;
    this.aim(angles);
  }

  /** Sets the servos' targets. */
  aim(targets: ArrayLike<number>): void {
    for (const [i, ctrl] of this.#ctrl.entries()) this.#world.ctrl[ctrl] = targets[i]!;
  }

  /** Angles within the middle of each joint's range; held joints near zero, or at `held`. */
  posture(random: Random, held?: readonly number[]): number[] {
    return this.#hinges.map((hinge, i) => {
      const { lower, upper } = hinge;
      if (!hinge.held) return between(random, lower + 0.2 * (upper - lower), upper - 0.2 * (upper - lower));
      const some = between(random, -0.1, 0.1);
      return held?.[i] ?? clamp(some, lower, upper);
    });
  }
}
