/** Unhandled errors of this process, and its service manager. */
import { execFile } from "node:child_process";
import { every } from "../clock.ts";
import type { Config } from "../config.ts";

/** One error that no owner heard. */
interface UnhandledError {
  readonly kind: "unhandled rejection" | "uncaught exception";
  readonly error: unknown;
}

let count = 0;

/** How many there were in this process. */
export const unhandledErrors = (): number => count;

/** Tells `hear` of each from now on; `isFirst` is true once. Without a caller of this, Node ends the process at the first one. */
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
  /** Everything is open; from now on it hears that this process lives. */
  ready(): void;
  /** The drain begins. */
  stopping(): void;
}

const PROGRAM = "systemd-notify";
/** Signs of life within the time after which their absence is taken for the end. */
const SIGNS = 3;

/** Speaks to the service manager, where there is one. Calls `warn` once if its program is missing. */
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
