/** Shares of evaluations: one more lane in another worker. What ends an evaluation is left to its holder, which meets the same. */
import type { Signal } from "../cancellation.ts";
import { Refusal } from "../errors.ts";
import { ScenarioError } from "../scenarios/failure.ts";
import { type FinishedEpisode, runTrial, type Shown } from "../scenarios/trial.ts";
import {
  type EpisodeBill,
  type EvaluatedPolicy,
  type EvaluationRequest,
  PolicyBusy,
  PolicyUnusable,
} from "../services/evaluation-run.ts";
import { findJob, hasEnded } from "../store/jobs/jobs.ts";
import { endShare, sharedProgress } from "../store/jobs/shares.ts";
import { VaultError } from "../vault.ts";
import {
  assertContinues,
  assertInTime,
  BudgetOver,
  CalledOff,
  type EvaluationDeps,
  type HeldEvaluation,
  Progress,
  planOf,
  policyOf,
  recordEpisode,
  settleEpisode,
  TrialEnding,
  takeEpisode,
  worldOf,
} from "./episodes.ts";
import type { JobWatch, JobWork } from "./worker.ts";

/** The worker of shares. */
export const shareWork =
  (deps: EvaluationDeps): JobWork =>
  async (share, watch) => {
    const kept = await findJob(deps.sql, share, "evaluation", share.parent ?? "");
    if (kept && !hasEnded(kept.status)) {
      const seal = await deps.seals.of(kept);
      const job = seal.job(kept);
      const held = { job, request: job.request as EvaluationRequest, hold: share, seal };
      await new ShareRun(deps, held, watch).play();
    }
    await endShare(deps.sql, share);
  };

class ShareRun {
  readonly #deps: EvaluationDeps;
  readonly #held: HeldEvaluation;
  readonly #watch: JobWatch;
  readonly #progress = new Progress();
  /** The reservation of the running episode. */
  #bill: EpisodeBill | undefined;

  constructor(deps: EvaluationDeps, held: HeldEvaluation, watch: JobWatch) {
    this.#deps = deps;
    this.#held = held;
    this.#watch = watch;
  }

  /** Plays episodes until none is left, or until only the evaluation's holder can decide what follows. */
  async play(): Promise<void> {
    const { request } = this.#held;
    const world = worldOf(this.#deps, request);
    if (!world?.isSame) return;
    const ending = new TrialEnding(this.#watch);
    try {
      const policy = policyOf(this.#deps, this.#held, world.variant, 1);
      const plan = { ...planOf(request, world.scenario), media: "none" } as const;
      const listener = {
        next: async () => {
          const index = await this.#next(ending.signal);
          return index === undefined ? { index, rendered: [] } : { index };
        },
        act: (shown: Shown, signal: Signal, wallMs: number) => this.#act(policy, shown, signal, wallMs),
        finished: (episode: FinishedEpisode) => this.#finished(policy, episode),
        core: (signal: Signal) => this.#deps.cores.enter(this.#held.job.orgId, signal),
      };
      await runTrial(plan, listener, ending.signal);
    } catch (thrown) {
      await this.#bill?.free().catch(() => {});
      if (!GIVES_UP.some((kind) => thrown instanceof kind)) throw thrown;
    } finally {
      ending.close();
    }
  }

  async #next(signal: Signal): Promise<number | undefined> {
    const { job, request, seal } = this.#held;
    if (await this.#watch.isAwaited()) return undefined;
    const { ended } = await sharedProgress(this.#deps.sql, this.#held.hold, job.id, this.#progress.gap);
    this.#progress.recall(ended, seal);
    assertContinues(this.#progress, request, this.#leftMs());
    const taken = await takeEpisode(this.#deps, this.#held, signal);
    this.#bill = taken?.bill;
    return taken?.index;
  }

  async #act(policy: EvaluatedPolicy, shown: Shown, signal: Signal, wallMs: number) {
    assertInTime(this.#leftMs() - wallMs, wallMs);
    try {
      return await policy.act(shown, signal);
    } catch (thrown) {
      throw thrown instanceof PolicyBusy ? new LeftToHolder() : thrown;
    }
  }

  async #finished(policy: EvaluatedPolicy, finished: FinishedEpisode): Promise<void> {
    const episode = { ...finished, policyMicro: policy.spentMicro() };
    const costMicro = await settleEpisode(episode, this.#bill);
    this.#bill = undefined;
    this.#progress.add({ ...episode, keptActions: false });
    await recordEpisode(this.#deps, this.#held, episode, costMicro);
  }

  /** The milliseconds of the time budget that remained when the last episode was taken. */
  #leftMs(): number {
    return this.#held.request.wallBudgetS * 1000 - this.#progress.wallMs;
  }
}

/** The policy's server has no place for this share. */
class LeftToHolder extends Error {
  override readonly name = "LeftToHolder";
}

/** Reasons to end the share and leave its episode. */
const GIVES_UP = [LeftToHolder, CalledOff, BudgetOver, PolicyUnusable, Refusal, ScenarioError, VaultError] as const;
