/** Unhandled errors of this process, and its service manager. */
import { execFile } from "node:child_process";
import { every } from "../clock.ts";
import type { Config } from "../config.ts";

/** An unhandled error. */
interface UnhandledError {
  readonly kind: "unhandled rejection" | "uncaught exception";
  readonly error: unknown;
}

let count = 0;

/** The number of unhandled errors in this process. */
export const unhandledErrors = (): number => count;

/** Calls `hear` for each unhandled error from now on; `isFirst` is true once. Without this handler, Node.js exits at the first one. */
export function onUnhandledErrors(hear: (unhandled: UnhandledError, isFirst: boolean) => void): void {
  const on =
    (kind: UnhandledError["kind"]) =>
    (error: unknown): void => {
      count++;
      hear({ kind, error }, count === 1);
    };
  process.on("unhandledRejection", on("unhandled rejection"));
  process.on("uncaughtException", on("uncaught exception"));
}

/** A service manager that waits for readiness. */
export interface ServiceManager {
  /** Reports readiness, and starts the watchdog heartbeat. */
  ready(): void;
  /** Reports the start of the drain. */
  stopping(): void;
}

const PROGRAM = "systemd-notify";
/** Heartbeats per watchdog timeout. */
const SIGNS = 3;

/** Connects to the service manager, if there is one. Calls `warn` once if its program is missing. */
export function openServiceManager(
  { isTold, watchdogMs }: Config["serviceManager"],
  warn: (text: string) => void,
): ServiceManager {
  if (!isTold) return { ready: () => undefined, stopping: () => undefined };
  let isWarned = false;
  const tell = (...words: string[]): void => {
    execFile(PROGRAM, words, (error) => {
      if (error === null || isWarned) return;
      isWarned = true;
      warn(`${PROGRAM} could not be notified: ${error.message.split("\n", 1)[0]}`);
    });
  };
  return {
    ready() {
      tell("--ready");
      if (watchdogMs !== undefined) every(watchdogMs / SIGNS, () => tell("WATCHDOG=1"));
    },
    stopping: () => tell("STOPPING=1"),
  };
}
