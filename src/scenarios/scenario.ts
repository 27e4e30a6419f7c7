/** What a scenario is: a place where a policy is tried, with its rules and its measure of success. */
import type { Random } from "./chance.ts";
import type { World } from "./engine.ts";
import type { Pack } from "./pack.ts";

/** The physics engine: what a score has to name so that it can be had again; another version is refused at start. */
export const ENGINE_FACTS = { name: "mujoco-wasm", version: "3.14.0" } as const;

/** How an episode can end that ran to its end. `max_steps` is no success, unless the scenario says that lasting is the point. */
export type EpisodeEnding = "success" | "max_steps" | "fell" | "collision" | "out_of_bounds";

/** Why an episode ended: as the scenario says, or by a fault of the policy or of the physics. */
export type Termination =
  | EpisodeEnding
  | "policy_timeout"
  | "policy_disconnected"
  | "policy_error"
  | "invalid_action"
  | "action_dim_mismatch"
  | "sim_unstable";

/** Terminations that are no verdict on the policy's skill: such an episode is an error, counts as a failure and isn't billed. */
export const FAULTS: ReadonlySet<Termination> = new Set([
  "policy_timeout",
  "policy_disconnected",
  "policy_error",
  "invalid_action",
  "action_dim_mismatch",
  "sim_unstable",
] as const);

/** A camera of a scenario, as its pictures are sent to policies. */
export interface Camera {
  readonly name: string;
  /** In pixels. */
  readonly width: number;
  readonly height: number;
}

/** What one step brought. */
export interface Step {
  readonly reward: number;
  /** How the episode ended with this step; undefined while it goes on. */
  readonly ending?: EpisodeEnding;
}

/** One task in a world. Every method works on the world's present state; chance comes in by `reset` alone. */
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
  /** Carries out one finite, grounded action of the right length for one control step, and judges what came of it. */
  step(action: Float64Array): Step;
  /** Figures of the episode as it stands, by name. `success` is whether it would count as one. */
  measure(): {
    readonly success: boolean;
    readonly progress: number;
    readonly metrics: Readonly<Record<string, number>>;
  };
}

/** One way to take a scenario: an action space with its numbers' meaning. */
export interface ScenarioVariant {
  readonly actionSpace: string;
  /** One name per number of an action. */
  readonly fields: readonly string[];
  readonly units: string;
  /** The least and the most that each number of an action takes effect with; what is beyond is clipped, and counted. */
  readonly bounds: { readonly low: readonly number[]; readonly high: readonly number[] };
  /** One name per number of an observation. */
  readonly proprioNames: readonly string[];
  /** Milliseconds of one control step. */
  readonly dtMs: number;
  /** Control steps that an episode has at most. */
  readonly maxSteps: number;
  readonly cameras: readonly Camera[];
  /** MuJoCo's description of the world. */
  readonly mjcf: string;
  /** Files that the description names (meshes, textures), by their names there. */
  readonly assets?: ReadonlyMap<string, Uint8Array>;
  /** The instruction for policies that read text. */
  readonly instruction: string;
  play(world: World): Task;
}

/** A scenario with all its variants; the first is the default. */
export interface Scenario {
  readonly id: string;
  readonly version: string;
  readonly title: string;
  readonly description: string;
  /** Its topic, a term of the catalog; empty if undeclared. */
  readonly topic: string;
  /** What counts as success, in one sentence. */
  readonly success: string;
  /** The public specification that it re-implements; empty where it is this project's own. */
  readonly source: string;
  /** What it was made from, where it is no built-in one. */
  readonly pack?: Pack;
  readonly variants: readonly [ScenarioVariant, ...ScenarioVariant[]];
}

/** Rows that are carried out of a chunk of so many where nothing is said. */
export const quarterOf = (rows: number): number => Math.max(1, Math.floor(rows / 4));

/** The sum of squares' root. */
export const lengthOf = (...parts: readonly number[]): number =>
  Math.sqrt(parts.reduce((sum, part) => sum + part * part, 0));
/** The distance between two points. */
export const distance = (a: readonly number[], b: readonly number[]): number =>
  lengthOf(...a.map((part, i) => part - b[i]!));
/** `value`, at least `low` and at most `high`. */
export const clamp = (value: number, low: number, high: number): number => Math.min(high, Math.max(low, value));
/** The same bounds for every number of an action. */
export const evenly = (count: number, low: number, high: number): ScenarioVariant["bounds"] => ({
  low: Array.from({ length: count }, () => low),
  high: Array.from({ length: count }, () => high),
});
