/**
 * The decision logic of a control loop, as a state machine of events and time. It has no clock, no timers and no network: equal events at
 * equal times produce equal decisions, in every language. All times are in milliseconds of the robot's monotonic clock.
 */

/** The loop ends if the clock goes back by more than this, in milliseconds. */
const BACK_MS = 1;
/** Consecutive observations that the gateway cannot use before the loop ends. */
const MOST_REJECTED = 3;
/** Added to a quotient before rounding down, so that 50.000000000000004 and 49.99999999999999 give the same step. */
const EPSILON = 1e-9;
/** Holds because a chunk is missing. All other holds mean that executing the current chunk would be wrong. */
const SOFT: ReadonlySet<string> = new Set([
  "late",
  "upstream_failed",
  "no_provider",
  "slow_reader",
  "not_recorded",
  "rate_limited",
  "stale_observation",
]);

/** The decision for one control step. */
export interface Decision {
  /** The control step, from 0 in each episode. */
  readonly step: number;
  readonly episode: number;
  /** True if this step's observation must be sent, which is at the first tick of the step. */
  readonly send: boolean;
  /** The chunk row to execute; undefined if the robot must hold. */
  readonly row: number | undefined;
  /** Why the robot must hold; empty if it must not. */
  readonly hold: string;
}

/** The facts of a chunk that decisions depend on. */
export interface ChunkFacts {
  readonly episode: number;
  /** The control step of its first action. */
  readonly startStep: number;
  /** The first control step at which it is no longer valid. */
  readonly validUntilStep: number;
  /** Time between consecutive rows, in milliseconds. */
  readonly dtMs: number;
  /** Number of rows. */
  readonly rows: number;
  /** Capture time of the observation, on the robot's own clock. */
  readonly observationTime?: number | undefined;
}

/** How a chunk was handled: `taken`, or why it is not used. */
export type ChunkFate = "taken" | "over" | "other_episode" | "unknown" | "older" | "stale" | "late";
/** How a hold was handled: `taken`, or why it is not used. */
export type HoldFate = "taken" | "over" | "other_episode" | "older";

/** Options of the decision logic. */
export interface CoreOptions {
  /** Control steps per second. */
  readonly rateHz: number;
  /** Execute the remaining valid rows of a chunk after a hold for a missing chunk and after a lost connection (default: false). */
  readonly finish?: boolean | undefined;
  /** Number of the first episode (default: 1). */
  readonly episode?: number | undefined;
  /** Maximum age of an observation when its chunk arrives, until the gateway sends its own value. */
  readonly deadlineMs?: number | undefined;
}

/**
 * The decision logic of one robot's control loop. A chunk is executed while all of these conditions hold: it belongs to the current episode; it
 * is the newest received chunk; the control step is at or after its `startStep` and before its `validUntilStep`; it arrived within the deadline
 * of its observation; no hold has arrived since.
 */
export class LoopCore {
  /** Time between control steps. */
  readonly periodMs: number;
  readonly finish: boolean;
  episode: number;
  deadlineMs: number;
  /** The current control step; -1 before the first one of the episode. */
  step = -1;
  /** Why the loop has ended; empty while it runs. */
  over = "";
  connected = false;
  #rejected = 0;
  #began: number | undefined;
  #last = Number.NEGATIVE_INFINITY;
  #sent = -1;
  #why = "connecting";
  #chunk: ChunkFacts | undefined;

  constructor({ rateHz, finish = false, episode = 1, deadlineMs = Number.POSITIVE_INFINITY }: CoreOptions) {
    this.periodMs = 1000 / rateHz;
    this.finish = finish;
    this.episode = episode;
    this.deadlineMs = deadlineMs;
  }

  get hasChunk(): boolean {
    return this.#chunk !== undefined;
  }

