/** One inference call on its way: what was asked, the plan for it, its pictures, and its paid part. */

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

/** The plan of a call. Where all that may serve it rest, they are asked whether they serve again, and the call is refused. */
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

/** The offerings that a refusal names as resting are worth a question. */
export function wantResting(health: HealthTracker, { reason, details }: Refusal, at: number): void {
  if (reason !== Reason.CAPACITY_EXHAUSTED) return;
  for (const { offeringId, reason } of details.dropped ?? [])
    if (reason === DropReason.CIRCUIT_OPEN) health.want(offeringId, at);
}

/** What inference depends on. */
export interface InferenceServiceDeps extends CallLookups {
  supply: LiveSupply;
  /** Who pays for cold starts. */
  wakes: Wakes;
  /** Action spaces that a policy can be tried in here. */
  evaluated: ReadonlySet<string>;
  leaser: Leaser;
  /** The control loops of this replica. */
  loops: LoopRegistry;
  /** Fetches frames; made with the same `allowPrivate`. */
  agent: FrameOptions["agent"];
  allowPrivate: boolean;
  /** Hears of a key's call that was refused for want of credit or budget. */
  unpaid(reason: Reason, key: KeyPrincipal): void;
  stops: ActiveStops;
  /** What the log keeps of plans. */
  digests: PlanDigests;
  /** Sends spans of calls to the targets of their organizations. */
  broadcast: { of(orgId: string): CallWatch | undefined };
  /** Lets control loops go on on another stream. */
  resumption: Resumption;
}

/** The same, with what inference itself remembers between calls. */
export interface InferenceDeps extends InferenceServiceDeps {
  hedges: HedgeBudgets;
  failing: FailingCallers;
}

/** One call on its way. */
export class InferenceCall {
  readonly call: Call;
  /** As far as it can be paid, once the bill is open. */
  plan: Plan;
  /** When it arrived, on the steady clock in milliseconds. */
  readonly arrivedAt: number;
  /** What became of the session's pin, once an offering served. */
  pin: PinOutcome | undefined;
  readonly #deps: InferenceDeps;
  readonly #asked: CallFacts;
  readonly #ownKeys: CallKeys | undefined;
  readonly #session: SessionPin | undefined;
  /** The session's pin when the call was planned. */
  readonly #plannedPin: Pin | undefined;

