/** A robot's control loop: sends observations, receives chunks, and makes one decision per control step. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Client, createClient, type Transport } from "@connectrpc/connect";
import {
  BadInput,
  CallbackHung,
  CalledOff,
  ClockJumped,
  ConnectionFailed,
  errorOf,
  MalformedAnswer,
  ObservationRejected,
} from "../errors.ts";
import type { Action, SafetyBoundsSchema } from "../gen/limber/v1/action_pb.ts";
import {
  HoldReasonSchema,
  type LoopChunk,
  type LoopEnded,
  type LoopOpenSchema,
} from "../gen/limber/v1/control_loop_pb.ts";
import {
  type ActStreamRequest,
  ActStreamRequestSchema,
  type ActStreamResponse,
  InferenceService,
} from "../gen/limber/v1/inference_service_pb.ts";
import { type ObservationInit, observationOf, type Sensed } from "../observe.ts";
import { type LimberError, Refused } from "../refused.ts";
import { pause } from "../retry.ts";
import { type Decision, LoopCore } from "./core.ts";
import { LoopCounts, type LoopStats } from "./stats.ts";

/** Options of a loop. */
export interface LoopOptions {
  /** An exact slug `owner/name`, or an alias of the gateway. */
  readonly model: string;
  /** Control steps per second. */
  readonly rateHz: number;
  /** The robot's name, for emergency stops and the log (default: the key's own robot, if it has one). */
  readonly robot?: string;
  readonly instruction?: string;
  readonly actionSpace?: string;
  /** Number of steps in a chunk. */
  readonly horizon?: number;
  /** Limits for every action. */
  readonly bounds?: MessageInitShape<typeof SafetyBoundsSchema>;
  /** The action to execute during a hold, in the action space. Without it, `step` receives only the reason of the hold. */
  readonly hold?: readonly number[];
  /** Maximum age of an observation when its chunk arrives, in milliseconds (default: the gateway's value). */
  readonly deadlineMs?: number;
  /** The session id, under which the loop resumes after a broken connection (default: a generated one). */
  readonly session?: string;
  /** Number of the first episode (default: 1). */
  readonly episode?: number;
  /** Execute the remaining valid rows of a chunk after a hold for a missing chunk and after a broken connection (default: false). */
  readonly finish?: boolean;
  /** Time without a message from the gateway, while observations are sent, before the loop reconnects, in milliseconds (default: 2,000). */
  readonly silenceMs?: number;
  /** Time without a connection before the loop ends, in milliseconds (default: 30,000). */
  readonly giveUpMs?: number;
  /** Additional fields of the opening message. They override the other options. */
  readonly open?: MessageInitShape<typeof LoopOpenSchema>;
}

/** Options of a run. */
export interface RunOptions {
  /** Maximum duration of the run, in seconds. */
  readonly maxSeconds: number;
  /** Time limit for a callback, in milliseconds (default: 1,000). */
  readonly callbackMs?: number;
}

/** What the robot must do at one control step. During a hold, `values` is the hold action or undefined. */
export interface Command {
  readonly values: readonly number[] | undefined;
  /** Why the robot must hold; undefined if it must not. */
  readonly hold: string | undefined;
  /** The control step, from 0 in each episode. */
  readonly step: number;
  readonly episode: number;
}

/** Why a run ended. */
export type RunEnd = "max_seconds" | "interrupted" | "done";

const DEFAULT_SILENCE_MS = 2_000;
const DEFAULT_GIVE_UP_MS = 30_000;
const DEFAULT_CALLBACK_MS = 1_000;
/** Delays between connection attempts: doubled from the first to the last. */
const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 2_000;
/** A stream that lasted longer than this counts as stable. */
const STEADY_MS = 1_000;

