/** What systemd is told of this process, by its own program: Node has no datagrams over unix sockets. */
import { execFile } from "node:child_process";
import { every } from "../clock.ts";
import type { Config } from "../config.ts";

/** A service manager that waits to be told. */
export interface ServiceManager {
  /** Everything is open; from now on it hears that this process lives. */
  ready(): void;
  /** The drain begins. */
  stopping(): void;
}

const PROGRAM = "systemd-notify";
/** Signs of life within the time after which their absence is taken for the end. */
const SIGNS = 3;

/** Speaks to the service manager, where there is one. `warn` is told once where its program is not there. */
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
      warn(`${PROGRAM} could not be told: ${error.message.split("\n", 1)[0]}`);
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
