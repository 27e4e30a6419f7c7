/** One inference call: its request, plan, images and bill. */

import type { Message } from "@bufbuild/protobuf";
import type { SafetyBounds } from "../../gen/limber/v1/action_pb.ts";
import type {
  ActRequest,
  ActResponse,
  GroundResponse,
  PredictResponse,
} from "../../gen/limber/v1/inference_service_pb.ts";
import type { Frame, Observation } from "../../gen/limber/v1/observation_pb.ts";
import { DropReason } from "../../gen/limber/v1/plan_pb.ts";
import { type Preference, PreferenceSchema } from "../../gen/limber/v1/preferences_pb.ts";
import { AttemptStatus, type PinOutcome } from "../../gen/limber/v1/route_pb.ts";
import type { WireProfile } from "../../gen/limber/v1/supply_pb.ts";
import { type Call, type CallTrail, type EarlierAnswer, type KeyPrincipal, keyOf, tooLate } from "../call.ts";
import { processClock, steadyNow } from "../clock.ts";
import { exceeds, poseOf } from "../contracts/act.ts";
import { AttemptFailure, type Intent, UpstreamFailure, violation } from "../contracts/contract.ts";
import { readsOf } from "../contracts/inputs.ts";
import { asRefusal, Reason, Refusal, refuse } from "../errors.ts";
import type { CallWatch } from "../events/broadcaster.ts";
import { random } from "../random.ts";
import {
  type AttemptOptions,
  type AttemptWorld,
  assertMayReplay,
  type HealthTracker,
  type HedgeBudgets,
  type Hedges,
  type Outcome,
  type Pin,
  type Plan,
  type PlanArgs,
  type PlanStep,
  planFor,
  type Try,
} from "../routing/index.ts";
import type { LiveSupply } from "../supply/live-supply.ts";
import type { Wakes } from "../supply/shared-health.ts";
import { type FrameOptions, FrameSet, frameSources } from "../upstream/pictures/frames.ts";
import { readPicture } from "../upstream/pictures/header.ts";
import type { CallOptions, Wire } from "../upstream/wire.ts";
import {
  CallBilling,
  type CallFacts,
  type Charge,
  handedOn,
  type Leaser,
  narrowed,
  withUnaffordable,
} from "./call-billing.ts";
import type { LoopRegistry } from "./control-loop/loop-registry.ts";
import type { Resumption } from "./control-loop/resumption.ts";
import type { PlanDigests } from "./plan-digests.ts";
import { type CallKeys, type CallLookups, reachWith } from "./prepare.ts";
import type { SessionPin } from "./sessions.ts";
import type { ActiveStops, Mover } from "./stops.ts";

/** Returns the plan of a call. If all its offerings have open breakers, requests a health check of each and refuses the call. */
export function planOrWant(
  { supply: { health }, digests }: Pick<InferenceDeps, "supply" | "digests">,
  args: PlanArgs,
  trail: CallTrail | undefined,
): Plan {
  try {
    const plan = planFor(args);
    plan.logged = digests.of(args, plan);
    if (trail && plan.logged) trail.plan = plan.logged;
    return plan;
  } catch (thrown) {
    if (thrown instanceof Refusal) {
      wantResting(health, thrown, steadyNow());
      const logged = digests.of(args, undefined);
      if (trail && logged) trail.plan = logged;
    }
    throw thrown;
  }
}

/** Requests a health check of every offering that a refusal lists with an open breaker. */
export function wantResting(health: HealthTracker, { reason, details }: Refusal, at: number): void {
  if (reason !== Reason.CAPACITY_EXHAUSTED) return;
  for (const { offeringId, reason } of details.dropped ?? [])
    if (reason === DropReason.CIRCUIT_OPEN) health.want(offeringId, at);
}

