/** How long the event loop was nobody else's. */

/** The longest pause in milliseconds, and the longest that this thread was at work without one: others may use the machine too. */
export interface Pauses {
  readonly pauseMs: number;
  readonly pauseCpuMs: number;
}

/** On-CPU milliseconds of this thread so far. */
export function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** Watches the event loop until the returned function is called. */
export function watchLoop(): () => Pauses {
  let last = performance.now();
  let lastCpu = cpuMs();
  let [pauseMs, pauseCpuMs] = [0, 0];
  let watching = true;
  const beat = (): void => {
    const [at, cpu] = [performance.now(), cpuMs()];
    pauseMs = Math.max(pauseMs, at - last);
    pauseCpuMs = Math.max(pauseCpuMs, cpu - lastCpu);
    [last, lastCpu] = [at, cpu];
    if (watching) setImmediate(beat);
  };
  beat();
  return () => {
    watching = false;
    return { pauseMs, pauseCpuMs };
  };
}
