/** How a loop asks those who may serve it: on a line that is laid once for each, or by a call of its own. */
import type { LoopOpen } from "../../../gen/limber/v1/control_loop_pb.ts";
import { steadyNow } from "../../ambient.ts";
import { exceeds, poseOf } from "../../contracts/bounds.ts";
import type { ActAnswer, ActInput } from "../../contracts/contract.ts";
import type { Watch } from "../../events/broadcast/broadcaster.ts";
import type { PlanStep } from "../../routing/index.ts";
import { FrameSet } from "../../upstream/pictures/frames.ts";
import { frameSources } from "../../upstream/pictures/order.ts";
import type { ActLine } from "../../upstream/wire.ts";
import { type Call, keyOf } from "../../call.ts";
import type { Reached } from "../../supply/live-supply.ts";
import { type CallKeys, reachWith } from "../own-keys.ts";
import { handedOn } from "../call-spans.ts";
import { type InferenceHouse, speaking } from "../call.ts";
import type { Course } from "./plan-tracker.ts";
import type { Flight } from "./pending-request.ts";
import type { Seen } from "./observation-view.ts";

/** What all questions of a loop have in common. */
export interface Common {
  readonly house: InferenceHouse;
  readonly call: Call;
  readonly open: LoopOpen;
  readonly ownKeys: CallKeys | undefined;
  readonly course: Course;
  readonly watch: Watch | undefined;
  /** What each asks, beside what was seen and what is to be done. */
  readonly input: Omit<ActInput, "observations" | "instruction">;
}

/** How one step of the plan is reached. */
interface Way extends Reached {
  readonly step: PlanStep;
  readonly instruction: string;
  /** Numbers per action. */
  readonly dim: number | undefined;
  readonly line: ActLine | undefined;
}

/** The ways of one loop. */
export class Ways {
  readonly #common: Common;
  /** The one that was used last: most loops have no other. */
  #last: Way | undefined;

  constructor(common: Common) {
    this.#common = common;
  }

  /** Asks about an observation; the flight hears what comes of it, in a moment or later. */
  ask(flight: Flight, step: PlanStep, seen: Seen, instruction: string, budgetMs: number): void {
    try {
      const way = this.#to(step, instruction);
      const packed = way.line && seen.packed;
      if (packed) way.line.ask(packed, budgetMs, flight, flight);
      else this.#callFor(flight, way, seen, budgetMs);
    } catch (thrown) {
      failSoon(flight, thrown);
    }
  }

  /** Whether who was asked last can be asked again before it has answered: its calls are told apart on their line. */
  carriesMany(step: PlanStep): boolean {
    return this.#last?.step === step && this.#last.line !== undefined;
  }

  /** Whether an answer exceeds the bounds of who gave it, or of the key. */
  exceeds(step: PlanStep, seen: Seen, answer: ActAnswer): boolean {
    const { bounds, dim } = this.#last?.step === step ? this.#last : this.#reach(step);
    const keys = keyOf(this.#common.call).bounds;
    if (!bounds && !keys) return false;
    const pose = poseOf(this.#common.input.actionSpace, seen.observations, dim);
    return exceeds(bounds, answer, pose) || exceeds(keys, answer, pose);
  }

  #to(step: PlanStep, instruction: string): Way {
    const last = this.#last;
    if (last?.step === step && last.instruction === instruction) return last;
    const { open, call, input } = this.#common;
    const { wire, target, bounds, dim } = this.#reach(step);
    // A picture of the goal has to be fetched.
    const line = open.goalImage ? undefined : wire.line?.(target, { ...input, instruction }, call);
    this.#last = { step, instruction, wire, target, bounds, dim, line };
    return this.#last;
  }

  #reach(step: PlanStep): Reached & { dim: number | undefined } {
    const { house, course, ownKeys } = this.#common;
    const dim = course.dimOf(step);
    return { ...reachWith(house.supply, step, dim, ownKeys), dim };
  }

  #callFor(flight: Flight, way: Way, seen: Seen, budgetMs: number): void {
    this.#call(way, flight, seen, budgetMs).then(
      (answer) => flight.answered(answer),
      (thrown) => flight.failed(thrown),
    );
  }

  async #call(
    { wire, target, step, instruction }: Way,
    signal: Flight,
    { observations, prevChunkLeftOver, inferenceDelay }: Seen,
    budgetMs: number,
  ): Promise<ActAnswer> {
    const { house, call, open, watch, input } = this.#common;
    const { agent, allowPrivate } = house;
    const deadline = steadyNow() + budgetMs;
    const frames = new FrameSet(frameSources(observations, open.goalImage), { agent, allowPrivate, signal, deadline });
    const question = { ...input, observations, instruction, leftOver: prevChunkLeftOver, inferenceDelay };
    const { requestId } = call;
    const traceparent = handedOn(watch, call, open.provider?.sessionId, step);
    return speaking(wire, "act").act(target, question, frames, { signal, budgetMs, requestId, traceparent });
  }
}

const failSoon = (flight: Flight, thrown: unknown): void => queueMicrotask(() => flight.failed(thrown));