/** What inference depends on. */
export interface InferenceServiceDeps extends CallLookups {
  supply: LiveSupply;
  /** Decides which call pays for a cold start. */
  wakes: Wakes;
  /** Action spaces that this gateway can evaluate policies in. */
  evaluated: ReadonlySet<string>;
  leaser: Leaser;
  /** The control loops of this replica. */
  loops: LoopRegistry;
  /** Fetches frames; created with the same `allowPrivate`. */
  agent: FrameOptions["agent"];
  allowPrivate: boolean;
  /** Called when a key's call is refused for lack of credit or budget. */
  unpaid(reason: Reason, key: KeyPrincipal): void;
  stops: ActiveStops;
  /** Digests of plans for the request log. */
  digests: PlanDigests;
  /** Sends spans of calls to their organizations' targets. */
  broadcast: { of(orgId: string): CallWatch | undefined };
  /** Lets a control loop resume on another stream. */
  resumption: Resumption;
}

/** The same, with the state that inference keeps between calls. */
export interface InferenceDeps extends InferenceServiceDeps {
  hedges: HedgeBudgets;
  failing: FailingCallers;
}

/** One running call. */
export class InferenceCall {
  readonly call: Call;
  /** Once the bill is open: only the steps that the caller can pay for. */
  plan: Plan;
  /** Arrival time on the steady clock, in milliseconds. */
  readonly arrivedAt: number;
  /** Arrival time of its observation on the steady clock, in milliseconds. */
  readonly observedAt: number;
  /** The outcome for the session's pin, set once an offering has served the call. */
  pin: PinOutcome | undefined;
  readonly #deps: InferenceDeps;
  readonly #asked: CallFacts;
  readonly #ownKeys: CallKeys | undefined;
  readonly #session: SessionPin | undefined;
  /** The session's pin when the call was planned. */
  readonly #plannedPin: Pin | undefined;

