/** Evaluations: episodes run side by side in lanes. A lane holds, runs, charges and records each episode before its next one begins. */
import { createHash } from "node:crypto";
import type { KeyPrincipal } from "../call.ts";
import type { Signal } from "../cancellation.ts";
import { sleep } from "../clock.ts";
import { factsOf, Refusal } from "../errors.ts";
import type { Leaser } from "../inference/call-billing.ts";
import type { Chunk } from "../scenarios/episode.ts";
import { PolicyFailure, ScenarioError } from "../scenarios/failure.ts";
import { builtIn, digestOf, variantFor } from "../scenarios/index.ts";
import { offersOf, type Scenario, type ScenarioVariant } from "../scenarios/scenario.ts";
import { type EpisodeScore, isFault, scoresOf } from "../scenarios/scores.ts";
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
  PolicyBusy,
  type PolicyDeps,
  PolicyUnusable,
  serverPolicy,
} from "../services/evaluation-run.ts";
import type { JobSeal, JobSeals } from "../services/job.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { planFilms } from "../store/jobs/films.ts";
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
  /** Lanes in this process beyond the first one of each evaluation. */
  readonly extraLanes: ExtraLanes;
}

/** A longer episode ends as a fault of its policy, so that it does not hold a core forever. */
const EPISODE_WALL_MS = 600_000;

/** How many lanes an evaluation gets by default if its remaining episodes would take longer than this in one. Another lane takes about 0.3 s to start. */
const DEFAULT_LANES = 4;
const LONG_MS = 5_000;

/** Between two attempts at a server that the evaluation's own lanes may occupy. */
const AGAIN_MS = 1_000;

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

/** Episodes of an evaluation one after another: in a thread, and in a session of the policy, of their own. */
interface Lane {
  /** From 0; the first one also renders. */
  readonly number: number;
  readonly policy: EvaluatedPolicy;
  /** The episode that it runs; undefined between two. */
  index: number | undefined;
  /** Milliseconds of that episode so far. */
  wallMs: number;
}

