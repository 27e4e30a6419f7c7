/** What the parent and the processes that it supervises tell each other. */

/** The ports of a gateway. */
export type PortName = "calls" | "operations" | "gr00t";

/** What a process is told at its start. */
export interface Handed {
  /** Its place among the others. */
  readonly index: number;
  /** The ports on which the parent listens for it; a process of one role may have none for calls. */
  readonly ports: Readonly<Partial<Record<PortName, number>>>;
}

/** Metrics as `getMetricsAsJSON` gives them. */
export type MetricsPart = readonly object[];

/** What the parent says. A connection comes with its socket. */
export type ToChild =
  | { readonly kind: "connection"; readonly port: PortName }
  | { readonly kind: "drain"; readonly delayMs: number; readonly patienceMs: number }
  | { readonly kind: "measure"; readonly id: number }
  | { readonly kind: "measured"; readonly id: number; readonly parts: readonly MetricsPart[] };

/** What a process says. */
export type ToParent =
  /** It takes connections. */
  | { readonly kind: "listening" }
  /** Everything is open; the lines are those that an operator is shown. */
  | { readonly kind: "ready"; readonly lines: readonly string[] }
  /** It ends by itself, after an error that nobody heard. */
  | { readonly kind: "leaving" }
  | ({ readonly kind: "load" } & ProcessLoad)
  | { readonly kind: "measured"; readonly id: number; readonly part: MetricsPart }
  /** Wants the metrics of all. */
  | { readonly kind: "measure"; readonly id: number };

/** How much a process carries. */
export interface ProcessLoad {
  /** How many connections it was handed in all. */
  readonly received: number;
  /** How many of them are open, and how many loops and calls run on them. */
  readonly connections: number;
  readonly work: number;
}
