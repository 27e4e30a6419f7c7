/** Stage 6: the attempts of a call, their outcome and what they owe. Cold starts and hedges are paid for here. */
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

/** One try while it runs and after. */
export interface Try {
  readonly step: PlanStep;
  /** Steady clock, in milliseconds. */
  readonly startedAt: number;
  status: "running" | "ok" | "error" | "cancelled";
  /** Milliseconds from its start to its end; 0 while it runs. */
  latencyMs: number;
  reason: AttemptFailure | undefined;
  /** The cold start that it causes. */
  wake?: Wake | undefined;
  /** What the gateway found the input to lack. */
  lack?: string | undefined;
  /** How long its server asked to be left alone, in milliseconds. */
  retryAfterMs?: number | undefined;
  /** It lost to a hedge, or was one, and is paid for. */
  paid?: boolean;
}

/** The loser of a hedge, and what it is paid all the same, in micro-dollars. */
export interface PaidLoser {
  readonly step: PlanStep;
  readonly micro: number;
}

/** What a request's attempts came to. */
export interface Outcome {
  /** In the order in which they were started. */
  readonly tries: readonly Try[];
  /** The offering that answered; undefined while none has. */
  readonly step: PlanStep | undefined;
  /** What the loser of a hedge is paid, in micro-dollars, without waking it as long as the outcome is not `owed`; undefined when no hedge was sent. */
  readonly hedgeMicro: number | undefined;
  /** The losers that receive it. */
  readonly losers?: readonly PaidLoser[] | undefined;
  /** Why a hedge that was due was not sent. */
  readonly hedgeWithheld?: HedgeWithheld | undefined;
}

/** The Route record of an inference answer. */
export function routeOf({ tries, step, hedgeMicro, hedgeWithheld }: Outcome, pin?: PinOutcome): Route {
  const attempts = attemptsOf(tries);
  const hedgeCostUsd = hedgeMicro === undefined ? undefined : hedgeMicro / 1e6;
  if (!step) return create(RouteSchema, { attempts, hedgeCostUsd, hedgeWithheld, pin });
  const { id, model, provider, region, precision, simulated } = step.offering;
  // Written out, as calls in a control loop don't pay for `create`.
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

/** The Route record of a call that went straight to its provider. */
export const directRouteOf = (step: PlanStep): DirectRoute => create(DirectRouteSchema, servedBy(step));

/** The tries as the Route record lists them. */
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
  // A stream's route is reported while its attempt still runs: it has given its first frame.
  running: AttemptStatus.OK,
  ok: AttemptStatus.OK,
  error: AttemptStatus.ERROR,
  cancelled: AttemptStatus.CANCELLED,
};

function servedBy(step: PlanStep) {
  const { id, model, provider, region, precision, simulated } = step.offering;
  return { offeringId: id, model, provider, region, precision, simulated, ...(step.ownKey && { byok: true }) };
}

/** Why a plan failed: time ran out, all offerings were full, or every attempt failed. */
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

/** Seconds until the first of some servers may be asked again, where they said so; a second where any didn't. */
function soonest(tries: readonly Try[]): number {
  const waits = tries.map(({ retryAfterMs = 0 }) => Math.ceil(retryAfterMs / 1_000));
  return Math.max(1, Math.min(MOST_WAIT_S, ...waits));
}
const MOST_WAIT_S = 3_600;

/** What an offering declared that it reads, in a few words; undefined where it declared nothing. */
export type Reads = (step: PlanStep) => string | undefined;

const isRejected = ({ reason }: Try): boolean => reason === AttemptFailure.INPUT_REJECTED;

/** The models' own error text is not handed on: the refusal says what they declared, what the gateway found, and where to look. */
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
  // What is declared was compared before the call: where it is met, it is what the input says that the model can't serve.
  const why = isMet ? ", which satisfy its declared inputs; it might not find the instruction's object in the images" : "";
  const text = `every attempted offering rejected the observations or the instruction${why}: ${found}${[...models].join(", ")} lists the accepted inputs`;
  return refuse(Reason.INPUT_CONTRACT, text, { needed: [...needed] }, { route });
}

const spoken = (failure: AttemptFailure | undefined): string =>
  failureWord(failure)?.replaceAll("_", " ") ?? "canceled, still running";

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
const unwoken = (step: PlanStep): PlanStep =>
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

/** A hedge is earned by twenty calls. Source: performance, "Tail". */
const SHARE = 0.05;
const BURST = 20;

/** A token bucket that calls fill and hedges empty; `share` is how many hedges a call earns. */
export class HedgeBudget {
  readonly #share: number;
  readonly #burst: number;
  #tokens: number;

  constructor(share = SHARE) {
    this.#share = share;
    // What may come at once shrinks with the share; a share of nothing earns nothing.
    this.#burst = share === 0 ? 0 : Math.max(1, Math.round(BURST * Math.min(1, share / SHARE)));
    this.#tokens = this.#burst;
  }

  /** Notes a call. */
  earn(): void {
    this.#tokens = Math.min(this.#burst, this.#tokens + this.#share);
  }

  /** Whether one hedge is paid for. */
  get has(): boolean {
    return this.#tokens >= 1;
  }

  /** Takes what one hedge costs; false when there is not enough. */
  spend(): boolean {
    if (!this.has) return false;
    this.#tokens -= 1;
    return true;
  }
}

/** What attempts ask of a budget. */
export type Hedges = Pick<HedgeBudget, "earn" | "spend">;

/** Organizations whose budgets are kept; the one that was made first is dropped for another. */
const MAX_ORGS = 10_000;

/** The budget of each organization, by its own share: no organization's hedges use up another's. */
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