class EvaluationRun {
  readonly #deps: EvaluationDeps;
  readonly #job: HeldJob;
  readonly #seal: JobSeal;
  readonly #watch: JobWatch;
  readonly #request: EvaluationRequest;
  readonly #episodes: (PaidEpisode & { keptActions: boolean })[] = [];
  /** The sums of their durations, and of the costs of their calls in micro-dollars. */
  readonly #ended = { wallMs: 0, policyMicro: 0 };
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
  /** Number of answers of the policy. */
  #answered = 0;
  /** Cost of calls of episodes that were left, in micro-dollars. */
  #leftMicro = 0;
  /** Whether the policy serves one session at a time, so that only the first lane continues. */
  #isNarrow = false;
  /** Whether the job yields its slot once the running episodes have ended. */
  #isResting = false;
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
    const scores = this.#episodes.length > 0 && { scores: scoresOf(this.#episodes) };
    const status = this.#job.cancelled ? "cancelled" : "expired";
    await this.#close(status, { ...scores, ...(harness !== undefined && { harness }) });
  }

  /** The progress that an earlier worker of this job recorded. */
  async #recall(): Promise<void> {
    const items = await listItems(this.#deps.sql, this.#job.id, 0, this.#request.episodes, { actions: true });
    for (const { index, response } of items.map((item) => this.#seal.item(item))) {
      if (response) this.#add(episodeOf(index, response as EpisodeFacts));
    }
  }

  #add(episode: PaidEpisode & { keptActions: boolean }): void {
    this.#episodes.push(episode);
    this.#ended.wallMs += episode.wallMs;
    this.#ended.policyMicro += episode.policyMicro;
  }

  #policy(variant: ScenarioVariant, lane: number): EvaluatedPolicy {
    const { fields, dtMs } = variant;
    const { instruction = variant.instruction } = this.#request;
    const { id: jobId, epoch } = this.#job;
    const about = { jobId, lane, epoch, instruction, offers: offersOf(variant), actionDim: fields.length, dtMs };
    if (this.#request.protocol !== "gateway") {
      const { id, secret } = this.#job;
      const opened = secret ? this.#deps.vault.open(secret, jobSecretContext(id)) : "";
      return serverPolicy(this.#deps, this.#request, { ...about, secret: opened });
    }
    return gatewayPolicy(this.#deps.act(this.#job.keyId), this.#request, about);
  }

  /** Runs the episodes in lanes. The first lane ends last; if one fails, all end. Throws `Resting` if the job yields its slot. */
  async #play({ pack }: Scenario, variant: ScenarioVariant): Promise<TrialEnd> {
    const { scenario, actionSpace, seed, mode, replanSteps, pictures, media } = this.#request;
    const calledOff = new AbortController();
    const { lost, stopped } = this.#watch;
    const leave = (): void => calledOff.abort(lost.aborted ? lost.reason : new CalledOff());
    lost.addEventListener("abort", leave, { once: true });
    stopped.addEventListener("abort", leave, { once: true });
    if (lost.aborted || stopped.aborted) leave();
    // Films are rendered after the end.
    const shown = media === "film" ? "none" : media;
    const plan = { scenario, actionSpace, seed, rules: { mode, replanSteps }, pictures, media: shown, pack } as const;
    const begin = (leaveSlot: () => void): Promise<TrialEnd> => {
      const number = this.#policies.length;
      const lane: Lane = { number, policy: this.#policy(variant, number), index: undefined, wallMs: 0 };
      this.#policies.push(lane.policy);
      const listener = {
        next: async () => {
          const next = await this.#next(lane);
          if (next.index !== undefined) widen();
          return next;
        },
        act: async (shown: Shown, signal: Signal, wallMs: number) => {
          const chunk = await this.#act(lane, shown, signal, wallMs);
          if (this.#answered++ === 0) widen();
          return chunk;
        },
        finished: (episode: FinishedEpisode) => this.#finished(lane, episode),
        core: (signal: Signal) => this.#deps.cores.enter(this.#job.orgId, signal),
      };
      const end = runTrial(plan, listener, calledOff.signal);
      const over = end
        .then(
          () => {},
          (thrown) => {
            if (!(thrown instanceof LaneOver)) calledOff.abort(thrown);
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
        if (!leaveSlot) return;
        begin(leaveSlot).catch(() => {});
      }
    };
    try {
      await tx(this.#deps.sql, (tx) => advance(tx, this.#job, "running"));
      const end = begin(() => {});
      return await end.finally(() => Promise.all(this.#lanes.values()));
    } catch (thrown) {
      // The first failure of any lane ended the others.
      throw calledOff.signal.aborted ? calledOff.signal.reason : thrown;
    } finally {
      lost.removeEventListener("abort", leave);
      stopped.removeEventListener("abort", leave);
    }
  }

  /** Whether another lane should begin now. None does before the policy has answered. */
  #wantsLane(): boolean {
    const { parallelEpisodes, protocol, mode, episodes } = this.#request;
    if (this.#answered === 0 || this.#isNarrow || this.#isResting) return false;
    const lanes = [...this.#lanes.keys()];
    const unclaimed = episodes - this.#episodes.length - lanes.length;
    if (unclaimed <= 0) return false;
    if (parallelEpisodes !== undefined) return lanes.length < parallelEpisodes;
    const fair = this.#episodes.filter((episode) => !isFault(episode));
    if (protocol !== "gateway" || mode === "realtime" || fair.length === 0) return false;
    const meanMs = fair.reduce((sum, { wallMs }) => sum + wallMs, 0) / fair.length;
    return lanes.length < DEFAULT_LANES && unclaimed * meanMs > LONG_MS;
  }

  async #act(lane: Lane, shown: Shown, signal: Signal, wallMs: number): Promise<Chunk> {
    lane.wallMs = wallMs;
    if (this.#leftMs() <= 0) throw new BudgetOver(BUDGET_OVER);
    if (wallMs > EPISODE_WALL_MS) throw new PolicyFailure("policy_timeout", TOO_LONG);
    await this.#beginCall();
    try {
      return await lane.policy.act(shown, signal);
    } catch (thrown) {
      if (!(thrown instanceof PolicyBusy) || this.#lanes.size === 1) throw thrown;
    } finally {
      this.#calling -= 1;
      this.#callEnded.resolve();
      this.#callEnded = Promise.withResolvers();
    }
    // The lanes themselves may occupy the server.
    this.#isNarrow = true;
    if (lane.number > 0) throw this.#leave(lane);
    await sleep(AGAIN_MS, signal);
    return this.#act(lane, shown, signal, wallMs);
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
      this.#ended.policyMicro + this.#policies.reduce((sum, { owedMicro }) => sum + owedMicro, this.#leftMicro);
    while (spent() + (this.#calling + 1) * calls.micro > callsCapMicro) {
      if (this.#calling === 0) throw new BudgetOver(CALLS_OVER);
      await this.#callEnded.promise;
    }
    // In the same step as the check: lanes that waited for the same end check one after another.
    this.#calling += 1;
  }

  /** The remaining milliseconds of the time budget. */
  #leftMs(): number {
    let spentMs = this.#ended.wallMs;
    for (const { wallMs } of this.#lanes.keys()) spentMs += wallMs;
    return this.#request.wallBudgetS * 1000 - spentMs;
  }

  /** The lane's next episode. The first lane waits for all others before it ends and renders. */
  async #next(lane: Lane): Promise<NextEpisode> {
    for (;;) {
      const index = await this.#take(lane);
      if (index !== undefined) {
        lane.index = index;
        return { index };
      }
      if (lane.number > 0) return { index, rendered: [] };
      const others = [...this.#lanes].filter(([other]) => other !== lane);
      if (others.length === 0) {
        if (this.#isResting && this.#episodes.length < this.#request.episodes) throw new Resting(0);
        const kept = this.#episodes.filter(({ keptActions }) => keptActions);
        const inOrder = kept.toSorted((a, b) => a.index - b.index);
        const { media } = this.#request;
        return { index, rendered: media === "none" || media === "film" ? [] : firstAndWorst(inOrder) };
      }
      await Promise.all(others.map(([, over]) => over));
    }
  }

  /** Takes an episode and holds its price; returns its index, undefined if there is none for this lane. */
  async #take(lane: Lane): Promise<number | undefined> {
    if (this.#isNarrow && lane.number > 0) return undefined;
    if (this.#episodes.length > 0 && this.#episodes.length < this.#request.episodes) await this.#mayGoOn();
    if (this.#isResting) return undefined;
    const left = this.#left.shift();
    if (left !== undefined) return left;
    if (await this.#isDecided()) return undefined;
    const [next] = await turn(this.#deps.sql, this.#job, { take: 1, poison: EPISODE_LOST });
    if (!next) return undefined;
    const payer = await this.#deps.principal(this.#job.keyId);
    const bill = await openEpisodeBill(this.#deps, { payer, jobId: this.#job.id, index: next.index }, this.#request);
    this.#bills.set(next.index, bill);
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

  async #finished(lane: Lane, finished: FinishedEpisode): Promise<void> {
    const episode = { ...finished, policyMicro: lane.policy.spentMicro() + this.#leftMicro };
    this.#leftMicro = 0;
    const { index } = episode;
    const bill = this.#bills.get(index);
    const fault = isFault(episode);
    const costMicro = fault ? 0 : ((await bill?.charge()) ?? 0);
    if (fault) await bill?.free();
    this.#bills.delete(index);
    this.#add({ ...episode, keptActions: true });
    lane.index = undefined;
    lane.wallMs = 0;
    const response = factsOfEpisode(episode, keepsActions(this.#request, this.#job.sealed));
    const end = { index, state: fault ? "failed" : "completed", response, costMicro } as const;
    await turn(this.#deps.sql, this.#job, { ended: [this.#seal.end(end)] });
  }

  /** Throws, between two episodes, if the next must not begin, and notes if it has to wait. */
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
    this.#isResting ||= await this.#watch.isAwaited();
  }

  async #complete(scenario: Scenario, variant: ScenarioVariant, end: TrialEnd): Promise<void> {
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
      model: this.#policies.find(({ model }) => model !== undefined)?.model,
      simulated: this.#policies.some(({ simulated }) => simulated),
      ...(allFaults && { error: { code: first?.termination ?? "policy_error", message: first?.error ?? "" } }),
    };
    const { media, mediaEpisodes = "first_and_worst" } = this.#request;
    const recorded = episodes.filter(({ keptActions }) => keptActions);
    const films = media === "film" ? filmedOf(recorded, mediaEpisodes).map(({ index }) => index) : [];
    await this.#close(allFaults ? "failed" : "completed", result, films);
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

  #end(status: "failed" | "cancelled", result: EvaluationResult): Promise<void> {
    const expired = status === "cancelled" && this.#watch.stopped.reason === "expired";
    return this.#close(expired ? "expired" : status, result);
  }

  #close(status: EvaluationEnd, result: EvaluationResult, films: readonly number[] = []): Promise<void> {
    const complete = { ...result, calls: callsOf(this.#episodes) };
    const { sql } = this.#deps;
    return endEvaluation(sql, this.#job, status, complete, this.#seal, async (tx) => {
      if (films.length > 0) await planFilms(tx, this.#job, films);
    });
  }
}

/** The evaluation was canceled or expired. */
class CalledOff extends Error {
  override readonly name = "CalledOff";
}

/** Another lane plays this lane's episode, because the server doesn't serve both. */
class LaneOver extends Error {
  override readonly name = "LaneOver";
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

/** A recorded episode. */
export function episodeOf(index: number, facts: EpisodeFacts): PaidEpisode & { keptActions: boolean } {
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

/** Lanes beyond the first one of each evaluation, so that a process has a bounded number of threads. */
export class ExtraLanes {
  readonly #most: { readonly inAll: number; readonly ofOrg: number };
  readonly #byOrg = new Map<string, number>();

  constructor(most: { readonly inAll: number; readonly ofOrg: number }) {
    this.#most = most;
  }

  /** Takes a lane if one is free, and returns its release, which is called once. */
  enter(orgId: string): (() => void) | undefined {
    const ofOrg = this.#byOrg.get(orgId) ?? 0;
    const inAll = [...this.#byOrg.values()].reduce((sum, count) => sum + count, 0);
    if (inAll >= this.#most.inAll || ofOrg >= this.#most.ofOrg) return undefined;
    this.#byOrg.set(orgId, ofOrg + 1);
    return () => {
      const left = this.#byOrg.get(orgId)! - 1;
      if (left === 0) this.#byOrg.delete(orgId);
      else this.#byOrg.set(orgId, left);
    };
  }
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
