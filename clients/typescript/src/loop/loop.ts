/** A robot's control loop: observations up, chunks down, one decision for each control step. */
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

/** What a loop is for. */
export interface LoopOptions {
  /** An exact slug `owner/name`, or an alias of the gateway. */
  readonly model: string;
  /** Control steps a second. */
  readonly rateHz: number;
  /** The robot's name, for the emergency stop and the log; the key's own robot where the key has one. */
  readonly robot?: string;
  readonly instruction?: string;
  readonly actionSpace?: string;
  /** Steps of a chunk. */
  readonly horizon?: number;
  /** What no action may exceed. */
  readonly bounds?: MessageInitShape<typeof SafetyBoundsSchema>;
  /** What is carried out at a step without an action, in the action space; where it is absent `step` is told of the hold alone. */
  readonly hold?: readonly number[];
  /** How old an observation may be when its chunk arrives, in milliseconds; the gateway's own where it is absent. */
  readonly deadlineMs?: number;
  /** Lets the loop go on after a broken connection; one of its own where it is absent. */
  readonly session?: string;
  /** Number of the first episode; 1 when absent. */
  readonly episode?: number;
  /** A hold for want of a chunk, and a broken connection, leave the chunk before its valid rest; they end it when absent. */
  readonly finish?: boolean;
  /** So long may the gateway say nothing while observations are sent, in milliseconds, before the connection is made anew; 2,000 when absent. */
  readonly silenceMs?: number;
  /** So long is a connection sought before the loop gives up, in milliseconds; 30,000 when absent. */
  readonly giveUpMs?: number;
  /** Further fields of the opening message; they win. */
  readonly open?: MessageInitShape<typeof LoopOpenSchema>;
}

/** How a loop is run. */
export interface RunOptions {
  /** The loop ends after so many seconds, at the latest. */
  readonly maxSeconds: number;
  /** So long may a callback take, in milliseconds; 1,000 when absent. */
  readonly callbackMs?: number;
}

/** What a robot carries out. `values` is the hold action, or undefined, where it is to hold. */
export interface Command {
  readonly values: readonly number[] | undefined;
  /** Why it holds; undefined where it acts. */
  readonly hold: string | undefined;
  /** The control step, from 0 in each episode. */
  readonly step: number;
  readonly episode: number;
}

/** How a run ended. */
export type RunEnd = "max_seconds" | "interrupted" | "done";

const DEFAULT_SILENCE_MS = 2_000;
const DEFAULT_GIVE_UP_MS = 30_000;
const DEFAULT_CALLBACK_MS = 1_000;
/** Pauses between attempts to connect: doubled from the first to the last. */
const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 2_000;
/** A stream that lasted longer was a good one. */
const STEADY_MS = 1_000;

/** A loop. `tick` never waits; `run` drives it by two callbacks. Close it when the robot is done. */
export class Loop {
  readonly #client: Client<typeof InferenceService>;
  readonly #options: LoopOptions;
  readonly #core: LoopCore;
  readonly #counts = new LoopCounts();
  readonly #session: string;
  readonly #interrupted = new AbortController();
  /** No further stream is opened. */
  readonly #quit = new AbortController();
  readonly #clock: () => number;
  #outbox: Outbox | undefined;
  #hangUp = new AbortController();
  #lastOpenMs: number;
  #failure: LimberError | undefined;
  #ended: LoopEnded | undefined;
  #isClosed = false;
  #instruction: string | undefined;
  /** The actions of the chunk that is executed. */
  #rows: readonly (readonly number[])[] = [];
  /** When the first observation was sent that nothing was heard after. */
  #unheardSinceMs: number | undefined;
  readonly #served: Promise<void>;

