/** What every subsystem of a process is opened with. */
import type { Logger } from "pino";
import type { Config } from "../config.ts";

/** The process that subsystems are opened for. */
export interface AppContext {
  readonly config: Config;
  readonly log: Logger;
  /** Names this process among all. */
  readonly replica: string;
  /** A subsystem adds here what ends it; what was opened last closes first. */
  readonly closers: Closers;
  /** The other processes of this gateway; undefined for a process that serves alone. */
  readonly member: ClusterMember | undefined;
}

/** A process of several that serve together, and what it shares with the others. */
export interface ClusterMember {
  /** The value of the label `process` in its metrics. */
  readonly name: string;
  /** Addresses of the reference provider that another process started: the guard lets them pass. */
  readonly own: readonly string[];
  /** Sets what the others ask of this process. */
  serve(work: Partial<MemberWork>): void;
  /** Returns the metrics of all processes as text. */
  metrics(): Promise<string>;
  /** Returns why the processes together serve no calls; undefined while one does. */
  unready(): string | undefined;
  /** Returns what an operator should look at. */
  warnings(): string[];
}

/** What the others ask of a process. */
export interface MemberWork {
  /** Returns its own metrics, as `getMetricsAsJSON` gives them. */
  measure(): Promise<readonly object[]>;
  /** Returns the number of its open connections. */
  connections(): Promise<number>;
  /** Leaves new connections to the other processes. */
  refuseConnections(): void;
  /** Drains and ends the process. */
  drain(delayMs: number, patienceMs?: number): void;
}

/** What closes later closes first. */
export class Closers {
  readonly #all: (() => Promise<unknown>)[] = [];

  /** Notes what is to be done at the end. */
  add(close: () => Promise<unknown>): void {
    this.#all.unshift(close);
  }

  /** Does all of it, in turn. */
  async close(): Promise<void> {
    for (const close of this.#all.splice(0)) await close();
  }
}
