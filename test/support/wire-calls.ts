/** Calls of a wire as the gateway makes them, with as little of the gateway as it takes. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Observation, ObservationSchema } from "../../gen/limber/v1/observation_pb.ts";
import { AttemptFailureSchema } from "../../gen/limber/v1/route_pb.ts";
import type { WireProfile } from "../../gen/limber/v1/supply_pb.ts";
import {
  type ActAnswer,
  type ActInput,
  type GroundInput,
  type PredictInput,
  UpstreamFailure,
} from "../../src/contracts/contract.ts";
import { FrameSet, frameSources } from "../../src/upstream/pictures/frames.ts";
import { guardedAgent } from "../../src/upstream/transport/guard.ts";
import type { CallOptions, UpstreamTarget } from "../../src/upstream/wire.ts";

const agent = guardedAgent({ allowPrivate: true });

/** A target at an address; everything else may be given. */
export const targetAt = (endpoint: string, more: Partial<UpstreamTarget> = {}): UpstreamTarget => ({
  offeringId: "off_1",
  model: "test/model",
  endpoint,
  auth: { type: "none", secret: "" },
  profile: undefined as WireProfile | undefined,
  actionDim: 2,
  dtMs: 100,
  ...more,
});

/** A call that nobody calls off, unless a signal is given. */
export const callWith = (signal: AbortSignal = new AbortController().signal): CallOptions => ({
  signal,
  requestId: "req_1",
  budgetMs: 10_000,
});

/** An observation of a mobile base, or what is given. */
export const observed = (init: MessageInitShape<typeof ObservationSchema> = { proprio: [1, 2, 3] }): Observation =>
  create(ObservationSchema, init);

const COMMON = {
  instruction: "go on",
  seed: undefined,
  temperature: undefined,
  sessionId: undefined,
};

/** An act of two steps, or what is given. */
export const actInput = (more: Partial<ActInput> = {}): ActInput => ({
  ...COMMON,
  observations: [observed()],
  actionSpace: "base_twist_2d",
  horizon: 2,
  returnPrediction: false,
  ...more,
});

/** A prediction of two frames, or what is given. */
export const predictInput = (more: Partial<PredictInput> = {}): PredictInput => ({
  ...COMMON,
  observations: [observed()],
  horizon: 2,
  actions: [],
  actionSpace: undefined,
  fps: undefined,
  resolution: undefined,
  ...more,
});

/** A ground call on this observation. */
export const groundInput = (observation: Observation, instruction: string): GroundInput => ({
  ...COMMON,
  observations: [observation],
  instruction,
});

/** The pictures of these observations. */
export const framesOf = (...observations: readonly Observation[]): FrameSet =>
  new FrameSet(frameSources(observations), { agent, allowPrivate: true });

/** The steps of an answer as plain rows. */
export const rowsOf = ({ steps }: ActAnswer): number[][] => steps.map(({ values }) => values);

/** The failure that a call ends in; fails when it doesn't. */
export async function failureIn(call: Promise<unknown>): Promise<UpstreamFailure> {
  const outcome = await call.then(
    () => "an answer",
    (error: unknown) => error,
  );
  if (outcome instanceof UpstreamFailure) return outcome;
  throw new Error("expected an UpstreamFailure", { cause: outcome });
}

/** The failure's name in the schema, such as `TIMEOUT`. */
export const nameOf = ({ failure }: UpstreamFailure): string => AttemptFailureSchema.value[failure]?.localName ?? "";
