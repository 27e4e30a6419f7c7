/** The context with which every subsystem of a process is opened. */
import type { Logger } from "pino";
import type { Config } from "../config.ts";

/** The process that subsystems are opened for. */
export interface AppContext {
  readonly config: Config;
  readonly log: Logger;
  /** The unique name of this process. */
  readonly replica: string;
  /** Subsystems add their cleanup functions here; they run in reverse order. */
  readonly closers: Closers;
  /** The other processes of this gateway; undefined for a process that serves alone. */
  readonly member: ClusterMember | undefined;
}

/** A process of several that serve together, and what it shares with the others. */
export interface ClusterMember {
  /** The value of the label `process` in its metrics. */
  readonly name: string;
  /** Addresses of the reference provider in another process, which the outbound guard allows. */
  readonly own: readonly string[];
  /** Sets the handlers for the primary's requests. */
  serve(work: Partial<MemberWork>): void;
  /** Returns the metrics of all processes as text. */
  metrics(): Promise<string>;
  /** Returns why the processes together serve no calls; undefined while one does. */
  unready(): string | undefined;
  /** Returns warnings for the operator. */
  warnings(): string[];
}

/** The handlers of a process for the primary's requests. */
export interface MemberWork {
  /** Returns its own metrics, as `getMetricsAsJSON` gives them. */
  measure(): Promise<readonly object[]>;
  /** Returns the number of its open connections. */
  connections(): Promise<number>;
  /** Stops accepting connections, so that other processes get them. */
  refuseConnections(): void;
  /** Drains and ends the process. */
  drain(delayMs: number, patienceMs?: number): void;
}

/** Cleanup functions that run in reverse order. */
export class Closers {
  readonly #all: (() => Promise<unknown>)[] = [];

  /** Adds a cleanup function. */
  add(close: () => Promise<unknown>): void {
    this.#all.unshift(close);
  }

  /** Runs all cleanup functions, one after the other. */
  async close(): Promise<void> {
    for (const close of this.#all.splice(0)) await close();
  }
}
