/**
 * `LIMBER_PROCESSES`: several gateway processes on one port, each a replica. The parent accepts connections, hands each to the process that
 * carries least, and replaces processes that crash, hang, or are to begin anew. It runs no calls itself.
 */
import { type ChildProcess, fork } from "node:child_process";
import { createServer, type Server, type Socket } from "node:net";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import type { Logger } from "pino";
import { Counter, Gauge, Registry } from "prom-client";
import { BRAND } from "../../brand.ts";
import { after, everySpan, sleep, steadyNow } from "../../clock.ts";
import type { Config } from "../../config.ts";
import { missingFlags } from "../../fast/collector.ts";
import { naming } from "../listening.ts";
import { handedArgument, LOAD_MS } from "./child.ts";
import type { MetricsPart, PortName, ProcessLoad, ToChild, ToParent } from "./messages.ts";
import { type Candidate, place } from "./placement.ts";

/** A process that turns its event loop this long not once is replaced, in milliseconds; while it starts it has longer. */
const HUNG_MS = 10_000;
const HUNG_AT_START_MS = 120_000;
/** How long to wait before a process that crashed is started again: twice as long each time, until one lives for a while. */
const RESTART_MS = { first: 100, most: 30_000, forgotten: 60_000 };
/** A replaced process serves what its callers send before they know, however short the drain's delay is. */
const REPLACED_DELAY_MS = 1_000;
/** What ends by itself has so much longer than its patience until it is ended by force. */
const FORCE_MS = 15_000;
/** How long metrics are waited for: a process that stands still has none. */
const MEASURE_MS = 2_000;
/** Connections that may wait for the first process. */
const MOST_WAITING = 1_000;

const MAIN = fileURLToPath(new URL("../../main.ts", import.meta.url));

/** How a supervised gateway is started. */
export interface SupervisorOptions {
  readonly config: Config;
  readonly log: Logger;
  /** Gets what an operator is shown once every process is ready. */
  readonly print: (lines: string) => void;
  /** Called when the drain of all begins. */
  readonly ending: () => void;
}

/** Why a process is started again. */
type Fate = "crashed" | "hung";

/** One process. */
class Child implements Candidate {
  readonly index: number;
  readonly process: ChildProcess;
  readonly startedAt = steadyNow();
  readonly ready: Promise<readonly string[]>;
  readonly ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  isListening = false;
  isReady = false;
  /** It takes no new connection, and ends. */
  isLeaving = false;
  fate: Fate = "crashed";
  silentMs = 0;
  /** How long to wait before the next one is started in its place, should it not live long. */
  readonly backOffMs: number;
  #sent = 0;
  #load: ProcessLoad = { received: 0, connections: 0, work: 0 };
  /** How many connections it had received when it told of its load the time before. */
  #receivedBefore = 0;

  constructor(index: number, child: ChildProcess, backOffMs: number, hear: (from: Child, message: ToParent) => void) {
    this.index = index;
    this.backOffMs = backOffMs;
    this.process = child;
    const { promise, resolve, reject } = Promise.withResolvers<readonly string[]>();
    this.ready = promise;
    this.ready.catch(() => undefined);
    this.ended = new Promise((ended) =>
      child.once("exit", (code, signal) => {
        reject(new Error("it ended before it was ready"));
        ended({ code, signal });
      }),
    );
    // A channel that broke is told of by the end of the process.
    child.on("error", () => undefined);
    child.on("message", (message: ToParent) => {
      this.silentMs = 0;
      if (message.kind === "listening") this.isListening = true;
      if (message.kind === "load") {
        this.#receivedBefore = this.#load.received;
        this.#load = message;
      }
      if (message.kind === "ready") {
        this.isReady = true;
        resolve(message.lines);
      }
      hear(this, message);
    });
  }

  get connections(): number {
    return this.#load.connections + this.#sent - this.#load.received;
  }

  get fresh(): number {
    return this.#sent - this.#receivedBefore;
  }

  get work(): number {
    return this.#load.work;
  }

  get takes(): boolean {
    return this.isListening && !this.isLeaving && this.process.connected;
  }

  give(port: PortName, socket: Socket): void {
    this.#sent += 1;
    const message: ToChild = { kind: "connection", port };
    // Of a process that dies the connection dies with it, as those that it had.
    this.process.send(message, socket, { keepOpen: false }, () => undefined);
  }

  tell(message: ToChild): void {
    if (this.process.connected) this.process.send(message, () => undefined);
  }
}

/** Starts the processes; resolves with the exit code once all have ended. Throws a `ConfigError` where a port can't be listened at. */
export async function supervise(options: SupervisorOptions): Promise<number> {
  const supervisor = new Supervisor(options);
  return supervisor.run();
}

