/** The exports that both entry points share. */
export * from "./client.ts";
export * from "./errors.ts";
export * from "./gen/reasons.ts";
export { type ObservationInit, observationOf, type Sensed } from "./observe.ts";
export * from "./refused.ts";
export type { CallOptions } from "./retry.ts";
