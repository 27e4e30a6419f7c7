/** Stage 6: the attempts of a call, their outcome and their charges. Cold starts and hedges are charged here. */
import { create } from "@bufbuild/protobuf";
import {
  type Attempt,
  AttemptStatus,
  type DirectRoute,
  DirectRouteSchema,
  type HedgeWithheld,
  type PinOutcome,
  type Route,
  RouteSchema,
} from "../../../gen/limber/v1/route_pb.ts";
import { AttemptFailure, failureWord } from "../../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import type { PlanStep } from "../plan/plan.ts";

/** One attempt, running or ended. */
export interface Try {
  readonly step: PlanStep;
  /** Steady clock, in milliseconds. */
  readonly startedAt: number;
  status: "running" | "ok" | "error" | "cancelled";
  /** Milliseconds from start to end; 0 while it runs. */
  latencyMs: number;
  reason: AttemptFailure | undefined;
  /** The cold start that it causes. */
  wake?: Wake | undefined;
  /** What the gateway found missing in the input. */
  lack?: string | undefined;
  /** The server's requested retry delay, in milliseconds. */
  retryAfterMs?: number | undefined;
  /** Whether it lost to a hedge, or was a lost hedge, and is charged. */
  paid?: boolean;
}

/** The loser of a hedge and its charge, in micro-dollars. */
export interface PaidLoser {
  readonly step: PlanStep;
  readonly micro: number;
}

/** The outcome of a request's attempts. */
export interface Outcome {
  /** In order of their start. */
  readonly tries: readonly Try[];
  /** The offering that responded; undefined if none has. */
  readonly step: PlanStep | undefined;
  /**
   * The charge for the loser of a hedge, in micro-dollars, without its cold start until the outcome is `owed`; undefined if no hedge was
   * sent.
   */
  readonly hedgeMicro: number | undefined;
  /** The losers that receive it. */
  readonly losers?: readonly PaidLoser[] | undefined;
  /** Why a due hedge was not sent. */
  readonly hedgeWithheld?: HedgeWithheld | undefined;
}

/** Builds the Route of an inference response. */
export function routeOf({ tries, step, hedgeMicro, hedgeWithheld }: Outcome, pin?: PinOutcome): Route {
  const attempts = attemptsOf(tries);
  const hedgeCostUsd = hedgeMicro === undefined ? undefined : hedgeMicro / 1e6;
  if (!step) return create(RouteSchema, { attempts, hedgeCostUsd, hedgeWithheld, pin });
  const { id, model, provider, region, precision, simulated } = step.offering;
  // Written out, because `create` is too slow for control loops.
  return {
    $typeName: "limber.v1.Route",
    offeringId: id,
    model,
    provider,
    region,
    precision,
    simulated,
    attempts,
    fallbackUsed: step.rank > 0,
    hedgeCostUsd,
    hedgeWithheld,
    pin,
    byok: step.ownKey ? true : undefined,
  };
}

/** The Route of a call that went directly to its provider. */
export const directRouteOf = (step: PlanStep): DirectRoute => create(DirectRouteSchema, servedBy(step));

/** The attempts as listed in the Route. */
function attemptsOf(tries: readonly Try[]): Attempt[] {
  return tries.map(({ step, status, latencyMs, reason }) => ({
    $typeName: "limber.v1.Attempt",
    model: step.offering.model,
    provider: step.offering.provider,
    offeringId: step.offering.id,
    status: STATUSES[status],
    latencyMs: Math.round(latencyMs * 1000) / 1000,
    reason,
    byok: step.ownKey ? true : undefined,
  }));
}

const STATUSES: Readonly<Record<Try["status"], AttemptStatus>> = {
  // A stream's route is reported while its attempt still runs: its first frame has arrived.
  running: AttemptStatus.OK,
  ok: AttemptStatus.OK,
  error: AttemptStatus.ERROR,
  cancelled: AttemptStatus.CANCELLED,
};

function servedBy(step: PlanStep) {
  const { id, model, provider, region, precision, simulated } = step.offering;
  return { offeringId: id, model, provider, region, precision, simulated, ...(step.ownKey && { byok: true }) };
}

/** Why a plan failed: the deadline passed, all offerings were at their limit, or every attempt failed. */
export function refusalOfTries(tries: readonly Try[], outOfTime: boolean, reads?: Reads): Refusal {
  const route = routeOf({ tries, step: undefined, hedgeMicro: undefined });
  const told = tries.map((each) => `${each.step.offering.provider} ${spoken(each.reason)}`).join(", ");
  if (outOfTime) {
    const text = told
      ? `the deadline passed before a provider responded; attempts: ${told}`
      : "no offering is expected to finish before the deadline";
    return refuse(Reason.DEADLINE_EXCEEDED, text, {}, { route });
  }
  if (tries.every((each) => each.reason === AttemptFailure.UPSTREAM_BUSY)) {
    return refuse(
      Reason.CAPACITY_EXHAUSTED,
      "every offering of the plan is at its limit or has an open breaker",
      {},
      { route, retryAfter: soonest(tries) },
    );
  }
  if (tries.every(isRejected)) return unread(tries, route, reads);
  return refuse(Reason.ALL_ATTEMPTS_FAILED, `every offering of the plan failed: ${told}`, {}, { route });
}

