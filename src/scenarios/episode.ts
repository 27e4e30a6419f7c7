/** One episode: a policy in a scenario, from the first observation to the last step. */
import { createHash } from "node:crypto";
import { seeded } from "./chance.ts";
import { World } from "./engine.ts";
import { PolicyFailure } from "./failure.ts";
import { FAULTS, quarterOf, restOf, type ScenarioVariant, type Task, type Termination } from "./scenario.ts";

/** A policy's observation. */
export interface Look {
  readonly proprio: readonly number[];
  /** Seconds of simulated time since the episode began. */
  readonly time: number;
  /** Whether it is the first observation of an episode, at which a policy with memory resets. */
  readonly first: boolean;
}

/** A policy's answer: rows of actions, and its duration in milliseconds. */
export interface Chunk {
  readonly rows: readonly ArrayLike<number>[];
  readonly latencyMs: number;
}

/** The policy. Throws `PolicyFailure`. */
export type EpisodePolicy = (look: Look) => Promise<Chunk>;

/** An episode's settings. */
export interface Rules {
  /** `realtime`: the simulation continues during a policy's call, with the last action. */
  readonly mode: "sync" | "realtime";
  /** Rows of each chunk to execute before the next call; undefined: a quarter of the chunk, at least one. */
  readonly replanSteps: number | undefined;
}

/** The record of a finished episode. */
export interface EpisodeRecord {
  readonly seed: number;
  readonly success: boolean;
  readonly termination: Termination;
  /** The policy's fault, in one sentence; undefined without one. */
  readonly error: string | undefined;
  readonly return: number;
  readonly progress: number;
  readonly steps: number;
  readonly simTimeS: number;
  readonly policyCalls: number;
  /** Milliseconds of each policy call. */
  readonly latenciesMs: readonly number[];
  readonly metrics: Readonly<Record<string, number>>;
  /** Steps with at least one number beyond the bounds, which was clipped. */
  readonly clippedSteps: number;
  /** Realtime only: steps with an old action because no new one had arrived. */
  readonly staleSteps: number;
  /** The mean change of an action between steps, relative to its bounds. */
  readonly meanActionDelta: number;
  readonly initialStateSha256: string;
  /** SHA-256 of the initial state, every applied action, and the final state. */
  readonly trajectorySha256: string;
  /** Every applied action, row by row, for a replay. */
  readonly actions: Float64Array;
}

/** The world of one variant, used for consecutive episodes. */
export class Arena {
  readonly variant: ScenarioVariant;
  readonly world: World;
  readonly #task: Task;

  private constructor(variant: ScenarioVariant, world: World) {
    this.variant = variant;
    this.world = world;
    this.#task = variant.play(world);
  }

  /** Compiles a variant's world. Throws `ScenarioError`. */
  static async of(variant: ScenarioVariant): Promise<Arena> {
    return new Arena(variant, await World.of(variant.mjcf, variant.assets));
  }

  /** Runs an episode from its seed to its end. Any behavior of the policy is recorded. */
  async run(seed: number, policy: EpisodePolicy, rules: Rules): Promise<EpisodeRecord> {
    const log = this.#begin(seed);
    try {
      await this.#play(policy, rules, log);
    } catch (thrown) {
      if (!(thrown instanceof PolicyFailure)) throw thrown;
      log.termination = thrown.termination;
      log.error = thrown.message;
    }
    return this.#recordOf(seed, log);
  }

  /**
   * Repeats recorded actions and returns the record without the policy's part. If its trajectory's SHA-256 differs, the actions are of another
   * engine or scenario.
   */
  replay(seed: number, actions: Float64Array): EpisodeRecord {
    const steps = this.replaying(seed, actions);
    for (;;) {
      const step = steps.next();
      if (step.done) return step.value;
    }
  }

  /** The same, step by step: yields the number of executed steps, from 0 on, and the return so far. */
  *replaying(seed: number, actions: Float64Array): Generator<{ steps: number; return: number }, EpisodeRecord> {
    const log = this.#begin(seed);
    const dim = this.variant.fields.length;
    yield { steps: 0, return: 0 };
    for (let at = 0; at < actions.length; at += dim) {
      this.#step(actions.subarray(at, at + dim), log);
      yield { steps: log.steps, return: log.return };
    }
    return this.#recordOf(seed, log);
  }

  /** Frees the engine's memory. */
  close(): void {
    this.world.close();
  }

  #begin(seed: number): EpisodeLog {
    const random = seeded(seed);
    do {
      this.world.reset();
      this.#task.reset(random);
      this.world.forward();
    } while (this.#task.isSolved?.());
    return newLog(this.world.state());
  }

