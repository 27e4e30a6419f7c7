/** What the four contracts have in common: the intent that routing plans for, and the answers that upstreams give. */
import type { ActionStep } from "../../gen/limber/v1/action_pb.ts";
import { Contract } from "../../gen/limber/v1/contract_pb.ts";
import type { GroundedBox, GroundedPoint } from "../../gen/limber/v1/grounding_pb.ts";
import type { Observation } from "../../gen/limber/v1/observation_pb.ts";
import type { PredictedFrame } from "../../gen/limber/v1/prediction_pb.ts";
import type { Preference, ProviderPreferences } from "../../gen/limber/v1/preferences_pb.ts";
import type { Embodiment } from "../../gen/limber/v1/registry_pb.ts";
import type { GivenInput, PictureFacts } from "./inputs.ts";

export { Contract };

/** The optional parameters of a request that an offering may declare to honour; `require_parameters` goes by them. */
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

/** Parameters that no wire carries: they are dropped, and no offering counts as honoring them, whatever it declares. */
export const DROPPED_PARAMETERS: ReadonlySet<string> = new Set<Parameter>(["num_samples"]);

/** One of them. */
export type Parameter = (typeof PARAMETERS)[number];

/** Stage 1 of the pipeline: what the caller wants, free of the transport that it came in by. */
export interface Intent {
  contract: Contract;
  /** As the caller wrote it: a slug or an alias, perhaps with a suffix. */
  model: string;
  /** The fallback chain, `models` of the request or of its `provider` block. */
  models: readonly string[];
  preference: Preference | undefined;
  provider: ProviderPreferences | undefined;
  /** The action space of the answer (act), else undefined. */
  actionSpace: string | undefined;
  /** The body that it is for, where the caller says so. */
  embodiment: Embodiment | undefined;
  /** What the caller would have repeated: the order of a balanced plan is drawn by it. */
  seed: number | undefined;
  /** How many units are asked for: steps, frames; for ground the most tokens that are expected. */
  units: number;
  /**
   * Absent: an answer has exactly `units`. `wish`: as many as the offering has in one answer, and no more than `units`. `chunk`: the same,
   * and an offering whose answers have no length of their own gives as many as a request that names none.
   */
  extent?: "wish" | "chunk" | undefined;
  /** The optional parameters that the request sets. */
  parameters: readonly Parameter[];
  /** What offerings' contracts are held against; absent where no observation is known yet. */
  given?: GivenInput | undefined;
}

/** What the request of any contract hands to a model. Pictures are reached through the request's frame set, not here. */
export interface ModelInput {
  observations: readonly Observation[];
  instruction: string;
  seed: number | undefined;
  temperature: number | undefined;
  /** Names the caller's session among those of all callers. */
  sessionId: string | undefined;
}

/** An act call as an upstream gets it. */
export interface ActInput extends ModelInput {
  /** Name of the episode, of letters, digits, `_` and `-`; absent where a session is one episode, or a call one of its own. */
  episode?: string | undefined;
  actionSpace: string;
  horizon: number;
  returnPrediction: boolean;
  /** Real-time chunking: what is left of the chunk before, for servers that take it. */
  leftOver?: readonly ActionStep[];
  /** Real-time chunking: control steps that pass until the answer is executed. */
  inferenceDelay?: number | undefined;
}

/** Name of an act's episode: what a server keeps from one call to the next it keeps for this. Undefined where the call is an episode of its own. */
export const episodeOf = ({ episode, sessionId }: Pick<ActInput, "episode" | "sessionId">): string | undefined =>
  episode ?? sessionId;

/** The name of a session's episode of this number: the first one is called as the session is, in which other calls may have begun it. */
export const episodeName = (session: string, number = 1): string => (number === 1 ? session : `${session}-${number}`);

/** A predict call as an upstream gets it. */
export interface PredictInput extends ModelInput {
  horizon: number;
  actions: readonly ActionStep[];
  actionSpace: string | undefined;
  fps: number | undefined;
  resolution: string | undefined;
}

/** A ground call as an upstream gets it: one observation. */
export interface GroundInput extends ModelInput {
  observations: readonly [Observation];
}

/** Bytes where they stand in others: a view of them would be an object more for every message. */
export interface Piece {
  readonly source: Buffer;
  readonly from: number;
  readonly to: number;
}

/** From where to where bytes stand in others. */
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
  /** Numbers in each. */
  readonly dim: number;
  /** Where one `limber.v1.ActionStep` stands after the other, each behind a tag of one byte and its length. */
  readonly source: Buffer;
  readonly from: number;
  readonly to: number;
}

/** What an upstream answers to act, before it is checked. */
export interface ActAnswer {
  /** The steps in their encoded form, where they were checked and not decoded; reading `steps` decodes them. */
  readonly packed?: PackedSteps;
  /** One entry per step, each as long as the action space has dimensions. */
  readonly steps: ActionStep[];
  /** Steps of the server's whole chunk, of which `steps` are the first; absent where it answers as many as it is asked for. */
  readonly chunk?: number;
  /** Time between steps in milliseconds; 0 when the server did not say. */
  dtMs: number;
  note: string;
  prediction: PredictedFrame[];
  gpuSeconds: number;
}

/** What an upstream answers to predict: frames as they come, then one summary. */
export type PredictAnswerPart =
  | { kind: "frame"; frame: PredictedFrame }
  | { kind: "summary"; gpuSeconds: number; note: string };

/** A whole answer to predict: every frame in order, then the summary. */
export interface PredictAnswer {
  frames: PredictedFrame[];
  gpuSeconds: number;
  note: string;
}

/** What an upstream answers to ground. */
export interface GroundAnswer {
  points: GroundedPoint[];
  boxes: GroundedBox[];
  note: string;
  inputTokens: number;
  outputTokens: number;
}

/** The word for one unit of a contract in bills and usage rows. */
export const UNIT: Readonly<Record<Exclude<Contract, typeof Contract.UNSPECIFIED>, string>> = {
  [Contract.ACT]: "action_step",
  [Contract.PREDICT]: "frame",
  [Contract.GROUND]: "token",
  [Contract.EVALUATE]: "episode",
};

/** The contracts' words, as the store and the logs write them. */
export const CONTRACT_WORDS = {
  act: Contract.ACT,
  predict: Contract.PREDICT,
  ground: Contract.GROUND,
  evaluate: Contract.EVALUATE,
} as const;

const wordOf = new Map(Object.entries(CONTRACT_WORDS).map(([word, contract]) => [contract as Contract, word]));

/** The word of a contract. */
export function wordOfContract(contract: Contract): keyof typeof CONTRACT_WORDS {
  const word = wordOf.get(contract);
  if (word === undefined) throw new Error(`contract ${contract} is not in the schema`);
  return word as keyof typeof CONTRACT_WORDS; // a key of the table that it was read from
}
