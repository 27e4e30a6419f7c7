/** The cheapest question that shows whether an offering serves again: of the kind that it was verified by. */
import type { Signal } from "../../cancellation.ts";
import { Contract } from "../../contracts/contract.ts";
import { chunkAsker } from "./act.ts";
import { type ProbeDeps, ProbeRun, type ProbeSubject } from "./run.ts";
import { SQUARE } from "./scene.ts";

/**
 * Asks one offering whether it answers, and for a chunk of a few steps where it acts: frames and words cost too much. Each question has
 * `budgetMs`, and none goes on when `signal` is aborted. Throws an `UpstreamFailure` where it does not answer, an error of another kind where the answer is none.
 */
export async function askCanary(
  deps: ProbeDeps,
  subject: ProbeSubject,
  { budgetMs, signal }: { budgetMs: number; signal: Signal },
): Promise<void> {
  const run = new ProbeRun(deps, subject, async () => {}, budgetMs);
  const callOff = (): void => run.callOff();
  signal.addEventListener("abort", callOff, { once: true });
  try {
    await subject.wire.health(subject.target, run.call());
    if (!subject.offering.contracts.includes(Contract.ACT)) return;
    await chunkAsker(run)(await run.observation(SQUARE, 0), { aside: true });
  } finally {
    signal.removeEventListener("abort", callOff);
    run.rest();
  }
}
