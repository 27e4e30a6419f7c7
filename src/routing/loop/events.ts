/** The events of a control loop and its effects: the interface between the pure loop and the code that carries it out. */
import type { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ActAnswer } from "../../contracts/contract.ts";
import type { AttemptFailure } from "../../contracts/failure.ts";
import type { PaidLoser, Try } from "../attempt/record.ts";
import type { Report } from "../health/cell.ts";
import type { PlanStep } from "../plan/plan.ts";

/** What a robot sensed at one control step. `O` is the observation itself, which the loop only hands on. */
export interface ObservationView<O> {
  readonly step: number;
  /** On the robot's own clock, in milliseconds. */
  readonly tMs: number | undefined;
  /** What must not change inside an episode: numbers and pictures that one observation has. */
  readonly shape: string;
  readonly payload: O;
}

/** What happens. `at` is the steady clock in milliseconds and never runs backwards. */
export type LoopEvent<O> =
  | { readonly kind: "observed"; readonly at: number; readonly view: ObservationView<O> }
  | { readonly kind: "answered"; readonly at: number; readonly attempt: number; readonly answer: ActAnswer }
  /** `lack`: what the gateway itself found the input to lack. */
  | {
      readonly kind: "failed";
      readonly at: number;
      readonly attempt: number;
      readonly failure: AttemptFailure;
      readonly lack?: string | undefined;
    }
  /** A call waits to be paid for, or for the key's step: it does not begin before `asked`. */
  | { readonly kind: "waits"; readonly at: number; readonly attempt: number }
  /** A flight that waited is asked now. */
  | { readonly kind: "asked"; readonly at: number; readonly attempt: number }
  /** The observation itself cannot be used by any offering. */
  | { readonly kind: "refused"; readonly at: number; readonly attempt: number; readonly detail: string }
  /** The key has no step left at the moment. */
  | { readonly kind: "limited"; readonly at: number; readonly attempt: number; readonly detail: string }
  /** It cannot be paid for at the moment. */
  | { readonly kind: "unpaid"; readonly at: number; readonly attempt: number }
  /** Time passed; due whenever `wakeAt` is reached. */
  | { readonly kind: "time"; readonly at: number }
  /** Nothing may be dispatched for this reason; undefined when it may again. */
  | { readonly kind: "blocked"; readonly at: number; readonly why: HoldReason | undefined }
  /** A new episode begins. */
  | { readonly kind: "reset"; readonly at: number }
  /** Nobody listens any longer. */
  | { readonly kind: "closed"; readonly at: number };

/** What is to be done. */
export type LoopEffect<O> = DispatchEffect<O> | CancelEffect | DeliverEffect<O> | HoldEffect | ReportEffect;

/** Ask a provider. */
export interface DispatchEffect<O> {
  readonly kind: "dispatch";
  readonly attempt: number;
  readonly step: PlanStep;
  readonly view: ObservationView<O>;
  /** Nobody was asked about this observation before. */
  readonly fresh: boolean;
  readonly budgetMs: number;
}

/** The answer of a flight is of no use any longer. */
export interface CancelEffect {
  readonly kind: "cancel";
  readonly attempt: number;
}

/** Send a chunk. */
export interface DeliverEffect<O> {
  readonly kind: "deliver";
  readonly at: number;
  readonly view: ObservationView<O>;
  readonly answer: ActAnswer;
  readonly step: PlanStep;
  readonly ageMs: number;
  /** The first control step at which it may not be executed any longer. */
  readonly validUntil: number;
  readonly tries: readonly Try[];
  /** What the loser of a hedge is paid, in micro-dollars; undefined when none was sent. */
  readonly hedgeMicro: number | undefined;
  /** Who that is for. */
  readonly losers?: readonly PaidLoser[] | undefined;
  /** Another offering than the chunk before, or the first one. */
  readonly moved: boolean;
  /** Another model than the chunk before. */
  readonly episodeBreak: boolean;
  readonly dropped: number;
}

/** Tell the robot to hold. */
export interface HoldEffect {
  readonly kind: "hold";
  readonly at: number;
  readonly step: number;
  readonly reason: HoldReason;
  readonly ageMs: number;
  readonly detail: string;
  readonly tries: readonly Try[];
  readonly dropped: number;
}

/** Tell the health of an offering how it did. */
export interface ReportEffect extends Report {
  readonly kind: "told";
  readonly offeringId: string;
}