  /** Returns the decision for the time `at`. Steps are counted by the clock, so a skipped control step skips its chunk row too. */
  tick(at: number): Decision {
    if (this.over === "" && at < this.#last - BACK_MS) this.stop("clock");
    if (this.over !== "") return this.#held(this.over, false, Math.max(this.step, 0));
    this.#last = Math.max(this.#last, at);
    this.#began ??= this.#last;
    this.step = Math.max(this.step, this.#stepAt(this.#last));
    const send = this.step > this.#sent;
    if (send) this.#sent = this.step;
    const chunk = this.#chunk;
    if (chunk === undefined) return this.#held(this.#why, send);
    const dtMs = chunk.dtMs > 0 ? chunk.dtMs : this.periodMs;
    const row = Math.floor(((this.step - chunk.startStep) * this.periodMs) / dtMs + EPSILON);
    if (this.step < chunk.validUntilStep && row < chunk.rows)
      return { step: this.step, episode: this.episode, send, row, hold: "" };
    this.#drop("expired");
    return this.#held("expired", send);
  }

  /** Handles the gateway's confirmation that the loop is open. */
  opened(_at: number, { deadlineMs }: { readonly deadlineMs: number }): void {
    if (this.over !== "") return;
    this.connected = true;
    this.deadlineMs = deadlineMs;
    if (this.#chunk === undefined) this.#why = "no_chunk";
  }

  /** Handles a chunk. */
  chunk(at: number, chunk: ChunkFacts): ChunkFate {
    if (this.over !== "") return "over";
    if (chunk.episode !== this.episode) return "other_episode";
    // A chunk that answers none of this loop's observations, such as another program's under the same session, is not executed.
    if (chunk.startStep > this.#sent) return "unknown";
    if (this.#chunk !== undefined && chunk.startStep < this.#chunk.startStep) return "older";
    if (chunk.validUntilStep <= Math.max(this.step, this.#stepAt(at))) {
      this.#soft("late");
      return "stale";
    }
    if (chunk.observationTime !== undefined && at - chunk.observationTime > this.deadlineMs) {
      this.#soft("late");
      return "late";
    }
    this.#rejected = 0;
    this.#chunk = chunk;
    return "taken";
  }

  /** Handles a hold. */
  hold(_at: number, hold: { readonly episode: number; readonly step: number; readonly reason: string }): HoldFate {
    if (this.over !== "") return "over";
    if (hold.episode !== this.episode) return "other_episode";
    if (this.#chunk !== undefined && hold.step < this.#chunk.startStep) return "older";
    if (hold.reason === "invalid_observation") {
      this.#rejected++;
      if (this.#rejected >= MOST_REJECTED) {
        this.stop("observation_rejected");
        return "taken";
      }
    } else this.#rejected = 0;
    if (SOFT.has(hold.reason)) this.#soft(hold.reason);
    else this.#drop(hold.reason);
    return "taken";
  }

  /** Handles a broken connection. */
  lost(_at: number): void {
    if (this.over !== "") return;
    this.connected = false;
    this.#soft("disconnected");
  }

  /** Handles the end of the loop by the gateway. After a refusal code, the remaining chunk is not executed. */
  ended(_at: number, { code }: { readonly code: string }): void {
    if (this.over !== "") return;
    this.connected = false;
    this.#drop(code || "closed");
  }

  /** Begins a new episode and returns its number. Discards the previous episode's chunk. */
  reset(_at: number): number {
    this.episode++;
    this.step = -1;
    this.#sent = -1;
    this.#began = undefined;
    this.#rejected = 0;
    this.#drop(this.connected ? "no_chunk" : "connecting");
    return this.episode;
  }

  /** Ends the loop: every decision from now on is a hold. */
  stop(why: string): void {
    if (this.over !== "") return;
    this.over = why;
    this.#drop(why);
  }

  #stepAt(at: number): number {
    return this.#began === undefined ? this.step : Math.floor((at - this.#began) / this.periodMs + 0.5);
  }

  #soft(why: string): void {
    if (this.finish && this.#chunk !== undefined) return;
    this.#drop(why);
  }

  #drop(why: string): void {
    this.#chunk = undefined;
    this.#why = why;
  }

  #held(hold: string, send: boolean, step = this.step): Decision {
    return { step, episode: this.episode, send, row: undefined, hold };
  }
}