/** Seconds until the first of the servers accepts calls again, as they stated; 1 s if any stated nothing. */
function soonest(tries: readonly Try[]): number {
  const waits = tries.map(({ retryAfterMs = 0 }) => Math.ceil(retryAfterMs / 1_000));
  return Math.max(1, Math.min(MOST_WAIT_S, ...waits));
}
const MOST_WAIT_S = 3_600;

/** A short description of an offering's declared inputs; undefined if it declares none. */
export type Reads = (step: PlanStep) => string | undefined;

const isRejected = ({ reason }: Try): boolean => reason === AttemptFailure.INPUT_REJECTED;

/**
 * The models' own error text is not passed on: the refusal states the declared inputs, the mismatch that the gateway found, and where to
 * look.
 */
function unread(tries: readonly Try[], route: Route, reads: Reads | undefined): Refusal {
  const needed = new Set<string>();
  let isMet = true;
  for (const { step, lack } of tries) {
    const { model, provider } = step.offering;
    const declared = reads?.(step);
    if (declared === undefined || lack !== undefined) isMet = false;
    if (declared !== undefined) needed.add(`${model} at ${provider} reads ${declared}`);
    if (lack !== undefined) needed.add(`${model} at ${provider}: ${lack}`);
  }
  const models = new Set(tries.map(({ step }) => `/v1/models/${step.offering.model}`));
  const found = [...needed].map((each) => `${each}; `).join("");
  // Declared inputs were checked before the call. If they match, the model cannot serve the content of the input.
  const why = isMet
    ? ", which satisfy its declared inputs; it might not find the instruction's object in the images"
    : "";
  const text = `every attempted offering rejected the observations or the instruction${why}: ${found}${[...models].join(", ")} lists the accepted inputs`;
  return refuse(Reason.INPUT_CONTRACT, text, { needed: [...needed] }, { route });
}

const spoken = (failure: AttemptFailure | undefined): string =>
  failureWord(failure)?.replaceAll("_", " ") ?? "canceled, still running";

/** A cold start caused by an attempt of this replica. */
export interface Wake {
  /** Whether this attempt pays: no other replica's attempt caused the cold start before. Never rejects. */
  readonly pays: Promise<boolean>;
  /** The offering responded, or the attempt is charged without a response. May be called again while responses continue. */
  answered(): void;
  /** The attempt ended without a response: the next attempt pays. */
  failed(): void;
}

/** Returns the cold start that an admitted attempt causes; undefined if it causes none that is charged. */
export type Waker = (step: PlanStep, at: number) => Wake | undefined;

/** The step without its cold start, for attempts that overlap the one that causes it. */
const unwoken = (step: PlanStep): PlanStep =>
  step.wakeUpMicro === 0 ? step : { ...step, wakeUpMicro: 0, costMicro: step.listMicro };

/** An outcome with its charges: cold starts only for the attempts that caused one. */
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

/** Twenty calls earn one hedge. Source: performance, "Tail". */
const SHARE = 0.05;
const BURST = 20;

/** A token bucket that calls fill and hedges empty; `share` is the number of hedges earned per call. */
export class HedgeBudget {
  readonly #share: number;
  readonly #burst: number;
  #tokens: number;

  constructor(share = SHARE) {
    this.#share = share;
    // The burst shrinks with the share; a share of zero earns nothing.
    this.#burst = share === 0 ? 0 : Math.max(1, Math.round(BURST * Math.min(1, share / SHARE)));
    this.#tokens = this.#burst;
  }

  /** Counts a call. */
  earn(): void {
    this.#tokens = Math.min(this.#burst, this.#tokens + this.#share);
  }

  /** Whether the budget covers one hedge. */
  get has(): boolean {
    return this.#tokens >= 1;
  }

  /** Takes the cost of one hedge; returns false if the budget does not cover it. */
  spend(): boolean {
    if (!this.has) return false;
    this.#tokens -= 1;
    return true;
  }
}

/** The part of a budget that attempts use. */
export type Hedges = Pick<HedgeBudget, "earn" | "spend">;

/** Maximum number of organizations with a budget; the oldest is dropped for a new one. */
const MAX_ORGS = 10_000;

/** The budget of each organization, by its own share: one organization's hedges never use up another's. */
export class HedgeBudgets {
  readonly #budgets = new Map<string, { readonly share: number; readonly budget: HedgeBudget }>();

  /** The budget of an organization's calls. */
  of(orgId: string, share: number): Hedges {
    const known = this.#budgets.get(orgId);
    if (known?.share === share) return known.budget;
    const budget = new HedgeBudget(share);
    if (known === undefined && this.#budgets.size >= MAX_ORGS) this.#budgets.delete(this.#budgets.keys().next().value!);
    this.#budgets.set(orgId, { share, budget });
    return budget;
  }
}
