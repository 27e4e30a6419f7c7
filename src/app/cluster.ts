/**
 * `LIMBER_PROCESSES`: several gateway processes on the same ports, through node:cluster. The primary process starts the workers and replaces
 * those that crash, hang or are to be renewed. It also runs what exists once: the embedded PostgreSQL, the reference provider and the
 * operations port. It serves no calls.
 */

import cluster, { type Worker } from "node:cluster";
import { fileURLToPath } from "node:url";
import type { Logger } from "pino";
import { AggregatorRegistry, Counter, Gauge, Registry } from "prom-client";
import { BRAND } from "../brand.ts";
import { after, every, everySpan, inTime, sleep, steadyNow } from "../clock.ts";
import type { Config } from "../config.ts";
import { missingFlags } from "./collector.ts";
import type { ClusterMember, MemberWork } from "./context.ts";

/** How often a worker reports to the primary. */
const REPORT_MS = 250;
/** A worker that reports nothing for this long is replaced; while it starts, it has longer. */
const HUNG_MS = 10_000;
const HUNG_AT_START_MS = 120_000;
/** The delay before a crashed worker is started again. It doubles until a worker lives for `forgotten`. */
const RESTART_MS = { first: 100, most: 30_000, forgotten: 60_000 };
/** A replaced worker serves at least this long what its callers send before they notice, even if the drain delay is shorter. */
const REPLACED_DELAY_MS = 1_000;
/** A draining worker is killed this long after its patience. */
const FORCE_MS = 15_000;
/** How long the metrics of a worker are awaited; a hung worker has none. */
const MEASURE_MS = 2_000;

const MAIN = fileURLToPath(new URL("../main.ts", import.meta.url));

/** What a worker receives at its start, beside its environment. */
interface WorkerStart {
  /** Its place among the others. */
  readonly index: number;
  readonly own: readonly string[];
}

/** What a worker shows an operator once it is ready. */
interface ReadyWorker {
  /** Undefined if it serves no calls. */
  readonly url: string | undefined;
  readonly lines: readonly string[];
}

/** Messages of the primary. */
type ToWorker =
  | { readonly kind: "drain"; readonly delayMs: number; readonly patienceMs: number; readonly isReplaced: boolean }
  | { readonly kind: "measure"; readonly id: number }
  /** The metrics of all processes; undefined if they could not be gathered. */
  | { readonly kind: "metrics"; readonly id: number; readonly text: string | undefined };

/** Messages of a worker. */
type ToPrimary =
  | { readonly kind: "report"; readonly connections: number }
  | { readonly kind: "ready"; readonly ready: ReadyWorker }
  /** It ends by itself, after an unhandled error. */
  | { readonly kind: "leaving" }
  | { readonly kind: "measured"; readonly id: number; readonly part: readonly object[] }
  /** Requests the metrics of all processes. */
  | { readonly kind: "scrape"; readonly id: number };

const FLAG = "--process=";

/** Requests to another process that await their answer. */
class Pending<T> {
  readonly #waiting = new Map<number, (answer: T) => void>();
  #last = 0;

  /** Sends a request with a new id; rejects if no answer arrives in time. */
  async ask(ms: number, send: (id: number) => void): Promise<T> {
    const id = ++this.#last;
    const answer = new Promise<T>((resolve) => this.#waiting.set(id, resolve));
    send(id);
    try {
      return await inTime(answer, { ms, late: () => new Error("the other process did not respond in time") });
    } finally {
      this.#waiting.delete(id);
    }
  }

  answer(id: number, answer: T): void {
    this.#waiting.get(id)?.(answer);
  }
}

/** Returns a worker's link to the primary; undefined in a process that is not a worker. */
export function workerLink(args: readonly string[] = process.argv): WorkerLink | undefined {
  const text = args.find((arg) => arg.startsWith(FLAG))?.slice(FLAG.length);
  if (text === undefined || !cluster.isWorker) return undefined;
  return new WorkerLink(JSON.parse(text) as WorkerStart); // the primary wrote it
}

/** A worker's link to the primary. */
export class WorkerLink implements ClusterMember {
  readonly name: string;
  readonly own: readonly string[];
  readonly #scrapes = new Pending<string | undefined>();
  #work: Partial<MemberWork> = {};

