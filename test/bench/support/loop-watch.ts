/** How long the event loop was nobody else's. */
import { existsSync, openSync, readSync } from "node:fs";

/** The longest pause in milliseconds, and the longest without the time in which the thread waited for a CPU: others may use the machine too. */
export interface Pauses {
  readonly pauseMs: number;
  readonly pauseCpuMs: number;
}

/** On-CPU milliseconds of this thread so far; systems count them in ticks of some milliseconds. */
export function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** Where Linux says how long the thread that reads it ran, and how long it waited for a CPU, in nanoseconds. */
const SCHEDSTAT = "/proc/thread-self/schedstat";
const schedstat = existsSync(SCHEDSTAT) ? openSync(SCHEDSTAT, "r") : undefined;
const read = Buffer.alloc(96);

/** Milliseconds that this thread was ready to run and did not; 0 where nobody counts them. For the main thread alone. */
export function waitedMs(): number {
  if (schedstat === undefined) return 0;
  return Number(read.toString("latin1", 0, readSync(schedstat, read, 0, read.length, 0)).split(" ")[1]) / 1e6;
}

/** Watches the event loop until the returned function is called. */
export function watchLoop(): () => Pauses {
  let last = performance.now();
  let lastWaited = waitedMs();
  let [pauseMs, pauseCpuMs] = [0, 0];
  let watching = true;
  const beat = (): void => {
    const [at, waited] = [performance.now(), waitedMs()];
    pauseMs = Math.max(pauseMs, at - last);
    pauseCpuMs = Math.max(pauseCpuMs, at - last - (waited - lastWaited));
    [last, lastWaited] = [at, waited];
    if (watching) setImmediate(beat);
  };
  beat();
  return () => {
    watching = false;
    return { pauseMs, pauseCpuMs };
  };
}