  /** `clock` is milliseconds that do not go back. */
  constructor(transport: Transport, options: LoopOptions, clock: () => number = () => performance.now()) {
    if (!(options.rateHz > 0 && Number.isFinite(options.rateHz)))
      throw new BadInput(`rateHz must be a number above 0, not ${options.rateHz}`);
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

  /** The figures so far. */
  get stats(): LoopStats {
    return this.#counts.at(this.#clock());
  }

  /** Number of the episode. */
  get episode(): number {
    return this.#core.episode;
  }

  /** What the gateway said at the end; undefined before. */
  get ended(): LoopEnded | undefined {
    return this.#ended;
  }

  /**
   * What the robot does now; `sensed`, which is of this moment, is sent to the gateway where the control step is a new one. Never waits. Throws the refusal that ended
   * the loop, and `BadInput` for an observation that cannot be sent: the robot holds then.
   */
  tick(sensed: Sensed): Command {
    if (this.#failure !== undefined) throw this.#failure;
    const now = this.#clock();
    if (!Number.isFinite(now)) {
      const wrong = new ClockJumped(`the clock says ${now}: no step can be counted by it`);
      this.#fail(wrong);
      throw wrong;
    }
    // The loop's own clock, by which the age of its chunk is judged.
    const observation = observationOf({ ...sensed, tMs: now });
    const decision = this.#core.tick(now);
    if (this.#core.over === "clock")
      this.#fail(new ClockJumped("the clock went back: no step can be counted any more"));
    if (decision.send) this.#send(decision.step, observation, now);
    this.#assertHeard(now);
    if (this.#failure !== undefined) throw this.#failure;
    return this.#commandOf(decision);
  }

  /** Begins a new episode: steps start over, and nothing of the one before is executed. */
  reset(instruction?: string): void {
    this.#instruction = instruction ?? this.#instruction;
    const episode = this.#core.reset(this.#clock());
    this.#outbox?.reset(episode, instruction);
  }

  /**
   * Every control step: asks `observe` what is sensed and gives `step` what is carried out. Ends after `maxSeconds`, when interrupted, or
   * when `observe` says undefined. A callback that throws or hangs, a refusal, and Ctrl-C end the loop too: the robot is held first, where
   * there is a hold action, and the error is thrown (`CalledOff` for Ctrl-C).
   */
  async run(
    observe: () => Sensed | undefined | Promise<Sensed | undefined>,
    step: (command: Command) => unknown,
    { maxSeconds, callbackMs = DEFAULT_CALLBACK_MS }: RunOptions,
  ): Promise<RunEnd> {
    if (!(maxSeconds > 0 && Number.isFinite(maxSeconds)))
      throw new BadInput(`maxSeconds must be a number above 0, not ${maxSeconds}`);
    const periodMs = 1000 / this.#options.rateHz;
    const began = this.#clock();
    const { signal } = this.#interrupted;
    const inTime = <T>(name: string, work: T | Promise<T>): Promise<T> => within(callbackMs, name, work, signal);
    let isCalledOff = false;
    // By itself it would end the process, and nobody would tell the robot to hold. A second one still does.
    const onCtrlC = (): void => {
      isCalledOff = true;
      this.interrupt();
    };
    const interrupted = (): RunEnd => {
      if (isCalledOff) throw new CalledOff("Ctrl-C ended the run, and the robot was told to hold");
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
        // By the clock and not by the timer before: what a timer is late does not slow the loop down.
        due = Math.max(due + periodMs, this.#clock() - periodMs);
        // No longer than a step, wherever the clock went: the next one finds out.
        await pause(Math.min(periodMs, Math.max(0, due - this.#clock())) || 0, signal);
      }
    } finally {
      await this.#holdStill(step, callbackMs);
      await this.close();
      process.off("SIGINT", onCtrlC);
    }
  }

  /** Ends the loop at once, from anywhere: from now on every tick is a hold. */
  interrupt(): void {
    this.#core.stop("interrupted");
    this.#interrupted.abort();
    this.#quit.abort();
  }

  /** Says that the robot is done, and waits for the gateway's last word, a second at most. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#core.stop("closed");
    this.#quit.abort();
    this.#outbox?.close();
    await Promise.race([this.#served, pause(1000)]);
    this.#hangUp.abort();
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
    this.#unheardSinceMs ??= now;
  }

  /** A gateway that says nothing is left for another connection; without any for too long there is no loop. */
  #assertHeard(now: number): void {
    const { silenceMs = DEFAULT_SILENCE_MS, giveUpMs = DEFAULT_GIVE_UP_MS } = this.#options;
    if (this.#unheardSinceMs !== undefined && now - this.#unheardSinceMs > silenceMs) this.#hangUp.abort();
    if (this.#outbox === undefined && now - this.#lastOpenMs > giveUpMs)
      this.#fail(new ConnectionFailed(`no gateway was reached for ${Math.round(giveUpMs / 1000)} s`));
  }

  async #holdStill(step: (command: Command) => unknown, callbackMs: number): Promise<void> {
    const { hold } = this.#options;
    if (hold === undefined) return;
    const still = {
      values: hold,
      hold: this.#core.over || "closed",
      step: this.#core.step,
      episode: this.#core.episode,
    };
    // What ended the loop is what the caller is told.
    await within(callbackMs, "step", (async () => step(still))()).catch(() => {});
  }

  #fail(error: LimberError): void {
    this.#failure ??= error;
    this.#core.stop(error instanceof Refused ? error.code : "failed");
    this.#isClosed = true;
    this.#quit.abort();
    this.#hangUp.abort();
  }

  /** Opens one stream after the other until the loop is over. Never rejects. */
  async #serve(): Promise<void> {
    for (let pauseMs = FIRST_PAUSE_MS; !this.#isClosed; ) {
      const beganMs = this.#clock();
      this.#hangUp = new AbortController();
      const outbox = new Outbox(() => this.#opening(), this.#core.episode);
      let wasOpen = false;
      let error: LimberError | undefined;
      try {
        this.#counts.streams++;
        for await (const { event } of this.#client.actStream(outbox.messages(), { signal: this.#hangUp.signal })) {
          if (event.case === "opened") {
            wasOpen = true;
            this.#outbox = outbox;
            // It may have begun while the stream was opened.
            outbox.reset(this.#core.episode, this.#instruction);
          }
          this.#hear(event);
        }
      } catch (thrown) {
        error =
          this.#hangUp.signal.aborted && this.#failure === undefined
            ? new ConnectionFailed("the gateway was silent")
            : errorOf(thrown);
      }
      outbox.close();
      this.#outbox = undefined;
      this.#unheardSinceMs = undefined;
      if (error === undefined || error instanceof ConnectionFailed) this.#core.lost(this.#clock());
      else this.#core.ended(this.#clock(), { code: error instanceof Refused ? error.code : "failed" });
      if (this.#isClosed) return;
      if (wasOpen) {
        this.#lastOpenMs = this.#clock();
        // What stands behind the address now is asked at once; a stream that breaks as soon as it is open is no better than one that is not.
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

  #hear(event: ActStreamResponse["event"]): void {
    const now = this.#clock();
    this.#unheardSinceMs = undefined;
    switch (event.case) {
      case "opened":
        this.#core.opened(now, { deadlineMs: event.value.deadlineMs });
        break;
      case "chunk":
        this.#take(event.value, now);
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

  #take(chunk: LoopChunk, now: number): void {
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

/** What makes a chunk one that no robot executes; undefined where nothing does. */
function wrongIn(action: Action | undefined): string | undefined {
  const dimensions = action?.steps[0]?.values.length ?? 0;
  if (action === undefined || dimensions === 0) return "without actions";
  for (const { values } of action.steps) {
    if (values.length !== dimensions) return `whose rows have ${dimensions} numbers and ${values.length}`;
    if (!values.every(Number.isFinite)) return "with an action that is no finite number";
  }
  return undefined;
}

/** The words of the reasons for a hold. */
const WORDS: ReadonlyMap<number, string> = new Map(
  HoldReasonSchema.values.map(({ number, name }) => [number, name.slice("HOLD_REASON_".length).toLowerCase()]),
);

type OneMessage = MessageInitShape<typeof ActStreamRequestSchema>;

/** A broken connection, and a refusal that says so, are followed by the next stream of the session. */
const mayPass = (error: LimberError): boolean =>
  error instanceof ConnectionFailed || (error instanceof Refused && error.retryable);

/** Resolves as `work` does; rejects with `CallbackHung` where that takes longer than `ms`. Resolves early where `signal` calls it off. */
function within<T>(ms: number, name: string, work: T | Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!(work instanceof Promise)) return Promise.resolve(work);
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new CallbackHung(`${name} did not come back within ${ms} ms`)), ms);
    const calledOff = (): void => resolve(undefined as T); // the run looks at its signal before it uses what it was told
    signal?.addEventListener("abort", calledOff);
    work.then(resolve, reject).finally(() => {
      clearTimeout(late);
      signal?.removeEventListener("abort", calledOff);
    });
  });
}

/** Messages of one stream on their way: of observations only the newest is kept. */
class Outbox {
  readonly #opening: () => ActStreamRequest;
  /** The episode that the gateway knows of. */
  #told: number;
  #reset: { readonly episode: number; readonly instruction: string | undefined } | undefined;
  #next: ActStreamRequest | undefined;
  #isOver = false;
  #wake = (): void => {};

  constructor(opening: () => ActStreamRequest, episode: number) {
    this.#opening = opening;
    this.#told = episode;
  }

  /** Puts an observation on its way; returns whether it replaced one. */
  sense(step: number, observation: ObservationInit): boolean {
    const replaced = this.#next !== undefined;
    const value = { step, observations: [observation] };
    this.#next = create(ActStreamRequestSchema, { message: { case: "observation", value } } as OneMessage);
    this.#wake();
    return replaced;
  }

  /** What waits was sensed in the episode before. */
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
    if (opening.message.case === "open") this.#told = opening.message.value.episode ?? this.#told;
    yield opening;
    while (!this.#isOver) {
      const reset = this.#reset;
      this.#reset = undefined;
      if (reset !== undefined && reset.episode > this.#told) {
        this.#told = reset.episode;
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