  constructor({ index, own }: WorkerStart) {
    this.name = `${index}`;
    this.own = own;
    process.on("message", (message) => void this.#receive(message as ToWorker));
    // Otherwise node:cluster exits at once when the primary is gone, with calls under way.
    if (cluster.worker) cluster.worker.exitedAfterDisconnect = true;
    process.on("disconnect", () => {
      if (this.#work.drain === undefined) process.exit(1);
      this.#work.drain(0);
    });
    // A terminal sends these to all processes at once; the primary decides when a worker ends.
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, () => undefined);
    every(REPORT_MS, () => void this.#report());
  }

  serve(work: Partial<MemberWork>): void {
    this.#work = { ...this.#work, ...work };
  }

  /** Reports that everything is open. */
  ready(ready: ReadyWorker): void {
    this.#send({ kind: "ready", ready });
  }

  /** Reports that this process ends by itself; it accepts no new connection. */
  leaving(): void {
    this.#work.refuseConnections?.();
    this.#send({ kind: "leaving" });
  }

  async metrics(): Promise<string> {
    const text = await this.#scrapes.ask(2 * MEASURE_MS, (id) => this.#send({ kind: "scrape", id }));
    if (text === undefined) throw new Error("the metrics of all processes could not be collected");
    return text;
  }

  unready(): undefined {
    return undefined;
  }

  warnings(): string[] {
    return [];
  }

  #send(message: ToPrimary): void {
    // The callback keeps the error of a primary that has just died from ending this process before its calls.
    if (process.connected) process.send?.(message, undefined, {}, () => undefined);
  }

  async #report(): Promise<void> {
    this.#send({ kind: "report", connections: (await this.#work.connections?.()) ?? 0 });
  }

  async #receive(message: ToWorker): Promise<void> {
    if (message.kind === "drain") {
      if (message.isReplaced) this.#work.refuseConnections?.();
      this.#work.drain?.(message.delayMs, message.patienceMs);
    } else if (message.kind === "metrics") this.#scrapes.answer(message.id, message.text);
    else {
      const part = (await this.#work.measure?.().catch(() => undefined)) ?? [];
      this.#send({ kind: "measured", id: message.id, part });
    }
  }
}

/** One worker, as the primary knows it. */
class Child {
  readonly index: number;
  readonly worker: Worker;
  readonly startedAt = steadyNow();
  readonly measures = new Pending<readonly object[]>();
  readonly ready: Promise<ReadyWorker>;
  readonly ended: Promise<number | string>;
  /** The delay before the next one is started in its place, unless it lives long. */
  readonly backOffMs: number;
  isReady = false;
  /** It accepts no new connection, and ends. */
  isLeaving = false;
  fate: "crashed" | "hung" = "crashed";
  silentMs = 0;
  connections = 0;

  constructor(index: number, worker: Worker, backOffMs: number, receive: (from: Child, message: ToPrimary) => void) {
    this.index = index;
    this.worker = worker;
    this.backOffMs = backOffMs;
    const { promise, resolve, reject } = Promise.withResolvers<ReadyWorker>();
    this.ready = promise;
    this.ready.catch(() => undefined);
    this.ended = new Promise((ended) =>
      worker.once("exit", (code, signal) => {
        reject(new Error("the process exited before it was ready"));
        ended(signal ?? code);
      }),
    );
    // A broken channel shows as the end of the process.
    worker.on("error", () => undefined);
    worker.on("message", (message: ToPrimary) => {
      this.silentMs = 0;
      if (message.kind === "report") this.connections = message.connections;
      else if (message.kind === "measured") this.measures.answer(message.id, message.part);
      else if (message.kind === "ready") {
        this.isReady = true;
        resolve(message.ready);
      } else receive(this, message);
    });
  }

  send(message: ToWorker): void {
    if (this.worker.isConnected()) this.worker.process.send(message, () => undefined);
  }

  kill(): void {
    this.worker.process.kill("SIGKILL");
  }

