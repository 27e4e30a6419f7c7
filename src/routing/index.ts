/**
 * Which offering serves, and in what order. Other folders import this index alone. Each of the five folders imports only those before it:
 * `snapshot/` the offerings, `health/` their measured health, `plan/` stages 1 to 4, from a request to a plan or a refusal, `attempt/`
 * stages 5 and 6, one execution of a plan and its record, `loop/` the executions of a control loop.
 */

export {
  type AttemptCalls,
  type Attempted,
  type AttemptedStream,
  type AttemptOptions,
  type AttemptStreams,
  type AttemptWorld,
  attemptPlan,
  attemptStream,
  notifyOwner,
} from "./attempt/attempt.ts";
export {
  directRouteOf,
  HedgeBudgets,
  type Hedges,
  type Outcome,
  owed,
  type PaidLoser,
  routeOf,
  type Try,
  type Wake,
} from "./attempt/record.ts";
export {
  type AttemptCounts,
  BUCKETS,
  bucketOf,
  copyOf,
  type Hearsay,
  quantileOf,
  type Report,
  since,
  type Uptime,
  type Verdict,
} from "./health/cell.ts";
export {
  type ForcedState,
  HealthTracker,
  type HealthView,
  type OfferingHealth,
  type TroubleListener,
} from "./health/health.ts";
export { LiveGauge, type LiveLoopFigures, type LoopFigures, LoopGauge } from "./loop/gauge.ts";
export { Loop, type LoopRouter, type LoopRules } from "./loop/loop.ts";
export type {
  DeliverEffect,
  DispatchEffect,
  HoldEffect,
  LoopEffect,
  LoopEvent,
  ObservationView,
} from "./loop/window.ts";
export {
  ALIASES,
  type Alias,
  type Axis,
  type CatalogModel,
  type Measured,
  type ModelVariant,
  type Offering,
  standsFor,
  VARIANTS,
} from "./offering.ts";
export {
  type AnsweredBy,
  type AvailableCredit,
  assertMayReplay,
  digestOf,
  explain,
  type PlanDigest,
} from "./plan/explain.ts";
export {
  contractOf,
  type KeyScope,
  nearNames,
  type OwnKeys,
  type OwnKeyUse,
  onlyActionSpace,
  type PlanArgs,
} from "./plan/intent.ts";
export { PIN_SILENCE_MS, type Pin, PinStore, pinOutcome } from "./plan/pin.ts";
export {
  affordable,
  type Plan,
  type PlanStep,
  planFor,
  sameWay,
  unaffordableOf,
} from "./plan/plan.ts";
export { buildingSnapshot, buildSnapshot, sorting } from "./snapshot/build.ts";
export { Names, naming, type RoutingSupply, SIMULATED_PROVIDER, type Snapshot } from "./snapshot/snapshot.ts";
