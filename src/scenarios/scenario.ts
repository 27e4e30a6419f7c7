/** A scenario: an environment for policies, with its rules and its measure of success. */
import type { Random } from "./chance.ts";
import type { World } from "./engine.ts";
import type { Pack } from "./pack.ts";

/** The physics engine's version, which scores record so that they are reproducible; another version is refused at startup. */
export const ENGINE_FACTS = { name: "mujoco-wasm", version: "3.14.0" } as const;

/** The regular ends of an episode. `max_steps` is success only if the scenario declares so. */
export type EpisodeEnding = "success" | "max_steps" | "fell" | "collision" | "out_of_bounds";

/** Why an episode ended: a regular end, or a fault of the policy or of the physics. */
export type Termination =
  | EpisodeEnding
  | "policy_timeout"
  | "policy_disconnected"
  | "policy_error"
  | "invalid_action"
  | "action_dim_mismatch"
  | "sim_unstable";

/** Terminations that do not measure the policy's skill: such an episode is an error, counts as a failure and is not charged. */
export const FAULTS: ReadonlySet<Termination> = new Set([
  "policy_timeout",
  "policy_disconnected",
  "policy_error",
  "invalid_action",
  "action_dim_mismatch",
  "sim_unstable",
] as const);

/** A scenario's camera, whose images are sent to policies. */
export interface Camera {
  readonly name: string;
  /** In pixels. */
  readonly width: number;
  readonly height: number;
}

/** The result of one step. */
export interface Step {
  readonly reward: number;
  /** How the episode ended with this step; undefined if it continues. */
  readonly ending?: EpisodeEnding;
}

/** One task in a world. Every method uses the world's current state; only `reset` is random. */
export interface Task {
  /** Places everything for a new episode. */
  reset(random: Random): void;
  /** Whether the start that was just placed succeeds without a policy; such a start is drawn again. Leaves the world as it was. */
  isSolved?(): boolean;
  /** The policy's proprioception, in the order of `proprioNames`. */
  observe(): number[];
  /**
   * Converts an action returned for the last `observe` to world coordinates, for actions relative to the robot's pose at that time. Omitted
   * if an action means the same at any time.
   */
  grounded?(action: Float64Array): Float64Array;
  /** Executes one finite, grounded action of the right length for one control step, and evaluates the result. */
  step(action: Float64Array): Step;
  /** The episode's current metrics by name. `success` is whether it would count as a success. */
  measure(): {
    readonly success: boolean;
    readonly progress: number;
    readonly metrics: Readonly<Record<string, number>>;
  };
}

/** One variant of a scenario: an action space with its numbers' meaning. */
export interface ScenarioVariant {
  readonly actionSpace: string;
  /** One name per number of an action. */
  readonly fields: readonly string[];
  readonly units: string;
  /** The minimum and maximum of each action number; values beyond are clipped and counted. */
  readonly bounds: { readonly low: readonly number[]; readonly high: readonly number[] };
  /** One name per number of an observation. */
  readonly proprioNames: readonly string[];
  /** Milliseconds of one control step. */
  readonly dtMs: number;
  /** The maximum number of control steps of an episode. */
  readonly maxSteps: number;
  readonly cameras: readonly Camera[];
  /** MuJoCo's description of the world. */
  readonly mjcf: string;
  /** Files in the description (meshes, textures), by their names there. */
  readonly assets?: ReadonlyMap<string, Uint8Array>;
  /** The instruction for policies that read text. */
  readonly instruction: string;
  play(world: World): Task;
}

const MOST_NAMES = 16;

/** What a variant offers a policy to read and to command, in words. */
export function offersOf({ cameras, proprioNames, actionSpace, fields }: ScenarioVariant): string {
  const shown = cameras.map(({ name, width, height }) => `${name} (${width} × ${height})`).join(", ");
  const more = proprioNames.length > MOST_NAMES ? ", …" : "";
  const state = `${proprioNames.length} numbers of proprioception (${proprioNames.slice(0, MOST_NAMES).join(", ")}${more})`;
  return `the scenario offers ${shown === "" ? "no cameras" : `the cameras ${shown}`}, ${state}, and ${actionSpace} with ${fields.length} numbers; map them with \`camera_map\` and \`state_map\``;
}

/** A scenario with all its variants; the first is the default. */
export interface Scenario {
  readonly id: string;
  readonly version: string;
  readonly title: string;
  readonly description: string;
  /** Its topic, a term of the catalog; empty if undeclared. */
  readonly topic: string;
  /** The success condition, in one sentence. */
  readonly success: string;
  /** The public specification that it re-implements; empty for this project's own. */
  readonly source: string;
  /** The source of a scenario that is not built in. */
  readonly pack?: Pack;
  readonly variants: readonly [ScenarioVariant, ...ScenarioVariant[]];
}

/** The default number of executed rows for a chunk of this length. */
export const quarterOf = (rows: number): number => Math.max(1, Math.floor(rows / 4));

/** The Euclidean norm. */
export const lengthOf = (...parts: readonly number[]): number =>
  Math.sqrt(parts.reduce((sum, part) => sum + part * part, 0));
/** The distance between two points. */
export const distance = (a: readonly number[], b: readonly number[]): number =>
  lengthOf(...a.map((part, i) => part - b[i]!));
/** Clamps `value` to `low` and `high`. */
export const clamp = (value: number, low: number, high: number): number => Math.min(high, Math.max(low, value));
/** Zeros, within the bounds. */
export const restOf = ({ low, high }: ScenarioVariant["bounds"]): Float64Array =>
  Float64Array.from(low, (least, i) => clamp(0, least, high[i]!));
/** The same bounds for every number of an action. */
export const evenly = (count: number, low: number, high: number): ScenarioVariant["bounds"] => ({
  low: Array.from({ length: count }, () => low),
  high: Array.from({ length: count }, () => high),
});
/** e to the power of -x, for an x that is not negative, by arithmetic that is the same on every machine. */
export function decay(x: number): number {
  if (x > 700) return 0;
  // The Taylor series of a small part of x, and then its 4,096th power.
  const part = x / 4096;
  let power = 1;
  for (let i = 12; i > 0; i--) power = 1 + (power * part) / i;
  for (let i = 0; i < 12; i++) power *= power;
  return 1 / power;
}