  /** Returns its metrics; nothing if it does not answer in time. */
  measure(): Promise<readonly object[]> {
    return this.measures.ask(MEASURE_MS, (id) => this.send({ kind: "measure", id })).catch(() => []);
  }
}

/** How the primary runs its workers. */
interface PrimaryRun {
  /** What workers get in place of what this process has in its environment. */
  readonly env: Readonly<Record<string, string>>;
  /** As in ClusterMember. */
  readonly own: readonly string[];
  /** Called once every worker is ready. */
  ready(first: ReadyWorker): void;
  /** Called when the drain of all begins. */
  ending(): void;
  /** Called at SIGHUP, before workers are replaced. */
  renew(): void;
}

/** The primary process. */
export class Primary implements ClusterMember {
  readonly name = "primary";
  readonly own = [];
  readonly #config: Config;
  readonly #log: Logger;
  readonly #count: number;
  readonly #children = new Set<Child>();
  readonly #exitCode = Promise.withResolvers<number>();
  readonly #registry = new Registry();
  readonly #restarts: Counter;
  #work: Partial<MemberWork> = {};
  #run: PrimaryRun | undefined;
  /** One worker was ready: from now on what ends is started again. */
  #hasBegun = false;
  #isEnding = false;
  #reloading: Promise<void> | undefined;
  #reloadAgain = false;

  constructor(config: Config, log: Logger) {
    this.#config = config;
    this.#log = log;
    this.#count = config.processes;
    const registers = [this.#registry];
    const named = (name: string): string => `${BRAND}_${name}`;
    this.#restarts = new Counter({
      name: named("process_restarts_total"),
      help: "Processes that were started again, by why.",
      labelNames: ["reason"],
      registers,
    });
    for (const reason of ["crashed", "hung", "replaced"]) this.#restarts.inc({ reason }, 0);
    const children = this.#children;
    const ready = (): number => this.#ready;
    new Gauge({
      name: named("processes"),
      help: "Processes that serve calls, by whether they are ready.",
      labelNames: ["state"],
      registers,
      collect() {
        this.set({ state: "ready" }, ready());
        this.set({ state: "other" }, children.size - ready());
      },
    });
    new Gauge({
      name: named("process_connections"),
      help: "Connections that a process has.",
      labelNames: ["process"],
      registers,
      collect() {
        this.reset();
        for (const { index, connections, isLeaving } of children)
          if (!isLeaving) this.set({ process: `${index}` }, connections);
      },
    });
  }

  serve(work: Partial<MemberWork>): void {
    this.#work = { ...this.#work, ...work };
  }

