/** The parts of an evaluation as its job stores them. */

import { createHash } from "node:crypto";
import { create, fromJson, type JsonObject } from "@bufbuild/protobuf";
import { ImageFormat, ObservationSchema } from "../../gen/limber/v1/observation_pb.ts";
import { WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import type { KeyPrincipal } from "../call.ts";
import { Cancel, type Signal } from "../cancellation.ts";
import { processClock, sleep, steadyNow } from "../clock.ts";
import { AttemptFailure, DEFAULT_HORIZON, episodeName, UpstreamFailure } from "../contracts/contract.ts";
import { Reason } from "../errors.ts";
import { type EventData, emit } from "../events/emit.ts";
import { newId } from "../ids.ts";
import type { Leaser } from "../inference/call-billing.ts";
import type { Chunk } from "../scenarios/episode.ts";
import { PolicyFailure } from "../scenarios/failure.ts";
import type { Metric } from "../scenarios/paired.ts";
import type { Scores } from "../scenarios/scores.ts";
import type { SuiteTask } from "../scenarios/suite.ts";
import type { Shown } from "../scenarios/trial.ts";
import { claim, unclaim } from "../store/billing/idempotency.ts";
import type { RequestRecord } from "../store/billing/ledger.ts";
import { type Sql, type Tx, tx } from "../store/database/tx.ts";
import { advance, dropRest, type JobHold, workspaceOf } from "../store/jobs/jobs.ts";
import type { Upstream } from "../upstream/index.ts";
import { WHOLE_CHUNK } from "../upstream/payload/actions.ts";
import { type FrameOptions, FrameSet, frameSources } from "../upstream/pictures/frames.ts";
import type { JobSeal } from "./job.ts";

/** The request with every default filled in. */
export interface EvaluationRequest {
  policyEndpoint: string;
  /** The runtime for the address; `gateway` for a model of the gateway, `external` for an external runner. */
  protocol: string;
  /** For a server at an address: the JSON of a `WireProfile`, and how its secret is sent. */
  profile?: object | undefined;
  authType?: "bearer" | "api_key" | undefined;
  scenario: string;
  /** The scenario at the time of the request; undefined for an external runner, which has its own. */
  world?: EvaluatedWorld | undefined;
  actionSpace: string;
  /** Replaces the scenario's instruction. */
  instruction?: string | undefined;
  episodes: number;
  seed: number;
  /** Undefined: as many steps as the server returns. */
  horizon?: number | undefined;
  /** Undefined: a quarter of the steps that the server returns. */
  replanSteps?: number | undefined;
  /** The offering for every call, if the policy is a model of the gateway. */
  offering?:
    | {
        id: string;
        provider: string;
        /** Digest of the checkpoint that it declared then. */
        revision?: string | undefined;
      }
    | undefined;
  mode: "sync" | "realtime";
  policyTimeoutMs: number;
  media: "none" | "gif" | "strip" | "film";
  /** The filmed episodes; undefined: the first and the worst. */
  mediaEpisodes?: "failed" | "all" | undefined;
  pictures: boolean;
  /** The scenario's camera for each camera that the policy reads; undefined: all, under their own names. */
  cameraMap?: Readonly<Record<string, string>> | undefined;
  /** The numbers that the policy reads, in its order; undefined: all, under their own names. */
  stateMap?: readonly { readonly from: string; readonly name: string }[] | undefined;
  /** Time limit of all episodes in seconds, without waits for other evaluations. */
  wallBudgetS: number;
  /** How many consecutive episodes with the same fault end the evaluation. */
  stopAfterFaults: number;
  /** How many episodes run side by side at most; undefined: the gateway decides. */
  parallelEpisodes?: number | undefined;
  metadata?: object | undefined;
  /** Micro-dollars per completed episode. */
  priceMicro: number;
  /** The most policy calls of an episode, and the most that one costs in micro-dollars. */
  calls: { most: number; micro: number };
  /** The most that all policy calls may cost, in micro-dollars; undefined: no limit. */
  callsCapMicro?: number | undefined;
  /** Its place in a comparison. */
  comparison?: ComparisonPlace | undefined;
}

/** The place of an evaluation in a comparison. */
export interface ComparisonPlace {
  readonly id: string;
  readonly label: string;
  /** Number of compared policies. */
  readonly policies: number;
  readonly metric: Metric;
  readonly blind: boolean;
  readonly stopWhenKnown: boolean;
  /** Its task, if the policies are compared on a suite. */
  readonly inSuite?: SuitePlace | undefined;
}

/** The place of an evaluation in a suite. */
export interface SuitePlace {
  readonly suite: { readonly id: string; readonly title: string; readonly digest: string };
  /** Position of the task, from 0. */
  readonly index: number;
  readonly task: SuiteTask;
}

/** The most that an evaluation can cost, in micro-dollars: all of its episodes, and their policy calls up to the cap. */
export const mostMicro = ({ priceMicro, episodes, calls, callsCapMicro = Infinity }: EvaluationRequest) => ({
  episodes: priceMicro * episodes,
  calls: Math.min(calls.most * calls.micro * episodes, callsCapMicro),
});

/** The scenario data that accompanies its scores. */
interface EvaluatedWorld {
  version: string;
  /** A scenario with another digest must not run under this name. */
  digest: string;
  actionDim: number;
  dtMs: number;
  maxSteps: number;
}

/** Recorded actions of evaluations without media, in bytes. More would slow down reading the job. */
const MOST_RECORDED = 4 * 2 ** 20;

/** Whether the actions of its episodes are kept, for a replay. With zero data retention, only while pictures need them. */
export function keepsActions({ media, episodes, world }: EvaluationRequest, sealed: boolean): boolean {
  const most = episodes * (world?.maxSteps ?? Infinity) * (world?.actionDim ?? 1) * Float64Array.BYTES_PER_ELEMENT;
  return media !== "none" || (!sealed && most <= MOST_RECORDED);
}

/** Whether an external runner runs the episodes. */
export const isExternal = ({ protocol }: EvaluationRequest): boolean => protocol === EXTERNAL;

/** The protocol name for policies that an external runner calls directly. */
export const EXTERNAL = "external";

/** An episode's result, as the job stores it. Actions are base64 of 64-bit floats, where `keepsActions`. */
export interface EpisodeFacts {
  seed: number;
  success: boolean;
  termination: string;
  error?: string | undefined;
  return: number;
  progress: number;
  steps: number;
  simTimeS: number;
  policyCalls: number;
  latenciesMs: readonly number[];
  metrics: Readonly<Record<string, number>>;
  clippedSteps: number;
  staleSteps: number;
  meanActionDelta: number;
  /** Cost of the policy's calls in micro-dollars; 0 for a policy at an address. */
  policyMicro: number;
  /** Duration in milliseconds without waits for other evaluations; 0 for external runners. */
  wallMs: number;
  initialStateSha256: string;
  trajectorySha256: string;
  actions?: string | undefined;
}

/** Number of policy calls, and their cost in micro-dollars. */
export interface PolicyCalls {
  count: number;
  micro: number;
}

/** The policy calls of these episodes. */
export const callsOf = (episodes: readonly Pick<EpisodeFacts, "policyCalls" | "policyMicro">[]): PolicyCalls => ({
  count: episodes.reduce((sum, { policyCalls }) => sum + policyCalls, 0),
  micro: episodes.reduce((sum, { policyMicro }) => sum + policyMicro, 0),
});

/** The result of the complete job. */
export interface EvaluationResult {
  scores?: Scores;
  /** Data URLs by episode. */
  pictures?: Record<string, string>;
  replayVerified?: boolean | undefined;
  hash?: string;
  runtime?: string;
  /** The model that served the last call. */
  model?: string | undefined;
  simulated?: boolean;
  /** The policy calls of the finished episodes. */
  calls?: PolicyCalls;
  /** The external runner's name for itself. */
  harness?: string;
  error?: { code: string; message: string };
}

// The policy of an evaluation: a model of the gateway, called as any caller would, or a server at an address, called over its wire.

/** Makes a call of the gateway's own model, and reports its outcome. */
export type CallGateway = (call: { request: object; requestId: string; signal: Signal }) => Promise<
  (
    | { readonly kind: "answer"; readonly body: object; readonly costMicro: number }
    | { readonly kind: "refusal"; readonly body: object }
  ) & {
    /** Wait for the key's limits before the call, in milliseconds. */
    readonly waitedMs: number;
  }
>;

/** Dependencies of policies. */
export interface PolicyDeps {
  upstream: Upstream;
  agent: FrameOptions["agent"];
  allowPrivate: boolean;
}

/** A policy, and the facts known from its last response. */
export interface EvaluatedPolicy {
  /** Throws `PolicyFailure`, or `PolicyUnusable` if later episodes would fail too. */
  act(shown: Shown, signal: Signal): Promise<Chunk>;
  /** The model that served the last call, if it is one of the gateway's. */
  readonly model: string | undefined;
  readonly simulated: boolean;
  /** Cost of the calls since `spentMicro` was last called, in micro-dollars. */
  readonly owedMicro: number;
  /** The same, and begins again at 0. */
  spentMicro(): number;
}

/** The gateway itself refuses this evaluation's calls, which ends it with this reason. */
export class PolicyUnusable extends Error {
  override readonly name = "PolicyUnusable";
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** The policy's server is at capacity: another robot uses it, or it serves as many as it can. */
export class PolicyBusy extends PolicyFailure {}

/** The policy was not called: every offering that could serve it has an open breaker after failures, or is at its limit. */
class PolicyResting extends PolicyFailure {}

/** The evaluation's context for the policy, and the scenario's instruction for language-conditioned models. */
interface About {
  readonly jobId: string;
  /** Number of the lane whose episodes it plays, from 0. Each lane is a session of its own. */
  readonly lane: number;
  /** The share of the evaluation to which the lane belongs; undefined in the worker that holds the evaluation. */
  readonly share: string | undefined;
  /** How many workers have claimed the evaluation, or the share, from 1. */
  readonly epoch: number;
  readonly instruction: string;
  /** The scenario's observation in words. */
  readonly offers: string;
  readonly actionDim: number;
  readonly dtMs: number;
}

/** More episodes than any evaluation has. */
const MOST_EPISODES = 10_000;

/**
 * Number of an episode in the evaluation's session, from 1. If a worker abandons an episode, it restarts under another number, so state
 * that the policy's server still holds has no effect.
 */
const numberOf = ({ epoch }: About, episode: number): number => (epoch - 1) * MOST_EPISODES + episode + 1;

/** The session of a lane: that of the first is the evaluation's own. */
const sessionOf = ({ jobId, share, lane }: About): string =>
  share === undefined && lane === 0 ? jobId : `${jobId}.${share ?? lane}`;

/** How long a policy is retried after its last response. Longer than a single-robot server keeps an idle session, or a breaker stays open. */
const RETRY_MS = 45_000;
const AGAIN_MS = 1_000;

type Act = EvaluatedPolicy["act"];

/**
 * Retries a busy server before the policy's first response, because its current session may be ending. Other lanes than the first don't wait.
 * Also waits while the policy can't be called, except in real time: a call that was never made is no fault of the policy.
 */
function waiting({ mode }: Pick<EvaluationRequest, "mode">, { lane }: About, act: Act): Act {
  let until: number | undefined;
  let isKnown = lane > 0;
  return async (shown, signal) => {
    for (;;) {
      try {
        const chunk = await act(shown, signal);
        isKnown = true;
        until = undefined;
        return chunk;
      } catch (thrown) {
        const isResting = thrown instanceof PolicyResting;
        isKnown ||= !isResting && !(thrown instanceof PolicyBusy);
        until ??= steadyNow() + RETRY_MS;
        if ((isResting ? mode === "realtime" : isKnown) || steadyNow() >= until) throw thrown;
      }
      await sleep(AGAIN_MS, signal);
    }
  };
}

/** An observation as the policy reads it: its cameras and its state, by the request's mapping. */
export function mapped<S extends MappedParts>(
  { cameraMap, stateMap }: Pick<EvaluationRequest, "cameraMap" | "stateMap">,
  shown: S,
): S {
  const { pictures, proprio, proprioNames } = shown;
  const byCamera = new Map(pictures.map((picture) => [picture.camera, picture]));
  const numbers = new Map(proprioNames.map((name, index) => [name, proprio[index]!]));
  return {
    ...shown,
    ...(cameraMap && {
      pictures: Object.entries(cameraMap).flatMap(([camera, from]) => {
        const picture = byCamera.get(from);
        return picture ? [{ ...picture, camera }] : [];
      }),
    }),
    ...(stateMap && {
      proprio: stateMap.map(({ from }) => numbers.get(from)!),
      proprioNames: stateMap.map(({ name }) => name),
    }),
  };
}

/** What a mapping changes of an observation. */
interface MappedParts {
  readonly proprio: readonly number[];
  readonly proprioNames: readonly string[];
  readonly pictures: readonly { readonly camera: string }[];
}

const dataUrl = (png: Uint8Array): string => `data:image/png;base64,${Buffer.from(png).toString("base64")}`;

/** A model or an alias of the gateway. Each call is planned, attempted and charged separately; the evaluation is one session, for servers that serve one at a time. */
export function gatewayPolicy(call: CallGateway, request: EvaluationRequest, about: About): EvaluatedPolicy {
  const { policyEndpoint: model, actionSpace, horizon, policyTimeoutMs, offering } = request;
  const known: { model: string | undefined; simulated: boolean; micro: number } = {
    model: undefined,
    simulated: false,
    micro: 0,
  };
  // Two offerings of a model need not return bit-identical results.
  const offerings = offering && [offering.id];
  return {
    get owedMicro() {
      return known.micro;
    },
    spentMicro() {
      const { micro } = known;
      known.micro = 0;
      return micro;
    },
    get model() {
      return known.model;
    },
    get simulated() {
      return known.simulated;
    },
    act: waiting(request, about, async (shown, signal) => {
      const { proprio, proprioNames, pictures, timeMs, episode } = mapped(request, shown);
      const startedAt = steadyNow();
      const asked = {
        model,
        action_space: actionSpace,
        horizon,
        episode: numberOf(about, episode),
        instruction: about.instruction,
        provider: { session_id: sessionOf(about), deadline_ms: policyTimeoutMs, offerings },
        observations: [
          {
            proprio,
            proprio_names: proprioNames,
            t_ms: timeMs,
            frames: pictures.map(({ camera, png }) => ({ camera, url: dataUrl(png) })),
          },
        ],
      };
      const answered = await call({ request: asked, requestId: newId("req"), signal });
      if (answered.kind === "refusal") throw failureOf(answered.body as RefusalJson);
      const { action, model: by, route } = answered.body as AnswerJson;
      known.model = by;
      known.micro += answered.costMicro;
      known.simulated ||= route.simulated;
      return { rows: action.steps, latencyMs: steadyNow() - startedAt - answered.waitedMs };
    }),
  };
}

interface AnswerJson {
  readonly model: string;
  readonly action: { readonly steps: readonly (readonly number[])[] };
  readonly route: { readonly simulated: boolean };
}

interface RefusalJson {
  readonly error: { readonly code: string; readonly message: string };
  readonly route?: { readonly attempts?: readonly { readonly reason?: string }[] };
}

/** Refusals of one call that concern the policy; all others would recur on every later call. */
const POLICY_FAULTS: Readonly<Record<string, PolicyFailure["termination"]>> = {
  deadline_exceeded: "policy_timeout",
  all_attempts_failed: "policy_error",
  capacity_exhausted: "policy_disconnected",
};

/** Failed attempts whose reason gives more detail. */
const BY_REASON: Readonly<Record<string, PolicyFailure["termination"]>> = {
  timeout: "policy_timeout",
  deadline: "policy_timeout",
  unreachable: "policy_disconnected",
  connection_lost: "policy_disconnected",
  action_dim_mismatch: "action_dim_mismatch",
  non_finite_action: "invalid_action",
  empty_answer: "invalid_action",
};

function failureOf({ error: { code, message }, route }: RefusalJson): Error {
  if (code === "capacity_exhausted" && !route?.attempts?.length)
    return new PolicyResting("policy_disconnected", message);
  const last = route?.attempts?.at(-1)?.reason ?? "";
  if (last === "upstream_busy") return new PolicyBusy("policy_disconnected", message);
  const termination = POLICY_FAULTS[code] && (BY_REASON[last] ?? POLICY_FAULTS[code]);
  if (termination === undefined) return new PolicyUnusable(code, message);
  return new PolicyFailure(termination, message);
}

const BY_ATTEMPT: Readonly<Partial<Record<AttemptFailure, PolicyFailure["termination"]>>> = {
  [AttemptFailure.TIMEOUT]: "policy_timeout",
  [AttemptFailure.DEADLINE]: "policy_timeout",
  [AttemptFailure.UNREACHABLE]: "policy_disconnected",
  [AttemptFailure.CONNECTION_LOST]: "policy_disconnected",
  [AttemptFailure.EMPTY_ANSWER]: "invalid_action",
  [AttemptFailure.ACTION_DIM_MISMATCH]: "action_dim_mismatch",
  [AttemptFailure.NON_FINITE_ACTION]: "invalid_action",
};

/** A server at an address. The wire's guard checks the resolved address on every connection. */
export function serverPolicy(
  deps: PolicyDeps,
  request: EvaluationRequest,
  about: About & { readonly secret: string },
): EvaluatedPolicy {
  const { policyEndpoint: endpoint, protocol, actionSpace, horizon, policyTimeoutMs, profile } = request;
  const wire = deps.upstream.wireOf(protocol);
  const target = {
    offeringId: about.jobId,
    model: "",
    endpoint,
    auth: { type: request.authType ?? ("none" as const), secret: about.secret },
    profile: profile && fromJson(WireProfileSchema, profile as JsonObject), // written by `toJson`
    actionDim: about.actionDim,
    dtMs: about.dtMs,
  };
  return {
    model: undefined,
    simulated: false,
    owedMicro: 0,
    spentMicro: () => 0,
    act: waiting(request, about, async (shown, signal) => {
      const { proprio, proprioNames, pictures, timeMs, episode } = mapped(request, shown);
      const startedAt = steadyNow();
      const frames = pictures.map(({ camera, png }) => ({ camera, url: dataUrl(png), format: ImageFormat.PNG }));
      const observation = create(ObservationSchema, {
        proprio: [...proprio],
        proprioNames: [...proprioNames],
        tMs: timeMs,
        frames,
      });
      const cancel = new Cancel();
      const leave = (): void => cancel.abort(signal.reason);
      signal.addEventListener("abort", leave, { once: true });
      const late = processClock.after(policyTimeoutMs, () =>
        cancel.abort(new PolicyFailure("policy_timeout", `the policy did not respond within ${policyTimeoutMs} ms`)),
      );
      const input = {
        observations: [observation],
        instruction: about.instruction,
        seed: undefined,
        temperature: undefined,
        sessionId: sessionOf(about),
        episode: episodeName(sessionOf(about), numberOf(about, episode)),
        actionSpace,
        horizon: horizon ?? (wire?.asksHorizon ? DEFAULT_HORIZON : WHOLE_CHUNK),
        returnPrediction: false,
      };
      const set = new FrameSet(frameSources([observation]), {
        agent: deps.agent,
        allowPrivate: deps.allowPrivate,
        signal: cancel,
        deadline: startedAt + policyTimeoutMs,
        asker: { key: about.jobId, robot: `${episode}` },
      });
      try {
        if (!wire?.act) throw new PolicyUnusable("unsupported", "no wire reaches this address");
        const options = { signal: cancel, requestId: newId("req"), budgetMs: policyTimeoutMs };
        const { steps } = await Promise.race([wire.act(target, input, set, options), abortOf(cancel)]);
        if (horizon !== undefined && steps.length < horizon)
          throw new UpstreamFailure(AttemptFailure.WRONG_STEP_COUNT, `${steps.length} steps, expected ${horizon}`);
        return { rows: steps.map(({ values }) => values), latencyMs: steadyNow() - startedAt };
      } catch (thrown) {
        if (cancel.aborted && cancel.reason instanceof PolicyFailure) throw cancel.reason;
        if (!(thrown instanceof UpstreamFailure)) throw thrown;
        // Found before the call: no episode can be played, and the policy is not to blame.
        if (thrown.lack !== undefined)
          throw new PolicyUnusable("input_contract", `the policy was not called: ${thrown.lack}; ${about.offers}`);
        if (thrown.failure === AttemptFailure.WRONG_STEP_COUNT) throw new PolicyFailure("policy_error", TOO_SHORT);
        if (thrown.failure === AttemptFailure.UPSTREAM_BUSY) throw new PolicyBusy("policy_disconnected", BUSY);
        const termination = BY_ATTEMPT[thrown.failure] ?? "policy_error";
        throw new PolicyFailure(termination, SENTENCES[termination]);
      } finally {
        late();
        signal.removeEventListener("abort", leave);
      }
    }),
  };
}

// Server responses can contain anything, so none of their text reaches the caller.
const SENTENCES: Readonly<Record<PolicyFailure["termination"], string>> = {
  policy_timeout: "the policy did not respond in time",
  policy_disconnected: "the policy could not be reached, or closed the connection",
  policy_error: "the policy returned an error or violated its protocol",
  action_dim_mismatch: "the policy returned actions with another dimension than the scenario's",
  invalid_action: "the policy returned a number that is not finite",
};

const BUSY = "the policy's server is at capacity; try again later";
const TOO_SHORT = "the policy returned fewer actions than `horizon`; omit `horizon` to use as many as it returns";

function abortOf(cancel: Cancel): Promise<never> {
  return new Promise((_, reject) => cancel.addEventListener("abort", () => reject(cancel.reason)));
}

// The cost of an episode: reserved before it begins, charged once when it completes, even if its worker dies.

/** The owner of an episode. */
interface EpisodeOwner {
  readonly payer: Pick<KeyPrincipal, "orgId" | "keyId" | "workspaceId" | "ancestors">;
  readonly jobId: string;
  readonly index: number;
}

/** The charge of one episode. It ends once. */
export interface EpisodeBill {
  /** Charges the episode. Resolves with its cost in micro-dollars when the charge is durable. */
  charge(): Promise<number>;
  /** Ends the episode without a charge. */
  free(): Promise<void>;
}

/** Reserves the price of an episode, or refuses with 402. An episode that was charged before its record was written is not charged again. */
export async function openEpisodeBill(
  { sql, leaser }: { sql: Sql; leaser: Leaser },
  owner: EpisodeOwner,
  request: EvaluationRequest,
): Promise<EpisodeBill> {
  const { payer, jobId, index } = owner;
  const { orgId, keyId, workspaceId } = payer;
  const { priceMicro, scenario } = request;
  const requestId = newId("req");
  const claimant = { orgId, workspaceId, key: `${jobId}.${index}.episode`, claimId: requestId, leaser: leaser.name };
  const hash = createHash("sha256").update(claimant.key).digest();
  const claimed = await claim(sql, {
    ...claimant,
    hash,
    line: [keyId],
    method: "limber.v1.EvaluationService/Evaluate",
    sealed: false,
  });
  if (claimed.kind === "replay") return { charge: async () => priceMicro, free: async () => {} };
  const intent = {
    orgId,
    keyId,
    requestId,
    contract: "evaluate",
    model: scenario,
    provider: "limber",
    offeringId: "",
    unit: "episode",
  };
  const estimate = { unit: "episode", units: 1, priceNano: priceMicro * 1000, wakeUpMicro: 0 };
  try {
    const hold = await leaser.hold(payer, priceMicro, estimate);
    hold.intend(intent);
    const record = (ended: "settled" | "failed"): RequestRecord => ({
      ...intent,
      status: ended,
      units: ended === "settled" ? 1 : 0,
      costMicro: ended === "settled" ? priceMicro : 0,
      wakeUpMicro: 0,
      hedgeCostMicro: null,
      simulated: false,
      byok: false,
      httpStatus: ended === "settled" ? 200 : null,
      errorCode: null,
      latencyMs: null,
      claim: {
        key: claimant.key,
        claimId: requestId,
        ...(ended === "settled" && { response: Buffer.from(requestId) }),
      },
    });
    return {
      async charge() {
        const settled = hold.settle(record("settled"));
        await hold.durable;
        await settled;
        return priceMicro;
      },
      async free() {
        hold.durable.catch(() => {});
        await hold.release(record("failed"));
      },
    };
  } catch (thrown) {
    await unclaim(sql, claimant).catch(() => {});
    throw thrown;
  }
}

/** Refusals that end an evaluation immediately instead of waiting: insufficient credit. */
export const IS_SHORT: ReadonlySet<Reason> = new Set([
  Reason.INSUFFICIENT_CREDITS,
  Reason.KEY_BUDGET_EXHAUSTED,
  Reason.WORKSPACE_BUDGET_EXHAUSTED,
]);

// Ends an evaluation, for any runner: drops episodes that never began, stores the result and emits the event.

/** The possible outcomes of an evaluation. */
export type EvaluationEnd = "completed" | "failed" | "cancelled" | "expired";

/** Ends a held evaluation; `also` runs in the same transaction. Writes nothing for a fenced holder. */
export function endEvaluation(
  sql: Sql,
  { orgId, ...hold }: JobHold & { readonly orgId: string },
  status: EvaluationEnd,
  result: EvaluationResult,
  seal: JobSeal,
  also: (tx: Tx) => Promise<void> = async () => {},
): Promise<void> {
  const { harness, calls } = result;
  const open = { ...(harness !== undefined && { harness }), ...(calls && { calls }) };
  return tx(sql, async (tx) => {
    await dropRest(tx, hold);
    await advance(tx, hold, status, seal.result(result, open));
    await also(tx);
    await emit(tx, orgId, EVENTS[status](hold.id), await workspaceOf(tx, hold.id));
  });
}

const cancelled = (jobId: string): EventData => ({ case: "evaluationCancelled", value: { jobId } });
const EVENTS: Readonly<Record<EvaluationEnd, (jobId: string) => EventData>> = {
  completed: (jobId) => ({ case: "evaluationCompleted", value: { jobId } }),
  failed: (jobId) => ({ case: "evaluationFailed", value: { jobId } }),
  cancelled,
  // Its time limit canceled it.
  expired: cancelled,
};
