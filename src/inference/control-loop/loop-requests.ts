/** The requests of a control loop to its offerings: when they may be sent, how they travel, and their outcomes. */

import type { LoopOpen } from "../../../gen/limber/v1/control_loop_pb.ts";
import { type Call, keyOf } from "../../call.ts";
import { Cancel } from "../../cancellation.ts";
import { steadyNow } from "../../clock.ts";
import { exceeds, poseOf } from "../../contracts/act.ts";
import {
  type ActAnswer,
  type ActInput,
  AttemptFailure,
  episodeName,
  UpstreamFailure,
} from "../../contracts/contract.ts";
import { asRefusal, Reason, Refusal } from "../../errors.ts";
import type { CallWatch } from "../../events/broadcaster.ts";
import { type DispatchEffect, type Hedges, type LoopEvent, notifyOwner, type PlanStep } from "../../routing/index.ts";
import { SideNote } from "../../side-note.ts";
import type { Reached } from "../../supply/live-supply.ts";
import { FrameSet, frameSources, KeptPixels } from "../../upstream/pictures/frames.ts";
import type { ActLine, AnswerHandler } from "../../upstream/wire.ts";
import { hedgesOf, type InferenceDeps, speaking } from "../call.ts";
import { handedOn } from "../call-billing.ts";
import { type CallKeys, reachWith } from "../prepare.ts";
import type { LoopBilling } from "./loop-billing.ts";
import type { ParsedObservation, PlanTracker } from "./loop-plan.ts";

/** The loop that sends the requests. */
interface PendingRequestsOptions {
  readonly deps: InferenceDeps;
  readonly call: Call;
  readonly channels: UpstreamChannels;
  readonly billing: LoopBilling;
  readonly tracker: PlanTracker;
  readonly happen: (event: LoopEvent<ParsedObservation>) => void;
  readonly end: (refusal: Refusal) => void;
  /** The robot's instruction. */
  readonly instruction: string;
}

/** The requests of one loop. */
export class PendingRequests implements RequestOwner {
  readonly #options: PendingRequestsOptions;
  readonly #hedges: Hedges;
  /** One per observation in flight, or two if it was hedged. */
  readonly #requests: PendingRequest[] = [];
  /** The instruction. */
  instruction: string;

  constructor(options: PendingRequestsOptions) {
    this.#options = options;
    this.#hedges = hedgesOf(options.deps, options.call);
    this.instruction = options.instruction;
  }

  /** Sends a request at `at`, immediately if possible. */
  dispatch(effect: DispatchEffect<ParsedObservation>, at: number): void {
    const attempt = new PendingRequest(this, effect);
    this.#requests.push(attempt);
    this.#hedges.earn();
    const { billing, tracker, happen } = this.#options;
    // A step counts once against the rate limit, however many offerings are called.
    const isCounted = !effect.fresh || this.#tryCount(at);
    if (isCounted && billing.tryCover(tracker.plan, at)) {
      this.#ask(effect, attempt);
      return;
    }
    happen({ kind: "waits", at, attempt: effect.attempt });
    void this.#askLater(effect, attempt, isCounted);
  }