  /**
   * AggregatorRegistry adds the parts together, but does not gather them: its own `clusterMetrics` fails while one worker hangs.
   */
  async metrics(): Promise<string> {
    const parts = await Promise.all([
      this.#registry.getMetricsAsJSON(),
      this.#work.measure?.() ?? [],
      ...[...this.#children].map((child) => child.measure()),
    ]);
    return AggregatorRegistry.aggregate(parts as object[]).metrics();
  }

  unready(): string | undefined {
    if (this.#isEnding) return "the gateway is shutting down";
    return this.#ready === 0 ? "no process is ready yet" : undefined;
  }

  warnings(): string[] {
    return this.#ready < this.#count ? [`${this.#ready} of ${this.#count} processes serve calls`] : [];
  }

  get #ready(): number {
    return [...this.#children].filter(({ isReady, isLeaving }) => isReady && !isLeaving).length;
  }

  /** Starts the workers; resolves with the exit code once all have ended. */
  async run(run: PrimaryRun): Promise<number> {
    this.#run = run;
    cluster.schedulingPolicy = cluster.SCHED_RR;
    process.on("SIGTERM", () => this.end(this.#config.drainDelayMs));
    process.on("SIGINT", () => this.end(0));
    process.on("SIGHUP", () => {
      run.renew();
      this.#reload();
    });
    const stop = everySpan(REPORT_MS, (spanMs) => this.#look(spanMs));
    try {
      // The first starts alone, so that an error in the settings or the database is reported once.
      const first = this.#start(0);
      const ready = await first.ready.catch(() => undefined);
      if (ready === undefined && !this.#isEnding) {
        const how = await first.ended;
        return typeof how === "number" ? how : 1;
      }
      this.#hasBegun = true;
      const others = Array.from({ length: this.#isEnding ? 0 : this.#count - 1 }, (_, i) => this.#start(i + 1));
      await Promise.allSettled(others.map((child) => child.ready));
      if (!this.#isEnding && ready !== undefined) run.ready(ready);
      return await this.#exitCode.promise;
    } finally {
      stop();
      for (const child of this.#children) child.kill();
    }
  }

  /** Drains all workers, and ends. The second call ends them at once. */
  end(delayMs: number): void {
    if (this.#isEnding) {
      for (const child of this.#children) child.kill();
      this.#exitCode.resolve(1);
      return;
    }
    this.#isEnding = true;
    this.#run?.ending();
    // They accept connections until the delay has passed: a load balancer may still send some.
    for (const child of this.#children) this.#drain(child, delayMs);
    if (this.#children.size === 0) this.#exitCode.resolve(0);
  }

  #start(index: number, backOffMs: number = RESTART_MS.first): Child {
    const { env = {}, own = [] } = this.#run ?? {};
    const start: WorkerStart = { index, own };
    cluster.setupPrimary({
      exec: MAIN,
      args: [`${FLAG}${JSON.stringify(start)}`],
      execArgv: [...missingFlags(process.execArgv), ...process.execArgv],
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    // ZeroMQ's clients find one server at their port.
    const worker = cluster.fork({ ...env, ...(index > 0 && { LIMBER_GR00T_PORT: "" }) });
    const child = new Child(index, worker, backOffMs, (from, message) => void this.#receive(from, message));
    this.#children.add(child);
    void child.ended.then((how) => this.#ended(child, how));
    return child;
  }

  #ended(child: Child, how: number | string): void {
    this.#children.delete(child);
    if (this.#isEnding && this.#children.size === 0) this.#exitCode.resolve(0);
    if (this.#hasBegun && !child.isLeaving && !this.#isEnding) void this.#restart(child, how);
  }

  /** Starts a worker in the place of one that crashed or hung; waits longer the sooner the last ones ended. */
  async #restart({ index, fate, startedAt, backOffMs, worker }: Child, how: number | string): Promise<void> {
    const livedMs = steadyNow() - startedAt;
    const waitMs = livedMs > RESTART_MS.forgotten ? RESTART_MS.first : backOffMs;
    this.#restarts.inc({ reason: fate });
    const about = { process: index, pid: worker.process.pid, how, livedMs: Math.round(livedMs), waitMs };
    this.#log.error(about, `process ${fate}`);
    await sleep(waitMs);
    const isThere = [...this.#children].some((other) => other.index === index && !other.isLeaving);
    if (!this.#isEnding && !isThere) this.#start(index, Math.min(waitMs * 2, RESTART_MS.most));
  }

  async #receive(from: Child, message: ToPrimary): Promise<void> {
    if (message.kind === "leaving" && !from.isLeaving) {
      from.isLeaving = true;
      await this.#restart(from, "leaving");
    } else if (message.kind === "scrape") {
      const text = await this.metrics().catch(() => undefined);
      from.send({ kind: "metrics", id: message.id, text });
    }
  }

  /** Kills workers that hang. */
  #look(spanMs: number): void {
    for (const child of this.#children) {
      child.silentMs += spanMs;
      if (child.silentMs < (child.isReady ? HUNG_MS : HUNG_AT_START_MS)) continue;
      child.fate = "hung";
      this.#log.error({ process: child.index, pid: child.worker.process.pid }, "killing a process that hangs");
      child.kill();
      child.silentMs = 0;
    }
  }

  #drain(child: Child, delayMs: number, isReplaced = false): void {
    const { drainMs } = this.#config;
    child.send({ kind: "drain", delayMs, patienceMs: drainMs, isReplaced });
    const forget = after(delayMs + drainMs + FORCE_MS, () => child.kill());
    void child.ended.then(forget);
  }

  #reload(): void {
    this.#reloadAgain = this.#reloading !== undefined;
    this.#reloading ??= this.#replaceAll().finally(() => {
      this.#reloading = undefined;
      if (this.#reloadAgain) this.#reload();
    });
  }

  /** Replaces the workers one after the other, each by one that is ready. If one does not start, the others stay as they are. */
  async #replaceAll(): Promise<void> {
    for (let index = 0; index < this.#count && !this.#isEnding; index++) {
      const old = [...this.#children].find((child) => child.index === index && !child.isLeaving);
      if (old === undefined) continue; // it crashed, and is started again anyway
      const next = this.#start(index);
      const isReady = await next.ready.then(
        () => true,
        () => false,
      );
      if (!isReady) {
        this.#log.error({ process: index }, "the new process did not start; the running processes are kept");
        return;
      }
      this.#restarts.inc({ reason: "replaced" });
      old.isLeaving = true;
      this.#drain(old, Math.max(this.#config.drainDelayMs, REPLACED_DELAY_MS), true);
      await old.ended;
      this.#log.info({ process: index, pid: next.worker.process.pid }, "process replaced");
    }
  }
}
