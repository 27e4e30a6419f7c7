/** The types of controllers. */
import type { RgbFrame } from "../image.ts";

/** The specification's action spaces. */
export type ActionSpace =
  | "base_twist_2d"
  | "waypoint_se2"
  | "ee_delta_6d_grip"
  | "joint_pos_7"
  | "joint_pos_14"
  | "joint_pos_23"
  | "joint_pos_29"
  | "continuous_nd"
  | "latent_action";

/** One act request. `proprioNames` names the numbers of `proprio` one for one; without it a layout is recognized by its length. */
export interface ActInput {
  readonly actionSpace: string;
  /** Steps to return, 1 to 256. */
  readonly horizon: number;
  readonly proprio: Float64Array | readonly number[];
  readonly proprioNames?: readonly string[];
  readonly instruction?: string;
  /** The newest frame of each camera. */
  readonly frames: readonly RgbFrame[];
  readonly goal?: RgbFrame;
  /** Accepted without effect: these controllers are deterministic, so every seed gives the same chunk. */
  readonly seed?: number;
}

/** An action chunk: `horizon` rows of `dim` finite numbers, row by row, `dtMs` milliseconds apart, with a sentence on its origin. */
export interface ActOutput {
  readonly steps: Float64Array;
  readonly dim: number;
  readonly dtMs: number;
  readonly note: string;
}

/** The meaning of an action space's numbers: equal dimensions alone do not make two policies compatible. */
export interface ActionDeclaration {
  readonly space: ActionSpace;
  readonly dim: number;
  readonly dtMs: number;
  /** One name per number of a row. */
  readonly fields: readonly string[];
  readonly units: string;
  readonly frame: string;
  /** Whether values are scaled to -1..1; here they never are. */
  readonly normalized: false;
  /** Which row entries are grippers, and their range from closed to open; null without a gripper. */
  readonly gripper: { readonly indices: readonly number[]; readonly closed: number; readonly open: number } | null;
  /** Every supported proprio layout, by the names of its numbers; no two have the same length. */
  readonly proprioLayouts: readonly (readonly string[])[];
  /** The usual magnitude of proprio numbers; about 1 if absent. */
  readonly proprioScale?: number;
  /** Lengths of the layouts that need a camera frame and an instruction with a colored object, and that camera's geometry. */
  readonly visualLayouts: readonly number[];
  readonly camera: string | null;
}

/** The future rows, one per call. */
export interface Motion {
  /** Returns the next row, valid until the next call. */
  next(): ArrayLike<number>;
  /** One sentence on how the rows were made and where they lead; read after the last row. */
  note(): string;
  /** Milliseconds between rows, if this task differs from its controller's declaration. */
  readonly dtMs?: number;
}

/** A classical controller for one action space. `begin` throws `UnsupportedObservation` for unsupported input. */
export interface Controller {
  readonly declaration: ActionDeclaration;
  begin(input: ActInput): Motion;
}
