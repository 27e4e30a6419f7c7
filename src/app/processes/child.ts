/** A process of several: its parent accepts the connections of all, and hands them over. */
import type { Socket } from "node:net";
import { AggregatorRegistry } from "prom-client";
import { every, inTime } from "../../clock.ts";
import type { Handed, MetricsPart, PortName, ProcessLoad, ToChild, ToParent } from "./messages.ts";

/** How often the parent hears of a process. Silence tells it that the process stands still. */
export const LOAD_MS = 250;
/** How long the metrics of the others are waited for. */
const MEASURE_MS = 3_000;

/** What a process does with what its parent says. */
export interface ChildWork {
  /** Serves a connection. */
  take(port: PortName, socket: Socket): void;
  /** What it carries. */
  load(): Omit<ProcessLoad, "received">;
  /** Its own metrics. */
  measure(): Promise<MetricsPart>;
  /** Drains, and ends the process. */
  drain(delayMs: number, patienceMs: number): void;
  /** There is no parent any more. */
  orphaned(): void;
}

/** The line to the parent. */
export class ParentLink {
  readonly handed: Handed;
  #work: Partial<ChildWork> = {};
  #received = 0;
  #asked = 0;
  readonly #waiting = new Map<number, (parts: readonly MetricsPart[]) => void>();

  constructor(handed: Handed) {
    this.handed = handed;
    process.on("message", (message, socket) => this.#hear(message as ToChild, socket as Socket | undefined));
    process.on("disconnect", () => {
      // Nothing is served yet.
      if (this.#work.orphaned === undefined) process.exit(1);
      this.#work.orphaned();
    });
    // The terminal and the service manager send them to all processes at once: the parent says when to end.
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, () => undefined);
    every(LOAD_MS, () => this.#tellLoad());
  }

  /** From now on messages do this; what was not given before stays as it was. */
  serve(work: Partial<ChildWork>): void {
    this.#work = { ...this.#work, ...work };
  }

  /** It takes connections. */
  listening(): void {
    this.#tell({ kind: "listening" });
  }

  /** Everything is open. */
  ready(lines: readonly string[]): void {
    this.#tell({ kind: "ready", lines });
  }

  /** It ends by itself, and takes no new connection. */
  leaving(): void {
    this.#tell({ kind: "leaving" });
  }

  /** The metrics of all processes as text. */
  async metrics(): Promise<string> {
    const id = ++this.#asked;
    const asked = new Promise<readonly MetricsPart[]>((resolve) => this.#waiting.set(id, resolve));
    this.#tell({ kind: "measure", id });
    const parts = await inTime(asked, {
      ms: MEASURE_MS,
      late: () => new Error("the parent process does not answer"),
    }).finally(() => this.#waiting.delete(id));
    return AggregatorRegistry.aggregate(parts as object[][] as object[]).metrics();
  }

  #tell(message: ToParent): void {
    // Without an error handler a parent that just died would end this process before its calls.
    if (process.connected) process.send?.(message, undefined, {}, () => undefined);
  }

  #tellLoad(): void {
    const load = this.#work.load?.() ?? { connections: 0, work: 0 };
    this.#tell({ kind: "load", received: this.#received, ...load });
  }

  #hear(message: ToChild, socket: Socket | undefined): void {
    if (message.kind === "connection") {
      this.#received += 1;
      // One that ended on its way comes as nothing.
      if (socket === undefined) return;
      if (this.#work.take === undefined) socket.destroy();
      else this.#work.take(message.port, socket);
    } else if (message.kind === "drain") this.#work.drain?.(message.delayMs, message.patienceMs);
    else if (message.kind === "measured") this.#waiting.get(message.id)?.(message.parts);
    else void this.#measure(message.id);
  }

  async #measure(id: number): Promise<void> {
    const part = (await this.#work.measure?.().catch(() => undefined)) ?? [];
    this.#tell({ kind: "measured", id, part });
  }
}

/** What a process was told at its start; undefined for one that stands alone. */
export function handedOf(args: readonly string[]): Handed | undefined {
  const text = args.find((arg) => arg.startsWith(FLAG))?.slice(FLAG.length);
  return text === undefined ? undefined : (JSON.parse(text) as Handed); // the parent wrote it
}

/** What a process is started with. */
export const handedArgument = (handed: Handed): string => `${FLAG}${JSON.stringify(handed)}`;

const FLAG = "--handed=";
