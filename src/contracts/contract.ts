/** Terms that all contracts share: intents, responses, action spaces, embodiments, failures and unit prices. */
import type { ActionStep } from "../../gen/limber/v1/action_pb.ts";
import { Contract } from "../../gen/limber/v1/contract_pb.ts";
import type { GroundedBox, GroundedPoint } from "../../gen/limber/v1/grounding_pb.ts";
import type { Observation } from "../../gen/limber/v1/observation_pb.ts";
import type { PredictedFrame } from "../../gen/limber/v1/prediction_pb.ts";
import type { Preference, ProviderPreferences } from "../../gen/limber/v1/preferences_pb.ts";
import { Embodiment } from "../../gen/limber/v1/registry_pb.ts";
import { AttemptFailure, AttemptFailureSchema } from "../../gen/limber/v1/route_pb.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import type { GivenInput, PictureFacts } from "./inputs.ts";

export { Contract };

/** Optional request parameters that an offering can declare to honor; used by `require_parameters`. */
export const PARAMETERS = [
  "seed",
  "temperature",
  "goal_image",
  "return_prediction",
  "actions",
  "fps",
  "resolution",
  "num_samples",
] as const;

/** Parameters that no wire carries: they are dropped, and no offering counts as honoring them. */
export const DROPPED_PARAMETERS: ReadonlySet<string> = new Set<Parameter>(["num_samples"]);

/** One of them. */
export type Parameter = (typeof PARAMETERS)[number];

/** Stage 1 of the pipeline: the request, independent of its transport. */
export interface Intent {
  contract: Contract;
  /** As the caller wrote it: a slug or an alias, possibly with a suffix. */
  model: string;
  /** The fallback chain: `models` of the request or of its `provider` block. */
  models: readonly string[];
  preference: Preference | undefined;
  provider: ProviderPreferences | undefined;
  /** The action space of the response (act), else undefined. */
  actionSpace: string | undefined;
  /** The target body, if the caller names one. */
  embodiment: Embodiment | undefined;
  /** Seed for repeatable results: it determines the order of a balanced plan. */
  seed: number | undefined;
  /** Number of requested units: steps or frames; for ground the maximum number of tokens expected. */
  units: number;
  /**
   * Absent: an answer has exactly `units`. `wish`: as many as the offering has in one answer, and no more than `units`. `chunk`: the same,
   * and an offering whose answers have no length of their own gives as many as a request that names none.
   */
  extent?: "wish" | "chunk" | undefined;
  /** Optional parameters that the request sets. */
  parameters: readonly Parameter[];
  /** The input that offerings' contracts are checked against; absent if no observation is known yet. */
  given?: GivenInput | undefined;
}

/** The input of any contract for a model. Images are accessed through the request's frame set. */
export interface ModelInput {
  observations: readonly Observation[];
  instruction: string;
  seed: number | undefined;
  temperature: number | undefined;
  /** The session's name, unique among all callers. */
  sessionId: string | undefined;
}

/** An act call as a provider receives it. */
export interface ActInput extends ModelInput {
  /** The episode's name of letters, digits, `_` and `-`; absent if a session is one episode, or if the call is its own. */
  episode?: string | undefined;
  actionSpace: string;
  horizon: number;
  returnPrediction: boolean;
  /** Real-time chunking: the remainder of the previous chunk, for servers that accept it. */
  leftOver?: readonly ActionStep[];
  /** Real-time chunking: number of control steps until the response is executed. */
  inferenceDelay?: number | undefined;
}

/** Name of an act's episode: what a server keeps from one call to the next it keeps for this. Undefined where the call is an episode of its own. */
export const episodeOf = ({ episode, sessionId }: Pick<ActInput, "episode" | "sessionId">): string | undefined =>
  episode ?? sessionId;

/** The name of a session's episode of this number: the first one is called as the session is, in which other calls may have begun it. */
export const episodeName = (session: string, number = 1): string => (number === 1 ? session : `${session}-${number}`);

/** A predict call as a provider receives it. */
export interface PredictInput extends ModelInput {
  horizon: number;
  actions: readonly ActionStep[];
  actionSpace: string | undefined;
  fps: number | undefined;
  resolution: string | undefined;
}

/** A ground call as a provider receives it: one observation. */
export interface GroundInput extends ModelInput {
  observations: readonly [Observation];
}

/** Bytes where they stand in others: a view of them would be an object more for every message. */
export interface Piece {
  readonly source: Buffer;
  readonly from: number;
  readonly to: number;
}