  /** Plans the call, or refuses it when nothing may serve it. */
  constructor(deps: InferenceDeps, request: RoutedCall, wanted: WantedInference, call: Call) {
    refuseLargeMetadata(request.metadata);
    this.#deps = deps;
    this.call = call;
    this.arrivedAt = call.arrivedAt ?? steadyNow();
    deps.failing.assertMayCall(keyOf(call), steadyNow());
    this.#ownKeys = wanted.ownKeys;
    this.#session = wanted.session;
    const { deadlineMs } = request.provider ?? {};
    // What came before may have taken all of its time, and a plan says nothing of time that is over.
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

  /** What attempting the plan needs of the world. */
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

  /** How a step of the plan is called. `actionDim` is the numbers per step that its answer will be checked for. */
  reach(step: PlanStep, actionDim?: number): ReturnType<LiveSupply["reach"]> {
    return reachWith(this.#deps.supply, step, actionDim, this.#ownKeys);
  }

  /** The pictures of the call, fetched and decoded when a wire first asks for them. */
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

  /** The options of one attempt for its wire. */
  options({ signal, budgetMs }: AttemptOptions, step: PlanStep): CallOptions {
    const { watch, sessionId } = this.#asked;
    const traceparent = handedOn(watch, this.call, sessionId, step);
    return { signal, budgetMs, requestId: this.call.requestId, traceparent };
  }

  /** The session as providers know it: of two organizations that use one word, neither reaches the other's. */
  get upstreamSession(): string | undefined {
    return this.#session?.name;
  }

  /** Records the offering that served the session, and returns what that did to its pin; undefined for a call without a session. */
  async pinned({ offering }: PlanStep): Promise<PinOutcome | undefined> {
    if (this.#session) this.pin = await this.#deps.sessions.served(this.#session, offering, this.#plannedPin);
    return this.pin;
  }

  /** What `units` of a step's answer owe. */
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

  /** Holds what the plan may cost, without the steps that cannot be paid; refuses with 402 where none can. */
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

  /** Runs the paid part of a call that is answered whole: whatever it throws leaves the bill void. */
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

  /** Notes that it was refused: a caller whose calls keep failing by what it sends has to wait. */
  noteRefused(refusal: Refusal): void {
    const { failing, supply } = this.#deps;
    failing.refused(this.call, refusal, supply.health);
  }

  /** The name of an answer: the request's own, under another prefix. */
  named(prefix: "act" | "pred" | "grnd" | "chunk"): string {
    const { requestId } = this.call;
    return prefix + requestId.slice(requestId.indexOf("_"));
  }
}

/** What is wanted of the router. */
interface WantedInference {
  intent: Intent;
  ownKeys: CallKeys | undefined;
  session: SessionPin | undefined;
}

/** The fields of a request that every routed call has. */
type RoutedCall = Pick<ActRequest, "metadata"> &
  Partial<Pick<ActRequest, "preset" | "preference" | "provider" | "robotId">>;

/** What a plan is made from at this moment. */
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

/** What a profile says that its server reads; undefined where nobody declared it. */
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

/** Who moves by a call, as emergency stops know it. */
export function moverOf(
  { provider }: Intent,
  call: Call,
  { robotId, metadata }: Pick<ActRequest, "robotId" | "metadata">,
): Mover {
  const key = keyOf(call);
  // A stop of any of its names stops it.
  return { key, sessionId: provider?.sessionId, robotIds: [key.robotId, robotId, robotIn(metadata)] };
}

/** The robot that metadata names. */
export function robotIn(metadata: ActRequest["metadata"]): string | undefined {
  const named = metadata?.robot_id;
  return typeof named === "string" ? named : undefined;
}

/** As the fields that name a robot; what the log is searched by must not be longer. */
const LONGEST_ROBOT = 128;

/** The robot of a call, as the log names it: the key's, or the one that the request names. */
export function robotOf({ robotId }: KeyPrincipal, named: string | undefined): string | undefined {
  if (robotId !== undefined) return robotId;
  return named !== undefined && named.length <= LONGEST_ROBOT ? named : undefined;
}

/** The word of a preference; undefined for none. */
export const preferenceWord = (preference: Preference | undefined): string | undefined =>
  preference === undefined
    ? undefined
    : PreferenceSchema.value[preference]?.name.slice("PREFERENCE_".length).toLowerCase();

/** The hedges that a call may send: no more of the organization's calls than it settled. */
export function hedgesOf({ hedges }: InferenceDeps, call: Call): Hedges {
  const { orgId, settings } = keyOf(call);
  return hedges.of(orgId, settings.maxHedgeRatio);
}

/** A wire with the method of a contract. The probe let no offering live that its wire cannot serve. */
export function speaking<C extends "act" | "predict" | "ground">(
  wire: Wire,
  contract: C,
): Wire & Required<Pick<Wire, C>> {
  if (wire[contract] === undefined) throw new Error(`the wire ${wire.id} does not support this contract`);
  return wire as Wire & Required<Pick<Wire, C>>; // seen above
}

/** Fails the attempt whose answer is not what its contract promises. */
export function assertSound(failure: AttemptFailure | undefined): void {
  if (failure !== undefined) throw new UpstreamFailure(failure, "the response violates the contract");
}

const METADATA_KEYS = 16;
const METADATA_LETTERS = 512;

/** Refuses metadata beyond 16 keys of 512 characters. */
export function refuseLargeMetadata(metadata: ActRequest["metadata"]): void {
  if (metadata === undefined) return;
  const entries = Object.entries(metadata);
  if (entries.length > METADATA_KEYS) throw violation("metadata", `must have at most ${METADATA_KEYS} keys, got ${entries.length}`, "too_long");
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

/** Characters of the caller's own text, as the caller counts them; of anything else those of its JSON. */
const lettersOf = (value: unknown): number => {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  // Only some of the characters beyond the first plane are two in a string.
  return text.length > METADATA_LETTERS && text.length <= 2 * METADATA_LETTERS ? [...text].length : text.length;
};

/** The response of an earlier call, if this one may have it; undefined for a call that is no repetition. */
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

/**
 * The same of an action: it keeps the bounds that hold now, its age has counted on, and past its validity it says that it must not be
 * executed.
 */
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

/** So many failed calls may come at once, and so many a second after that. */
interface Allowance {
  readonly most: number;
  readonly perS: number;
}

const OF_A_KEY: Allowance = { most: 20, perS: 0.5 };
const OF_AN_ORGANIZATION: Allowance = { most: 100, perS: 2 };
/** Keys, and organizations, that are remembered; with one more the one that failed longest ago is forgotten. */
const MOST_REMEMBERED = 10_000;

/** Nobody waits longer than this, in seconds, however many calls failed at one time. */
const LONGEST_S = 10;

/** An attempt as a refusal or a loop names it. */
type FailedAttempt = { readonly offeringId: string; readonly reason?: AttemptFailure | undefined };

/** The callers of one replica. */
export class FailingCallers {
  readonly #keys = new Levels(OF_A_KEY);
  readonly #orgs = new Levels(OF_AN_ORGANIZATION);

  /** Refuses with `too_many_failed_calls`, and when to come again, a caller that is to wait. */
  assertMayCall(caller: Pick<KeyPrincipal, "keyId" | "orgId">, now: number): void {
    if (this.mayCall(caller, now)) return;
    const { keyId, orgId } = caller;
    const [key, org] = [this.#keys.waitS(keyId, now), this.#orgs.waitS(orgId, now)];
    const whose = key > 0 ? "this key" : "your organization";
    const text = `too many calls of ${whose} failed at every model; retry after the given time and check the inputs that those models accept`;
    throw refuse(Reason.TOO_MANY_FAILED_CALLS, text, {}, { retryAfter: Math.ceil(Math.max(key, org)) });
  }

  /** Whether a caller need not wait. */
  mayCall({ keyId, orgId }: Pick<KeyPrincipal, "keyId" | "orgId">, now: number): boolean {
    return this.#keys.waitS(keyId, now) === 0 && this.#orgs.waitS(orgId, now) === 0;
  }

  /** A call failed. */
  failed({ keyId, orgId }: Pick<KeyPrincipal, "keyId" | "orgId">, now: number): void {
    this.#keys.add(keyId, now);
    this.#orgs.add(orgId, now);
  }

  /** The same where a refusal says that every offering which was asked failed by what the input may have caused. */
  refused(call: Call, { reason, route }: Refusal, health: Pick<HealthTracker, "mayBeInput">): void {
    if (reason !== Reason.ALL_ATTEMPTS_FAILED && reason !== Reason.INPUT_CONTRACT) return;
    if (isSpoilt(route?.attempts ?? [], health)) this.failed(keyOf(call), steadyNow());
  }

  /** The same where a loop held. */
  held(call: Call, tries: readonly Try[], health: Pick<HealthTracker, "mayBeInput">, at: number): void {
    if (tries.length === 0) return;
    const attempts = tries.map(({ step, reason }) => ({ offeringId: step.offering.id, reason }));
    if (isSpoilt(attempts, health)) this.failed(keyOf(call), at);
  }
}

/** Whether there were attempts, and all of them may have failed by what was sent. */
const isSpoilt = (attempts: readonly FailedAttempt[], health: Pick<HealthTracker, "mayBeInput">): boolean =>
  attempts.length > 0 &&
  attempts.every(
    ({ offeringId, reason }) =>
      reason !== undefined && (reason === AttemptFailure.INPUT_REJECTED || health.mayBeInput(offeringId, reason)),
  );

/** Leaky buckets by name. */
class Levels {
  readonly #allowance: Allowance;
  /** The one that rose last is the last. */
  readonly #levels = new Map<string, { readonly level: number; readonly at: number }>();

  constructor(allowance: Allowance) {
    this.#allowance = allowance;
  }

  /** Seconds until the next call may come; 0 where it may now. */
  waitS(name: string, now: number): number {
    if (this.#levels.size === 0) return 0;
    const { most, perS } = this.#allowance;
    return Math.max(0, (this.#level(name, now) - most + 1) / perS);
  }

  add(name: string, now: number): void {
    const { most, perS } = this.#allowance;
    const level = Math.min(this.#level(name, now) + 1, most - 1 + LONGEST_S * perS);
    this.#levels.delete(name);
    this.#levels.set(name, { level, at: now });
    for (const oldest of this.#levels.keys()) if (this.#levels.size > MOST_REMEMBERED) this.#levels.delete(oldest);
  }

  #level(name: string, now: number): number {
    const known = this.#levels.get(name);
    return known ? Math.max(0, known.level - ((now - known.at) / 1000) * this.#allowance.perS) : 0;
  }
}
