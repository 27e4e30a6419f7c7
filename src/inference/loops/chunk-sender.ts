/** The way of a chunk from its answer to its caller: priced, on record, and only then sent. */
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { steadyNow } from "../../ambient.ts";
import * as act from "../../contracts/act.ts";
import { charge } from "../../billing/price.ts";
import { asRefusal, Reason, type Refusal } from "../../errors.ts";
import type { Deliver, PlanStep } from "../../routing/index.ts";
import type { Charge } from "../call-billing.ts";
import type { Course } from "./plan-tracker.ts";
import type { Seen } from "./observation-view.ts";
import type { Tab } from "./loop-billing.ts";
import { newRoute, type Voice } from "./loop-writer.ts";
import { heldBack } from "./messages.ts";

/** Whose chunks they are. */
export interface DeliveryOptions {
  readonly tab: Tab;
  readonly course: Course;
  readonly voice: Voice;
  readonly deadlineMs: number;
  /** The loop is over: nothing is sent any longer. */
  readonly over: () => boolean;
  /** A chunk leaves. */
  readonly leaving: (effect: Deliver<Seen>, at: number) => void;
  readonly end: (refusal: Refusal) => void;
  /** Nothing waits any longer. */
  readonly idle: () => void;
}

/** Carries one loop's chunks, in order. */
export class Delivery {
  readonly #options: DeliveryOptions;
  #sending: Promise<void> | undefined;
  #woken: PlanStep | undefined;

  constructor(options: DeliveryOptions) {
    this.#options = options;
  }

  /** Whether a chunk waits until it is on record. */
  get busy(): boolean {
    return this.#sending !== undefined;
  }

  /** Chunks leave in order, each when what it owes is on record. */
  deliver(effect: Deliver<Seen>): void {
    const { tab, course } = this.#options;
    const charge = this.#chargeOf(effect);
    const ready = this.#sending ?? tab.ready(charge, course.plan);
    if (ready instanceof Promise) this.#deliverAfter(ready, effect, charge);
    else this.#send(effect, charge, effect.at);
  }

  #deliverAfter(ready: Promise<void>, effect: Deliver<Seen>, charge: Charge): void {
    const { tab, course, idle } = this.#options;
    const sending = ready
      .then(() => tab.ready(charge, course.plan))
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

  #sendInTime(effect: Deliver<Seen>, charge: Charge): void {
    const { over, voice, deadlineMs } = this.#options;
    if (over()) return;
    const at = steadyNow();
    const waited = at - effect.at;
    if (effect.ageMs + waited < deadlineMs) this.#send(effect, charge, at);
    else voice.hold(heldBack(effect, HoldReason.LATE, waited));
  }

  #unrecorded(effect: Deliver<Seen>, refusal: Refusal): void {
    const { voice, end } = this.#options;
    if (refusal.reason !== Reason.STORE_UNAVAILABLE) end(refusal);
    else voice.hold(heldBack(effect, HoldReason.NOT_RECORDED, steadyNow() - effect.at));
  }

  #send(effect: Deliver<Seen>, charge: Charge, at: number): void {
    const { tab, voice, leaving } = this.#options;
    leaving(effect, at);
    const route = newRoute(effect);
    tab.add(charge, route, at);
    voice.chunk(effect, charge, at, route);
  }

  #chargeOf({ step, answer, hedgeMicro }: Deliver<Seen>): Charge {
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
