/** The way of a chunk from its answer to its caller: priced, on record, and only then sent. */
import { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { steadyNow } from "../../clock.ts";
import * as act from "../../contracts/act.ts";
import { asRefusal, Reason, type Refusal } from "../../errors.ts";
import type { DeliverEffect, Wake } from "../../routing/index.ts";
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

/** Nothing is untold. */
const TOLD = { moved: false, episodeBreak: false };

/** Carries one loop's chunks, in order. */
export class ChunkSender {
  readonly #options: ChunkSenderOptions;
  #sending: Promise<void> | undefined;
  /** What the caller was not told of, because the chunk that it came with did not leave. */
  #untold = TOLD;
  /** Chunks of the present episode that wait until they are on record. */
  #waiting = 0;

  constructor(options: ChunkSenderOptions) {
    this.#options = options;
  }

  /** Whether a chunk waits until it is on record. */
  get busy(): boolean {
    return this.#sending !== undefined;
  }

  /** A reset came: what waits does not leave any more. Answers how many chunks that are. */
  overtake(): number {
    const count = this.#waiting;
    this.#waiting = 0;
    return count;
  }

  /** Chunks leave in order, each when what it owes is on record. */
  deliver(effect: DeliverEffect<ParsedObservation>): void {
    const { billing, tracker, idle } = this.#options;
    // The first chunk of an offering that this loop woke bears the wake-up.
    const wake = effect.step.cold ? tracker.takeWake(effect.step.offering.id) : undefined;
    const charge = chargeOf(effect, this.#options, false);
    if (wake === undefined && this.#sending === undefined && billing.isReady(charge)) {
      this.#send(effect, charge, effect.at);
      return;
    }
    const sending = this.#sendLater(effect, wake).finally(() => {
      if (this.#sending !== sending) return;
      this.#sending = undefined;
      idle();
    });
    this.#sending = sending;
  }

  /** Sends a chunk behind those that wait already, when it is on record. */
  async #sendLater(effect: DeliverEffect<ParsedObservation>, wake: Wake | undefined): Promise<void> {
    const { billing, tracker, writer } = this.#options;
    const { episode } = writer;
    const isOvertaken = (): boolean => writer.episode !== episode;
    this.#waiting += 1;
    let charge: Charge;
    try {
      const [pays] = await Promise.all([wake?.pays ?? false, this.#sending]);
      charge = chargeOf(effect, this.#options, pays);
      if (!isOvertaken()) await billing.ready(charge, tracker.plan);
    } catch (thrown) {
      if (!isOvertaken()) this.#waiting -= 1;
      this.#unrecorded(effect, asRefusal(thrown), isOvertaken());
      return;
    }
    if (isOvertaken()) {
      this.#leaveUntold(effect);
      return;
    }
    this.#waiting -= 1;
    this.#sendInTime(effect, charge);
  }

  #sendInTime(effect: DeliverEffect<ParsedObservation>, charge: Charge): void {
    const { over, writer, deadlineMs } = this.#options;
    if (over()) return;
    const at = steadyNow();
    const waited = at - effect.at;
    if (effect.ageMs + waited < deadlineMs) this.#send(effect, charge, at);
    else {
      this.#leaveUntold(effect);
      writer.hold(heldBack(effect, HoldReason.LATE, waited));
    }
  }

  #unrecorded(effect: DeliverEffect<ParsedObservation>, refusal: Refusal, isOvertaken: boolean): void {
    const { writer, end } = this.#options;
    if (refusal.reason !== Reason.STORE_UNAVAILABLE) {
      end(refusal);
      return;
    }
    this.#leaveUntold(effect);
    if (!isOvertaken) writer.hold(heldBack(effect, HoldReason.NOT_RECORDED, steadyNow() - effect.at));
  }

  /** The next chunk that leaves says what this one would have. */
  #leaveUntold({ moved, episodeBreak }: DeliverEffect<ParsedObservation>): void {
    this.#untold = { moved: moved || this.#untold.moved, episodeBreak: episodeBreak || this.#untold.episodeBreak };
  }

  #send(answered: DeliverEffect<ParsedObservation>, charge: Charge, at: number): void {
    const { billing, writer, leaving } = this.#options;
    const effect = this.#untold === TOLD ? answered : this.#withUntold(answered);
    leaving(effect, at);
    const route = newRoute(effect);
    billing.add(charge, route, at);
    writer.chunk(effect, charge, at, route);
  }

  #withUntold(effect: DeliverEffect<ParsedObservation>): DeliverEffect<ParsedObservation> {
    const { moved, episodeBreak } = this.#untold;
    this.#untold = TOLD;
    return { ...effect, moved: moved || effect.moved, episodeBreak: episodeBreak || effect.episodeBreak };
  }
}

function chargeOf(
  { step, answer, hedgeMicro, losers }: DeliverEffect<ParsedObservation>,
  { billing, tracker }: Pick<ChunkSenderOptions, "billing" | "tracker">,
  pays: boolean,
): Charge {
  const units = act.unitsOf(answer);
  const wakeUpMicro = pays ? step.wakeUpMicro : 0;
  const { micro, restNano } = billing.priceOf(units, step.unitNano, tracker.plan.maxCostMicro - wakeUpMicro);
  return { step, units, costMicro: micro + wakeUpMicro, wakeUpMicro, hedgeMicro, losers, restNano };
}