  /** Plans the call. Throws a `Refusal` if no offering can serve it. */
  constructor(deps: InferenceDeps, request: RoutedCall, wanted: WantedInference, call: Call) {
    refuseLargeMetadata(request.metadata);
    this.#deps = deps;
    this.call = call;
    this.arrivedAt = call.arrivedAt ?? steadyNow();
    this.observedAt = call.observedAt ?? this.arrivedAt;
    deps.failing.assertMayCall(keyOf(call), steadyNow());
    this.#ownKeys = wanted.ownKeys;
    this.#session = wanted.session;
    const { deadlineMs } = request.provider ?? {};
    // Earlier work may have used up the deadline, which planning does not check.
    if (deadlineMs !== undefined && steadyNow() >= this.arrivedAt + deadlineMs) throw tooLate();
    const args = planArgs(deps, wanted, call, this.arrivedAt);
    this.plan = planOrWant(deps, args, call.trail);
    this.#plannedPin = args.pin;
    this.#asked = {
      modelRequested: wanted.intent.model,
      sessionId: request.provider?.sessionId,
      deadlineMs,
      metadata: request.metadata,
      preset: request.preset,
      preference: preferenceWord(request.preference),
      robotId: robotOf(keyOf(call), request.robotId ?? robotIn(request.metadata)),
      watch: deps.broadcast.of(keyOf(call).orgId),
    };
  }

  /** The dependencies of the plan's attempts. */
  get world(): AttemptWorld {
    const { supply } = this.#deps;
    return {
      clock: processClock,
      health: supply.health,
      hedges: hedgesOf(this.#deps, this.call),
      signal: this.call.signal,
      reads: ({ offering }) => {
        const input = offering.declared?.input;
        return (
          (input && readsOf(input, this.plan.intent.actionSpace)) ??
          readByProfile(supply.find(offering.id)?.target.profile)
        );
      },
      wakes: (step, at) => this.#deps.wakes.begin(step, at),
      orgId: keyOf(this.call).orgId,
      quiet: keyOf(this.call).settings.zdr,
    };
  }

  /** Returns how to call a step of the plan. `actionDim` is the number of values per action step that the response must have. */
  reach(step: PlanStep, actionDim?: number): ReturnType<LiveSupply["reach"]> {
    return reachWith(this.#deps.supply, step, actionDim, this.#ownKeys);
  }

  /** The call's images, fetched and decoded when a wire first requests them. */
  frames(observations: readonly Observation[], goal?: Frame): FrameSet {
    const { agent, allowPrivate } = this.#deps;
    return new FrameSet(frameSources(observations, goal), {
      agent,
      allowPrivate,
      signal: this.call.signal,
      deadline: this.plan.endsAt,
      asker: { key: keyOf(this.call).keyId, robot: this.call.requestId },
    });
  }

  /** Options that the wire receives for one attempt. */
  options({ signal, budgetMs }: AttemptOptions, step: PlanStep): CallOptions {
    const { watch, sessionId } = this.#asked;
    const traceparent = handedOn(watch, this.call, sessionId, step);
    return { signal, budgetMs, requestId: this.call.requestId, traceparent };
  }

  /** The session name sent to providers. Organizations that choose the same name get different ones. */
  get upstreamSession(): string | undefined {
    return this.#session?.name;
  }

  /** Records the offering that served the session and returns the pin's outcome; undefined for a call without a session. */
  async pinned({ offering }: PlanStep): Promise<PinOutcome | undefined> {
    if (this.#session) this.pin = await this.#deps.sessions.served(this.#session, offering, this.#plannedPin);
    return this.pin;
  }

  /** The charge for `units` of a step's response. */
  charge(
    step: PlanStep,
    units: number,
    { hedgeMicro, losers }: Partial<Pick<Outcome, "hedgeMicro" | "losers">> = {},
    gpuSeconds?: number,
  ): Charge {
    const { wakeUpMicro } = step;
    const { remainders } = this.#deps.leaser;
    const mostMicro = this.plan.maxCostMicro - wakeUpMicro;
    const { micro, restNano } = remainders.charge(keyOf(this.call).keyId, units, step.unitNano, mostMicro);
    return { step, units, costMicro: micro + wakeUpMicro, wakeUpMicro, hedgeMicro, losers, gpuSeconds, restNano };
  }

  /** Reserves the plan's maximum cost and drops the steps that the caller cannot pay for. Refuses with 402 if none remains. */
  async openBill(): Promise<CallBilling> {
    const whole = this.plan;
    for (;;) {
      try {
        return await CallBilling.open(this.#deps.leaser, this.plan, this.call, this.#asked, this.plan.endsAt);
      } catch (thrown) {
        const less = narrowed(this.plan, thrown);
        if (!less) {
          const refusal = withUnaffordable(asRefusal(thrown), whole);
          this.#deps.unpaid(refusal.reason, keyOf(this.call));
          throw refusal;
        }
        this.plan = less;
      }
    }
  }

  /** Runs the paid part of a unary call. If it throws, the bill is voided. */
  async billed<T>(paid: (bill: CallBilling) => Promise<T>): Promise<T> {
    const bill = await this.openBill();
    try {
      return await paid(bill);
    } catch (thrown) {
      const refusal = asRefusal(thrown);
      this.noteRefused(refusal);
      await bill.void(refusal);
      throw thrown;
    }
  }

  /** Records the refusal: callers whose input keeps causing failures are slowed down. */
  noteRefused(refusal: Refusal): void {
    const { failing, supply } = this.#deps;
    failing.refused(this.call, refusal, supply.health);
  }

  /** The response id: the request id with another prefix. */
  named(prefix: "act" | "pred" | "grnd" | "chunk"): string {
    const { requestId } = this.call;
    return prefix + requestId.slice(requestId.indexOf("_"));
  }
}

/** The router's input for one call. */
interface WantedInference {
  intent: Intent;
  ownKeys: CallKeys | undefined;
  session: SessionPin | undefined;
}

/** The fields of a request that every routed call has. */
type RoutedCall = Pick<ActRequest, "metadata"> &
  Partial<Pick<ActRequest, "preset" | "preference" | "provider" | "robotId">>;

/** Collects the current input for planning. */
export function planArgs(
  deps: Pick<InferenceDeps, "supply" | "sessions">,
  { intent, ownKeys, session }: WantedInference,
  call: Call,
  arrivedAt: number,
): PlanArgs {
  return {
    intent,
    snapshot: deps.supply.snapshot,
    health: deps.supply.health.view,
    scope: keyOf(call),
    ownModels: deps.supply.ownModels(keyOf(call).orgId),
    ownKeys,
    pin: session && deps.sessions.get(session),
    seed: intent.seed ?? Math.floor(random() * 2 ** 32),
    now: steadyNow(),
    arrivedAt,
    deadline: call.deadline,
    readPicture,
  };
}

/** Describes the inputs that a profile declares; undefined if it declares none. */
function readByProfile(profile: WireProfile | undefined): string | undefined {
  if (!profile) return undefined;
  const cameras = profile.frames.map(({ camera }) => camera).filter((camera) => camera !== "");
  const proprioDim = profile.proprioDim ?? Math.max(0, ...profile.proprio.map(({ end }) => end ?? 0));
  const parts = [
    ...(profile.preset === undefined ? [] : [`the inputs of the profile ${profile.preset}`]),
    ...(cameras.length === 0 ? [] : [`images of ${cameras.join(", ")}`]),
    ...(proprioDim === 0 ? [] : [`${proprioDim} proprioception values`]),
  ];
  return parts.length === 0 ? undefined : parts.join(" and ");
}

/** Returns the key, session and robot names by which emergency stops match a call. */
export function moverOf(
  { provider }: Intent,
  call: Call,
  { robotId, metadata }: Pick<ActRequest, "robotId" | "metadata">,
): Mover {
  const key = keyOf(call);
  // A stop of any of these names applies.
  return { key, sessionId: provider?.sessionId, robotIds: [key.robotId, robotId, robotIn(metadata)] };
}

/** The robot that metadata names. */
export function robotIn(metadata: ActRequest["metadata"]): string | undefined {
  const named = metadata?.robot_id;
  return typeof named === "string" ? named : undefined;
}

/** Maximum length of a robot name, equal to that of the request fields; the log is searched by it. */
const LONGEST_ROBOT = 128;

/** The robot name for the log: the key's robot, else the one in the request. */
export function robotOf({ robotId }: KeyPrincipal, named: string | undefined): string | undefined {
  if (robotId !== undefined) return robotId;
  return named !== undefined && named.length <= LONGEST_ROBOT ? named : undefined;
}

/** The lower-case name of a preference; undefined for none. */
export const preferenceWord = (preference: Preference | undefined): string | undefined =>
  preference === undefined
    ? undefined
    : PreferenceSchema.value[preference]?.name.slice("PREFERENCE_".length).toLowerCase();

/** The hedge budget of a call, limited by the organization's `max_hedge_ratio`. */
export function hedgesOf({ hedges }: InferenceDeps, call: Call): Hedges {
  const { orgId, settings } = keyOf(call);
  return hedges.of(orgId, settings.maxHedgeRatio);
}

/** Narrows a wire to one that supports a contract. Throws if it does not; the probe already rejects such offerings. */
export function speaking<C extends "act" | "predict" | "ground">(
  wire: Wire,
  contract: C,
): Wire & Required<Pick<Wire, C>> {
  if (wire[contract] === undefined) throw new Error(`the wire ${wire.id} does not support this contract`);
  return wire as Wire & Required<Pick<Wire, C>>; // seen above
}

/** Throws an `UpstreamFailure` if the response violates its contract. */
export function assertSound(failure: AttemptFailure | undefined): void {
  if (failure !== undefined) throw new UpstreamFailure(failure, "the response violates the contract");
}

const METADATA_KEYS = 16;
const METADATA_LETTERS = 512;

/** Refuses metadata beyond 16 keys of 512 characters. */
export function refuseLargeMetadata(metadata: ActRequest["metadata"]): void {
  if (metadata === undefined) return;
  const entries = Object.entries(metadata);
  if (entries.length > METADATA_KEYS)
    throw violation("metadata", `must have at most ${METADATA_KEYS} keys, got ${entries.length}`, "too_long");
  for (const [key, value] of entries) {
    const long = key.length > METADATA_LETTERS || lettersOf(value) > METADATA_LETTERS;
    if (long)
      throw violation(
        `metadata.${key.slice(0, 64)}`,
        `must have at most ${METADATA_LETTERS} characters`,
        "string_too_long",
      );
  }
}

/** Length in Unicode characters: of the text itself for a string, else of its JSON. */
const lettersOf = (value: unknown): number => {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  // A character outside the basic plane is two UTF-16 units.
  return text.length > METADATA_LETTERS && text.length <= 2 * METADATA_LETTERS ? [...text].length : text.length;
};

/** Returns the stored response for a repeated call; undefined if the call is not a repetition. Refuses if the key can no longer have it. */
export function earlierAnswer<T extends ActResponse | PredictResponse | GroundResponse>(
  deps: Pick<InferenceDeps, "supply" | "sessions">,
  wanted: WantedInference,
  call: Call,
): T | undefined {
  if (!call.earlier) return undefined;
  const answer = call.earlier.message as Message as T; // the idempotency key's hash names the RPC
  const { model, route } = answer;
  const { offeringId = "", simulated = false } = route ?? {};
  assertMayReplay(planArgs(deps, wanted, call, call.arrivedAt ?? steadyNow()), { model, offeringId, simulated });
  call.replayed?.();
  return answer;
}

/** The same for an action: checks the present bounds, updates the age, and marks an expired action, which must not be executed. */
export function earlierAction(
  deps: Pick<InferenceDeps, "supply" | "sessions">,
  wanted: WantedInference,
  call: Call,
  request: ActRequest,
): ActResponse | undefined {
  const answer = earlierAnswer<ActResponse>(deps, wanted, call);
  if (!answer || !call.earlier) return answer;
  assertWithinBounds(answer, request, [deps.supply.find(answer.route?.offeringId ?? "")?.bounds, keyOf(call).bounds]);
  return aged(answer, call.earlier);
}

function assertWithinBounds(
  { action, route }: ActResponse,
  { observations }: ActRequest,
  bounds: readonly (SafetyBounds | undefined)[],
): void {
  if (!action) return;
  const pose = poseOf(action.space, observations, action.steps[0]?.values.length);
  if (!bounds.some((each) => exceeds(each, action, pose))) return;
  const attempts = route?.attempts.map((each) =>
    each.status === AttemptStatus.OK
      ? { ...each, status: AttemptStatus.ERROR, reason: AttemptFailure.UNSAFE_ACTION }
      : each,
  );
  const text = "the action returned for the first call exceeds this key's present bounds";
  throw refuse(Reason.ALL_ATTEMPTS_FAILED, text, {}, route && attempts ? { route: { ...route, attempts } } : {});
}

function aged(answer: ActResponse, { ageMs, readAt }: EarlierAnswer): ActResponse {
  const { observationAgeMs: firstMs = 0, validUntilMs } = answer;
  const now = Math.max(firstMs, ageMs + steadyNow() - readAt);
  const expired = now - firstMs > validUntilMs;
  return {
    ...answer,
    replayed: true,
    observationAgeMs: Math.round(now * 1000) / 1000,
    ...(expired && { expired }),
  };
}

/** A leaky bucket's limits: the burst of failed calls, and how many more it allows per second. */
interface Allowance {
  readonly most: number;
  readonly perS: number;
}

const KEY_ALLOWANCE: Allowance = { most: 20, perS: 0.5 };
const ORG_ALLOWANCE: Allowance = { most: 100, perS: 2 };
/** Maximum number of tracked keys, and of organizations; beyond it the one with the oldest failure is dropped. */
const MAX_TRACKED = 10_000;

/** Maximum wait in seconds, however many calls failed. */
const MAX_WAIT_S = 10;

/** A failed attempt of a call or a control loop. */
type FailedAttempt = { readonly offeringId: string; readonly reason?: AttemptFailure | undefined };

/** Slows down callers whose input makes calls fail at every model. State of one replica. */
export class FailingCallers {
  readonly #keys = new Levels(KEY_ALLOWANCE);
  readonly #orgs = new Levels(ORG_ALLOWANCE);

  /** Refuses with `too_many_failed_calls` and `Retry-After` if the caller has to wait. */
  assertMayCall(caller: Pick<KeyPrincipal, "keyId" | "orgId">, now: number): void {
    if (this.mayCall(caller, now)) return;
    const { keyId, orgId } = caller;
    const [key, org] = [this.#keys.waitS(keyId, now), this.#orgs.waitS(orgId, now)];
    const whose = key > 0 ? "this key" : "your organization";
    const text = `too many calls of ${whose} failed at every model; retry after the given time and check the inputs that those models accept`;
    throw refuse(Reason.TOO_MANY_FAILED_CALLS, text, {}, { retryAfter: Math.ceil(Math.max(key, org)) });
  }

  /** Whether the caller can call now. */
  mayCall({ keyId, orgId }: Pick<KeyPrincipal, "keyId" | "orgId">, now: number): boolean {
    return this.#keys.waitS(keyId, now) === 0 && this.#orgs.waitS(orgId, now) === 0;
  }

  /** Counts a failed call. */
  failed({ keyId, orgId }: Pick<KeyPrincipal, "keyId" | "orgId">, now: number): void {
    this.#keys.add(keyId, now);
    this.#orgs.add(orgId, now);
  }

  /** Counts a refused call if its input may have caused the failure of every attempt. */
  refused(call: Call, { reason, route }: Refusal, health: Pick<HealthTracker, "mayBeInput">): void {
    if (reason !== Reason.ALL_ATTEMPTS_FAILED && reason !== Reason.INPUT_CONTRACT) return;
    if (mayAllBeInput(route?.attempts ?? [], health)) this.failed(keyOf(call), steadyNow());
  }

  /** Counts a hold of a control loop, by the same rule. */
  held(call: Call, tries: readonly Try[], health: Pick<HealthTracker, "mayBeInput">, at: number): void {
    if (tries.length === 0) return;
    const attempts = tries.map(({ step, reason }) => ({ offeringId: step.offering.id, reason }));
    if (mayAllBeInput(attempts, health)) this.failed(keyOf(call), at);
  }
}

/** Whether there were attempts and the input may have caused all their failures. */
const mayAllBeInput = (attempts: readonly FailedAttempt[], health: Pick<HealthTracker, "mayBeInput">): boolean =>
  attempts.length > 0 &&
  attempts.every(
    ({ offeringId, reason }) =>
      reason !== undefined && (reason === AttemptFailure.INPUT_REJECTED || health.mayBeInput(offeringId, reason)),
  );

/** Leaky buckets by name. */
class Levels {
  readonly #allowance: Allowance;
  /** In order of the last increase. */
  readonly #levels = new Map<string, { readonly level: number; readonly at: number }>();

  constructor(allowance: Allowance) {
    this.#allowance = allowance;
  }

  /** Seconds until the next call is allowed; 0 if it is allowed now. */
  waitS(name: string, now: number): number {
    if (this.#levels.size === 0) return 0;
    const { most, perS } = this.#allowance;
    return Math.max(0, (this.#level(name, now) - most + 1) / perS);
  }

  add(name: string, now: number): void {
    const { most, perS } = this.#allowance;
    const level = Math.min(this.#level(name, now) + 1, most - 1 + MAX_WAIT_S * perS);
    this.#levels.delete(name);
    this.#levels.set(name, { level, at: now });
    for (const oldest of this.#levels.keys()) if (this.#levels.size > MAX_TRACKED) this.#levels.delete(oldest);
  }

  #level(name: string, now: number): number {
    const known = this.#levels.get(name);
    return known ? Math.max(0, known.level - ((now - known.at) / 1000) * this.#allowance.perS) : 0;
  }
}
