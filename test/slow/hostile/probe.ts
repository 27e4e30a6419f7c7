/**
 * Loaded into a gateway ahead of its main file: answers its parent's questions about memory and about how long the event loop was held.
 * Turns are measured in CPU time of the main thread, so that what else runs on the machine doesn't count.
 */
import { isMainThread } from "node:worker_threads";

/** What the gateway's process tells of itself; bytes and milliseconds of CPU. */
export interface Vitals {
  readonly rss: number;
  readonly heapUsed: number;
  /** Everything outside the heap that the heap holds, buffers included. */
  readonly external: number;
  /** The most CPU that the main thread used between two ticks of a timer since the last question. */
  readonly longestTurnMs: number;
  /** The CPU that the main thread has used so far. */
  readonly cpuMs: number;
  /** The most memory of heap and buffers that any tick saw since the last question. */
  readonly peakBytes: number;
}

/** A question: with `collect`, garbage is collected before the answer. */
export interface Question {
  readonly question: number;
  readonly collect: boolean;
}

const TICK_MS = 20;

if (isMainThread && process.send !== undefined) {
  const cpuMs = (): number => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1000;
  };
  const held = (): number => {
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  let before = cpuMs();
  let longestTurnMs = 0;
  let peakBytes = 0;
  const look = (): void => {
    const now = cpuMs();
    longestTurnMs = Math.max(longestTurnMs, now - before);
    peakBytes = Math.max(peakBytes, held());
    before = now;
  };
  setInterval(look, TICK_MS).unref();

  const answer = async ({ question, collect }: Question): Promise<void> => {
    look();
    const told = { longestTurnMs, peakBytes };
    // Twice, with a turn between: what finalizers let go is garbage only then.
    for (let round = 0; collect && round < 2; round++) {
      globalThis.gc?.();
      await new Promise((resolve) => setImmediate(resolve));
    }
    const { rss, heapUsed, external } = process.memoryUsage();
    const vitals: Vitals = { rss, heapUsed, external, cpuMs: cpuMs(), ...told };
    longestTurnMs = 0;
    peakBytes = 0;
    before = cpuMs();
    process.send?.({ question, vitals });
  };
  process.on("message", (message) => void answer(message as Question));
  // The channel keeps no gateway running, and no gateway outlives the one who attacks it.
  process.channel?.unref();
  process.once("disconnect", () => process.exit(1));
}
