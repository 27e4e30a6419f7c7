/**
 * Evaluations: episodes run side by side in lanes. A lane holds, runs, charges and records each episode before its next one begins. Other
 * workers run more lanes as shares of the evaluation; only the worker that holds it decides when it ends, and computes the result.
 */
import { createHash } from "node:crypto";
import type { Signal } from "../cancellation.ts";
import { sleep, steadyNow } from "../clock.ts";
import { factsOf, Refusal } from "../errors.ts";
import type { Chunk } from "../scenarios/episode.ts";
import { ScenarioError } from "../scenarios/failure.ts";
import { digestOf } from "../scenarios/index.ts";
import type { Scenario, ScenarioVariant } from "../scenarios/scenario.ts";
import { isFault, scoresOf } from "../scenarios/scores.ts";
import {
  type FinishedEpisode,
  filmedOf,
  firstAndWorst,
  type NextEpisode,
  runTrial,
  type Shown,
  type TrialEnd,
} from "../scenarios/trial.ts";
import { isDecided } from "../services/evaluation-compared.ts";
import {
  callsOf,
  type EpisodeBill,
  type EvaluatedPolicy,
  type EvaluationEnd,
  type EvaluationRequest,
  type EvaluationResult,
  endEvaluation,
  IS_SHORT,
  isExternal,
  PolicyBusy,
  PolicyUnusable,
} from "../services/evaluation-run.ts";
import type { JobSeal } from "../services/job.ts";
import { tx } from "../store/database/tx.ts";
import { planFilms } from "../store/jobs/films.ts";
import { advance, type HeldJob } from "../store/jobs/jobs.ts";
import { offerShares, sharedProgress, withdrawShares } from "../store/jobs/shares.ts";
import { countReplicas } from "../store/replicas/replicas.ts";
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
import { type JobWatch, type JobWork, Resting } from "./worker.ts";

/**
 * How many lanes an evaluation gets in its worker by default, while its remaining episodes would take longer than `LONG_MS` in one. Another
 * lane takes about 0.3 s to start.
 */
const DEFAULT_LANES = 4;
const LONG_MS = 5_000;

/** How many lanes it gets in other workers by default, if those remaining episodes would occupy each lane for so long. */
const MOST_SHARES = 8;
/** The most shares that wait for a worker: there might be none with a free slot. */
const MOST_WAITING = 4;
/** No share is offered for this long after one ended early: the policy's server has no place for it, or its worker makes room for others. */
const PAUSE_MS = 30_000;
/** Between two looks at episodes that run elsewhere. */
const LOOK_MS = 500;

/** Between two attempts at a server that the evaluation's own lanes may occupy, and how long withdrawn shares may occupy it. */
const AGAIN_MS = 1_000;
const OCCUPIED_MS = 45_000;

/** The evaluation worker. */
export const evaluationWork =
  (deps: EvaluationDeps): JobWork =>
  async (job, watch) => {
    const seal = await deps.seals.of(job);
    return new EvaluationRun(deps, seal.job(job), seal, watch).finish();
  };

/** Episodes of an evaluation one after another: in a thread, and in a session of the policy, of their own. */
interface Lane {
  /** From 0; the first one also renders. */
  readonly number: number;
  readonly policy: EvaluatedPolicy;
  /** The episode that it runs; undefined between two. */
  index: number | undefined;
  /** Milliseconds of that episode so far. */
  wallMs: number;
  /** Whether the policy has answered it. */
  isAnswered: boolean;
}

class EvaluationRun {
  readonly #deps: EvaluationDeps;
  readonly #job: HeldJob;
  readonly #seal: JobSeal;
  readonly #watch: JobWatch;
  readonly #request: EvaluationRequest;
  readonly #held: HeldEvaluation;
  readonly #progress = new Progress();
  /** Running lanes with their ends, which never reject. */
  readonly #lanes = new Map<Lane, Promise<void>>();
  /** The policy of every lane that has begun. */
  readonly #policies: EvaluatedPolicy[] = [];
  /** Reservations of episodes that have begun, by index. */
  readonly #bills = new Map<number, EpisodeBill>();
  /** Episodes that a lane began and left to another one. */
  readonly #left: number[] = [];
  /** Policy calls in flight, and who waits for the end of one. */
  #calling = 0;
  #callEnded = Promise.withResolvers<void>();
  /** Cost of calls of episodes that were left, in micro-dollars. */
  #leftMicro = 0;
  /** Whether the policy serves one session at a time, so that only the first lane continues. */
  #isNarrow = false;
  /** Whether the job yields its slot once the running episodes have ended. */
  #isResting = false;
  /** Whether there have been shares. If not, all progress is known here. */
  #isShared = false;
  /** Shares that have not ended, those of them without a worker, and episodes that run elsewhere, when last looked at. */
  #others = { shares: 0, waiting: 0, elsewhere: 0 };
  /** The last of the looks, which follow one after another. */
  #look: Promise<void> = Promise.resolve();
  /** When the next share may be offered, and until when withdrawn ones may occupy the policy's server, on the monotonic clock. */
  #offersFrom = 0;
  #occupiedUntil = 0;
  /** Whether the comparison knows the best policy, so that no further episode begins. */
  #isKnown = false;
  /** Episodes that had ended when the comparison was last looked at. */
  #lookedAt = 0;

