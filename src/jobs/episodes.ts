/** Episodes of an evaluation, as its holder and its shares run them: each is taken, played, charged and recorded. */
import type { KeyPrincipal } from "../call.ts";
import type { Signal } from "../cancellation.ts";
import { sleep } from "../clock.ts";
import { Reason, Refusal } from "../errors.ts";
import type { Leaser } from "../inference/call-billing.ts";
import { PolicyFailure } from "../scenarios/failure.ts";
import { builtIn, digestOf, variantFor } from "../scenarios/index.ts";
import { offersOf, type Scenario, type ScenarioVariant } from "../scenarios/scenario.ts";
import { type EpisodeScore, isFault } from "../scenarios/scores.ts";
import type { FinishedEpisode, TrialPlan } from "../scenarios/trial.ts";
import {
  type CallGateway,
  type EpisodeBill,
  type EpisodeFacts,
  type EvaluatedPolicy,
  type EvaluationRequest,
  gatewayPolicy,
  keepsActions,
  openEpisodeBill,
  type PolicyDeps,
  PolicyUnusable,
  serverPolicy,
} from "../services/evaluation-run.ts";
import type { JobSeal, JobSeals } from "../services/job.ts";
import type { Sql } from "../store/database/tx.ts";
import { type ItemRecord, type JobHold, type JobRecord, jobSecretContext, turn } from "../store/jobs/jobs.ts";
import type { Vault } from "../vault.ts";
import type { Cores, ExtraLanes } from "./cores.ts";
import type { JobWatch } from "./worker.ts";

/** What evaluations depend on. */
export interface EvaluationDeps extends PolicyDeps {
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

/** An evaluation, readable, and the hold under which a worker runs its episodes: its own, or that of a share. */
export interface HeldEvaluation {
  readonly job: JobRecord;
  /** Written by this gateway's service, which validated it. */
  readonly request: EvaluationRequest;
  readonly hold: JobHold;
  readonly seal: JobSeal;
}

/** An episode and the cost of its policy calls, in micro-dollars. */
export type PaidEpisode = FinishedEpisode & { readonly policyMicro: number };

/** An ended episode. */
export type EndedEpisode = PaidEpisode & { readonly keptActions: boolean };

/** A longer episode ends as a fault of its policy, so that it does not hold a core forever. */
const EPISODE_WALL_MS = 600_000;

/** Between two attempts to reserve the price of an episode that an earlier holder may still charge. */
const AGAIN_MS = 1_000;

const EPISODE_LOST = {
  error: { code: "internal_error", message: "this episode was begun too often and ended its worker each time" },
};

/** The ended episodes of an evaluation. */
export class Progress {
  readonly #byIndex = new Map<number, EndedEpisode>();
  #firstMissing = 0;
  /** The sum of their durations in milliseconds. */
  wallMs = 0;
  /** The sum of the costs of their calls, in micro-dollars. */
  policyMicro = 0;

