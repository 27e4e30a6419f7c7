/** Evaluations: each episode is held, run, charged and recorded before the next begins. */
import { createHash } from "node:crypto";
import type { KeyPrincipal } from "../call.ts";
import type { Signal } from "../cancellation.ts";
import { factsOf, Refusal } from "../errors.ts";
import type { Leaser } from "../inference/call-billing.ts";
import type { Chunk } from "../scenarios/episode.ts";
import { PolicyFailure, ScenarioError } from "../scenarios/failure.ts";
import { builtIn, digestOf, variantFor } from "../scenarios/index.ts";
import { offersOf, type Scenario, type ScenarioVariant } from "../scenarios/scenario.ts";
import { type EpisodeScore, isFault, scoresOf } from "../scenarios/scores.ts";
import { type FinishedEpisode, runTrial, type Shown, type TrialEnd } from "../scenarios/trial.ts";
import { isDecided } from "../services/evaluation-compare.ts";
import {
  type CallGateway,
  callsOf,
  type EpisodeBill,
  type EpisodeFacts,
  type EvaluatedPolicy,
  type EvaluationEnd,
  type EvaluationRequest,
  type EvaluationResult,
  endEvaluation,
  gatewayPolicy,
  IS_SHORT,
  isExternal,
  keepsActions,
  openEpisodeBill,
  type PolicyDeps,
  PolicyUnusable,
  serverPolicy,
} from "../services/evaluation-run.ts";
import type { JobSeal, JobSeals } from "../services/job.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { advance, type HeldJob, jobSecretContext, listItems, turn } from "../store/jobs/jobs.ts";
import { type Vault, VaultError } from "../vault.ts";
import { type JobWatch, type JobWork, Resting } from "./worker.ts";

/** What evaluations depend on. */
interface EvaluationDeps extends PolicyDeps {
  readonly sql: Sql;
  readonly seals: JobSeals;
  readonly vault: Pick<Vault, "open">;
  readonly leaser: Leaser;
  readonly scenarios: ReadonlyMap<string, Scenario>;
  /** Returns the key's current state; refuses a key that is disabled, expired, or no longer allowed to evaluate. */
  principal(keyId: string): Promise<KeyPrincipal>;
  /** Makes act calls with a key, within its limits. */
  act(keyId: string): CallGateway;
  /** The CPU cores for physics in this process. */
  readonly cores: Cores;
}

/** A longer episode ends as a fault of its policy, so that it does not hold a core forever. */
const EPISODE_WALL_MS = 600_000;

const EPISODE_LOST = {
  error: { code: "internal_error", message: "this episode was begun too often and ended its worker each time" },
};

/** The evaluation worker. */
export const evaluationWork =
  (deps: EvaluationDeps): JobWork =>
  async (job, watch) => {
    const seal = await deps.seals.of(job);
    return new EvaluationRun(deps, seal.job(job), seal, watch).finish();
  };

class EvaluationRun {
  readonly #deps: EvaluationDeps;
  readonly #job: HeldJob;
  readonly #seal: JobSeal;
  readonly #watch: JobWatch;
  readonly #request: EvaluationRequest;
  readonly #episodes: (PaidEpisode & { keptActions: boolean })[] = [];
  #bill: EpisodeBill | undefined;
  /** Episodes that had ended when the comparison was last looked at. */
  #lookedAt = 0;

  constructor(deps: EvaluationDeps, job: HeldJob, seal: JobSeal, watch: JobWatch) {
    this.#deps = deps;
    this.#job = job;
    this.#seal = seal;
    this.#watch = watch;
    // Written by this gateway's service, which validated it.
    this.#request = job.request as EvaluationRequest;
  }