  /** Sends a request once the rate limit and the bill allow it. Never rejects. */
  async #askLater(
    effect: DispatchEffect<ParsedObservation>,
    attempt: PendingRequest,
    isCounted: boolean,
  ): Promise<void> {
    const { billing, tracker, happen } = this.#options;
    try {
      if (!isCounted) await this.#count();
      await billing.cover(tracker.plan);
    } catch (thrown) {
      this.#unpaid(effect.attempt, thrown);
      return;
    }
    if (attempt.aborted) return;
    // The caller cannot pay for this step: the next observation goes to one that is affordable.
    if (tracker.isUnpaid(effect.step)) {
      this.#landed(effect.attempt);
      happen({ kind: "unpaid", at: steadyNow(), attempt: effect.attempt });
      return;
    }
    happen({ kind: "asked", at: steadyNow(), attempt: effect.attempt });
    // Its deadline may have passed.
    if (!attempt.aborted) this.#ask(effect, attempt);
  }

  /** Ignores the outcome from now on. */
  callOff(id: number): void {
    this.#landed(id)?.abort(undefined);
  }

  answered({ attempt, step, view }: DispatchEffect<ParsedObservation>, answer: ActAnswer): void {
    if (!this.#landed(attempt)) return;
    const { channels, happen, end } = this.#options;
    try {
      if (channels.exceeds(step, view.payload, answer))
        this.#failed(
          attempt,
          new UpstreamFailure(AttemptFailure.UNSAFE_ACTION, "the action exceeds the safety bounds"),
        );
      else happen({ kind: "answered", at: steadyNow(), attempt, answer });
    } catch (thrown) {
      // The connection that carried the response also carries those of other loops.
      end(asRefusal(thrown));
    }
  }

  failed({ attempt, step }: DispatchEffect<ParsedObservation>, thrown: unknown): void {
    if (!this.#landed(attempt)) return;
    if (thrown instanceof UpstreamFailure) {
      const { deps, call } = this.#options;
      notifyOwner({ health: deps.supply.health, quiet: keyOf(call).settings.zdr }, step, thrown);
    }
    this.#failed(attempt, thrown);
  }

  /** Ends a running request; undefined if it has ended. */
  #landed(id: number): PendingRequest | undefined {
    const requests = this.#requests;
    const last = requests.at(-1);
    if (last?.id === id) return requests.pop();
    const at = requests.findIndex((attempt) => attempt.id === id);
    return at < 0 ? undefined : requests.splice(at, 1)[0];
  }

  /** Takes a step from the key's rate limit if one is available without waiting. */
  #tryCount(at: number): boolean {
    const { deps, call } = this.#options;
    return deps.failing.mayCall(keyOf(call), at) && (call.steps?.tryStep() ?? true);
  }

  /** Takes a step from the key's rate limit; rejects with the refusal if none is left. */
  async #count(): Promise<void> {
    const { deps, call } = this.#options;
    deps.failing.assertMayCall(keyOf(call), steadyNow());
    await call.steps?.waitStep();
  }

  #ask({ step, view, budgetMs }: DispatchEffect<ParsedObservation>, attempt: PendingRequest): void {
    this.#options.channels.ask(attempt, step, view.payload, this.instruction, budgetMs);
  }

  #failed(attempt: number, thrown: unknown): void {
    const { happen, end } = this.#options;
    const at = steadyNow();
    if (thrown instanceof UpstreamFailure)
      happen({ kind: "failed", at, attempt, failure: thrown.failure, lack: thrown.lack });
    else if (thrown instanceof Refusal) happen({ kind: "refused", at, attempt, detail: thrown.message });
    else end(asRefusal(thrown));
  }

  /** Lack of credit ends the loop; an unavailable ledger or a rate limit causes a hold. */
  #unpaid(attempt: number, thrown: unknown): void {
    this.#landed(attempt);
    const { happen, end } = this.#options;
    const refusal = asRefusal(thrown);
    const at = steadyNow();
    if (refusal.reason === Reason.STORE_UNAVAILABLE) happen({ kind: "unpaid", at, attempt });
    else if (refusal.reason === Reason.RATE_LIMIT_EXCEEDED || refusal.reason === Reason.TOO_MANY_FAILED_CALLS)
      happen({ kind: "limited", at, attempt, detail: refusal.message });
    else end(refusal);
  }
}

/** The owner of a request. */
interface RequestOwner {
  answered(question: DispatchEffect<ParsedObservation>, answer: ActAnswer): void;
  failed(question: DispatchEffect<ParsedObservation>, thrown: unknown): void;
}

/** A running request. */
class PendingRequest extends Cancel implements AnswerHandler {
  readonly #asker: RequestOwner;
  readonly #question: DispatchEffect<ParsedObservation>;

  /** Its number. */
  get id(): number {
    return this.#question.attempt;
  }

  constructor(asker: RequestOwner, question: DispatchEffect<ParsedObservation>) {
    super();
    this.#asker = asker;
    this.#question = question;
  }

  answered(answer: ActAnswer): void {
    this.#asker.answered(this.#question, answer);
  }

  failed(thrown: unknown): void {
    this.#asker.failed(this.#question, thrown);
  }
}

/** The common part of a loop's requests. */
interface ChannelDeps {
  readonly deps: InferenceDeps;
  readonly call: Call;
  readonly open: LoopOpen;
  readonly ownKeys: CallKeys | undefined;
  readonly tracker: PlanTracker;
  readonly watch: CallWatch | undefined;
  /** The input without observations, instruction, episode and the offering's horizon. */
  readonly input: Omit<ActInput, "observations" | "instruction" | "episode" | "horizon">;
}

/** How to call one step of the plan in one episode. */
interface UpstreamChannel extends Reached {
  readonly step: PlanStep;
  readonly instruction: string;
  readonly episode: string;
  /** Numbers per action. */
  readonly dim: number | undefined;
  readonly line: ActLine | undefined;
}

