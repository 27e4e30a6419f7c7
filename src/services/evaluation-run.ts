/** What an evaluation is made of, as its job keeps it. */

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
import type { Scores } from "../scenarios/scores.ts";
import type { Shown } from "../scenarios/trial.ts";
import { claim, unclaim } from "../store/billing/idempotency.ts";
import type { RequestRecord } from "../store/billing/ledger.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { advance, dropRest, type JobHold, workspaceOf } from "../store/jobs/jobs.ts";
import type { Upstream } from "../upstream/index.ts";
import { WHOLE_CHUNK } from "../upstream/payload/actions.ts";
import { type FrameOptions, FrameSet, frameSources } from "../upstream/pictures/frames.ts";
import type { JobSeal } from "./job.ts";

/** What was asked for, every default filled in. */
export interface EvaluationRequest {
  policyEndpoint: string;
  /** The runtime whose wire reaches the address; `gateway` for a model of the gateway, `external` where a runner outside reaches it. */
  protocol: string;
  /** Of a server at an address: the JSON of a `WireProfile`, and how its secret is sent. */
  profile?: object | undefined;
  authType?: "bearer" | "api_key" | undefined;
  scenario: string;
  /** The scenario as it was when the evaluation was asked for; undefined where a runner outside has its own. */
  world?: EvaluatedWorld | undefined;
  actionSpace: string;
  episodes: number;
  seed: number;
  /** Undefined: as many steps as the server at the address gives. */
  horizon?: number | undefined;
  /** Undefined: a quarter of what the server gives. */
  replanSteps?: number | undefined;
  /** The offering that every call goes to, where the policy is a model of the gateway. */
  offering?: { id: string; provider: string } | undefined;
  mode: "sync" | "realtime";
  policyTimeoutMs: number;
  media: "none" | "gif" | "strip";
  pictures: boolean;
  /** Seconds that the episodes may take in all; waits for other evaluations are not counted. */
  wallBudgetS: number;
  /** Episodes in a row that end by one and the same fault, after which no more is run. */
  stopAfterFaults: number;
  metadata?: object | undefined;
  /** Micro-dollars for each episode that runs to its end. */
  priceMicro: number;
}

/** What of a scenario is told with its scores. */
interface EvaluatedWorld {
  version: string;
  /** Nothing that has another digest is run in its name. */
  digest: string;
  actionDim: number;
  dtMs: number;
  maxSteps: number;
}

/** Whether a runner outside runs the episodes. */
export const isExternal = ({ protocol }: EvaluationRequest): boolean => protocol === EXTERNAL;

/** The protocol of evaluations whose policy a runner outside reaches by itself. */
export const EXTERNAL = "external";

/** What an episode came to, as its part of the job keeps it: all but its actions, which are base64 of 64-bit floats where pictures are wanted. */
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
  /** What the calls of the policy cost in micro-dollars; 0 of a policy at an address. */
  policyMicro: number;
  /** Milliseconds that it took, waits for other evaluations not counted; of those that a runner outside ran, 0. */
  wallMs: number;
  initialStateSha256: string;
  trajectorySha256: string;
  actions?: string | undefined;
}

/** How often a policy was asked, and what that cost in micro-dollars. */
export interface PolicyCalls {
  count: number;
  micro: number;
}

/** The calls of the policy in these episodes. */
export const callsOf = (episodes: readonly Pick<EpisodeFacts, "policyCalls" | "policyMicro">[]): PolicyCalls => ({
  count: episodes.reduce((sum, { policyCalls }) => sum + policyCalls, 0),
  micro: episodes.reduce((sum, { policyMicro }) => sum + policyMicro, 0),
});

/** What the job as a whole came to. */
export interface EvaluationResult {
  scores?: Scores;
  /** Data URLs by episode. */
  pictures?: Record<string, string>;
  replayVerified?: boolean | undefined;
  hash?: string;
  runtime?: string;
  /** The model that answered last. */
  model?: string | undefined;
  simulated?: boolean;
  /** Calls of the policy in the episodes that ended. */
  calls?: PolicyCalls;
  /** What the runner outside calls itself. */
  harness?: string;
  error?: { code: string; message: string };
}

// The policy of an evaluation: a model of the gateway, called like any caller calls it, or a server at an address, over its wire.

