/** What the playground is about to ask: the draft of a request, its examples, and the messages that are made of it. */
import { create } from "@bufbuild/protobuf";
import { Contract } from "#messages/limber/v1/contract_pb.ts";
import {
  type ActRequest,
  ActRequestSchema,
  type GroundRequest,
  GroundRequestSchema,
  type PredictRequest,
  PredictRequestSchema,
  PreviewedRequestSchema,
  type PreviewRoutesRequest,
  PreviewRoutesRequestSchema,
} from "#messages/limber/v1/inference_service_pb.ts";
import { type Observation, ObservationSchema } from "#messages/limber/v1/observation_pb.ts";
import { DropReason } from "#messages/limber/v1/plan_pb.ts";
import {
  DataCollection,
  Preference,
  ProviderPreferencesSchema,
  SupplyTrust,
} from "#messages/limber/v1/preferences_pb.ts";

/** The contracts that the playground calls. */
export type Called = "act" | "predict" | "ground";

/** A picture of a camera, as a `data:` address. */
export interface Picture {
  readonly camera: string;
  readonly url: string;
  /** Part of an example: the first image of the user's own replaces it. */
  readonly sample?: boolean;
  /** The size before this page cropped and scaled it, in pixels. */
  readonly original?: { readonly width: number; readonly height: number };
}

/** One number of the robot's state. */
export interface StateValue {
  readonly name: string;
  readonly value: number;
}

/** A request in the making. Texts are as they were typed; empty ones are left out. */
export interface Draft {
  readonly contract: Called;
  readonly model: string;
  readonly against: string;
  readonly space: string;
  readonly instruction: string;
  readonly horizon: string;
  readonly pictures: readonly Picture[];
  readonly state: readonly StateValue[];
  readonly preference: string;
  readonly maxLatencyMs: string;
  readonly deadlineMs: string;
  readonly maxCostUsd: string;
  readonly region: string;
  readonly allowSimulated: boolean;
  readonly community: boolean;
  readonly denyCollection: boolean;
}

const PLAIN: Draft = {
  contract: "act",
  model: "service/auto",
  against: "",
  space: "ee_delta_6d_grip",
  instruction: "",
  horizon: "16",
  pictures: [],
  state: [],
  preference: "",
  maxLatencyMs: "",
  deadlineMs: "",
  maxCostUsd: "",
  region: "",
  allowSimulated: false,
  community: false,
  denyCollection: false,
};

const named = (values: Readonly<Record<string, number>>): StateValue[] =>
  Object.entries(values).map(([name, value]) => ({ name, value }));

/** A red square on grey, its centre at (`x`, `y`) of 0 to 1, as a PNG. */
function redSquare(x: number, y: number, size = 224): string {
  const canvas = document.createElement("canvas");
  canvas.width = size;
  canvas.height = size;
  const paint = canvas.getContext("2d")!;
  paint.fillStyle = "rgb(128, 128, 128)";
  paint.fillRect(0, 0, size, size);
  paint.fillStyle = "rgb(220, 20, 20)";
  const side = Math.round(size / 5);
  paint.fillRect(Math.round(x * size - side / 2), Math.round(y * size - side / 2), side, side);
  return canvas.toDataURL("image/png");
}

/** Drafts that work as they are, by what they do. */
export const EXAMPLES: readonly { readonly name: string; readonly draft: () => Draft }[] = [
  {
    name: "Reach the red square",
    draft: () => ({
      ...PLAIN,
      instruction: "reach the red square",
      pictures: [{ camera: "wrist", url: redSquare(0.7, 0.3), sample: true }],
    }),
  },
  {
    name: "Drive to a place",
    draft: () => ({
      ...PLAIN,
      space: "base_twist_2d",
      state: named({ x: 0, y: 0, yaw: 0, goal_x: 1, goal_y: 1, goal_yaw: 0 }),
    }),
  },
  {
    name: "Find the red square",
    draft: () => ({
      ...PLAIN,
      contract: "ground",
      model: "",
      instruction: "the red square",
      pictures: [{ camera: "scene", url: redSquare(0.62, 0.4), sample: true }],
    }),
  },
  {
    name: "See what comes next",
    draft: () => ({
      ...PLAIN,
      contract: "predict",
      horizon: "8",
      pictures: [0.2, 0.26, 0.32].map((x) => ({ camera: "scene", url: redSquare(x, 0.5), sample: true })),
    }),
  },
];