  async finish(): Promise<void> {
    const { sql, scenarios } = this.#deps;
    // Jobs of external runners reach this worker only when they were canceled or expired.
    if (isExternal(this.#request)) return this.#abandon();
    await tx(sql, (tx) => advance(tx, this.#job, "provisioning"));
    const scenario = scenarios.get(this.#request.scenario) ?? builtIn(this.#request.scenario);
    const variant = scenario && variantFor(scenario, this.#request.actionSpace);
    if (!scenario || !variant) return this.#fail("scenario_not_runnable", "this scenario is not here any more");
    await this.#recall();
    if (digestOf(scenario, variant) !== this.#request.world?.digest) {
      const text = "this scenario is another one here than it was when the evaluation was asked for";
      return this.#fail("scenario_not_runnable", text);
    }
    try {
      const policy = this.#policy(variant);
      const end = await this.#try(policy, scenario);
      await this.#complete(scenario, variant, policy, end);
    } catch (thrown) {
      await this.#bill?.free().catch(() => {});
      await this.#giveUp(thrown);
    }
  }

  /** Ends canceled and expired evaluations whose runner is gone. */
  async #abandon(): Promise<void> {
    await this.#recall();
    const { harness } = (this.#job.result ?? {}) as EvaluationResult;
    const scores = this.#episodes.length > 0 && { scores: scoresOf(this.#episodes) };
    const status = this.#job.cancelled ? "cancelled" : "expired";
    await this.#close(status, { ...scores, ...(harness !== undefined && { harness }) });
  }

  /** The progress that an earlier worker of this job recorded. */
  async #recall(): Promise<void> {
    const items = await listItems(this.#deps.sql, this.#job.id, 0, this.#request.episodes, { actions: true });
    for (const { index, response } of items.map((item) => this.#seal.item(item))) {
      if (response) this.#episodes.push(episodeOf(index, response as EpisodeFacts));
    }
  }

  #policy(variant: ScenarioVariant): EvaluatedPolicy {
    const { instruction, fields, dtMs } = variant;
    const { id: jobId, epoch } = this.#job;
    const about = { jobId, epoch, instruction, offers: offersOf(variant), actionDim: fields.length, dtMs };
    if (this.#request.protocol !== "gateway") {
      const { id, secret } = this.#job;
      const opened = secret ? this.#deps.vault.open(secret, jobSecretContext(id)) : "";
      return serverPolicy(this.#deps, this.#request, { ...about, secret: opened });
    }
    return gatewayPolicy(this.#deps.act(this.#job.keyId), this.#request, about);
  }

  async #try(policy: EvaluatedPolicy, { pack }: Scenario): Promise<TrialEnd> {
    const { scenario, actionSpace, seed, mode, replanSteps, pictures, media } = this.#request;
    const calledOff = new AbortController();
    const { lost, stopped } = this.#watch;
    const leave = (): void => calledOff.abort(lost.aborted ? lost.reason : new CalledOff());
    lost.addEventListener("abort", leave, { once: true });
    stopped.addEventListener("abort", leave, { once: true });
    if (lost.aborted || stopped.aborted) leave();
    try {
      await tx(this.#deps.sql, (tx) => advance(tx, this.#job, "running"));
      const done = this.#episodes.filter(({ keptActions }) => keptActions);
      const plan = { scenario, actionSpace, seed, rules: { mode, replanSteps }, pictures, media, done, pack };
      return await runTrial(
        plan,
        {
          next: () => this.#next(),
          act: (shown, signal, wallMs): Promise<Chunk> => this.#act(policy, shown, signal, wallMs),
          finished: (episode) => this.#finished({ ...episode, policyMicro: policy.spentMicro() }),
          core: (signal) => this.#deps.cores.enter(this.#job.orgId, signal),
        },
        calledOff.signal,
      );
    } finally {
      lost.removeEventListener("abort", leave);
      stopped.removeEventListener("abort", leave);
    }
  }

  async #act(policy: EvaluatedPolicy, shown: Shown, signal: AbortSignal, wallMs: number): Promise<Chunk> {
    if (this.#leftMs() <= wallMs) throw new BudgetOver(BUDGET_OVER);
    const { calls, callsCapMicro = Infinity } = this.#request;
    if (callsOf(this.#episodes).micro + policy.owedMicro + calls.micro > callsCapMicro)
      throw new BudgetOver(CALLS_OVER);
    if (wallMs > EPISODE_WALL_MS) throw new PolicyFailure("policy_timeout", TOO_LONG);
    return policy.act(shown, signal);
  }

  /** The remaining milliseconds of the time budget. */
  #leftMs(): number {
    return this.#request.wallBudgetS * 1000 - this.#episodes.reduce((sum, { wallMs }) => sum + wallMs, 0);
  }

  /** Takes the next episode and holds its price; returns its index, undefined if none is left. */
  async #next(): Promise<number | undefined> {
    if (this.#episodes.length > 0 && this.#episodes.length < this.#request.episodes) await this.#mayGoOn();
    if (await this.#isDecided()) return undefined;
    const [next] = await turn(this.#deps.sql, this.#job, { take: 1, poison: EPISODE_LOST });
    if (!next) return undefined;
    const payer = await this.#deps.principal(this.#job.keyId);
    this.#bill = await openEpisodeBill(this.#deps, { payer, jobId: this.#job.id, index: next.index }, this.#request);
    return next.index;
  }

  /** Whether its comparison knows the best policy. Looks after 5 episodes and then each time that a tenth more have ended. */
  async #isDecided(): Promise<boolean> {
    if (!this.#request.comparison?.stopWhenKnown) return false;
    const count = this.#episodes.length;
    if (count < Math.max(5, Math.ceil(this.#lookedAt * 1.1))) return false;
    this.#lookedAt = count;
    return isDecided(this.#deps.sql, this.#deps.seals, this.#job);
  }

  async #finished(episode: PaidEpisode): Promise<void> {
    const fault = isFault(episode);
    const costMicro = fault ? 0 : ((await this.#bill?.charge()) ?? 0);
    if (fault) await this.#bill?.free();
    this.#bill = undefined;
    this.#episodes.push({ ...episode, keptActions: true });
    const response = factsOfEpisode(episode, keepsActions(this.#request, this.#job.sealed));
    const end = { index: episode.index, state: fault ? "failed" : "completed", response, costMicro } as const;
    await turn(this.#deps.sql, this.#job, { ended: [this.#seal.end(end)] });
  }

  /** Throws, between two episodes, if the next must not begin or has to wait. */
  async #mayGoOn(): Promise<void> {
    const { stopAfterFaults } = this.#request;
    const last = this.#episodes.toSorted((a, b) => a.index - b.index).slice(-stopAfterFaults);
    const [first] = last;
    if (
      first &&
      last.length === stopAfterFaults &&
      last.every((each) => isFault(each) && each.termination === first.termination)
    )
      throw new PolicyUnusable(first.termination, sameFault(last.length, first.error));
    if (this.#leftMs() <= 0) throw new BudgetOver(BUDGET_OVER);
    if (await this.#watch.isAwaited()) throw new Resting(0);
  }

  async #complete(scenario: Scenario, variant: ScenarioVariant, policy: EvaluatedPolicy, end: TrialEnd): Promise<void> {
    const { sql } = this.#deps;
    await tx(sql, (tx) => advance(tx, this.#job, "scoring"));
    const episodes = this.#episodes.toSorted((a, b) => a.index - b.index);
    const allFaults = episodes.length > 0 && episodes.every(isFault);
    const hash = createHash("sha256").update(digestOf(scenario, variant));
    for (const { seed, trajectorySha256 } of episodes) hash.update(`${seed} ${trajectorySha256}`);
    const [first] = episodes;
    const result: EvaluationResult = {
      ...(episodes.length > 0 && { scores: scoresOf(episodes) }),
      pictures: Object.fromEntries(
        end.media.map(({ episode, format, bytes }) => [
          episode,
          `data:image/${format};base64,${Buffer.from(bytes).toString("base64")}`,
        ]),
      ),
      replayVerified: end.replayVerified,
      hash: `sha256:${hash.digest("hex")}`,
      runtime: process.version,
      model: policy.model,
      simulated: policy.simulated,
      ...(allFaults && { error: { code: first?.termination ?? "policy_error", message: first?.error ?? "" } }),
    };
    await this.#end(allFaults ? "failed" : "completed", result);
  }

  /** Ends an evaluation that cannot continue. If another worker can finish it, leaves it. */
  async #giveUp(thrown: unknown): Promise<void> {
    if (thrown instanceof CalledOff) return this.#end("cancelled", this.#partial());
    if (thrown instanceof BudgetOver) return this.#close("expired", { ...this.#partial(), error: thrown.error });
    if (thrown instanceof PolicyUnusable) return this.#fail(thrown.code, thrown.message);
    if (thrown instanceof VaultError) return this.#fail("secret_unreadable", SECRET_GONE);
    if (thrown instanceof ScenarioError) return this.#fail("scenario_failed", thrown.message);
    const isFinal = thrown instanceof Refusal && (IS_SHORT.has(thrown.reason) || factsOf(thrown.reason).status < 409);
    if (isFinal) return this.#fail(factsOf(thrown.reason).code, thrown.message);
    throw thrown;
  }

  #partial(): EvaluationResult {
    return this.#episodes.length > 0 ? { scores: scoresOf(this.#episodes), runtime: process.version } : {};
  }

  #fail(code: string, message: string): Promise<void> {
    return this.#end("failed", { ...this.#partial(), error: { code, message } });
  }

  #end(status: "completed" | "failed" | "cancelled", result: EvaluationResult): Promise<void> {
    const expired = status === "cancelled" && this.#watch.stopped.reason === "expired";
    return this.#close(expired ? "expired" : status, result);
  }

  #close(status: EvaluationEnd, result: EvaluationResult): Promise<void> {
    return endEvaluation(this.#deps.sql, this.#job, status, { ...result, calls: callsOf(this.#episodes) }, this.#seal);
  }
}

/** The evaluation was canceled or expired. */
class CalledOff extends Error {
  override readonly name = "CalledOff";
}

/** An episode and the cost of its policy calls, in micro-dollars. */
type PaidEpisode = FinishedEpisode & { readonly policyMicro: number };

/** The evaluation's budget of time or cost is used up. */
class BudgetOver extends Error {
  override readonly name = "BudgetOver";
  readonly error: { readonly code: string; readonly message: string };

  constructor(error: BudgetOver["error"]) {
    super(error.message);
    this.error = error;
  }
}

const CALLS_OVER = {
  code: "calls_budget_exhausted",
  message: "the next call of the policy could exceed `max_calls_usd`; the remaining episodes were not run",
};

const BUDGET_OVER = {
  code: "wall_budget_exhausted",
  message: "the episodes took all of the wall time that the evaluation was given; the rest were not run",
};
const SECRET_GONE = "the secret of the policy's server can't be opened: its master key is not loaded any more";
const TOO_LONG = `the episode took more than ${EPISODE_WALL_MS / 1000} s of wall time`;
const sameFault = (count: number, why = ""): string =>
  `${count} episodes in a row ended by the same fault, and the rest were not run: ${why}`;

function factsOfEpisode(episode: PaidEpisode & EpisodeScore, keepActions: boolean): EpisodeFacts {
  const { actions, index: _, ...facts } = episode;
  if (!keepActions) return facts;
  return { ...facts, actions: Buffer.from(actions.buffer, actions.byteOffset, actions.byteLength).toString("base64") };
}

function episodeOf(index: number, facts: EpisodeFacts): PaidEpisode & { keptActions: boolean } {
  const { actions, ...known } = facts;
  const bytes = Buffer.from(actions ?? "", "base64");
  const numbers = Float64Array.from({ length: bytes.length / 8 }, (_, i) => bytes.readDoubleLE(8 * i));
  // Written by `factsOfEpisode`, so the values match the type.
  return {
    ...(known as PaidEpisode),
    error: known.error,
    index,
    actions: numbers,
    keptActions: actions !== undefined,
  };
}

/** A waiter for a core. */
interface Waiter {
  go(): void;
}

/** A fixed number of cores. */
export class Cores {
  #free: number;
  /** Waiters by organization; the next organization comes first. */
  readonly #waiting = new Map<string, Waiter[]>();

  constructor(count: number) {
    this.#free = count;
  }

  /** Waits for a core; resolves with a function that releases it once. Rejects with the signal's reason if that is aborted first. */
  async enter(orgId: string, signal: Signal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#free > 0) this.#free -= 1;
    else await this.#wait(orgId, signal);
    let isMine = true;
    return () => {
      if (isMine) this.#leave();
      isMine = false;
    };
  }

  #wait(orgId: string, signal: Signal): Promise<void> {
    return new Promise((resolve, reject) => {
      const queue = this.#waiting.get(orgId) ?? [];
      const leave = (): void => {
        queue.splice(queue.indexOf(waiter), 1);
        if (queue.length === 0) this.#waiting.delete(orgId);
        reject(signal.reason);
      };
      const waiter: Waiter = {
        go() {
          signal.removeEventListener("abort", leave);
          resolve();
        },
      };
      queue.push(waiter);
      this.#waiting.set(orgId, queue);
      signal.addEventListener("abort", leave, { once: true });
    });
  }

  /** The core goes to the next organization, which moves to the end. */
  #leave(): void {
    const [next] = this.#waiting;
    if (!next) {
      this.#free += 1;
      return;
    }
    const [orgId, queue] = next;
    const waiter = queue.shift();
    this.#waiting.delete(orgId);
    if (queue.length > 0) this.#waiting.set(orgId, queue);
    waiter?.go();
  }
}
