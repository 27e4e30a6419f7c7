/** Armings and runs as callers see them. */
import { create, fromJson } from "@bufbuild/protobuf";
import { type SafetyBounds, SafetyBoundsSchema } from "../../../gen/limber/v1/action_pb.ts";
import { type Arming, ArmingSchema, type PolicyRun, PolicyRunSchema } from "../../../gen/limber/v1/arming_pb.ts";
import type { ArmingRecord, RunRecord } from "../../store/replicas/armings.ts";

const MICRO_PER_USD = 1_000_000;

/** Bounds as they were stored. */
export const boundsOf = (stored: object): SafetyBounds =>
  fromJson(SafetyBoundsSchema, stored as Parameters<typeof fromJson>[1]); // written by toJson

/** An arming. */
export function armingMessage({ bounds, ...arming }: ArmingRecord): Arming {
  const { id, robotId, keyId, clientId, models, maxSeconds, created, createdBy, ends, ended, endedWhy, stands } =
    arming;
  return create(ArmingSchema, {
    ...{ id, robotId, maxSeconds, created, createdBy, ends, stands },
    object: "robot_arming",
    models: [...models],
    ...(keyId !== undefined && { keyId }),
    ...(clientId !== undefined && { clientId }),
    ...(bounds !== undefined && { bounds: boundsOf(bounds) }),
    ...(ended !== undefined && { ended }),
    ...(endedWhy !== undefined && { endedWhy }),
  });
}

/** A run. */
export function runMessage(run: RunRecord): PolicyRun {
  const { id, robotId, armingId, keyId, model, instruction, maxSeconds, created, chunks, holds, costMicro } = run;
  const { started, ended, why } = run;
  return create(PolicyRunSchema, {
    ...{ id, robotId, armingId, keyId, model, instruction, maxSeconds, created, chunks, holds },
    object: "policy_run",
    costUsd: costMicro / MICRO_PER_USD,
    ...(started !== undefined && { started }),
    ...(ended !== undefined && { ended }),
    ...(why !== undefined && { why }),
  });
}
