/** What is shown of a control loop that runs. */
import { create } from "@bufbuild/protobuf";
import type { HoldReason } from "../../../gen/limber/v1/control_loop_pb.ts";
import { LoopState, type RunningLoop, RunningLoopSchema } from "../../../gen/limber/v1/loop_pb.ts";
import type { KeyPrincipal } from "../../call.ts";
import type { LoopCounts } from "./loop-counts.ts";
import { wordOfHold } from "./loop-stretch.ts";

/** What does not change about a loop. */
export interface LoopFacts {
  readonly id: string;
  readonly key: Pick<KeyPrincipal, "orgId" | "keyId" | "workspaceId">;
  readonly robotId: string | undefined;
  /** As the caller calls it. */
  readonly sessionId: string | undefined;
  readonly modelRequested: string;
  readonly actionSpace: string;
  readonly deadlineMs: number;
  /** Unix seconds. */
  readonly since: number;
}

const STATES = { running: LoopState.RUNNING, holding: LoopState.HOLDING, waiting: LoopState.WAITING } as const;

/** The loop as it is at a moment of the steady clock, in milliseconds. */
export function runningLoopOf(
  { id, key, robotId, sessionId, modelRequested, actionSpace, deadlineMs, since }: LoopFacts,
  tally: LoopCounts,
  { at, dropped, episode }: { at: number; dropped: number; episode: number },
): RunningLoop {
  const { state, lastHold, rateHz, worstHz, askedHz, ageP50Ms, ageP99Ms } = tally.live.figures(at);
  const { chunks, effectiveHz } = tally.whole.figures;
  const { offering } = tally;
  const serving = offering && {
    model: offering.model,
    provider: offering.provider,
    offeringId: offering.id,
    precision: offering.precision,
    region: offering.region,
    ...(offering.dtMs > 0 && { dtMs: offering.dtMs }),
    ...(offering.revision !== undefined && { revision: offering.revision }),
  };
  return create(RunningLoopSchema, {
    id,
    object: "control_loop",
    orgId: key.orgId,
    keyId: key.keyId,
    modelRequested,
    actionSpace,
    deadlineMs,
    since,
    ...serving,
    ...(key.workspaceId !== undefined && { workspaceId: key.workspaceId }),
    ...(robotId !== undefined && { robotId }),
    ...(sessionId !== undefined && { sessionId }),
    state: STATES[state],
    ...(lastHold !== undefined && { lastHold }),
    rateHz,
    averageHz: rounded(effectiveHz),
    ...(worstHz !== undefined && { worstHz }),
    ...(askedHz !== undefined && { askedHz: rounded(askedHz) }),
    ...(ageP50Ms !== undefined && { ageP50Ms: rounded(ageP50Ms) }),
    ...(ageP99Ms !== undefined && { ageP99Ms: rounded(ageP99Ms) }),
    chunks,
    holds: holdsOf(tally.live.holds),
    failovers: tally.failovers,
    hedges: tally.hedges,
    droppedObservations: dropped,
    costUsd: tally.usage.costUsd,
    episode,
  });
}

function holdsOf(counts: readonly number[]): Record<string, number> {
  const holds: Record<string, number> = {};
  counts.forEach((count, reason) => {
    holds[wordOfHold(reason as HoldReason)] = count; // the gauge counts by the numbers of reasons
  });
  return holds;
}

const rounded = (figure: number): number => Math.round(figure * 1000) / 1000;
