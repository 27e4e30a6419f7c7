/** CPU profiles of a running process, over its inspector. */
import { readFileSync } from "node:fs";

/** One call site of a profile, and the sites that it calls. */
interface ProfileNode {
  id: number;
  callFrame: { functionName: string; url: string; lineNumber: number };
  children?: number[];
}

interface Profile {
  nodes: ProfileNode[];
  samples: number[];
  timeDeltas: number[];
}

/** Microseconds that the process was busy with, at one stack; the innermost function stands first. */
export interface Sample {
  micros: number;
  stack: readonly { name: string; file: string; line: number }[];
}

/** The inspector's address, from what a process started with `--inspect` has written to its log. */
export function inspectorOf(log: string): string {
  const address = /ws:\/\/\S+/.exec(readFileSync(log, "utf8"))?.[0];
  if (address === undefined) throw new Error(`${log} names no inspector`);
  return address;
}

/** Profiles the process while `busy` runs; idle time is left out. */
export async function profile(address: string, busy: () => Promise<unknown>): Promise<Sample[]> {
  const { ask, close } = await inspect<{ profile: Profile }>(address);
  await ask("Profiler.enable");
  await ask("Profiler.setSamplingInterval", { interval: 200 });
  await ask("Profiler.start");
  await busy();
  const { profile } = await ask("Profiler.stop");
  close();
  return samplesOf(profile);
}

/** One function of a script, and how often it was entered since it was asked for last. */
interface ScriptCoverage {
  url: string;
  functions: { functionName: string; ranges: { startOffset: number; count: number }[] }[];
}

/**
 * Counts the functions that the process enters. Each question answers what was entered since the last one: by the path of a file below
 * `src/`, how often the function of it that was entered most often was.
 */
export async function entries(address: string): Promise<{ since(): Promise<Map<string, number>>; close(): void }> {
  const { ask, close } = await inspect<{ result: ScriptCoverage[] }>(address);
  await ask("Profiler.enable");
  await ask("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  const since = async (): Promise<Map<string, number>> => {
    const { result } = await ask("Profiler.takePreciseCoverage");
    const counts = new Map<string, number>();
    for (const { url, functions } of result) {
      const [, path] = /^file:.*?\/src\/(.*\.ts)$/.exec(url) ?? [];
      if (path === undefined || url.includes("/node_modules/")) continue;
      // The first function is the file itself, which runs where it is imported.
      const most = Math.max(
        0,
        ...functions.filter(({ ranges }) => ranges[0]!.startOffset > 0).map(({ ranges }) => ranges[0]!.count),
      );
      if (most > 0) counts.set(path, Math.max(counts.get(path) ?? 0, most));
    }
    return counts;
  };
  return { since, close };
}

/** One call site of a heap profile: bytes that it allocated itself, and the sites that it calls. */
interface AllocationNode {
  callFrame: ProfileNode["callFrame"];
  selfSize: number;
  children: AllocationNode[];
}

/** Bytes that were allocated at one stack, whether they are in use still or not. */
export interface Allocation {
  bytes: number;
  stack: Sample["stack"];
}

/** What the process allocates while `busy` runs: a sample of every 16 KiB. */
export async function allocations(address: string, busy: () => Promise<unknown>): Promise<Allocation[]> {
  const { ask, close } = await inspect<{ profile: { head: AllocationNode } }>(address);
  await ask("HeapProfiler.startSampling", {
    samplingInterval: 16_384,
    includeObjectsCollectedByMajorGC: true,
    includeObjectsCollectedByMinorGC: true,
  });
  await busy();
  const { profile } = await ask("HeapProfiler.stopSampling");
  close();
  return allocatedBelow(profile.head, []);
}

/** What `made` leaves in memory, of which a sample of every 512 bytes was noted, and bytes of heap and external memory by which it grew. */
export async function leftBehind(
  address: string,
  made: () => Promise<unknown>,
): Promise<{ bytes: number; by: Allocation[] }> {
  const inspector = await inspect<{ profile: { head: AllocationNode }; result: { value: number } }>(address);
  const { ask, close } = inspector;
  const held = async (): Promise<number> => {
    for (let i = 0; i < 3; i++) await ask("HeapProfiler.collectGarbage");
    const expression = "(({ heapUsed, external }) => heapUsed + external)(process.memoryUsage())";
    return (await ask("Runtime.evaluate", { expression, returnByValue: true })).result.value;
  };
  const before = await held();
  await ask("HeapProfiler.startSampling", { samplingInterval: 512 });
  await made();
  const bytes = (await held()) - before;
  const { profile } = await ask("HeapProfiler.stopSampling");
  close();
  return { bytes, by: allocatedBelow(profile.head, []) };
}

function allocatedBelow({ callFrame, selfSize, children }: AllocationNode, callers: Sample["stack"]): Allocation[] {
  const stack = [siteOf(callFrame), ...callers];
  const own = selfSize > 0 ? [{ bytes: selfSize, stack }] : [];
  return [...own, ...children.flatMap((child) => allocatedBelow(child, stack))];
}

/** Talks to an inspector. */
async function inspect<R>(address: string) {
  const socket = new WebSocket(address);
  await new Promise((resolve) => socket.addEventListener("open", resolve, { once: true }));
  let id = 0;
  const ask = (method: string, params = {}): Promise<R> =>
    new Promise((resolve) => {
      const own = ++id;
      const hear = ({ data }: MessageEvent): void => {
        const answer = JSON.parse(String(data));
        if (answer.id !== own) return;
        socket.removeEventListener("message", hear);
        resolve(answer.result);
      };
      socket.addEventListener("message", hear);
      socket.send(JSON.stringify({ id: own, method, params }));
    });
  return { ask, close: () => socket.close() };
}

const siteOf = ({ functionName, url, lineNumber }: ProfileNode["callFrame"]): Sample["stack"][number] => ({
  name: functionName || "(anonymous)",
  file: url,
  line: lineNumber + 1,
});

function samplesOf({ nodes, samples, timeDeltas }: Profile): Sample[] {
  const micros = new Map<number, number>();
  for (const [i, node] of samples.entries())
    micros.set(node, (micros.get(node) ?? 0) + Math.max(0, timeDeltas[i] ?? 0));
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const parents = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)));
  return [...micros].flatMap(([leaf, spent]) => {
    const stack = [];
    for (let id: number | undefined = leaf; id !== undefined; id = parents.get(id)) {
      stack.push(siteOf(byId.get(id)!.callFrame));
    }
    return stack[0]?.name === "(idle)" ? [] : [{ micros: spent, stack }];
  });
}
