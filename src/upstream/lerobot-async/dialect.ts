/** What LeRobot's messages hold, whichever way they are written. */
import type { ActAnswer } from "../../contracts/contract.ts";
import type { Table } from "../payload/chunk.ts";
import type { ObservationPart } from "../payload/observe.ts";
import type { Constant, Profile } from "../payload/profile.ts";
import { malformed } from "../transport/failures.ts";

/** A way to write messages. */
export interface LerobotDialect {
  /** The policy that the offering names, and what it will be shown. */
  writeSetup(profile: Profile): Buffer;
  /** One observation that the server has to look at; `timestamp` in Unix seconds. Throws an UpstreamFailure for files in a picture's place. */
  writeObservation(parts: readonly ObservationPart[], task: string, timestep: number, timestamp: number): Buffer;
  /** The first `horizon` rows of a chunk. Throws an UpstreamFailure for anything else, and for steps that don't go on from `timestep`. */
  readChunk(bytes: Buffer, timestep: number, horizon: number): ActAnswer;
}

/** Steps of a chunk, and numbers of a step. */
export const MAX_STEPS = 1_024;
export const MAX_DIM = 1_024;

/** What the server shall load, as an offering's constants have it. */
export function loadedBy(constants: readonly Constant[]): {
  policyType: string | number;
  path: string | number;
  actionsPerChunk: string | number;
  device: string | number;
} {
  const constant = new Map(constants.map(({ key, value }) => [key, value]));
  return {
    policyType: constant.get("policy_type") ?? "",
    path: constant.get("pretrained_name_or_path") ?? "",
    actionsPerChunk: constant.get("actions_per_chunk") ?? 50,
    device: constant.get("device") ?? "cuda",
  };
}

/** Milliseconds between the first two steps, by their timestamps in seconds; 0 where there is one step, or no time. */
export const intervalOf = ([first, second]: readonly unknown[]): number =>
  typeof first === "number" && typeof second === "number" ? Math.round(1_000 * (second - first)) : 0;

/** Rows under each other. Throws an UpstreamFailure where they differ in length. */
export function tableOf(rows: readonly Float64Array[]): Table {
  const columns = rows[0]?.length ?? 0;
  if (rows.some(({ length }) => length !== columns)) throw malformed("the rows differ in length");
  const values = new Float64Array(rows.length * columns);
  for (const [i, row] of rows.entries()) values.set(row, i * columns);
  return { rows: rows.length, columns, values };
}
