/** What an evaluation is made of, as its job keeps it. */
import type { Scores } from "../../scenarios/scores.ts";

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
export interface EvaluatedWorld {
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