  /** Adds an episode, or replaces it. */
  add(episode: EndedEpisode): void {
    const { wallMs = 0, policyMicro = 0 } = this.#byIndex.get(episode.index) ?? {};
    this.#byIndex.set(episode.index, episode);
    this.wallMs += episode.wallMs - wallMs;
    this.policyMicro += episode.policyMicro - policyMicro;
    while (this.#byIndex.has(this.#firstMissing)) this.#firstMissing += 1;
  }

  /** Adds the recorded episodes among these items. */
  recall(items: readonly ItemRecord[], seal: JobSeal): void {
    for (const { index, response } of items.map((item) => seal.item(item)))
      if (response) this.add(episodeOf(index, response as EpisodeFacts));
  }

  get count(): number {
    return this.#byIndex.size;
  }

  /** In order. */
  get episodes(): EndedEpisode[] {
    return [...this.#byIndex.values()].toSorted((a, b) => a.index - b.index);
  }

  /** The index of the first episode that has not ended, and those of the ended ones after it. */
  get gap(): { readonly from: number; readonly known: readonly number[] } {
    const from = this.#firstMissing;
    return {
      from,
      known: this.#byIndex.size === from ? [] : [...this.#byIndex.keys()].filter((index) => index > from),
    };
  }
}

/** The scenario of an evaluation, unless this process has another one under its name, or none. */
export function worldOf(
  { scenarios }: Pick<EvaluationDeps, "scenarios">,
  { scenario: name, actionSpace, world }: EvaluationRequest,
): { scenario: Scenario; variant: ScenarioVariant; isSame: boolean } | undefined {
  const scenario = scenarios.get(name) ?? builtIn(name);
  const variant = scenario && variantFor(scenario, actionSpace);
  return scenario && variant && { scenario, variant, isSame: digestOf(scenario, variant) === world?.digest };
}

/** The trial of an evaluation's episodes. Films are rendered after the end. */
export function planOf(
  { scenario, actionSpace, seed, mode, replanSteps, pictures, media }: EvaluationRequest,
  { pack }: Scenario,
): TrialPlan {
  const shown = media === "film" ? "none" : media;
  return { scenario, actionSpace, seed, rules: { mode, replanSteps }, pictures, media: shown, pack };
}

/** The policy of a lane. Each lane, and each share, is a session of its own. */
export function policyOf(
  deps: EvaluationDeps,
  { job, request, hold }: HeldEvaluation,
  variant: ScenarioVariant,
  lane: number,
): EvaluatedPolicy {
  const { fields, dtMs } = variant;
  const { instruction = variant.instruction } = request;
  const { id: jobId, keyId, secret } = job;
  const share = hold.id === jobId ? undefined : hold.id;
  const actionDim = fields.length;
  const about = { jobId, share, lane, epoch: hold.epoch, instruction, offers: offersOf(variant), actionDim, dtMs };
  if (request.protocol === "gateway") return gatewayPolicy(deps.act(keyId), request, about);
  const opened = secret ? deps.vault.open(secret, jobSecretContext(jobId)) : "";
  return serverPolicy(deps, request, { ...about, secret: opened });
}

/** Takes the next episode and reserves its price; undefined if none is left. Waits while an earlier holder may still charge it. */
export async function takeEpisode(
  deps: EvaluationDeps,
  { job, request, hold }: HeldEvaluation,
  signal: Signal,
): Promise<{ index: number; bill: EpisodeBill } | undefined> {
  const [next] = await turn(deps.sql, hold, { take: 1, poison: EPISODE_LOST });
  if (!next) return undefined;
  const { index } = next;
  for (;;) {
    try {
      const payer = await deps.principal(job.keyId);
      return { index, bill: await openEpisodeBill(deps, { payer, jobId: job.id, index }, request) };
    } catch (thrown) {
      if (!(thrown instanceof Refusal) || thrown.reason !== Reason.IDEMPOTENCY_IN_PROGRESS) throw thrown;
    }
    await sleep(AGAIN_MS, signal);
  }
}

/** Ends the bill of a finished episode; returns the charged micro-dollars. An episode that failed through its policy is free. */
export async function settleEpisode(episode: FinishedEpisode, bill: EpisodeBill | undefined): Promise<number> {
  if (!isFault(episode)) return (await bill?.charge()) ?? 0;
  await bill?.free();
  return 0;
}

/** Records a finished episode. */
export async function recordEpisode(
  { sql }: Pick<EvaluationDeps, "sql">,
  { job, request, hold, seal }: HeldEvaluation,
  episode: PaidEpisode,
  costMicro: number,
): Promise<void> {
  const response = factsOfEpisode(episode, keepsActions(request, job.sealed));
  const state = isFault(episode) ? "failed" : "completed";
  await turn(sql, hold, { ended: [seal.end({ index: episode.index, state, response, costMicro })] });
}

/** Throws `PolicyUnusable` or `BudgetOver`, between two episodes, if the next must not begin. `leftMs` remain of the time budget. */
export function assertContinues(progress: Progress, { stopAfterFaults }: EvaluationRequest, leftMs: number): void {
  const last = progress.episodes.slice(-stopAfterFaults);
  const [first] = last;
  if (
    first &&
    last.length === stopAfterFaults &&
    last.every((each) => isFault(each) && each.termination === first.termination)
  )
    throw new PolicyUnusable(first.termination, sameFault(last.length, first.error));
  if (leftMs <= 0) throw new BudgetOver(BUDGET_OVER);
}

/** Throws `BudgetOver`, or a fault of the policy, if an episode of `wallMs` milliseconds so far must not continue. */
export function assertInTime(leftMs: number, wallMs: number): void {
  if (leftMs <= 0) throw new BudgetOver(BUDGET_OVER);
  if (wallMs > EPISODE_WALL_MS) throw new PolicyFailure("policy_timeout", TOO_LONG);
}

/** The end of a trial from outside: aborted when its job is lost, or with `CalledOff` when that is stopped. */
export class TrialEnding extends AbortController {
  readonly #watch: JobWatch;
  readonly #leave = (): void => this.abort(this.#watch.lost.aborted ? this.#watch.lost.reason : new CalledOff());

  constructor(watch: JobWatch) {
    super();
    this.#watch = watch;
    const { lost, stopped } = watch;
    lost.addEventListener("abort", this.#leave, { once: true });
    stopped.addEventListener("abort", this.#leave, { once: true });
    if (lost.aborted || stopped.aborted) this.#leave();
  }

  /** Stops listening. */
  close(): void {
    this.#watch.lost.removeEventListener("abort", this.#leave);
    this.#watch.stopped.removeEventListener("abort", this.#leave);
  }
}

/** The job was canceled or expired. */
export class CalledOff extends Error {
  override readonly name = "CalledOff";
}

/** The evaluation's budget of time or cost is used up. */
export class BudgetOver extends Error {
  override readonly name = "BudgetOver";
  readonly error: { readonly code: string; readonly message: string };

  constructor(error: BudgetOver["error"]) {
    super(error.message);
    this.error = error;
  }
}

const BUDGET_OVER = {
  code: "wall_budget_exhausted",
  message: "the episodes took all of the wall time that the evaluation was given; the rest were not run",
};
const TOO_LONG = `the episode took more than ${EPISODE_WALL_MS / 1000} s of wall time`;
const sameFault = (count: number, why = ""): string =>
  `${count} episodes in a row ended by the same fault, and the rest were not run: ${why}`;

function factsOfEpisode(episode: PaidEpisode & EpisodeScore, keepActions: boolean): EpisodeFacts {
  const { actions, index: _, ...facts } = episode;
  if (!keepActions) return facts;
  return { ...facts, actions: Buffer.from(actions.buffer, actions.byteOffset, actions.byteLength).toString("base64") };
}

/** A recorded episode. */
export function episodeOf(index: number, facts: EpisodeFacts): EndedEpisode {
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
