/** The calls of a loop to the offerings that may serve it: by an `ActLine` that is opened once for each, or by a call of its own. */
import type { LoopOpen } from "../../../gen/limber/v1/control_loop_pb.ts";
import { type Call, keyOf } from "../../call.ts";
import { steadyNow } from "../../clock.ts";
import { exceeds, poseOf } from "../../contracts/bounds.ts";
import { type ActAnswer, type ActInput, episodeName } from "../../contracts/contract.ts";
import type { CallWatch } from "../../events/broadcast/broadcaster.ts";
import type { PlanStep } from "../../routing/index.ts";
import { SideNote } from "../../side-note.ts";
import type { Reached } from "../../supply/live-supply.ts";
import { FrameSet, KeptPixels } from "../../upstream/pictures/frames.ts";
import { frameSources } from "../../upstream/pictures/order.ts";
import type { ActLine } from "../../upstream/wire.ts";
import { type InferenceDeps, speaking } from "../call.ts";
import { handedOn } from "../call-spans.ts";
import { type CallKeys, reachWith } from "../own-keys.ts";
import type { ParsedObservation } from "./observation-view.ts";
import type { PendingRequest } from "./pending-request.ts";
import type { PlanTracker } from "./plan-tracker.ts";

/** What all requests of a loop have in common. */
export interface ChannelDeps {
  readonly deps: InferenceDeps;
  readonly call: Call;
  readonly open: LoopOpen;
  readonly ownKeys: CallKeys | undefined;
  readonly tracker: PlanTracker;
  readonly watch: CallWatch | undefined;
  /** The input of each, without observations and instruction, without the episode, and without the horizon of its offering. */
  readonly input: Omit<ActInput, "observations" | "instruction" | "episode" | "horizon">;
}

/** How one step of the plan is reached, in one episode. */
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
  /** The one that was used last: most loops have no other. */
  #last: UpstreamChannel | undefined;
  /** Name of the present episode, to providers. */
  #episode: string;

  constructor(common: ChannelDeps) {
    this.#common = common;
    this.#episode = this.#nameOf(1);
  }

  /** What is asked from now on is asked in the episode of this number. */
  enter(episode: number): void {
    this.#episode = this.#nameOf(episode);
  }

  /** A loop of no session is one. */
  #nameOf(episode: number): string {
    const { call, input } = this.#common;
    return episodeName(input.sessionId ?? call.requestId, episode);
  }

  /** Sends an observation; the attempt gets the outcome later, never during this call. */
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

  /** Whether the last offering takes another call before it has answered: calls of an `ActLine` are independent. */
  carriesMany(step: PlanStep): boolean {
    return this.#last?.step === step && this.#last.line !== undefined;
  }

  /** Whether an answer exceeds the bounds of its offering, or of the key. */
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
    // A picture of the goal has to be fetched.
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

/** Pixels of observations that several offerings are asked about. */
const decoded = new SideNote<ParsedObservation, KeptPixels>("pixels");

function pixelsOf(seen: ParsedObservation): KeptPixels {
  const known = decoded.of(seen);
  if (known) return known;
  const pixels = new KeptPixels();
  decoded.set(seen, pixels);
  return pixels;
}

const failSoon = (attempt: PendingRequest, thrown: unknown): void => queueMicrotask(() => attempt.failed(thrown));