/** A control loop. `tick` never blocks; `run` drives it with two callbacks. Close it when the robot is done. */
export class Loop {
  readonly #client: Client<typeof InferenceService>;
  readonly #options: LoopOptions;
  readonly #core: LoopCore;
  readonly #counts = new LoopCounts();
  readonly #session: string;
  readonly #interrupted = new AbortController();
  /** Aborted when no further stream must be opened. */
  readonly #quit = new AbortController();
  readonly #clock: () => number;
  #outbox: Outbox | undefined;
  #streamAbort = new AbortController();
  #lastOpenMs: number;
  #failure: LimberError | undefined;
  #ended: LoopEnded | undefined;
  #isClosed = false;
  #instruction: string | undefined;
  /** The actions of the current chunk. */
  #rows: readonly (readonly number[])[] = [];
  /** Send time of the first observation since the last received message. */
  #silentSinceMs: number | undefined;
  readonly #served: Promise<void>;

  /** `clock` returns milliseconds and must be monotonic. */
  constructor(transport: Transport, options: LoopOptions, clock: () => number = () => performance.now()) {
    if (!(options.rateHz > 0 && Number.isFinite(options.rateHz)))
      throw new BadInput(`rateHz must be a number above 0, got ${options.rateHz}`);
    this.#client = createClient(InferenceService, transport);
    this.#options = options;
    this.#clock = clock;
    this.#session = options.session ?? `ts-${crypto.randomUUID()}`;
    this.#instruction = options.instruction;
    const { rateHz, finish, episode, deadlineMs } = options;
    this.#core = new LoopCore({ rateHz, finish, episode, deadlineMs });
    this.#lastOpenMs = clock();
    this.#served = this.#serve();
  }

  /** The current statistics. */
  get stats(): LoopStats {
    return this.#counts.at(this.#clock());
  }

  /** The current episode's number. */
  get episode(): number {
    return this.#core.episode;
  }

  /** The gateway's message at the end of the loop; undefined before. */
  get ended(): LoopEnded | undefined {
    return this.#ended;
  }

