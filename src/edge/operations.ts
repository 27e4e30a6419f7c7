/**
 * The listener for operations: health, readiness, metrics and emergency stops over HTTP/1.1 on a port of its own. Its connections are not
 * counted against those of the port for calls, and it runs in a thread of its own, so that it answers while the event loop of the calls
 * has much to do. Where another process hands connections over it runs in that event loop: a connection can't be handed to a thread.
 */
import type { Socket } from "node:net";
import { createSecureContext } from "node:tls";
import { MessageChannel, type MessagePort, Worker } from "node:worker_threads";
import { after } from "../clock.ts";
import { type DeskOptions, type ListenerNews, OperationsDesk, OperationsRoutes } from "./operations/desk.ts";
import { CLOSE_MS, type Listener, listen } from "./operations/listener.ts";
import type { ListenerSetup, ListenerTls } from "./operations/messages.ts";

/** What the listener needs. */
export interface OperationsOptions extends DeskOptions {
  readonly host: string;
  /** 0 picks a free one. */
  readonly port: number;
  /** The certificate and key, in PEM; in cleartext when absent. */
  readonly tls?: ListenerTls | undefined;
  /** Another process listens at the port, and hands connections over. */
  readonly isHanded?: boolean;
  /** Told of a thread that ended by itself; another one is started in its place. */
  broke(error: unknown): void;
}

/** The listener, listening. */
export interface OperationsListener {
  readonly port: number;
  /** Serves a connection that another process accepted. */
  take(socket: Socket): void;
  /** Serves new connections under this certificate; only where it has one. Throws where it is none. */
  renew(tls: { readonly cert: Buffer; readonly key: Buffer }): void;
  /** What this process says of itself has changed. */
  changed(): void;
  /** Takes what was asked before the event loop gets to it: between calls of a turn that is long. */
  lookAround(): void;
  /** Takes no new connection and ends those that there are, each after its answer or after a second. */
  close(): Promise<void>;
}

/** How long a thread has beyond what its connections have. */
const END_MS = 1_000;
/** How long to wait before a thread that ended is started again: twice as long each time, until one listens. */
const RESTART_MS = { first: 100, most: 10_000 };

/** Listens. Rejects with the system's error where it can't. */
export async function serveOperations(options: OperationsOptions): Promise<OperationsListener> {
  const routes = new OperationsRoutes(options);
  const { host, port, tls, isHanded = false } = options;
  const setup: ListenerSetup = { host, port, tls, isHanded, paths: routes.paths };
  const serving = isHanded ? new HandedListener(setup, routes) : new ThreadListener(setup, routes, options.broke);
  await serving.open();
  return serving;
}

/** What both have: what the listener is told at its start, and a desk that answers it. */
abstract class LinkedListener implements OperationsListener {
  /** With the port and the certificate that it has now. */
  protected setup: ListenerSetup;
  protected desk: OperationsDesk | undefined;
  protected readonly closed = Promise.withResolvers<void>();
  readonly #routes: OperationsRoutes;

  constructor(setup: ListenerSetup, routes: OperationsRoutes) {
    this.setup = setup;
    this.#routes = routes;
  }

  abstract take(socket: Socket): void;
  abstract close(): Promise<void>;

  get port(): number {
    return this.setup.port;
  }

  /** A desk for a new listener, and the listener's own end of the channel between the two. */
  protected openDesk(news: (news: ListenerNews) => void): { desk: OperationsDesk; port: MessagePort } {
    const { port1, port2 } = new MessageChannel();
    this.desk = new OperationsDesk(port1, this.#routes, news);
    return { desk: this.desk, port: port2 };
  }

  renew({ key, cert }: { readonly cert: Buffer; readonly key: Buffer }): void {
    if (this.setup.tls === undefined) return;
    createSecureContext({ key, cert });
    const tls = { key, cert };
    this.setup = { ...this.setup, tls };
    this.desk?.tell({ kind: "renew", tls });
  }

  changed(): void {
    this.desk?.refresh();
  }

  lookAround(): void {
    this.desk?.lookAround();
  }
}

/** A listener in this event loop. */
class HandedListener extends LinkedListener {
  #listener: Listener | undefined;

  async open(): Promise<void> {
    const listening = Promise.withResolvers<void>();
    const { port } = this.openDesk((news) => {
      if (news.kind === "failed") listening.reject(failureOf(news));
      else if (news.kind === "closed") this.closed.resolve();
      else listening.resolve();
    });
    [this.#listener] = await Promise.all([listen(this.setup, port), listening.promise]);
  }

  take(socket: Socket): void {
    if (this.#listener === undefined) socket.destroy();
    else this.#listener.take(socket);
  }

  async close(): Promise<void> {
    this.desk?.tell({ kind: "close" });
    await this.closed.promise;
    this.desk?.end();
  }
}

/** A listener in a thread of its own. */
class ThreadListener extends LinkedListener {
  readonly #broke: (error: unknown) => void;
  #thread: Worker | undefined;
  #isClosing = false;
  #waitMs = RESTART_MS.first;
  #forget: () => void = () => undefined;

  constructor(setup: ListenerSetup, routes: OperationsRoutes, broke: (error: unknown) => void) {
    super(setup, routes);
    this.#broke = broke;
  }

  open(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#start(resolve, reject);
    return promise;
  }

  take(socket: Socket): void {
    socket.destroy(); // none is handed to it
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    this.#forget();
    const thread = this.#thread;
    if (thread === undefined) return;
    this.desk?.tell({ kind: "close" });
    // A thread that does not hear it is ended.
    this.#forget = after(CLOSE_MS + END_MS, () => void thread.terminate());
    await this.closed.promise;
  }

  /** Starts a thread, which tells `failed` where it never listens. One that listened and ended is started again. */
  #start(listens: () => void, failed: (error: unknown) => void): void {
    let why: unknown = new Error("the thread ended");
    let isListening = false;
    const { desk, port } = this.openDesk((news) => {
      if (news.kind === "failed") why = failureOf(news);
      if (news.kind !== "listening") return;
      isListening = true;
      this.setup = { ...this.setup, port: news.port };
      this.#waitMs = RESTART_MS.first;
      listens();
    });
    const thread = new Worker(new URL("./operations/thread.ts", import.meta.url), {
      name: "operations",
      workerData: { setup: this.setup, port },
      transferList: [port],
      resourceLimits: { maxOldGenerationSizeMb: MOST_MIB },
    });
    this.#thread = thread;
    thread.on("error", (error) => {
      why = error;
    });
    thread.once("exit", () => {
      desk.end();
      this.#thread = undefined;
      if (this.#isClosing) {
        this.#forget();
        this.closed.resolve();
      } else if (isListening) this.#startAgain(why);
      else failed(why);
    });
  }

  #startAgain(why: unknown): void {
    this.#broke(why);
    this.#forget = after(this.#waitMs, () =>
      this.#start(
        () => undefined,
        (error) => this.#startAgain(error),
      ),
    );
    this.#waitMs = Math.min(this.#waitMs * 2, RESTART_MS.most);
  }
}

/** The most memory of the thread's own objects, in MiB: far more than its connections take. What ends it ends nothing else. */
const MOST_MIB = 256;

const failureOf = ({ code, message }: Extract<ListenerNews, { kind: "failed" }>): Error =>
  Object.assign(new Error(message), code !== undefined && { code });
