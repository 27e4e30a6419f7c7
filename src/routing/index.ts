/** Which offering serves, and in what order: the six stages of the specification, and the state that they read. */
export { ALIASES, type Alias, type Axis, standsFor, VARIANTS, type Variant } from "./aliases.ts";
export {
  type AttemptCalls,
  type Attempted,
  type AttemptedStream,
  type AttemptOptions,
  type AttemptStreams,
  type AttemptWorld,
  attemptPlan,
  attemptStream,
} from "./attempt.ts";
export { buildingSnapshot, buildSnapshot } from "./build.ts";
export type { Hearsay, Report, Uptime } from "./cell.ts";
export { explain } from "./explain.ts";
export { type ForcedState, HealthBoard, type OfferingHealth } from "./health.ts";
export type { HealthView } from "./health-view.ts";
export { HedgeBudgets, type Hedges } from "./hedge.ts";
export { contractOf, type KeyScope, type PlanArgs } from "./intent.ts";
export type { Deliver, Dispatch, Hold, LoopEffect, LoopEvent, Sighting } from "./loop/events.ts";
export { type LoopFigures, LoopGauge } from "./loop/gauge.ts";
export { Loop, type LoopRouter, type LoopRules } from "./loop/loop.ts";
export { Names, naming } from "./names.ts";
export { nearNames } from "./near.ts";
export type { CatalogModel, Offering } from "./offering.ts";
export { type OwnKeys, type OwnKeyUse, sameWay } from "./own-keys.ts";
export { PIN_SILENCE_MS, type Pin, PinBoard, pinOutcome } from "./pin.ts";
export { type Plan, type PlanStep, planFor } from "./plan.ts";
export { directRouteOf, type Outcome, routeOf, type Try } from "./record.ts";
export { BUCKETS } from "./sketch.ts";
export { SIMULATED_PROVIDER, type Snapshot, type Supply } from "./snapshot.ts";
export { sorting } from "./sorting.ts";
export { copyOf, since, type Tally } from "./tally.ts";
