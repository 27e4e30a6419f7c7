/** The cheapest question that shows whether an offering serves again: of the kind that it was verified by. */
import type { Signal } from "../../cancellation.ts";
import { Contract } from "../../contracts/contract.ts";
import { chunkAsker } from "./act.ts";
import { placeAsker } from "./ground.ts";
import { frameAsker } from "./predict.ts";
import { type ProbeDeps, ProbeRun, type ProbeSubject } from "./run.ts";
import { SQUARE } from "./scene.ts";

/** How an offering is asked. */
export interface CanaryOptions {
  /** Milliseconds of each question. */
  budgetMs: number;
  /** None goes on when it is aborted. */
  signal: Signal;
  /** For a frame and for a place too, where it predicts and grounds: they cost too much to be asked for often. */
  thorough?: boolean;
}

/**
 * Asks one offering whether it answers, and for a chunk of a few steps where it acts. Throws an `UpstreamFailure` where it does not answer, an error of another kind where the answer is none.
 */
export async function askCanary(
  deps: ProbeDeps,
  subject: ProbeSubject,
  { budgetMs, signal, thorough = false }: CanaryOptions,
): Promise<void> {
  const run = new ProbeRun(deps, subject, async () => {}, budgetMs);
  const callOff = (): void => run.callOff();
  signal.addEventListener("abort", callOff, { once: true });
  try {
    await subject.wire.health(subject.target, run.call());
    const { contracts } = subject.offering;
    const aside = { aside: true };
    if (contracts.includes(Contract.ACT)) await chunkAsker(run)(await run.observation(SQUARE, 0), aside);
    if (!thorough) return;
    if (contracts.includes(Contract.GROUND)) await placeAsker(run)(await run.observation(SQUARE, 0), aside);
    if (contracts.includes(Contract.PREDICT)) await frameAsker(run, 1)([await run.observation(SQUARE, 0)], aside);
  } finally {
    signal.removeEventListener("abort", callOff);
    run.stopTimers();
  }
}
