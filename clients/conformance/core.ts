/**
 * The decision logic of a control loop, in TypeScript; the counterpart of `limber/core.py`, with which the traces were recorded. It has no clock and
 * no network: equal events at equal times produce equal decisions. All times are in milliseconds of one monotonic clock.
 */

/** The loop ends if the clock goes back by more than this. */
const BACK_MS = 1;
/** Consecutive observations that the gateway cannot use before the loop ends. */
const MOST_REJECTED = 3;
/** Added to a quotient before rounding down. */
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
  readonly step: number;
  readonly episode: number;
  /** True if this step's observation must be sent. */
  readonly send: boolean;
  /** The chunk row to execute; null if the robot must hold. */
  readonly row: number | null;
  /** Why the robot must hold; empty if it must not. */
  readonly hold: string;
}

/** The facts of a chunk in a trace. */
export interface ChunkFacts {
  readonly episode: number;
  readonly start_step: number;
  readonly valid_until_step: number;
  readonly dt_ms: number;
  readonly rows: number;
  readonly observation_time?: number;
}

/** The decision logic of one robot's control loop. */
export class LoopCore {
  readonly #periodMs: number;
  readonly #finish: boolean;
  #episode: number;
  #deadlineMs = Number.POSITIVE_INFINITY;
  #step = -1;
  #sent = -1;
  #over = "";
  #connected = false;
  #rejected = 0;
  #began: number | undefined;
  #last = Number.NEGATIVE_INFINITY;
  #why = "connecting";
  #chunk: ChunkFacts | undefined;

  constructor(rateHz: number, { finish = false, episode = 1 }: { finish?: boolean; episode?: number } = {}) {
    this.#periodMs = 1000 / rateHz;
    this.#finish = finish;
    this.#episode = episode;
  }

  /** Returns the decision for a control step at the time `at`. */
  tick(at: number): Decision {
    if (this.#over === "" && at < this.#last - BACK_MS) this.stop("clock");
    if (this.#over !== "")
      return { step: Math.max(this.#step, 0), episode: this.#episode, send: false, row: null, hold: this.#over };
    this.#last = Math.max(this.#last, at);
    this.#began ??= this.#last;
    this.#step = Math.max(this.#step, this.#stepAt(this.#last));
    const send = this.#step > this.#sent;
    if (send) this.#sent = this.#step;
    const here = { step: this.#step, episode: this.#episode, send };
    const chunk = this.#chunk;
    if (!chunk) return { ...here, row: null, hold: this.#why };
    const dtMs = chunk.dt_ms > 0 ? chunk.dt_ms : this.#periodMs;
    const row = Math.floor(((this.#step - chunk.start_step) * this.#periodMs) / dtMs + EPSILON);
    if (this.#step >= chunk.valid_until_step || row >= chunk.rows) {
      this.#drop("expired");
      return { ...here, row: null, hold: "expired" };
    }
    return { ...here, row, hold: "" };
  }

  /** Handles the gateway's confirmation that the loop is open. */
  opened(deadlineMs: number): void {
    if (this.#over !== "") return;
    this.#connected = true;
    this.#deadlineMs = deadlineMs;
    if (!this.#chunk) this.#why = "no_chunk";
  }

  /** Handles a chunk. Returns `taken`, or why it is not used. */
  chunk(at: number, chunk: ChunkFacts): string {
    if (this.#over !== "") return "over";
    if (chunk.episode !== this.#episode) return "other_episode";
    if (chunk.start_step > this.#sent) return "unknown";
    if (this.#chunk && chunk.start_step < this.#chunk.start_step) return "older";
    if (chunk.valid_until_step <= Math.max(this.#step, this.#stepAt(at))) {
      this.#soft("late");
      return "stale";
    }
    if (chunk.observation_time !== undefined && at - chunk.observation_time > this.#deadlineMs) {
      this.#soft("late");
      return "late";
    }
    this.#rejected = 0;
    this.#chunk = chunk;
    return "taken";
  }

  /** Handles a hold. Returns `taken`, or why it is not used. */
  hold({ episode, step, reason }: { episode: number; step: number; reason: string }): string {
    if (this.#over !== "") return "over";
    if (episode !== this.#episode) return "other_episode";
    if (this.#chunk && step < this.#chunk.start_step) return "older";
    this.#rejected = reason === "invalid_observation" ? this.#rejected + 1 : 0;
    if (this.#rejected >= MOST_REJECTED) this.stop("observation_rejected");
    else if (SOFT.has(reason)) this.#soft(reason);
    else this.#drop(reason);
    return "taken";
  }

  /** Handles a broken connection. */
  lost(): void {
    if (this.#over !== "") return;
    this.#connected = false;
    this.#soft("disconnected");
  }

  /** Handles the end of the loop by the gateway. */
  ended(code: string): void {
    if (this.#over !== "") return;
    this.#connected = false;
    this.#drop(code || "closed");
  }

  /** Begins a new episode and returns its number. */
  reset(): number {
    this.#episode += 1;
    this.#step = -1;
    this.#sent = -1;
    this.#began = undefined;
    this.#rejected = 0;
    this.#drop(this.#connected ? "no_chunk" : "connecting");
    return this.#episode;
  }

  /** Ends the loop. */
  stop(why: string): void {
    if (this.#over !== "") return;
    this.#over = why;
    this.#drop(why);
  }

  #stepAt(at: number): number {
    return this.#began === undefined ? this.#step : Math.floor((at - this.#began) / this.#periodMs + 0.5);
  }

  #drop(why: string): void {
    this.#chunk = undefined;
    this.#why = why;
  }

  #soft(why: string): void {
    if (!this.#finish || !this.#chunk) this.#drop(why);
  }
}

/** The first line of a trace. */
export interface TraceHead {
  readonly trace: string;
  readonly says: string;
  readonly rate_hz: number;
  readonly finish: boolean;
  readonly episode: number;
}

/** Any other line: an event and its expected result. */
export interface TraceEvent {
  readonly at: number;
  readonly tick?: true;
  readonly opened?: { deadline_ms: number };
  readonly chunk?: ChunkFacts;
  readonly hold?: { episode: number; step: number; reason: string };
  readonly lost?: true;
  readonly ended?: { code: string };
  readonly reset?: true;
  readonly stop?: string;
  readonly expect?: Decision | string | number;
}

/** Passes an event to a core. Returns the result, or undefined if the event has none. */
export function take(core: LoopCore, event: TraceEvent): Decision | string | number | undefined {
  const { at, tick, opened, chunk, hold, lost, ended, reset, stop } = event;
  if (tick) return core.tick(at);
  if (chunk) return core.chunk(at, chunk);
  if (hold) return core.hold(hold);
  if (reset) return core.reset();
  if (opened) core.opened(opened.deadline_ms);
  else if (lost) core.lost();
  else if (ended) core.ended(ended.code);
  else if (stop !== undefined) core.stop(stop);
  return undefined;
}
