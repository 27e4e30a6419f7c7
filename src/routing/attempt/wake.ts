/** Who pays for waking an offering that was scaled to zero: one attempt for each cold start, and no other. */
import type { PlanStep } from "../plan/plan.ts";
import type { Outcome } from "./record.ts";

/** A cold start that an attempt of this replica causes. */
export interface Wake {
  /** Whether this attempt pays: no other replica's attempt caused it before. Never rejects. */
  readonly pays: Promise<boolean>;
  /** The offering answered, or the attempt is paid for without its answer. May be said again while it goes on answering. */
  answered(): void;
  /** The attempt ended without an answer: the next attempt pays. */
  failed(): void;
}

/** How an attempt that was admitted learns whether it wakes its offering; undefined where it wakes nothing that is paid for. */
export type Waker = (step: PlanStep, at: number) => Wake | undefined;

/** The step without its wake-up: for attempts that overlap the one that causes it. */
export const unwoken = (step: PlanStep): PlanStep =>
  step.wakeUpMicro === 0 ? step : { ...step, wakeUpMicro: 0, costMicro: step.listMicro };

/** An outcome at what it owes: wake-ups only for the attempts that caused one. */
export async function owed<T extends Outcome & { step: PlanStep }>(outcome: T): Promise<T> {
  const { tries, step } = outcome;
  if (step.wakeUpMicro === 0 && tries.every(({ wake }) => wake === undefined)) return outcome;
  let { hedgeMicro, losers } = outcome;
  let pays = false;
  for (const { step: asked, wake, paid } of tries) {
    if (asked === step) pays = (await wake?.pays) ?? false;
    else if (paid && hedgeMicro !== undefined && (await wake?.pays)) {
      hedgeMicro += asked.wakeUpMicro;
      losers = losers?.map((loser) =>
        loser.step === asked ? { ...loser, micro: loser.micro + asked.wakeUpMicro } : loser,
      );
    }
  }
  return { ...outcome, hedgeMicro, losers, step: pays ? step : unwoken(step) };
}