  constructor(deps: EvaluationDeps, job: HeldJob, seal: JobSeal, watch: JobWatch) {
    this.#deps = deps;
    this.#job = job;
    this.#seal = seal;
    this.#watch = watch;
    // Written by this gateway's service, which validated it.
    this.#request = job.request as EvaluationRequest;
    this.#held = { job, request: this.#request, hold: job, seal };
  }

  async finish(): Promise<void> {
    const { sql } = this.#deps;
    // Jobs of external runners reach this worker only when they were canceled or expired.
    if (isExternal(this.#request)) return this.#abandon();
    await tx(sql, (tx) => advance(tx, this.#job, "provisioning"));
    const world = worldOf(this.#deps, this.#request);
    if (!world) return this.#fail("scenario_not_runnable", "this scenario is not here any more");
    await this.#recall();
    const { scenario, variant, isSame } = world;
    if (!isSame) {
      const text = "this scenario is another one here than it was when the evaluation was asked for";
      return this.#fail("scenario_not_runnable", text);
    }
    try {
      await this.#complete(scenario, variant, await this.#play(scenario, variant));
    } catch (thrown) {
      for (const bill of this.#bills.values()) await bill.free().catch(() => {});
      await this.#giveUp(thrown);
    }
  }

  /** Ends canceled and expired evaluations whose runner is gone. */
  async #abandon(): Promise<void> {
    await this.#recall();
    const { harness } = (this.#job.result ?? {}) as EvaluationResult;
    const { count, episodes } = this.#progress;
    const scores = count > 0 && { scores: scoresOf(episodes) };
    const status = this.#job.cancelled ? "cancelled" : "expired";
    await this.#close(status, { ...scores, ...(harness !== undefined && { harness }) });
  }

  /** The progress that an earlier worker of this job, or its shares, recorded. */
  async #recall(): Promise<void> {
    await this.#lookElsewhere();
    this.#isShared = this.#others.shares > 0;
  }

  /** Reads what shares have done. */
  #lookElsewhere(): Promise<void> {
    const look = async (): Promise<void> => {
      const { sql } = this.#deps;
      const asked = { ...this.#progress.gap, actions: true };
      const { ended, ...others } = await sharedProgress(sql, this.#job, this.#job.id, asked);
      this.#progress.recall(ended, this.#seal);
      if (others.shares < this.#others.shares) this.#offersFrom = steadyNow() + PAUSE_MS;
      this.#others = others;
    };
    return this.#inTurn(look);
  }

  /** Offers shares of the remaining episodes if other replicas are alive. */
  #offer(): Promise<void> {
    return this.#inTurn(async () => {
      const { sql } = this.#deps;
      const count = this.#wantedShares();
      if (count <= 0 || (await countReplicas(sql)) < 2) return;
      this.#isShared = true;
      await offerShares(sql, this.#job, count);
      this.#others = {
        ...this.#others,
        shares: this.#others.shares + count,
        waiting: this.#others.waiting + count,
      };
    });
  }

  #inTurn(look: () => Promise<void>): Promise<void> {
    const done = this.#look.then(look);
    this.#look = done.catch(() => {});
    return done;
  }

  /** Ends all shares now, and reads what they had recorded by then. */
  async #withdraw(): Promise<void> {
    if (!this.#isShared) return;
    await tx(this.#deps.sql, (tx) => withdrawShares(tx, this.#job));
    await this.#lookElsewhere();
    this.#occupiedUntil = steadyNow() + OCCUPIED_MS;
  }

  /** Runs the episodes in lanes. The first lane ends last; if one fails, all end. Throws `Resting` if the job yields its slot. */
  async #play(scenario: Scenario, variant: ScenarioVariant): Promise<TrialEnd> {
    const ending = new TrialEnding(this.#watch);
    const plan = planOf(this.#request, scenario);
    const begin = (leaveSlot: () => void): Promise<TrialEnd> => {
      const number = this.#policies.length;
      const policy = policyOf(this.#deps, this.#held, variant, number);
      const lane: Lane = { number, policy, index: undefined, wallMs: 0, isAnswered: false };
      this.#policies.push(lane.policy);
      const listener = {
        next: async () => {
          const next = await this.#next(lane, ending.signal);
          if (next.index !== undefined) widen();
          return next;
        },
        act: async (shown: Shown, signal: Signal, wallMs: number) => {
          const chunk = await this.#act(lane, shown, signal, wallMs);
          if (!lane.isAnswered) {
            lane.isAnswered = true;
            widen();
          }
          return chunk;
        },
        finished: (episode: FinishedEpisode) => this.#finished(lane, episode),
        core: (signal: Signal) => this.#deps.cores.enter(this.#job.orgId, signal),
      };
      const end = runTrial(plan, listener, ending.signal);
      const over = end
        .then(
          () => {},
          (thrown) => {
            if (!(thrown instanceof LaneOver)) ending.abort(thrown);
          },
        )
        .finally(() => {
          this.#lanes.delete(lane);
          leaveSlot();
        });
      this.#lanes.set(lane, over);
      return end;
    };
    const widen = (): void => {
      while (this.#wantsLane()) {
        const leaveSlot = this.#deps.extraLanes.enter(this.#job.orgId);
        if (!leaveSlot) break;
        begin(leaveSlot).catch(() => {});
      }
      // Without shares, the evaluation only takes longer.
      if (this.#wantedShares() > 0) this.#offer().catch(() => {});
    };
    try {
      await tx(this.#deps.sql, (tx) => advance(tx, this.#job, "running"));
      const end = begin(() => {});
      return await end.finally(() => Promise.all(this.#lanes.values()));
    } catch (thrown) {
      // The first failure of any lane ended the others.
      throw ending.signal.aborted ? ending.signal.reason : thrown;
    } finally {
      ending.close();
    }
  }

  /** Whether another lane should begin now. None does before the policy has answered. */
  #wantsLane(): boolean {
    const { parallelEpisodes } = this.#request;
    if (!this.#mayWiden()) return false;
    const unclaimed = this.#unclaimed();
    if (unclaimed <= 0) return false;
    const { size } = this.#lanes;
    if (parallelEpisodes !== undefined) return size + this.#others.shares < parallelEpisodes;
    return size < DEFAULT_LANES && unclaimed * this.#meanMs() > LONG_MS;
  }

  /** How many more shares should be offered now. None is before the policy has answered every lane here, as each adds to its load. */
  #wantedShares(): number {
    const { parallelEpisodes, callsCapMicro, mode } = this.#request;
    const lanes = [...this.#lanes.keys()];
    const isSettled = lanes.every(({ isAnswered }) => isAnswered) && steadyNow() >= this.#offersFrom;
    if (!this.#mayWiden() || !isSettled || callsCapMicro !== undefined || mode === "realtime") return 0;
    const { shares, waiting } = this.#others;
    const unclaimed = this.#unclaimed();
    const byLength = Math.min(MOST_SHARES, Math.floor((unclaimed * this.#meanMs()) / LONG_MS) - lanes.length);
    const most = parallelEpisodes === undefined ? byLength : parallelEpisodes - lanes.length;
    // A share that runs no episode takes one next.
    return Math.min(most - shares, unclaimed - (shares - this.#running()), MOST_WAITING - waiting);
  }

  #mayWiden(): boolean {
    const isAnswered = [...this.#lanes.keys()].some((lane) => lane.isAnswered);
    return isAnswered && !this.#isNarrow && !this.#isResting && !this.#isKnown;
  }

  /** The number of episodes that no lane and no share has begun. */
  #unclaimed(): number {
    return this.#request.episodes - this.#progress.count - this.#lanes.size - this.#running();
  }

  /** The number of episodes that shares run. Others that run elsewhere were left over. */
  #running(): number {
    return Math.min(this.#others.elsewhere, this.#others.shares);
  }

  /** The mean duration of an episode in milliseconds, where it decides how many lanes there are; 0 where there is one by default. */
  #meanMs(): number {
    const { protocol, mode } = this.#request;
    const fair = this.#progress.episodes.filter((episode) => !isFault(episode));
    if (protocol !== "gateway" || mode === "realtime" || fair.length === 0) return 0;
    return fair.reduce((sum, { wallMs }) => sum + wallMs, 0) / fair.length;
  }

  async #act(lane: Lane, shown: Shown, signal: Signal, wallMs: number): Promise<Chunk> {
    lane.wallMs = wallMs;
    assertInTime(this.#leftMs(), wallMs);
    await this.#beginCall();
    try {
      return await lane.policy.act(shown, signal);
    } catch (thrown) {
      if (!(thrown instanceof PolicyBusy) || !this.#mayOccupyServer()) throw thrown;
    } finally {
      this.#calling -= 1;
      this.#callEnded.resolve();
      this.#callEnded = Promise.withResolvers();
    }
    if (!this.#isNarrow) {
      this.#isNarrow = true;
      await this.#withdraw();
    }
    if (lane.number > 0) throw this.#leave(lane);
    await sleep(AGAIN_MS, signal);
    return this.#act(lane, shown, signal, wallMs);
  }

  /** Whether the evaluation's own lanes and shares may occupy the policy's server. */
  #mayOccupyServer(): boolean {
    return this.#lanes.size > 1 || this.#others.shares > 0 || steadyNow() < this.#occupiedUntil;
  }

  /** Leaves the lane's episode to another lane. */
  #leave(lane: Lane): LaneOver {
    if (lane.index !== undefined) this.#left.push(lane.index);
    this.#leftMicro += lane.policy.spentMicro();
    return new LaneOver();
  }

  /** Counts a call once it stays under the cap, whatever the calls in flight cost; waits until then. */
  async #beginCall(): Promise<void> {
    const { calls, callsCapMicro = Infinity } = this.#request;
    const spent = (): number =>
      this.#progress.policyMicro + this.#policies.reduce((sum, { owedMicro }) => sum + owedMicro, this.#leftMicro);
    while (spent() + (this.#calling + 1) * calls.micro > callsCapMicro) {
      if (this.#calling === 0) throw new BudgetOver(CALLS_OVER);
      await this.#callEnded.promise;
    }
    // In the same step as the check: lanes that waited for the same end check one after another.
    this.#calling += 1;
  }

  /** The remaining milliseconds of the time budget. */
  #leftMs(): number {
    let spentMs = this.#progress.wallMs;
    for (const { wallMs } of this.#lanes.keys()) spentMs += wallMs;
    return this.#request.wallBudgetS * 1000 - spentMs;
  }

  /** The lane's next episode. The first lane waits for all others, and for those of shares, before it ends and renders. */
  async #next(lane: Lane, signal: Signal): Promise<NextEpisode> {
    for (;;) {
      const index = await this.#take(lane, signal);
      if (index !== undefined) {
        lane.index = index;
        return { index };
      }
      if (lane.number > 0) return { index, rendered: [] };
      const others = [...this.#lanes].filter(([other]) => other !== lane);
      if (others.length === 0) {
        if (this.#isResting && this.#progress.count < this.#request.episodes) throw new Resting(0);
        if (!(await this.#runsElsewhere())) break;
        await sleep(LOOK_MS, signal);
      }
      await Promise.all(others.map(([, over]) => over));
    }
    const kept = this.#progress.episodes.filter(({ keptActions }) => keptActions);
    const { media } = this.#request;
    return { index: undefined, rendered: media === "none" || media === "film" ? [] : firstAndWorst(kept) };
  }

  /** Whether episodes run in shares, or were left by one. */
  async #runsElsewhere(): Promise<boolean> {
    if (!this.#isShared) return false;
    await this.#lookElsewhere();
    return this.#others.elsewhere > 0;
  }

  /** Takes an episode and holds its price; returns its index, undefined if there is none for this lane. */
  async #take(lane: Lane, signal: Signal): Promise<number | undefined> {
    if (this.#isNarrow && lane.number > 0) return undefined;
    if (this.#isShared) await this.#lookElsewhere();
    const { count } = this.#progress;
    if (count > 0 && count < this.#request.episodes) await this.#mayGoOn();
    if (this.#isResting) return undefined;
    const left = this.#left.shift();
    if (left !== undefined) return left;
    if (await this.#isDecided()) return undefined;
    const taken = await takeEpisode(this.#deps, this.#held, signal);
    if (taken) this.#bills.set(taken.index, taken.bill);
    return taken?.index;
  }

  /** Whether its comparison knows the best policy. Looks after 5 episodes and then each time that a tenth more have ended. */
  async #isDecided(): Promise<boolean> {
    if (!this.#request.comparison?.stopWhenKnown || this.#isKnown) return this.#isKnown;
    const { count } = this.#progress;
    if (count < Math.max(5, Math.ceil(this.#lookedAt * 1.1))) return false;
    this.#lookedAt = count;
    const { sql, seals } = this.#deps;
    this.#isKnown = await isDecided(sql, seals, this.#job);
    // From then on, shares take no further episode.
    if (this.#isKnown) await tx(sql, (tx) => advance(tx, this.#job, "scoring"));
    return this.#isKnown;
  }

  async #finished(lane: Lane, finished: FinishedEpisode): Promise<void> {
    const episode = { ...finished, policyMicro: lane.policy.spentMicro() + this.#leftMicro };
    this.#leftMicro = 0;
    const { index } = episode;
    const bill = this.#bills.get(index);
    const costMicro = await settleEpisode(episode, bill);
    this.#bills.delete(index);
    this.#progress.add({ ...episode, keptActions: true });
    lane.index = undefined;
    lane.wallMs = 0;
    await recordEpisode(this.#deps, this.#held, episode, costMicro);
  }

  /** Throws, between two episodes, if the next must not begin, and notes if it has to wait. */
  async #mayGoOn(): Promise<void> {
    assertContinues(this.#progress, this.#request, this.#leftMs());
    this.#isResting ||= await this.#watch.isAwaited();
  }

  async #complete(scenario: Scenario, variant: ScenarioVariant, end: TrialEnd): Promise<void> {
    const { sql } = this.#deps;
    await tx(sql, (tx) => advance(tx, this.#job, "scoring"));
    const { episodes } = this.#progress;
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
      model: this.#policies.find(({ model }) => model !== undefined)?.model,
      simulated: this.#policies.some(({ simulated }) => simulated),
      ...(allFaults && { error: { code: first?.termination ?? "policy_error", message: first?.error ?? "" } }),
    };
    const { media, mediaEpisodes = "first_and_worst" } = this.#request;
    const recorded = episodes.filter(({ keptActions }) => keptActions);
    const films = media === "film" ? filmedOf(recorded, mediaEpisodes).map(({ index }) => index) : [];
    await this.#close(allFaults ? "failed" : "completed", result, films);
  }

  /** Ends an evaluation that cannot continue, with what its shares recorded. If another worker can finish it, leaves it. */
  async #giveUp(thrown: unknown): Promise<void> {
    const end = this.#endOf(thrown);
    if (!end) throw thrown;
    await this.#withdraw();
    return end();
  }

  /** Ends the evaluation for this reason; undefined if another worker can finish it. */
  #endOf(thrown: unknown): (() => Promise<void>) | undefined {
    if (thrown instanceof CalledOff) return () => this.#end("cancelled", this.#partial());
    if (thrown instanceof BudgetOver) return () => this.#close("expired", { ...this.#partial(), error: thrown.error });
    if (thrown instanceof PolicyUnusable) return () => this.#fail(thrown.code, thrown.message);
    if (thrown instanceof VaultError) return () => this.#fail("secret_unreadable", SECRET_GONE);
    if (thrown instanceof ScenarioError) return () => this.#fail("scenario_failed", thrown.message);
    const isFinal = thrown instanceof Refusal && (IS_SHORT.has(thrown.reason) || factsOf(thrown.reason).status < 409);
    return isFinal ? () => this.#fail(factsOf(thrown.reason).code, thrown.message) : undefined;
  }

  #partial(): EvaluationResult {
    const { count, episodes } = this.#progress;
    return count > 0 ? { scores: scoresOf(episodes), runtime: process.version } : {};
  }

  #fail(code: string, message: string): Promise<void> {
    return this.#end("failed", { ...this.#partial(), error: { code, message } });
  }

  #end(status: "failed" | "cancelled", result: EvaluationResult): Promise<void> {
    const expired = status === "cancelled" && this.#watch.stopped.reason === "expired";
    return this.#close(expired ? "expired" : status, result);
  }

  #close(status: EvaluationEnd, result: EvaluationResult, films: readonly number[] = []): Promise<void> {
    const complete = { ...result, calls: callsOf(this.#progress.episodes) };
    const { sql } = this.#deps;
    return endEvaluation(sql, this.#job, status, complete, this.#seal, async (tx) => {
      if (films.length > 0) await planFilms(tx, this.#job, films);
    });
  }
}

/** Another lane plays this lane's episode, because the server doesn't serve both. */
class LaneOver extends Error {
  override readonly name = "LaneOver";
}

const CALLS_OVER = {
  code: "calls_budget_exhausted",
  message: "the next call of the policy could exceed `max_calls_usd`; the remaining episodes were not run",
};

const SECRET_GONE = "the secret of the policy's server can't be opened: its master key is not loaded any more";