/** Start and end of bytes within others. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** A picture that came as bytes, in its frame and its observation as their caller wrote them. All places are in one source. */
export interface PackedFrame {
  /** Where its observation begins, with its tag, and where that one's own fields stand. All frames of one observation have the same. */
  readonly observation: { readonly start: number; readonly fields: Span };
  /** Where the frame begins, with its tag, and where its own fields stand. */
  readonly start: number;
  readonly fields: Span;
  /** What the picture's bytes say of it. */
  readonly facts: PictureFacts;
  /** The frame says just that of it. */
  readonly isTold: boolean;
}

/**
 * Observations in their encoded form: fields of `limber.policy.v1.ActCall`, but that their frames may say something else of their pictures
 * than the pictures' own bytes, or nothing.
 */
export interface PackedObservations extends Piece {
  /** In their order. */
  readonly frames: readonly PackedFrame[];
}

/** Steps as a server sent them: all of one length, all numbers finite. */
export interface PackedSteps {
  readonly count: number;
  /** Number of values in each. */
  readonly dim: number;
  /** Where one `limber.v1.ActionStep` stands after the other, each behind a tag of one byte and its length. */
  readonly source: Buffer;
  readonly from: number;
  readonly to: number;
}

/** A provider's response to act, before it is checked. */
export interface ActAnswer {
  /** The steps in their encoded form, where they were checked and not decoded; reading `steps` decodes them. */
  readonly packed?: PackedSteps;
  /** One entry per step, each as long as the action space has dimensions. */
  readonly steps: ActionStep[];
  /** Steps of the server's full chunk, of which `steps` are the first; absent if it returns the requested number. */
  readonly chunk?: number;
  /** Milliseconds between steps; 0 if the server did not report it. */
  dtMs: number;
  note: string;
  prediction: PredictedFrame[];
  gpuSeconds: number;
}

/** A provider's response to predict: frames as they arrive, then one summary. */
export type PredictAnswerPart =
  | { kind: "frame"; frame: PredictedFrame }
  | { kind: "summary"; gpuSeconds: number; note: string };

/** A complete response to predict: every frame in order, then the summary. */
export interface PredictAnswer {
  frames: PredictedFrame[];
  gpuSeconds: number;
  note: string;
}

/** A provider's response to ground. */
export interface GroundAnswer {
  points: GroundedPoint[];
  boxes: GroundedBox[];
  note: string;
  inputTokens: number;
  outputTokens: number;
}

/** The unit name of a contract in bills and usage records. */
export const UNIT: Readonly<Record<Exclude<Contract, typeof Contract.UNSPECIFIED>, string>> = {
  [Contract.ACT]: "action_step",
  [Contract.PREDICT]: "frame",
  [Contract.GROUND]: "token",
  [Contract.EVALUATE]: "episode",
};

/** Contract names in the store and the logs. */
export const CONTRACT_WORDS = {
  act: Contract.ACT,
  predict: Contract.PREDICT,
  ground: Contract.GROUND,
  evaluate: Contract.EVALUATE,
} as const;

const wordOf = new Map(Object.entries(CONTRACT_WORDS).map(([word, contract]) => [contract as Contract, word]));

/** The name of a contract. */
export function wordOfContract(contract: Contract): keyof typeof CONTRACT_WORDS {
  const word = wordOf.get(contract);
  if (word === undefined) throw new Error(`contract ${contract} is not in the schema`);
  return word as keyof typeof CONTRACT_WORDS; // a key of the table that it was read from
}

/** The properties that an action space guarantees for every step. */
interface ActionSpace {
  name: string;
  /** Values per step; undefined if each offering declares its own. */
  dim: number | undefined;
  /** The meaning of the values. */
  meaning: string;
}

/** The default action space of act requests. */
export const DEFAULT_ACTION_SPACE = "ee_delta_6d_grip";

/** The dimensions that dimension checks go by. Source: specification, "Action spaces with live supply". */
export const ACTION_SPACES: readonly ActionSpace[] = [
  { name: "base_twist_2d", dim: 2, meaning: "linear velocity in m/s, angular velocity in rad/s" },
  { name: "continuous_nd", dim: undefined, meaning: "as many continuous controls as the offering declares" },
  { name: "ee_delta_6d_grip", dim: 7, meaning: "end-effector translation in m, rotation vector in rad, gripper" },
  { name: "joint_pos_14", dim: 14, meaning: "joint positions in rad, two arms of seven" },
  { name: "joint_pos_23", dim: 23, meaning: "joint positions in rad, base, torso, arms and grippers" },
  { name: "joint_pos_29", dim: 29, meaning: "joint positions in rad, whole humanoid body" },
  { name: "joint_pos_7", dim: 7, meaning: "joint positions in rad, one arm of seven" },
  { name: "latent_action", dim: undefined, meaning: "as many latent numbers as the offering declares" },
  { name: "waypoint_se2", dim: 3, meaning: "x in m, y in m, heading in rad" },
];