const number = (text: string): number | undefined =>
  text.trim() === "" || Number.isNaN(Number(text)) ? undefined : Number(text);

const PREFERENCES = {
  balanced: Preference.BALANCED,
  fastest: Preference.FASTEST,
  cheapest: Preference.CHEAPEST,
  reliable: Preference.RELIABLE,
};

function providerOf(draft: Draft) {
  const regions = draft.region
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);
  const given = {
    maxLatencyMs: number(draft.maxLatencyMs),
    deadlineMs: number(draft.deadlineMs),
    maxCostUsd: number(draft.maxCostUsd),
    ...(regions.length > 0 && { region: regions }),
    ...(draft.allowSimulated && { allowSimulated: true }),
    ...(draft.community && { trust: SupplyTrust.COMMUNITY }),
    ...(draft.denyCollection && { dataCollection: DataCollection.DENY }),
  };
  return Object.values(given).every((value) => value === undefined)
    ? undefined
    : create(ProviderPreferencesSchema, given);
}

/** Predict sees its pictures one after the other, the others see all of them at once. */
function observationsOf({ contract, pictures, state }: Draft): Observation[] {
  const proprio = state.map(({ value }) => value);
  const proprioNames = state.every(({ name }) => name !== "") ? state.map(({ name }) => name) : [];
  const frames = pictures.map(({ camera, url }) => ({ camera, url }));
  if (contract === "predict" && frames.length > 0)
    return frames.map((frame) => create(ObservationSchema, { frames: [frame] }));
  return [create(ObservationSchema, { frames, proprio, proprioNames })];
}

const sharedOf = (draft: Draft, model: string) => ({
  model,
  observations: observationsOf(draft),
  instruction: draft.instruction === "" ? undefined : draft.instruction,
  horizon: number(draft.horizon),
  preference: PREFERENCES[draft.preference as keyof typeof PREFERENCES],
  provider: providerOf(draft),
});

/** The request of act. */
export const actOf = (draft: Draft, model: string): ActRequest =>
  create(ActRequestSchema, { ...sharedOf(draft, model), actionSpace: draft.space === "" ? undefined : draft.space });

/** The request of predict. */
export const predictOf = (draft: Draft, model: string): PredictRequest =>
  create(PredictRequestSchema, sharedOf(draft, model));

/** The request of ground. */
export const groundOf = (draft: Draft, model: string): GroundRequest =>
  create(GroundRequestSchema, {
    model: model === "" ? undefined : model,
    observations: observationsOf(draft),
    instruction: draft.instruction,
    provider: providerOf(draft),
  });

/** The request of the preview of act or predict, with its pictures: who reads it hangs on their number and size. */
export const previewOf = (draft: Draft): PreviewRoutesRequest =>
  create(PreviewRoutesRequestSchema, {
    contract: draft.contract === "act" ? Contract.ACT : Contract.PREDICT,
    request: create(PreviewedRequestSchema, {
      ...sharedOf(draft, draft.model),
      ...(draft.contract === "act" && { actionSpace: draft.space === "" ? undefined : draft.space }),
    }),
  });

/** What lets offerings in that were dropped for a reason, where the draft itself keeps them out. */
export function relaxationOf(
  reason: DropReason,
  draft: Draft,
): { readonly label: string; readonly change: Partial<Draft> } | undefined {
  const set = (field: keyof Draft): boolean => draft[field] !== "" && draft[field] !== false;
  switch (reason) {
    case DropReason.MAX_LATENCY_MS:
      return set("maxLatencyMs") ? { label: "leave the longest latency out", change: { maxLatencyMs: "" } } : undefined;
    case DropReason.DEADLINE_UNREACHABLE:
      return set("deadlineMs") ? { label: "leave the deadline out", change: { deadlineMs: "" } } : undefined;
    case DropReason.MAX_COST_USD:
      return set("maxCostUsd") ? { label: "leave the highest cost out", change: { maxCostUsd: "" } } : undefined;
    case DropReason.REGION:
      return set("region") ? { label: "take every region", change: { region: "" } } : undefined;
    case DropReason.DATA_COLLECTION:
      return set("denyCollection")
        ? { label: "take providers that keep frames", change: { denyCollection: false } }
        : undefined;
    case DropReason.NOT_SIMULATED_ALLOWED:
      return { label: "take placeholder output", change: { allowSimulated: true } };
    case DropReason.TRUST:
      return { label: "take community supply", change: { community: true } };
    default:
      return undefined;
  }
}