  async #play(policy: EpisodePolicy, rules: Rules, log: EpisodeLog): Promise<void> {
    const { dtMs } = this.variant;
    let held: Float64Array | undefined;
    while (log.termination === undefined) {
      const look = { proprio: this.#task.observe(), time: (log.steps * dtMs) / 1000, first: log.calls === 0 };
      const { rows, latencyMs } = await policy(look);
      log.calls += 1;
      log.latencies.push(latencyMs);
      const actions = this.#checked(rows);
      let passed = 0;
      if (rules.mode === "realtime") {
        // During the policy's call the simulation continued with its previous answer; these rows of the new answer are already past.
        passed = Math.floor(latencyMs / dtMs + ROUNDING);
        for (let i = 0; i < passed && log.termination === undefined; i++) {
          log.stale += 1;
          // Before the first answer, the action is zero.
          this.#take(held ?? restOf(this.variant.bounds), log);
        }
      }
      const first = Math.min(passed, actions.length - 1);
      const count = rules.replanSteps ?? quarterOf(actions.length);
      for (const action of actions.slice(first, first + count)) {
        if (log.termination !== undefined) break;
        this.#take(action, log);
        held = action;
      }
    }
  }

  #checked(rows: readonly ArrayLike<number>[]): Float64Array[] {
    const dim = this.variant.fields.length;
    if (rows.length === 0) throw new PolicyFailure("invalid_action", "the policy returned no action");
    return rows.map((row) => {
      if (row.length !== dim) {
        const text = `an action of this scenario must have ${dim} numbers, got ${row.length}`;
        throw new PolicyFailure("action_dim_mismatch", text);
      }
      const action = new Float64Array(row);
      if (!action.every(Number.isFinite)) {
        throw new PolicyFailure("invalid_action", "the policy returned a non-finite number");
      }
      return this.#task.grounded?.(action) ?? action;
    });
  }

  #take(action: Float64Array, log: EpisodeLog): void {
    const { low, high } = this.variant.bounds;
    const applied = new Float64Array(action.length);
    let isClipped = false;
    for (let i = 0; i < action.length; i++) {
      applied[i] = Math.min(high[i]!, Math.max(low[i]!, action[i]!));
      if (applied[i] !== action[i]) isClipped = true;
    }
    if (isClipped) log.clipped += 1;
    this.#step(applied, log);
  }

  /** Executes an action, which no caller changes afterwards. */
  #step(action: Float64Array, log: EpisodeLog): void {
    const { reward, ending } = this.#task.step(action);
    if (log.last) log.travelled += this.#changed(log.last, action);
    log.last = action;
    log.actions.push(action);
    log.steps += 1;
    log.return += reward;
    if (this.world.unstable) log.termination = "sim_unstable";
    else if (ending) log.termination = ending;
    else if (log.steps >= this.variant.maxSteps) log.termination = "max_steps";
  }

  /** The change between two actions, relative to their bounds. */
  #changed(before: Float64Array, after: Float64Array): number {
    const { low, high } = this.variant.bounds;
    let sum = 0;
    for (let i = 0; i < after.length; i++) {
      const part = (after[i]! - before[i]!) / (high[i]! - low[i]! || 1);
      sum += part * part;
    }
    return Math.sqrt(sum);
  }

  #recordOf(seed: number, log: EpisodeLog): EpisodeRecord {
    const { success, progress, metrics } = this.#task.measure();
    const termination = log.termination ?? "max_steps";
    const actions = new Float64Array(log.actions.length * this.variant.fields.length);
    for (const [i, action] of log.actions.entries()) actions.set(action, i * action.length);
    return {
      seed,
      success: success && !FAULTS.has(termination),
      termination,
      error: termination === "sim_unstable" ? "the physics became unstable under these actions" : log.error,
      return: log.return,
      progress,
      steps: log.steps,
      simTimeS: (log.steps * this.variant.dtMs) / 1000,
      policyCalls: log.calls,
      latenciesMs: log.latencies,
      metrics,
      clippedSteps: log.clipped,
      staleSteps: log.stale,
      meanActionDelta: log.steps > 1 ? log.travelled / (log.steps - 1) : 0,
      initialStateSha256: sha256(log.initial),
      trajectorySha256: sha256(log.initial, actions, this.world.state()),
      actions,
    };
  }
}

/** Steps: a latency of exactly one step counts as one step, however the step's length was rounded. */
const ROUNDING = 1e-6;

interface EpisodeLog {
  readonly initial: Float64Array;
  readonly actions: Float64Array[];
  readonly latencies: number[];
  termination: Termination | undefined;
  error: string | undefined;
  last: Float64Array | undefined;
  return: number;
  steps: number;
  calls: number;
  clipped: number;
  stale: number;
  travelled: number;
}

const newLog = (initial: Float64Array): EpisodeLog => ({
  initial,
  actions: [],
  latencies: [],
  termination: undefined,
  error: undefined,
  last: undefined,
  return: 0,
  steps: 0,
  calls: 0,
  clipped: 0,
  stale: 0,
  travelled: 0,
});

/** SHA-256 of numbers as little-endian 64-bit floats. */
function sha256(...parts: readonly Float64Array[]): string {
  const hash = createHash("sha256");
  for (const part of parts) {
    const bytes = Buffer.alloc(part.length * 8);
    for (let i = 0; i < part.length; i++) bytes.writeDoubleLE(part[i]!, i * 8);
    hash.update(bytes);
  }
  return hash.digest("hex");
}