class Supervisor {
  readonly #config: Config;
  readonly #log: Logger;
  readonly #print: (lines: string) => void;
  readonly #ending: () => void;
  readonly #count: number;
  readonly #children = new Set<Child>();
  readonly #servers: Server[] = [];
  readonly #ports: Partial<Record<PortName, number>> = {};
  readonly #waiting: { port: PortName; socket: Socket }[] = [];
  readonly #measuring = new Map<number, { parts: MetricsPart[]; from: Set<Child>; done: () => void }>();
  readonly #over = Promise.withResolvers<number>();
  readonly #registry = new Registry();
  readonly #restarts: Counter;
  #asked = 0;
  #turn = 0;
  /** The first process was ready once: from now on what ends is started again. */
  #hasBegun = false;
  #isEnding = false;
  #reloading: Promise<void> | undefined;
  #reloadAgain = false;

  constructor({ config, log, print, ending }: SupervisorOptions) {
    this.#ending = ending;
    this.#config = config;
    this.#log = log;
    this.#print = print;
    this.#count = config.processes === "auto" ? availableParallelism() : config.processes;
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
    new Gauge({
      name: named("processes"),
      help: "Processes that the parent runs, by whether they are ready.",
      labelNames: ["state"],
      registers,
      collect() {
        const ready = [...children].filter(({ isReady, isLeaving }) => isReady && !isLeaving).length;
        this.set({ state: "ready" }, ready);
        this.set({ state: "other" }, children.size - ready);
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

  async run(): Promise<number> {
    await this.#listen();
    process.on("SIGTERM", () => this.#end(this.#config.drainDelayMs));
    process.on("SIGINT", () => this.#end(0));
    process.on("SIGHUP", () => this.#reload());
    const stop = everySpan(LOAD_MS, (spanMs) => this.#look(spanMs));
    try {
      // The first alone: what is wrong with the settings or the database is said once, and the schema is brought up to date by one.
      const first = this.#start(0);
      const outcome = await first.ready.catch(() => first.ended);
      if ("code" in outcome && !this.#isEnding) return outcome.code ?? 1;
      this.#hasBegun = true;
      const others = Array.from({ length: this.#isEnding ? 0 : this.#count - 1 }, (_, i) => this.#start(i + 1));
      await Promise.allSettled(others.map(({ ready }) => ready));
      if (!this.#isEnding && !("code" in outcome)) {
        this.#print([...outcome, `${this.#count} processes`].join("\n"));
      }
      return await this.#over.promise;
    } finally {
      stop();
      for (const server of this.#servers) server.close();
      for (const child of this.#children) child.process.kill("SIGKILL");
    }
  }

  async #listen(): Promise<void> {
    const { host, port, operationsPort, gr00tPort, roles } = this.#config;
    const isApi = roles.has("api");
    const wanted: [PortName, "PORT" | "LIMBER_OPERATIONS_PORT" | "LIMBER_GR00T_PORT", number | undefined][] = [
      ["calls", "PORT", isApi ? port : undefined],
      ["operations", "LIMBER_OPERATIONS_PORT", operationsPort],
      ["gr00t", "LIMBER_GR00T_PORT", isApi ? gr00tPort : undefined],
    ];
    for (const [name, setting, number] of wanted) {
      if (number === undefined) continue;
      // Nothing is read of a connection here: its bytes belong to the process that gets it.
      const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (socket) =>
        this.#accept(name, socket),
      );
      this.#servers.push(server);
      this.#ports[name] = await naming({ setting, host, port: number }, async () => {
        await new Promise<void>((resolve, reject) => {
          server.once("error", reject);
          server.listen({ host, port: number, exclusive: true }, () => {
            server.off("error", reject).on("error", (error) => this.#log.error({ err: error }, "accepting failed"));
            resolve();
          });
        });
        const address = server.address();
        return typeof address === "object" && address !== null ? address.port : number;
      });
    }
  }

  #accept(port: PortName, socket: Socket): void {
    socket.on("error", () => socket.destroy());
    const taking = [...this.#children].filter(({ takes }) => takes);
    // ZeroMQ's clients find one server at their port.
    const child = port === "gr00t" ? taking.toSorted((a, b) => a.index - b.index)[0] : place(taking, this.#turn++);
    if (child !== undefined) child.give(port, socket);
    else if (this.#waiting.length < MOST_WAITING && !this.#isEnding) this.#waiting.push({ port, socket });
    else socket.destroy();
  }

  #start(index: number, backOffMs: number = RESTART_MS.first): Child {
    const started = fork(MAIN, [handedArgument({ index, ports: this.#ports })], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
      execArgv: [...missingFlags(process.execArgv), ...process.execArgv],
    });
    const child = new Child(index, started, backOffMs, (from, message) => this.#hear(from, message));
    this.#children.add(child);
    void child.ended.then(({ code, signal }) => this.#ended(child, code ?? signal));
    return child;
  }

  #ended(child: Child, how: number | string | null): void {
    this.#children.delete(child);
    for (const measuring of this.#measuring.values()) if (measuring.from.delete(child)) measuring.done();
    if (this.#isEnding && this.#children.size === 0) this.#over.resolve(0);
    if (this.#hasBegun && !child.isLeaving && !this.#isEnding) void this.#replace(child, how);
  }

  /** Starts another in the place of one that did not end because it was asked to, the later the sooner the last ones ended. */
  async #replace(
    { index, fate, startedAt, backOffMs, process: { pid } }: Child,
    how: number | string | null,
  ): Promise<void> {
    const livedMs = steadyNow() - startedAt;
    const waitMs = livedMs > RESTART_MS.forgotten ? RESTART_MS.first : backOffMs;
    this.#restarts.inc({ reason: fate });
    this.#log.error({ process: index, pid, how, livedMs: Math.round(livedMs), waitMs }, `process ${fate}`);
    await sleep(waitMs);
    const isThere = [...this.#children].some((other) => other.index === index && !other.isLeaving);
    if (!this.#isEnding && !isThere) this.#start(index, Math.min(waitMs * 2, RESTART_MS.most));
  }

  #hear(from: Child, message: ToParent): void {
    if (message.kind === "listening")
      for (const { port, socket } of this.#waiting.splice(0)) this.#accept(port, socket);
    if (message.kind === "leaving" && !from.isLeaving) {
      from.isLeaving = true;
      void this.#replace(from, "leaving");
    }
    if (message.kind === "measure") void this.#measure(from, message.id);
    if (message.kind === "measured") {
      const measuring = this.#measuring.get(message.id);
      if (measuring?.from.delete(from) !== true) return;
      measuring.parts.push(message.part);
      measuring.done();
    }
  }

  /** The metrics of every process, and of this one, for the one that was asked for them. */
  async #measure(asker: Child, askedAs: number): Promise<void> {
    const id = ++this.#asked;
    const from = new Set([...this.#children].filter(({ isListening }) => isListening));
    const parts: MetricsPart[] = [(await this.#registry.getMetricsAsJSON()) as MetricsPart];
    await new Promise<void>((resolve) => {
      const forget = after(MEASURE_MS, resolve);
      const done = (): void => {
        if (from.size > 0) return;
        forget();
        resolve();
      };
      this.#measuring.set(id, { parts, from, done });
      for (const child of from) child.tell({ kind: "measure", id });
      done();
    });
    this.#measuring.delete(id);
    asker.tell({ kind: "measured", id: askedAs, parts });
  }

  /** Ends processes that stand still. */
  #look(spanMs: number): void {
    for (const child of this.#children) {
      child.silentMs += spanMs;
      if (child.silentMs < (child.isReady ? HUNG_MS : HUNG_AT_START_MS)) continue;
      child.fate = "hung";
      this.#log.error({ process: child.index, pid: child.process.pid }, "a process stands still and is ended");
      child.process.kill("SIGKILL");
      child.silentMs = 0;
    }
  }

  /** Lets a process end what it does; it gets no new connection. */
  #leave(child: Child, delayMs: number): void {
    child.isLeaving = true;
    this.#drain(child, delayMs);
  }

  #drain(child: Child, delayMs: number): void {
    const { drainMs } = this.#config;
    child.tell({ kind: "drain", delayMs, patienceMs: drainMs });
    const forget = after(delayMs + drainMs + FORCE_MS, () => child.process.kill("SIGKILL"));
    void child.ended.then(forget);
  }

  #reload(): void {
    this.#reloadAgain = this.#reloading !== undefined;
    this.#reloading ??= this.#replaceAll().finally(() => {
      this.#reloading = undefined;
      if (this.#reloadAgain) this.#reload();
    });
  }

  /** Replaces the processes one after the other, each by one that is ready. One that does not start leaves the rest as they are. */
  async #replaceAll(): Promise<void> {
    for (let index = 0; index < this.#count && !this.#isEnding; index++) {
      const old = [...this.#children].find((child) => child.index === index && !child.isLeaving);
      if (old === undefined) continue; // it crashed, and is started anew anyway
      const next = this.#start(index);
      // Should it end before it is ready, the old one stays.
      const isReady = await next.ready.then(
        () => true,
        () => false,
      );
      if (!isReady) {
        this.#log.error({ process: index }, "the new process did not start: the others go on as they are");
        return;
      }
      this.#restarts.inc({ reason: "replaced" });
      this.#leave(old, Math.max(this.#config.drainDelayMs, REPLACED_DELAY_MS));
      await old.ended;
      this.#log.info({ process: index, pid: next.process.pid }, "process replaced");
    }
  }

  /** Drains all. Asked twice it ends them at once. */
  #end(delayMs: number): void {
    if (this.#isEnding) {
      for (const child of this.#children) child.process.kill("SIGKILL");
      this.#over.resolve(1);
      return;
    }
    this.#isEnding = true;
    this.#ending();
    // Until the delay is over they take connections as before: a balancer may not know yet.
    for (const child of this.#children) this.#drain(child, delayMs);
    after(delayMs, () => {
      for (const server of this.#servers) server.close();
    });
    if (this.#children.size === 0) this.#over.resolve(0);
  }
}
