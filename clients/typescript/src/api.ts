/** What both entries of the package export. */
export * from "./client.ts";
export * from "./errors.ts";
export * from "./gen/reasons.ts";
export { type ObservationInit, observationOf, type Sensed } from "./observe.ts";
export * from "./refused.ts";
export type { CallOptions } from "./retry.ts";