/** The channels of one loop. */
export class UpstreamChannels {
  readonly #common: ChannelDeps;
  /** The last one used: most loops have only one. */
  #last: UpstreamChannel | undefined;
  /** The present episode's name for providers. */
  #episode: string;

  constructor(common: ChannelDeps) {
    this.#common = common;
    this.#episode = this.#nameOf(1);
  }

  /** Sets the episode number of later requests. */
  enter(episode: number): void {
    this.#episode = this.#nameOf(episode);
  }

  /** A loop without a session is its own session. */
  #nameOf(episode: number): string {
    const { call, input } = this.#common;
    return episodeName(input.sessionId ?? call.requestId, episode);
  }

  /** Sends an observation. The attempt receives the outcome later, never during this call. */
  ask(attempt: PendingRequest, step: PlanStep, seen: ParsedObservation, instruction: string, budgetMs: number): void {
    try {
      const channel = this.#to(step, instruction);
      const { packed } = seen;
      if (channel.line && packed?.isSound) channel.line.ask(packed, budgetMs, attempt, attempt);
      else this.#callFor(attempt, channel, seen, budgetMs);
    } catch (thrown) {
      failSoon(attempt, thrown);
    }
  }

  /** Whether the last offering accepts another call before it has responded: calls of an `ActLine` are independent. */
  carriesMany(step: PlanStep): boolean {
    return this.#last?.step === step && this.#last.line !== undefined;
  }

  /** Whether a response exceeds the bounds of its offering or of the key. */
  exceeds(step: PlanStep, seen: ParsedObservation, answer: ActAnswer): boolean {
    const { bounds, dim } = this.#last?.step === step ? this.#last : this.#reach(step);
    const keys = keyOf(this.#common.call).bounds;
    if (!bounds && !keys) return false;
    const pose = poseOf(this.#common.input.actionSpace, seen.observations, dim);
    return exceeds(bounds, answer, pose) || exceeds(keys, answer, pose);
  }

  #to(step: PlanStep, instruction: string): UpstreamChannel {
    const last = this.#last;
    const episode = this.#episode;
    if (last?.step === step && last.instruction === instruction && last.episode === episode) return last;
    const { open, call, input } = this.#common;
    const { wire, target, bounds, dim } = this.#reach(step);
    const asked = { ...input, instruction, episode, horizon: step.units };
    // The goal image has to be fetched.
    const line = open.goalImage ? undefined : wire.line?.(target, asked, call);
    this.#last = { step, instruction, episode, wire, target, bounds, dim, line };
    return this.#last;
  }

  #reach(step: PlanStep): Reached & { dim: number | undefined } {
    const { deps, tracker, ownKeys } = this.#common;
    const dim = tracker.dimOf(step);
    return { ...reachWith(deps.supply, step, dim, ownKeys), dim };
  }

  #callFor(attempt: PendingRequest, channel: UpstreamChannel, seen: ParsedObservation, budgetMs: number): void {
    this.#call(channel, attempt, seen, budgetMs).then(
      (answer) => attempt.answered(answer),
      (thrown) => attempt.failed(thrown),
    );
  }

  async #call(
    { wire, target, step, instruction, episode }: UpstreamChannel,
    signal: PendingRequest,
    seen: ParsedObservation,
    budgetMs: number,
  ): Promise<ActAnswer> {
    const { deps, call, open, watch, input } = this.#common;
    const { agent, allowPrivate } = deps;
    const deadline = steadyNow() + budgetMs;
    const { observations, prevChunkLeftOver, inferenceDelay } = seen;
    const frames = new FrameSet(frameSources(observations, open.goalImage), {
      agent,
      allowPrivate,
      signal,
      deadline,
      asker: { key: keyOf(call).keyId, robot: call.requestId },
      pixels: pixelsOf(seen),
    });
    const horizon = step.units;
    const question = {
      ...input,
      observations,
      instruction,
      episode,
      horizon,
      leftOver: prevChunkLeftOver,
      inferenceDelay,
    };
    const { requestId } = call;
    const traceparent = handedOn(watch, call, open.provider?.sessionId, step);
    return speaking(wire, "act").act(target, question, frames, { signal, budgetMs, requestId, traceparent });
  }
}

/** Caches pixels of observations that several offerings receive. */
const decoded = new SideNote<ParsedObservation, KeptPixels>("pixels");

function pixelsOf(seen: ParsedObservation): KeptPixels {
  const known = decoded.of(seen);
  if (known) return known;
  const pixels = new KeptPixels();
  decoded.set(seen, pixels);
  return pixels;
}

const failSoon = (attempt: PendingRequest, thrown: unknown): void => queueMicrotask(() => attempt.failed(thrown));
