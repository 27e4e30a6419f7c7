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
  const socket = new WebSocket(address);
  await new Promise((resolve) => socket.addEventListener("open", resolve, { once: true }));
  let id = 0;
  const ask = (method: string, params = {}): Promise<{ profile: Profile }> =>
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
  await ask("Profiler.enable");
  await ask("Profiler.setSamplingInterval", { interval: 200 });
  await ask("Profiler.start");
  await busy();
  const { profile } = await ask("Profiler.stop");
  socket.close();
  return samplesOf(profile);
}

function samplesOf({ nodes, samples, timeDeltas }: Profile): Sample[] {
  const micros = new Map<number, number>();
  for (const [i, node] of samples.entries())
    micros.set(node, (micros.get(node) ?? 0) + Math.max(0, timeDeltas[i] ?? 0));
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const parents = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)));
  return [...micros].flatMap(([leaf, spent]) => {
    const stack = [];
    for (let id: number | undefined = leaf; id !== undefined; id = parents.get(id)) {
      const { functionName, url, lineNumber } = byId.get(id)!.callFrame;
      stack.push({ name: functionName || "(anonymous)", file: url, line: lineNumber + 1 });
    }
    return stack[0]?.name === "(idle)" ? [] : [{ micros: spent, stack }];
  });
}