/** How a call of the gateway's own model is made, and how it was answered. */
export type CallGateway = (call: { request: object; requestId: string; signal: Signal }) => Promise<
  (
    | { readonly kind: "answer"; readonly body: object; readonly costMicro: number }
    | { readonly kind: "refusal"; readonly body: object }
  ) & {
    /** How long it waited for its key's limits before it was made, in milliseconds. */
    readonly waitedMs: number;
  }
>;

/** What policies are reached with. */
export interface PolicyDeps {
  upstream: Upstream;
  agent: FrameOptions["agent"];
  allowPrivate: boolean;
}

/** A policy, and what is known of it by its last answer. */
export interface EvaluatedPolicy {
  /** Throws `PolicyFailure`, and `PolicyUnusable` where no later episode could go better. */
  act(shown: Shown, signal: Signal): Promise<Chunk>;
  /** The model that answered last, where it is one of the gateway. */
  readonly model: string | undefined;
  readonly simulated: boolean;
  /** What its calls have cost since this was asked last, in micro-dollars. */
  spentMicro(): number;
}

/** The gateway itself refuses the calls of this evaluation: it ends, with this reason. */
export class PolicyUnusable extends Error {
  override readonly name = "PolicyUnusable";
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** The policy's server has no room: another robot has it, or as many as it serves. */
class PolicyBusy extends PolicyFailure {}

/** What policies are told of the evaluation, and what the scenario says of itself to those that read words. */
interface About {
  readonly jobId: string;
  /** How often the evaluation was taken by a worker, from 1 on. */
  readonly epoch: number;
  readonly instruction: string;
  readonly actionDim: number;
  readonly dtMs: number;
}

/** More episodes than an evaluation has. */
const MOST_EPISODES = 10_000;

/**
 * Number of an episode in the session of its evaluation, from 1 on. An episode that a worker left in the middle begins anew under another
 * number, so that nothing that the policy's server kept of it is shown.
 */
const numberOf = ({ epoch }: About, episode: number): number => (epoch - 1) * MOST_EPISODES + episode + 1;

/** Longer than a server for one robot at a time is kept for a session that is silent. */
const BUSY_MS = 45_000;
const AGAIN_MS = 1_000;

type Act = EvaluatedPolicy["act"];

/** Before the policy's first answer, a server that is busy is asked again for a while: what has it may be over already. */
function waiting(act: Act): Act {
  let until: number | undefined;
  let isKnown = false;
  return async (shown, signal) => {
    for (;;) {
      try {
        const chunk = await act(shown, signal);
        isKnown = true;
        return chunk;
      } catch (thrown) {
        isKnown ||= !(thrown instanceof PolicyBusy);
        until ??= steadyNow() + BUSY_MS;
        if (isKnown || steadyNow() >= until) throw thrown;
      }
      await sleep(AGAIN_MS, signal);
    }
  };
}

const dataUrl = (png: Uint8Array): string => `data:image/png;base64,${Buffer.from(png).toString("base64")}`;

/** A model or an alias of the gateway: each call is planned, tried and billed as a call of its own; the evaluation is one session, for a server may serve one at a time. */
export function gatewayPolicy(call: CallGateway, request: EvaluationRequest, about: About): EvaluatedPolicy {
  const { policyEndpoint: model, actionSpace, horizon, policyTimeoutMs, offering } = request;
  const known: { model: string | undefined; simulated: boolean; micro: number } = {
    model: undefined,
    simulated: false,
    micro: 0,
  };
  // Two offerings of a model need not answer the same to the last bit.
  const offerings = offering && [offering.id];
  return {
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
    act: waiting(async ({ proprio, proprioNames, pictures, timeMs, episode }, signal) => {
      const startedAt = steadyNow();
      const asked = {
        model,
        action_space: actionSpace,
        horizon,
        episode: numberOf(about, episode),
        instruction: about.instruction,
        provider: { session_id: about.jobId, deadline_ms: policyTimeoutMs, offerings },
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

/** Refusals of one call that say something of the policy; all others would meet every later call too. */
const POLICY_FAULTS: Readonly<Record<string, PolicyFailure["termination"]>> = {
  deadline_exceeded: "policy_timeout",
  all_attempts_failed: "policy_error",
  input_contract: "policy_error",
  capacity_exhausted: "policy_disconnected",
};

/** Attempts whose reason says more than that they failed. */
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

/** A server at an address. The wire's own guard looks at where the address leads, at every connection. */
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
    spentMicro: () => 0,
    act: waiting(async ({ proprio, proprioNames, pictures, timeMs, episode }, signal) => {
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
        cancel.abort(new PolicyFailure("policy_timeout", `the policy did not answer within ${policyTimeoutMs} ms`)),
      );
      const input = {
        observations: [observation],
        instruction: about.instruction,
        seed: undefined,
        temperature: undefined,
        sessionId: about.jobId,
        episode: episodeName(about.jobId, numberOf(about, episode)),
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
          throw new UpstreamFailure(AttemptFailure.WRONG_STEP_COUNT, `${steps.length} steps, of ${horizon} asked for`);
        return { rows: steps.map(({ values }) => values), latencyMs: steadyNow() - startedAt };
      } catch (thrown) {
        if (cancel.aborted && cancel.reason instanceof PolicyFailure) throw cancel.reason;
        if (!(thrown instanceof UpstreamFailure)) throw thrown;
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

// Nothing of what the server said reaches the caller: it may hold anything.
const SENTENCES: Readonly<Record<PolicyFailure["termination"], string>> = {
  policy_timeout: "the policy did not answer in time",
  policy_disconnected: "the policy could not be reached, or hung up",
  policy_error: "the policy answered with an error, or with what its protocol does not have",
  action_dim_mismatch: "the policy answered actions of another dimension than the scenario's",
  invalid_action: "the policy answered a number that is not finite",
};

const BUSY = "the policy's server has no room: it serves another robot, or as many as it can";
const TOO_SHORT =
  "the policy answered fewer actions than the horizon asks for; without a horizon as many are taken as it answers";

function abortOf(cancel: Cancel): Promise<never> {
  return new Promise((_, reject) => cancel.addEventListener("abort", () => reject(cancel.reason)));
}

// What an episode costs: held before it begins, charged once when it has run to its end, however often its worker dies.

/** Whose episode it is. */
interface EpisodeOwner {
  readonly payer: Pick<KeyPrincipal, "orgId" | "keyId" | "workspaceId" | "ancestors">;
  readonly jobId: string;
  readonly index: number;
}

/** The bill of one episode; it ends once. */
export interface EpisodeBill {
  /** Charges it; resolves when the charge is durable. Answers what it cost in micro-dollars. */
  charge(): Promise<number>;
  /** Ends it without a charge. */
  free(): Promise<void>;
}

/** Holds the price of an episode, or refuses with 402. An episode that was charged before its record was written is not charged again. */
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

/** Refusals that end an evaluation rather than wait: money is short. */
export const IS_SHORT: ReadonlySet<Reason> = new Set([
  Reason.INSUFFICIENT_CREDITS,
  Reason.KEY_BUDGET_EXHAUSTED,
  Reason.WORKSPACE_BUDGET_EXHAUSTED,
]);

// The end of an evaluation, by any runner: what never began is dropped, the result is kept, and the event is emitted.

/** How an evaluation may end. */
export type EvaluationEnd = "completed" | "failed" | "cancelled" | "expired";

/** Ends a held evaluation; of a fenced holder nothing is kept. */
export function endEvaluation(
  sql: Sql,
  { orgId, ...hold }: JobHold & { readonly orgId: string },
  status: EvaluationEnd,
  result: EvaluationResult,
  seal: JobSeal,
): Promise<void> {
  const { harness, calls } = result;
  const open = { ...(harness !== undefined && { harness }), ...(calls && { calls }) };
  return tx(sql, async (tx) => {
    await dropRest(tx, hold);
    await advance(tx, hold, status, seal.result(result, open));
    await emit(tx, orgId, EVENTS[status](hold.id), await workspaceOf(tx, hold.id));
  });
}

const cancelled = (jobId: string): EventData => ({ case: "evaluationCancelled", value: { jobId } });
const EVENTS: Readonly<Record<EvaluationEnd, (jobId: string) => EventData>> = {
  completed: (jobId) => ({ case: "evaluationCompleted", value: { jobId } }),
  failed: (jobId) => ({ case: "evaluationFailed", value: { jobId } }),
  cancelled,
  // Its time called it off.
  expired: cancelled,
};