const byName = new Map(ACTION_SPACES.map((space) => [space.name, space]));

/** The action space with this name; undefined if the specification does not define it. */
export const actionSpaceOf = (name: string): ActionSpace | undefined => byName.get(name);

/** Values per step that an offering must return in this space: the space's own number, else the declared one. */
export const dimensionOf = (name: string, declared: number | undefined): number | undefined =>
  byName.get(name)?.dim ?? declared;

export { Embodiment };

/** Names of the bodies in the store and the catalog. */
export const EMBODIMENTS = {
  arm: Embodiment.ARM,
  humanoid: Embodiment.HUMANOID,
  quadruped: Embodiment.QUADRUPED,
  "mobile-base": Embodiment.MOBILE_BASE,
  vehicle: Embodiment.VEHICLE,
  "virtual-agent": Embodiment.VIRTUAL_AGENT,
  agnostic: Embodiment.AGNOSTIC,
  none: Embodiment.NONE,
} as const;

const embodimentWords = new Map(Object.entries(EMBODIMENTS).map(([word, body]) => [body as Embodiment, word]));

/** The name of a body. */
export const wordOfEmbodiment = (body: Embodiment): string => embodimentWords.get(body) ?? "another body";

export { AttemptFailure };

/** The name of a failure for callers, such as `input_rejected`; undefined if there was none. */
export const failureWord = (failure: AttemptFailure | undefined): string | undefined =>
  failure === undefined
    ? undefined
    : AttemptFailureSchema.value[failure]?.name.slice("ATTEMPT_FAILURE_".length).toLowerCase();

/** The failure with this name; undefined for a name of another version. */
export const failureOf = (word: string): AttemptFailure | undefined =>
  AttemptFailureSchema.values.find(({ number }) => failureWord(number as AttemptFailure) === word)?.number as // its own values
    | AttemptFailure
    | undefined;

/** A failed attempt. `message` is for the log and the provider's owner; callers see only `failure` and `lack`. */
export class UpstreamFailure extends Error {
  readonly failure: AttemptFailure;
  /** What the gateway found missing in the input; undefined if the provider reported the failure. */
  readonly lack: string | undefined;
  /** The called address without its query, for the log and the provider's owner; undefined if it is the endpoint. */
  address: string | undefined;
  /** The server's requested retry delay, in milliseconds. */
  retryAfterMs: number | undefined;

  constructor(failure: AttemptFailure, message: string, cause?: unknown, lack?: string) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "UpstreamFailure";
    this.failure = failure;
    this.lack = lack;
  }
}

/**
 * `units` at `nanoPerUnit` nano-dollars each, in integer micro-dollars, rounded once, half to even.
 * Exact while the product stays below 2^53 nano-dollars (nine million dollars).
 */
export function microOf(units: number, nanoPerUnit: number): number {
  const nano = units * nanoPerUnit;
  const micro = Math.floor(nano / 1000);
  // The quotient may have been rounded up to a whole number; the rest is then negative, and up is where it belongs.
  const rest = nano - micro * 1000;
  return rest > 500 || (rest === 500 && micro % 2 === 1) ? micro + 1 : micro;
}

/** The most that so many units are charged, in whole micro-dollars: what was left open of earlier charges may round them up. */
export const mostMicroOf = (units: number, nanoPerUnit: number): number => {
  const micro = microOf(units, nanoPerUnit);
  return micro * 1000 < units * nanoPerUnit ? micro + 1 : micro;
};

/** The gateway's fee for an episode of an evaluation, in micro-dollars. */
export const EPISODE_MICRO = 10_000;

/** The gateway's fee for a call with the caller's own provider key, in percent of the list price. */
const OWN_KEY_PERCENT = 5;

/** The unit price of a call with the caller's own provider key, in nano-dollars, rounded down. */
export const ownKeyNano = (nanoPerUnit: number): number => Math.floor((nanoPerUnit * OWN_KEY_PERCENT) / 100);

/** Which numbers a provider's answer may carry, whatever its wire. Each test is false for NaN, infinities, and values that no server can mean. */

const MAX_GPU_SECONDS = 86_400;
const MAX_STEP_MS = 60_000;
const MAX_TOKENS = 10_000_000;
const MAX_SIDE = 16_384;
/** Frames of the longest prediction, one minute apart. */
const MAX_FRAME_MS = 256 * MAX_STEP_MS;
/** Robots and model servers read actions as 32-bit floats, which hold no number from here on. */
const ACTION_LIMIT = 2 ** 128;

