/** Runs the reference provider as a child process, and restarts it on the same ports when it exits. */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { after, sleep } from "../clock.ts";

/** What the launcher depends on. */
export interface LaunchOptions {
  /** Ports to listen on; 0, the default, selects a free one. */
  readonly grpcPort?: number;
  readonly openpiPort?: number;
  /** Called when the process has exited, with the reason if it did not restart. */
  readonly log?: (text: string) => void;
}

/** The supervised provider. */
export interface Reference {
  /** Such as `grpc://127.0.0.1:50051`; unchanged by restarts. */
  readonly grpc: string;
  /** Such as `ws://127.0.0.1:8000`; unchanged by restarts. */
  readonly openpi: string;
  /** The current process. */
  readonly pid: number | undefined;
  /** Stops the process permanently. */
  stop(): Promise<void>;
}

const READY_MS = 20_000;
const TERM_MS = 2_000;
const RESTART = { firstMs: 100, mostMs: 5_000 } as const;
const MAIN = fileURLToPath(new URL("./main.ts", import.meta.url));

/** Starts the process and resolves when it listens; rejects if it does not. */
export async function startReference(options: LaunchOptions = {}): Promise<Reference> {
  const keeper = new Keeper(options);
  await keeper.start();
  return keeper;
}

interface Started {
  readonly child: ChildProcess;
  readonly grpc: string;
  readonly openpi: string;
}

class Keeper implements Reference {
  readonly #options: LaunchOptions;
  readonly #stopped = new AbortController();
  #started: Started | undefined;
  #restarting: Promise<void> = Promise.resolve();

  constructor(options: LaunchOptions) {
    this.#options = options;
  }

  get grpc(): string {
    return this.#started?.grpc ?? "";
  }

  get openpi(): string {
    return this.#started?.openpi ?? "";
  }

  get pid(): number | undefined {
    return this.#started?.child.pid;
  }

  async start(): Promise<void> {
    const { grpcPort = 0, openpiPort = 0 } = this.#options;
    this.#watch(await launch(portOf(this.grpc) ?? grpcPort, portOf(this.openpi) ?? openpiPort));
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#restarting;
    const child = this.#started?.child;
    if (child === undefined || hasEnded(child)) return;
    const cancelKill = after(TERM_MS, () => child.kill("SIGKILL"));
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    await ended;
    cancelKill();
  }

  #watch(started: Started): void {
    this.#started = started;
    const again = (): void => {
      if (this.#stopped.signal.aborted) return;
      this.#options.log?.("the reference provider exited and is being restarted");
      this.#restarting = this.#restart();
    };
    if (hasEnded(started.child)) again();
    else started.child.once("exit", again);
  }

  async #restart(): Promise<void> {
    for (let waitMs: number = RESTART.firstMs; ; waitMs = Math.min(RESTART.mostMs, 2 * waitMs)) {
      try {
        await sleep(waitMs, this.#stopped.signal);
        return await this.start();
      } catch (error) {
        if (this.#stopped.signal.aborted) return;
        this.#options.log?.(`the reference provider failed to start: ${error instanceof Error ? error.message : "?"}`);
      }
    }
  }
}

/** Its standard input is open as long as this process lives, so that it exits afterwards; its output goes to this process's. */
function launch(grpcPort: number, openpiPort: number): Promise<Started> {
  const args = [MAIN, "--grpc-port", String(grpcPort), "--openpi-port", String(openpiPort)];
  const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] });
  return new Promise((resolve, reject) => {
    const fail = (why: string): void => {
      cancelTimeout();
      child.kill("SIGKILL");
      reject(new Error(why));
    };
    const cancelTimeout = after(READY_MS, () => fail("it did not start to listen in time"));
    const onExit = (): void => fail("it exited before listening");
    child.once("error", (error) => fail(error.message));
    child.once("exit", onExit);
    child.stdin.on("error", () => undefined); // it has exited: `exit` reports it
    createInterface(child.stdout).once("line", (line) => {
      cancelTimeout();
      child.off("exit", onExit);
      const { grpc, openpi } = JSON.parse(line) as { grpc: string; openpi: string }; // main.ts prints only this
      resolve({ child, grpc, openpi });
    });
  });
}

const hasEnded = ({ exitCode, signalCode }: ChildProcess): boolean => exitCode !== null || signalCode !== null;

const portOf = (address: string): number | undefined => (address === "" ? undefined : Number(new URL(address).port));
