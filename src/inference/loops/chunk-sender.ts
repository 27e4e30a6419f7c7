/** The way of a chunk from its answer to its caller: priced, on record, and only then sent. */
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { charge } from "../../billing/price.ts";
import { steadyNow } from "../../clock.ts";
import * as act from "../../contracts/act.ts";
import { asRefusal, Reason, type Refusal } from "../../errors.ts";
import type { DeliverEffect, PlanStep } from "../../routing/index.ts";
import type { Charge } from "../call-billing.ts";
import type { LoopBilling } from "./loop-billing.ts";
import { type LoopWriter, newRoute } from "./loop-writer.ts";
import { heldBack } from "./messages.ts";
import type { ParsedObservation } from "./observation-view.ts";
import type { PlanTracker } from "./plan-tracker.ts";

/** Whose chunks they are. */
export interface ChunkSenderOptions {
  readonly billing: LoopBilling;
  readonly tracker: PlanTracker;
  readonly writer: LoopWriter;
  readonly deadlineMs: number;
  /** The loop is over: nothing is sent any longer. */
  readonly over: () => boolean;
  /** A chunk leaves. */
  readonly leaving: (effect: DeliverEffect<ParsedObservation>, at: number) => void;
  readonly end: (refusal: Refusal) => void;
  /** Nothing waits any longer. */
  readonly idle: () => void;
}

/** Carries one loop's chunks, in order. */
export class ChunkSender {
  readonly #options: ChunkSenderOptions;
  #sending: Promise<void> | undefined;
  #woken: PlanStep | undefined;

  constructor(options: ChunkSenderOptions) {
    this.#options = options;
  }

  /** Whether a chunk waits until it is on record. */
  get busy(): boolean {
    return this.#sending !== undefined;
  }

  /** Chunks leave in order, each when what it owes is on record. */
  deliver(effect: DeliverEffect<ParsedObservation>): void {
    const { billing, tracker } = this.#options;
    const charge = this.#chargeOf(effect);
    const ready = this.#sending ?? billing.ready(charge, tracker.plan);
    if (ready instanceof Promise) this.#deliverAfter(ready, effect, charge);
    else this.#send(effect, charge, effect.at);
  }

  #deliverAfter(ready: Promise<void>, effect: DeliverEffect<ParsedObservation>, charge: Charge): void {
    const { billing, tracker, idle } = this.#options;
    const sending = ready
      .then(() => billing.ready(charge, tracker.plan))
      .then(
        () => this.#sendInTime(effect, charge),
        (thrown) => this.#unrecorded(effect, asRefusal(thrown)),
      )
      .finally(() => {
        if (this.#sending !== sending) return;
        this.#sending = undefined;
        idle();
      });
    this.#sending = sending;
  }

  #sendInTime(effect: DeliverEffect<ParsedObservation>, charge: Charge): void {
    const { over, writer, deadlineMs } = this.#options;
    if (over()) return;
    const at = steadyNow();
    const waited = at - effect.at;
    if (effect.ageMs + waited < deadlineMs) this.#send(effect, charge, at);
    else writer.hold(heldBack(effect, HoldReason.LATE, waited));
  }

  #unrecorded(effect: DeliverEffect<ParsedObservation>, refusal: Refusal): void {
    const { writer, end } = this.#options;
    if (refusal.reason !== Reason.STORE_UNAVAILABLE) end(refusal);
    else writer.hold(heldBack(effect, HoldReason.NOT_RECORDED, steadyNow() - effect.at));
  }

  #send(effect: DeliverEffect<ParsedObservation>, charge: Charge, at: number): void {
    const { billing, writer, leaving } = this.#options;
    leaving(effect, at);
    const route = newRoute(effect);
    billing.add(charge, route, at);
    writer.chunk(effect, charge, at, route);
  }

  #chargeOf({ step, answer, hedgeMicro }: DeliverEffect<ParsedObservation>): Charge {
    const units = act.unitsOf(answer);
    // A step is woken once, by the first chunk of the plan that found it asleep.
    const wakeUpMicro = step.cold && this.#woken !== step ? step.wakeUpMicro : 0;
    this.#woken = step;
    return {
      step,
      units,
      costMicro: charge(units, step.unitNano) + wakeUpMicro,
      hedgeMicro,
    };
  }
}
