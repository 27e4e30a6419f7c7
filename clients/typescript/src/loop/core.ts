/**
 * What a robot does at each control step, as a machine of events and time. It has no clock, no timers and no network: the same events at the
 * same times come to the same decisions, in every language. All times are milliseconds of one steady clock, the robot's.
 */

/** A clock that goes back by more than this, in milliseconds, is not read any longer. */
const BACK_MS = 1;
/** Observations in a row that the gateway cannot use, until the loop gives up. */
const MOST_REJECTED = 3;
/** So much is added to a quotient before its whole part is taken, so that 50.000000000000004 and 49.99999999999999 are one. */
const EPSILON = 1e-9;
/** Holds for want of a chunk. The others say that what the robot would do is wrong. */
const SOFT: ReadonlySet<string> = new Set([
  "late",
  "upstream_failed",
  "no_provider",
  "slow_reader",
  "not_recorded",
  "rate_limited",
  "stale_observation",
]);

/** What to do at one control step. */
export interface Decision {
  /** The control step, from 0 in each episode. */
  readonly step: number;
  readonly episode: number;
  /** The observation of this step is to be sent: it is the first of its step. */
  readonly send: boolean;
  /** The row of the chunk that is due; undefined where the robot is to hold. */
  readonly row: number | undefined;
  /** Why it is to hold; empty where it is not. */
  readonly hold: string;
}

/** A chunk, as far as the decision goes. */
export interface ChunkFacts {
  readonly episode: number;
  /** The control step of its first action. */
  readonly startStep: number;
  /** The first control step at which it may no longer be executed. */
  readonly validUntilStep: number;
  /** Time from one of its rows to the next, in milliseconds. */
  readonly dtMs: number;
  /** How many it has. */
  readonly rows: number;
  /** When the observation was sensed, on the robot's own clock. */
  readonly observationTime?: number | undefined;
}

/** What became of a chunk. */
export type ChunkFate = "taken" | "over" | "other_episode" | "unknown" | "older" | "stale" | "late";
/** What became of a hold. */
export type HoldFate = "taken" | "over" | "other_episode" | "older";

/** How a loop decides. */
export interface CoreOptions {
  /** Control steps a second. */
  readonly rateHz: number;
  /** A hold for want of a chunk, and a lost connection, leave the chunk before its valid rest; they end it when absent. */
  readonly finish?: boolean | undefined;
  /** Number of the first episode; 1 when absent. */
  readonly episode?: number | undefined;
  /** How old an observation may be when its chunk comes, until the gateway says so. */
  readonly deadlineMs?: number | undefined;
}

/**
 * One robot's loop. A chunk is executed while all of this holds: it is of the present episode; it is the newest that came; the control step
 * lies from its `startStep` to before its `validUntilStep`; it came within the deadline of its observation; nothing said hold since.
 */
export class LoopCore {
  /** From one control step to the next. */
  readonly periodMs: number;
  readonly finish: boolean;
  episode: number;
  deadlineMs: number;
  /** The present control step; -1 before the first of the episode. */
  step = -1;
  /** Why the loop is over; empty while it is not. */
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

  /** A control step is due at `at`. Steps are counted by the clock, so that one which is left out is left out of the chunk too. */
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

  /** The gateway has opened the loop. */
  opened(_at: number, { deadlineMs }: { readonly deadlineMs: number }): void {
    if (this.over !== "") return;
    this.connected = true;
    this.deadlineMs = deadlineMs;
    if (this.#chunk === undefined) this.#why = "no_chunk";
  }

  /** A chunk came. */
  chunk(at: number, chunk: ChunkFacts): ChunkFate {
    if (this.over !== "") return "over";
    if (chunk.episode !== this.episode) return "other_episode";
    // What answers no observation of this loop, such as one of another program under the same session, is not executed.
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

  /** A hold came. */
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

  /** The connection broke. */
  lost(_at: number): void {
    if (this.over !== "") return;
    this.connected = false;
    this.#soft("disconnected");
  }

  /** The gateway ended the loop. With the code of a refusal nothing of the chunk before is executed. */
  ended(_at: number, { code }: { readonly code: string }): void {
    if (this.over !== "") return;
    this.connected = false;
    this.#drop(code || "closed");
  }

  /** A new episode begins: nothing of the one before is executed. Its number. */
  reset(_at: number): number {
    this.episode++;
    this.step = -1;
    this.#sent = -1;
    this.#began = undefined;
    this.#rejected = 0;
    this.#drop(this.connected ? "no_chunk" : "connecting");
    return this.episode;
  }

  /** The loop is over: the robot holds from now on. */
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
