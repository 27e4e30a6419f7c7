/**
 * Which offering serves, and in what order. Other folders import this index alone. Each of the five folders imports only those before it:
 * `snapshot/` the offerings, `health/` their measured health, `plan/` stages 1 to 4, from a request to a plan or a refusal, `attempt/`
 * stages 5 and 6, one execution of a plan and its record, `loop/` the executions of a control loop.
 */
export { ALIASES, type Alias, type Axis, type ModelVariant, standsFor, VARIANTS } from "./aliases.ts";
export {
  type AttemptCalls,
  type Attempted,
  type AttemptedStream,
  type AttemptOptions,
  type AttemptStreams,
  type AttemptWorld,
  attemptPlan,
  attemptStream,
} from "./attempt/attempt.ts";
export { HedgeBudgets, type Hedges } from "./attempt/hedge.ts";
export { directRouteOf, type Outcome, type PaidLoser, routeOf, type Try } from "./attempt/record.ts";
export { tellOwner } from "./attempt/run.ts";
export { owed, type Wake } from "./attempt/wake.ts";
export type { Hearsay, Report, Uptime, Verdict } from "./health/cell.ts";
export { type ForcedState, HealthBoard, type OfferingHealth, type TroubleListener } from "./health/health.ts";
export type { HealthView } from "./health/health-view.ts";
export { BUCKETS, quantileOf } from "./health/sketch.ts";
export { type AttemptCounts, copyOf, since } from "./health/tally.ts";
export type {
  DeliverEffect,
  DispatchEffect,
  HoldEffect,
  LoopEffect,
  LoopEvent,
  ObservationView,
} from "./loop/events.ts";
export { type LoopFigures, LoopGauge } from "./loop/gauge.ts";
export { LiveGauge, type LiveLoopFigures } from "./loop/live-gauge.ts";
export { Loop, type LoopRouter, type LoopRules } from "./loop/loop.ts";
export type { CatalogModel, Offering } from "./offering.ts";
export { digestOf, type PlanDigest } from "./plan/digest.ts";
export { unaffordableOf } from "./plan/drops.ts";
export { explain, type Purse } from "./plan/explain.ts";
export { contractOf, type KeyScope, type PlanArgs } from "./plan/intent.ts";
export { nearNames } from "./plan/near.ts";
export { type OwnKeys, type OwnKeyUse, sameWay } from "./plan/own-keys.ts";
export { PIN_SILENCE_MS, type Pin, PinStore, pinOutcome } from "./plan/pin.ts";
export { affordable, type Plan, type PlanStep, planFor } from "./plan/plan.ts";
export { type AnsweredBy, assertMayReplay } from "./plan/replay.ts";
export { buildingSnapshot, buildSnapshot } from "./snapshot/build.ts";
export { Names, naming } from "./snapshot/names.ts";
export { type RoutingSupply, SIMULATED_PROVIDER, type Snapshot } from "./snapshot/snapshot.ts";
export { sorting } from "./snapshot/sorting.ts";
