/**
 * What a predicted frame costs as a server-sent event, counted and billed, beside fastify that pipes events through: goal S1. And
 * what a stream holds whose reader has stopped: goal S3. Both programs are warmed up alike until neither gets quicker, and loaded in
 * turn; the ratios are medians over rounds. `node test/bench/frames.ts [rounds] [paced,large,stalled] [pinned]`: with `pinned`, each
 * program has one core that it shares with no reader and no model.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FRAMES, largeFrames, open, pacedFrames } from "./support/frame-load.ts";
import { openGateway } from "./support/gateway.ts";
import { cpuNanos, median, pin, start } from "./support/processes.ts";

const rounds = Number(process.argv[2] ?? 9);
const wanted = process.argv[3]?.split(",") ?? ["paced", "large", "stalled"];
const STREAMS = 50;
/** So many runs go to each program before any counts: V8 compiles anew what they run until about then. */
const WARM_UP = 10;
const LARGE_STREAMS = 4;

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const isJson = (line: string): boolean => line.startsWith("{");
const upstream = await start("test/bench/support/frames-upstream.ts", [], isJson);
const ports: { grpc: number; rest: number } = JSON.parse(upstream.line);
const floor = await start("test/bench/support/floors.ts", ["events", `http://127.0.0.1:${ports.rest}`], isJson);
const gateway = await openGateway(folder, `grpc://127.0.0.1:${ports.grpc}`, {}, [], {
  contracts: ["predict"],
  price_per_frame: 0.000001,
});

const PROGRAMS = {
  fastify: { name: "fastify + undici, piped", pid: floor.pid, port: JSON.parse(floor.line).port as number, key: "" },
  limber: { name: "Limber, everything on", pid: gateway.pid, port: gateway.port, key: gateway.key },
} as const;
type Name = keyof typeof PROGRAMS;

const pinned = process.argv[4] === "pinned" && pin([floor.pid, gateway.pid], [upstream.pid]);

/** The program's CPU for each frame of many paced streams. */
async function paced(name: Name): Promise<{ micros: number; frames: number }> {
  const { pid } = PROGRAMS[name];
  const before = cpuNanos(pid);
  const frames = await pacedFrames(PROGRAMS[name], STREAMS);
  return { micros: (cpuNanos(pid) - before) / 1000 / frames, frames };
}

/** The program's CPU for each large frame of a few streams that are read as fast as they come, and how much of it comes. */
async function large(name: Name): Promise<{ micros: number; megabytes: number }> {
  const { pid } = PROGRAMS[name];
  const began = performance.now();
  const before = cpuNanos(pid);
  const bytes = await largeFrames(PROGRAMS[name], LARGE_STREAMS);
  const seconds = (performance.now() - began) / 1000;
  return { micros: (cpuNanos(pid) - before) / 1000 / (LARGE_STREAMS * FRAMES), megabytes: bytes / 1e6 / seconds };
}

const rss = (pid: number): number => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);

/** Kilobytes that a stream of large frames takes whose reader does not read. */
async function stalled(name: Name): Promise<number> {
  const { pid } = PROGRAMS[name];
  const before = rss(pid);
  const streams = Array.from({ length: STREAMS }, () => open(PROGRAMS[name], "65536 bytes every 0 ms"));
  for (const { done } of streams) done.catch(() => undefined);
  await new Promise((resolve) => setTimeout(resolve, 3000));
  const held = (rss(pid) - before) / STREAMS;
  for (const { leave } of streams) leave();
  return held;
}

const line = (name: string, ...figures: string[]): void =>
  console.log(name.padEnd(32) + figures.map((figure) => figure.padStart(14)).join(""));

const names: readonly Name[] = ["fastify", "limber"];

/** Loads the programs in turn: first until they are warm, then once each in every round. */
async function compare<T>(times: number, run: (name: Name) => Promise<T>): Promise<Record<Name, T[]>> {
  for (let i = 0; i < WARM_UP; i++) for (const name of names) await run(name);
  const runs: Record<Name, T[]> = { fastify: [], limber: [] };
  for (let round = 0; round < times; round++) for (const name of names) runs[name].push(await run(name));
  return runs;
}

const ratioOf = (ours: readonly { micros: number }[], theirs: readonly { micros: number }[]): string =>
  median(ours.map(({ micros }, i) => micros / theirs[i]!.micros)).toFixed(2);
const microsOf = (runs: readonly { micros: number }[]): string => median(runs.map(({ micros }) => micros)).toFixed(1);

const SECTIONS: Readonly<Record<string, () => Promise<void>>> = {
  async paced() {
    const runs = await compare(rounds, paced);
    line(`${STREAMS} streams, 1 kB every 20 ms (S1 1.0)`, "CPU us/frame", "carried", "x fastify");
    for (const name of names) {
      const carried = runs[name].reduce((sum, { frames }) => sum + frames, 0) / (rounds * STREAMS * FRAMES);
      const share = `${(100 * carried).toFixed(2)} %`;
      line(PROGRAMS[name].name, microsOf(runs[name]), share, ratioOf(runs[name], runs.fastify));
    }
  },
  async large() {
    const runs = await compare(rounds, large);
    line(`\n${LARGE_STREAMS} streams of 64 kB, unpaced`, "CPU us/frame", "MB/s", "x fastify");
    for (const name of names) {
      const speed = median(runs[name].map(({ megabytes }) => megabytes)).toFixed(0);
      line(PROGRAMS[name].name, microsOf(runs[name]), speed, ratioOf(runs[name], runs.fastify));
    }
  },
  async stalled() {
    line(`\n${STREAMS} stalled readers of 64 kB frames`, "kB a stream");
    for (const name of names) line(PROGRAMS[name].name, (await stalled(name)).toFixed(0));
    console.log("(S3: at most 2,048)");
  },
};
console.log(pinned ? "each program has a core that no reader is on" : "all programs share all cores");
for (const [section, run] of Object.entries(SECTIONS)) if (wanted.includes(section)) await run();

await Promise.all([gateway, upstream, floor].map((started) => started.stop()));
rmSync(folder, { recursive: true, force: true });