/** Accelerator time of one response in seconds; 0 if the server did not measure it. */
export const isGpuSeconds = (value: number): boolean => value >= 0 && value <= MAX_GPU_SECONDS;

/** Time between steps in whole milliseconds; 0 if the server did not report it. */
export const isStepMs = (value: number): boolean => Number.isInteger(value) && value >= 0 && value <= MAX_STEP_MS;

/** One value of an action, in any unit. */
export const isActionValue = (value: number): boolean => value > -ACTION_LIMIT && value < ACTION_LIMIT;

/** Time of a predicted frame, in milliseconds after the last observation. */
export const isFrameMs = (value: number): boolean => value >= 0 && value <= MAX_FRAME_MS;

/** A side of an image, in pixels. */
export const isSide = (value: number): boolean => Number.isInteger(value) && value >= 1 && value <= MAX_SIDE;

/** Tokens that a model read or wrote. */
export const isTokenCount = (value: number): boolean => Number.isInteger(value) && value >= 0 && value <= MAX_TOKENS;

/** A coordinate as a share of an image, a confidence, or a probability. */
export const isShare = (value: number): boolean => value >= 0 && value <= 1;

/** The index of an entry in a list of `length`. */
export const isIndex = (value: number, length: number): boolean =>
  Number.isInteger(value) && value >= 0 && value < length;

/** Default number of frames or steps of one response. */
export const DEFAULT_HORIZON = 16;
/** The maximum number of them. */
export const LONGEST_HORIZON = 256;

/** The refusal of one field: `validation_failed` with its path, sentence and violated rule. */
export function violation(path: string, message: string, type: string, near: readonly string[] = []): Refusal {
  const violations = [{ $typeName: "limber.v1.Violation" as const, path, message, type }];
  return refuse(Reason.VALIDATION_FAILED, `${path}: ${message}`, { violations, near: [...near] }, { param: path });
}

/** The fallback chain, which may be at the top level or in `provider`; refuses two that differ. */
export function chainOf(models: readonly string[], provider: ProviderPreferences | undefined): readonly string[] {
  const inner = provider?.models ?? [];
  if (inner.length === 0) return models;
  if (models.length === 0) return inner;
  if (models.length === inner.length && models.every((model, i) => model === inner[i])) return models;
  throw refuse(
    Reason.CONFLICTING_PREFERENCES,
    "models and provider.models are the same chain and differ; send one of them",
    {},
    { param: "provider.models" },
  );
}

/** Refuses preferences that exclude each other, and an objective without weight. */
export function refuseConflicts(provider: ProviderPreferences | undefined): void {
  if (!provider) return;
  const weights = Object.values(provider.objective);
  if (weights.length === 0) return;
  if (provider.sort) {
    throw refuse(
      Reason.CONFLICTING_PREFERENCES,
      "provider.objective and provider.sort both order the plan; send one of them",
      {},
      { param: "provider.objective" },
    );
  }
  if (!weights.some((weight) => weight > 0)) {
    throw violation("provider.objective", "needs at least one weight above zero", "greater_than");
  }
}

/** A seed as models and plans take it, an unsigned integer of 32 bits; any other integer is folded into one, and what is none is refused. */
export function seedOf(seed: number | undefined): number | undefined {
  if (seed === undefined) return undefined;
  if (!Number.isInteger(seed)) throw violation("seed", "must be an integer", "int_from_float");
  return ((seed % SEEDS) + SEEDS) % SEEDS;
}

const SEEDS = 2 ** 32;

/** Maximum length of an unknown name in a refusal. */
const MOST_ECHOED = 64;

/** The name of a known action space; any other is refused with the names that are known. `path` is the field that gives it. */
export function knownActionSpace(name: string, path = "action_space"): string {
  if (actionSpaceOf(name)) return name;
  const known = ACTION_SPACES.map((space) => space.name);
  throw violation(
    path,
    `${JSON.stringify(name.slice(0, MOST_ECHOED))} is not one of ${known.join(", ")}`,
    "enum",
    known,
  );
}

/** The words of an enum of the schema: its names in lower case. */
type EnumWord<E> = Lowercase<Exclude<keyof E & string, "UNSPECIFIED">>;

/** The value of an enum of the schema for a stored word. */
export const enumOf = <E extends object>(values: E, word: EnumWord<E>): E[keyof E] =>
  values[word.toUpperCase() as keyof E];

/** The stored word of an enum's value; undefined for an unspecified or unknown one. */
export const enumWord = <E extends Record<string, number>>(
  values: E,
  value: number | undefined,
): EnumWord<E> | undefined =>
  value
    ? (Object.keys(values)
        .find((name) => values[name] === value)
        ?.toLowerCase() as EnumWord<E> | undefined)
    : undefined;