  /**
   * Returns what the robot must do now, and sends `sensed`, the current observation, if the control step is a new one. Never blocks. Throws
   * the error that ended the loop, and `BadInput` for an observation that cannot be sent; the robot must hold then.
   */
  tick(sensed: Sensed): Command {
    if (this.#failure !== undefined) throw this.#failure;
    const now = this.#clock();
    if (!Number.isFinite(now)) {
      const wrong = new ClockJumped(`the clock returned ${now}; pass a clock that counts milliseconds`);
      this.#fail(wrong);
      throw wrong;
    }
    // Uses the loop's own clock, which also measures the age of the chunk.
    const observation = observationOf({ ...sensed, tMs: now });
    const decision = this.#core.tick(now);
    if (this.#core.over === "clock") this.#fail(new ClockJumped("the clock went back; pass a monotonic clock"));
    if (decision.send) this.#send(decision.step, observation, now);
    this.#checkSilence(now);
    if (this.#failure !== undefined) throw this.#failure;
    return this.#commandOf(decision);
  }

  /** Begins a new episode: steps restart at 0, and the previous episode's chunk is discarded. */
  reset(instruction?: string): void {
    this.#instruction = instruction ?? this.#instruction;
    const episode = this.#core.reset(this.#clock());
    this.#outbox?.reset(episode, instruction);
  }

  /**
   * Runs the loop: at each control step, calls `observe` for the observation and passes the command to `step`. Ends after `maxSeconds`, when
   * interrupted, or when `observe` returns undefined. A callback that throws or hangs, a refusal, and Ctrl-C also end it: the robot is told
   * to hold first, if there is a hold action, and then the error is thrown (`CalledOff` for Ctrl-C).
   */
  async run(
    observe: () => Sensed | undefined | Promise<Sensed | undefined>,
    step: (command: Command) => unknown,
    { maxSeconds, callbackMs = DEFAULT_CALLBACK_MS }: RunOptions,
  ): Promise<RunEnd> {
    if (!(maxSeconds > 0 && Number.isFinite(maxSeconds)))
      throw new BadInput(`maxSeconds must be a number above 0, got ${maxSeconds}`);
    const periodMs = 1000 / this.#options.rateHz;
    const began = this.#clock();
    const { signal } = this.#interrupted;
    const inTime = <T>(name: string, work: T | Promise<T>): Promise<T> => within(callbackMs, name, work, signal);
    let isInterrupted = false;
    // Without this handler, Ctrl-C would end the process before the robot is told to hold. A second Ctrl-C still ends it.
    const onCtrlC = (): void => {
      isInterrupted = true;
      this.interrupt();
    };
    const interrupted = (): RunEnd => {
      if (isInterrupted) throw new CalledOff("Ctrl-C ended the run, and the robot was told to hold");
      return "interrupted";
    };
    process.once("SIGINT", onCtrlC);
    try {
      for (let due = began; ; ) {
        if (signal.aborted) return interrupted();
        if (this.#clock() - began >= maxSeconds * 1000) return "max_seconds";
        const sensed = await inTime("observe", observe());
        if (signal.aborted) return interrupted();
        if (sensed === undefined) return "done";
        await inTime("step", step(this.tick(sensed)));
        // Scheduled by the clock and not by the previous timer, so that late timers do not slow the loop down.
        due = Math.max(due + periodMs, this.#clock() - periodMs);
        // Wait at most one step: if the clock jumped, the next step detects it.
        await pause(Math.min(periodMs, Math.max(0, due - this.#clock())) || 0, signal);
      }
    } finally {
      await this.#sendHold(step, callbackMs);
      await this.close();
      process.off("SIGINT", onCtrlC);
    }
  }

  /** Ends the loop at once, from anywhere: every later tick is a hold. */
  interrupt(): void {
    this.#core.stop("interrupted");
    this.#interrupted.abort();
    this.#quit.abort();
  }

  /** Ends the loop, and waits up to 1 s for the gateway's last message. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#core.stop("closed");
    this.#quit.abort();
    this.#outbox?.close();
    await Promise.race([this.#served, pause(1000)]);
    this.#streamAbort.abort();
    await this.#served;
  }

  #commandOf({ step, episode, row, hold }: Decision): Command {
    if (row !== undefined) {
      this.#counts.actions++;
      return { values: this.#rows[row], hold: undefined, step, episode };
    }
    this.#counts.hold(hold);
    return { values: this.#options.hold, hold, step, episode };
  }

  #send(step: number, observation: ObservationInit, now: number): void {
    if (this.#outbox === undefined) return;
    if (this.#outbox.sense(step, observation)) this.#counts.droppedHere++;
    this.#silentSinceMs ??= now;
  }

  /** Reconnects if the gateway is silent. Ends the loop if there is no connection for too long. */
  #checkSilence(now: number): void {
    const { silenceMs = DEFAULT_SILENCE_MS, giveUpMs = DEFAULT_GIVE_UP_MS } = this.#options;
    if (this.#silentSinceMs !== undefined && now - this.#silentSinceMs > silenceMs) this.#streamAbort.abort();
    if (this.#outbox === undefined && now - this.#lastOpenMs > giveUpMs)
      this.#fail(new ConnectionFailed(`no gateway was reached for ${Math.round(giveUpMs / 1000)} s`));
  }

  async #sendHold(step: (command: Command) => unknown, callbackMs: number): Promise<void> {
    const { hold } = this.#options;
    if (hold === undefined) return;
    const still = {
      values: hold,
      hold: this.#core.over || "closed",
      step: this.#core.step,
      episode: this.#core.episode,
    };
    // The caller receives the error that ended the loop, not this one.
    await within(callbackMs, "step", (async () => step(still))()).catch(() => {});
  }

  #fail(error: LimberError): void {
    this.#failure ??= error;
    this.#core.stop(error instanceof Refused ? error.code : "failed");
    this.#isClosed = true;
    this.#quit.abort();
    this.#streamAbort.abort();
  }

  /** Keeps a stream open until the loop ends. Never rejects. */
  async #serve(): Promise<void> {
    for (let pauseMs = FIRST_PAUSE_MS; !this.#isClosed; ) {
      const beganMs = this.#clock();
      this.#streamAbort = new AbortController();
      const outbox = new Outbox(() => this.#opening(), this.#core.episode);
      let wasOpen = false;
      let error: LimberError | undefined;
      try {
        this.#counts.streams++;
        for await (const { event } of this.#client.actStream(outbox.messages(), { signal: this.#streamAbort.signal })) {
          if (event.case === "opened") {
            wasOpen = true;
            this.#outbox = outbox;
            // The episode might have changed while the stream was being opened.
            outbox.reset(this.#core.episode, this.#instruction);
          }
          this.#receive(event);
        }
      } catch (thrown) {
        error =
          this.#streamAbort.signal.aborted && this.#failure === undefined
            ? new ConnectionFailed("the gateway was silent")
            : errorOf(thrown);
      }
      outbox.close();
      this.#outbox = undefined;
      this.#silentSinceMs = undefined;
      if (error === undefined || error instanceof ConnectionFailed) this.#core.lost(this.#clock());
      else this.#core.ended(this.#clock(), { code: error instanceof Refused ? error.code : "failed" });
      if (this.#isClosed) return;
      if (wasOpen) {
        this.#lastOpenMs = this.#clock();
        // Reconnect at once after a stable stream. A stream that broke right after it opened counts as a failed attempt.
        pauseMs = this.#clock() - beganMs > STEADY_MS ? 0 : FIRST_PAUSE_MS;
      }
      if (error !== undefined && !mayPass(error)) {
        this.#fail(error);
        return;
      }
      if (error instanceof Refused && error.retryAfterS !== undefined) pauseMs = error.retryAfterS * 1000;
      if (pauseMs > 0) await pause(pauseMs, this.#quit.signal);
      pauseMs = Math.min(LAST_PAUSE_MS, Math.max(FIRST_PAUSE_MS, pauseMs * 2));
    }
  }

  #receive(event: ActStreamResponse["event"]): void {
    const now = this.#clock();
    this.#silentSinceMs = undefined;
    switch (event.case) {
      case "opened":
        this.#core.opened(now, { deadlineMs: event.value.deadlineMs });
        break;
      case "chunk":
        this.#receiveChunk(event.value, now);
        break;
      case "hold": {
        const { episode, step, reason, droppedObservations } = event.value;
        this.#counts.droppedThere = droppedObservations;
        this.#core.hold(now, { episode, step, reason: WORDS.get(reason) ?? "unspecified" });
        if (this.#core.over === "observation_rejected")
          this.#fail(new ObservationRejected(event.value.detail || "the gateway cannot use the observations"));
        break;
      }
      case "ended":
        this.#ended = event.value;
        break;
    }
  }

  #receiveChunk(chunk: LoopChunk, now: number): void {
    const { episode, startStep, validUntilStep, action, usage, observationAgeMs, observationTime } = chunk;
    const wrong = wrongIn(action);
    if (action === undefined || wrong !== undefined) {
      this.#fail(new MalformedAnswer(`the gateway sent a chunk ${wrong}`));
      return;
    }
    const { dtMs, steps } = action;
    const facts = { episode, startStep, validUntilStep, dtMs, rows: steps.length, observationTime };
    const fate = this.#core.chunk(now, facts);
    if (fate === "taken") this.#rows = steps.map(({ values }) => values);
    if (fate === "stale" || fate === "late") this.#counts.stale++;
    this.#counts.droppedThere = chunk.droppedObservations;
    this.#counts.chunk(now, observationAgeMs, usage?.costUsd ?? 0);
  }

  #opening(): ActStreamRequest {
    const { model, robot, actionSpace, horizon, bounds, deadlineMs, open } = this.#options;
    const instruction = this.#instruction;
    const value = {
      model,
      episode: this.#core.episode,
      ...(robot !== undefined && { robotId: robot }),
      ...(instruction !== undefined && { instruction }),
      ...(actionSpace !== undefined && { actionSpace }),
      ...(horizon !== undefined && { horizon }),
      ...(bounds !== undefined && { bounds }),
      ...open,
      provider: { sessionId: this.#session, ...(deadlineMs !== undefined && { deadlineMs }), ...open?.provider },
    };
    return create(ActStreamRequestSchema, { message: { case: "open", value } } as OneMessage);
  }
}

/** Returns why a chunk must not be executed; undefined if it can be. */
function wrongIn(action: Action | undefined): string | undefined {
  const dimensions = action?.steps[0]?.values.length ?? 0;
  if (action === undefined || dimensions === 0) return "without actions";
  for (const { values } of action.steps) {
    if (values.length !== dimensions) return `whose rows have different lengths: ${dimensions} and ${values.length}`;
    if (!values.every(Number.isFinite)) return "with a number that is not finite";
  }
  return undefined;
}

/** The words of the hold reasons. */
const WORDS: ReadonlyMap<number, string> = new Map(
  HoldReasonSchema.values.map(({ number, name }) => [number, name.slice("HOLD_REASON_".length).toLowerCase()]),
);

type OneMessage = MessageInitShape<typeof ActStreamRequestSchema>;

/** Whether another stream can succeed: after a broken connection and after a retryable refusal. */
const mayPass = (error: LimberError): boolean =>
  error instanceof ConnectionFailed || (error instanceof Refused && error.retryable);

/** Resolves with `work`. Rejects with `CallbackHung` if that takes longer than `ms`. Resolves early if `signal` is aborted. */
function within<T>(ms: number, name: string, work: T | Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!(work instanceof Promise)) return Promise.resolve(work);
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new CallbackHung(`${name} did not return within ${ms} ms`)), ms);
    const onAbort = (): void => resolve(undefined as T); // the run checks its signal before it uses the value
    signal?.addEventListener("abort", onAbort);
    work.then(resolve, reject).finally(() => {
      clearTimeout(late);
      signal?.removeEventListener("abort", onAbort);
    });
  });
}

/** The outgoing messages of one stream. Of the observations, only the newest is kept. */
class Outbox {
  readonly #opening: () => ActStreamRequest;
  /** The episode that the gateway has last received. */
  #sentEpisode: number;
  #reset: { readonly episode: number; readonly instruction: string | undefined } | undefined;
  #next: ActStreamRequest | undefined;
  #isOver = false;
  #wake = (): void => {};

  constructor(opening: () => ActStreamRequest, episode: number) {
    this.#opening = opening;
    this.#sentEpisode = episode;
  }

  /** Queues an observation. Returns whether it replaced another one. */
  sense(step: number, observation: ObservationInit): boolean {
    const replaced = this.#next !== undefined;
    const value = { step, observations: [observation] };
    this.#next = create(ActStreamRequestSchema, { message: { case: "observation", value } } as OneMessage);
    this.#wake();
    return replaced;
  }

  /** Queues a reset and drops the queued observation, which belongs to the previous episode. */
  reset(episode: number, instruction: string | undefined): void {
    this.#next = undefined;
    this.#reset = { episode, instruction: instruction ?? this.#reset?.instruction };
    this.#wake();
  }

  close(): void {
    this.#isOver = true;
    this.#wake();
  }

  async *messages(): AsyncGenerator<ActStreamRequest, void, undefined> {
    const opening = this.#opening();
    if (opening.message.case === "open") this.#sentEpisode = opening.message.value.episode ?? this.#sentEpisode;
    yield opening;
    while (!this.#isOver) {
      const reset = this.#reset;
      this.#reset = undefined;
      if (reset !== undefined && reset.episode > this.#sentEpisode) {
        this.#sentEpisode = reset.episode;
        yield create(ActStreamRequestSchema, { message: { case: "reset", value: reset } } as OneMessage);
        continue;
      }
      const next = this.#next;
      this.#next = undefined;
      if (next !== undefined) yield next;
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
    yield create(ActStreamRequestSchema, { message: { case: "close", value: {} } });
  }
}
