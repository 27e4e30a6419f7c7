/** The messages to a robot, by the schema. */
import { create } from "@bufbuild/protobuf";
import {
  type HoldReason,
  type LoopChunk,
  LoopEndedSchema,
  type LoopHold,
  type LoopOpened,
  LoopOpenedSchema,
} from "../../../gen/limber/v1/control_loop_pb.ts";
import { ActUsageSchema } from "../../../gen/limber/v1/inference_pb.ts";
import type { ActStreamResponse } from "../../../gen/limber/v1/inference_service_pb.ts";
import type { InputContract } from "../../../gen/limber/v1/input_contract_pb.ts";
import type { Route } from "../../../gen/limber/v1/route_pb.ts";
import { toUsd } from "../../billing/price.ts";
import { nowSeconds } from "../../clock.ts";
import { meaningIn } from "../../contracts/action-meaning.ts";
import { factsOf, type Refusal } from "../../errors.ts";
import { type DeliverEffect, type HoldEffect, type PlanStep, routeOf } from "../../routing/index.ts";
import type { Charge } from "../call-billing.ts";
import { SentAction } from "../sent-action.ts";
import type { LoopCounts } from "./loop-counts.ts";
import type { ParsedObservation } from "./observation-view.ts";
import { SentChunk } from "./sent-chunk.ts";

/** One member of what a stream says. */
export type LoopMessage = Exclude<ActStreamResponse["event"], { case: undefined }>;

/** Milliseconds, to the microsecond. */
const rounded = (ms: number): number => Math.round(ms * 1000) / 1000;

/** The first message: the offering, the rhythm, the price, and the point from which the session is resumed. */
export function openedOf({
  id,
  step,
  units,
  deadlineMs,
  resumed,
  last,
  episode,
  space,
  input,
}: {
  id: string;
  step: PlanStep;
  units: number;
  deadlineMs: number;
  resumed: boolean;
  last: LoopChunk | undefined;
  episode: number;
  space: string;
  input: InputContract | undefined;
}): LoopOpened {
  const { declared } = step.offering;
  return create(LoopOpenedSchema, {
    id,
    created: nowSeconds(),
    route: routeOf({ tries: [], step, hedgeMicro: undefined }),
    dtMs: step.offering.dtMs,
    horizon: units,
    deadlineMs: Math.round(deadlineMs),
    chunkCostUsd: toUsd(step.listMicro),
    resumed,
    episode,
    ...(last && { resumedStep: last.startStep }),
    input,
    actions: declared && meaningIn(declared.actions, space),
  });
}

/** A chunk that leaves at `at`. `name` is what the names of all chunks of its stream begin with. Written out, because a loop makes thousands a second. */
export function chunkOf(
  effect: DeliverEffect<ParsedObservation>,
  { units, costMicro, hedgeMicro = 0 }: Charge,
  {
    at,
    name,
    space,
    route,
    episode,
  }: { at: number; name: Uint8Array; space: string; route: Route | undefined; episode: number },
): LoopChunk {
  const { view, answer, step } = effect;
  return new SentChunk(name, {
    action: new SentAction(space, answer, answer.dtMs || step.offering.dtMs),
    startStep: view.step,
    validUntilStep: effect.validUntil,
    observationAgeMs: rounded(effect.ageMs + at - effect.at),
    episodeBreak: effect.episodeBreak,
    usage: {
      $typeName: "limber.v1.ActUsage",
      actionSteps: units,
      gpuSeconds: answer.gpuSeconds,
      costUsd: toUsd(costMicro + hedgeMicro),
    },
    droppedObservations: effect.dropped,
    observationTime: view.tMs,
    route,
    episode,
  });
}

/** The same chunk with steps of its own: packed ones hold on to all that came with them, other loops' chunks too. */
export function ownOf(chunk: LoopChunk): LoopChunk {
  const { action, chunkId } = chunk;
  if (!(action instanceof SentAction)) return chunk;
  const { $typeName, space, steps, dtMs, note } = action;
  return { ...chunk, chunkId, action: { $typeName, space, steps, dtMs, note } };
}

/** A chunk that was charged on an earlier stream, given again. */
export const replayOf = (chunk: LoopChunk, ageMs: number, dropped: number): LoopChunk => ({
  ...chunk,
  chunkId: chunk.chunkId,
  observationAgeMs: rounded(ageMs),
  usage: create(ActUsageSchema, { actionSteps: 0 }),
  droppedObservations: dropped,
  replayed: true,
});

/** A hold that leaves at `at`. */
export const holdOf = (hold: HoldEffect, at: number, episode: number): LoopHold => ({
  $typeName: "limber.v1.LoopHold",
  step: hold.step,
  reason: hold.reason,
  observationAgeMs: rounded(hold.ageMs + at - hold.at),
  detail: hold.detail,
  droppedObservations: hold.dropped,
  episode,
  ...(hold.tries.length > 0 && { route: routeOf({ tries: hold.tries, step: undefined, hedgeMicro: undefined }) }),
});

/** An answer that came and may not leave, `waitedMs` after it came. */
export const heldBack = (
  effect: DeliverEffect<ParsedObservation>,
  reason: HoldReason,
  waitedMs: number,
): HoldEffect => ({
  kind: "hold",
  at: effect.at + waitedMs,
  step: effect.view.step,
  reason,
  ageMs: effect.ageMs + waitedMs,
  detail: "",
  tries: effect.tries,
  dropped: effect.dropped,
});

/** The last words. */
export function endedOf(refusal: Refusal | undefined, tally: LoopCounts, dropped: number): ActStreamResponse {
  const code = refusal === undefined ? "" : factsOf(refusal.reason).code;
  const { chunks, holds, effectiveHz, staleRatio, jitterMs } = tally.whole.figures;
  const { usage } = tally;
  const told = { code, chunks, holds, droppedObservations: dropped, usage, effectiveHz, staleRatio, jitterMs };
  return {
    $typeName: "limber.v1.ActStreamResponse",
    event: { case: "ended", value: create(LoopEndedSchema, told) },
  };
}
