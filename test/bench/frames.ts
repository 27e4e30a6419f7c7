/**
 * What a predicted frame costs as a server-sent event, counted and billed, beside fastify that pipes events through: goal S1. And
 * what a stream holds whose reader has stopped: goal S3. `node test/bench/frames.ts [rounds]`
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FRAMES, open, pacedFrames } from "./support/frame-load.ts";
import { openGateway } from "./support/gateway.ts";
import { cpuNanos, median, start } from "./support/processes.ts";

const rounds = Number(process.argv[2] ?? 3);
const STREAMS = 50;

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

/** The program's CPU for each frame of many paced streams. */
async function paced(name: Name): Promise<{ micros: number; frames: number }> {
  const { pid } = PROGRAMS[name];
  const before = cpuNanos(pid);
  const frames = await pacedFrames(PROGRAMS[name], STREAMS);
  return { micros: (cpuNanos(pid) - before) / 1000 / frames, frames };
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
for (const name of names) await paced(name); // warm-up
const runs: Record<Name, { micros: number; frames: number }[]> = { fastify: [], limber: [] };
for (let round = 0; round < rounds; round++) for (const name of names) runs[name].push(await paced(name));
line(`${STREAMS} streams, 1 kB every 20 ms (S1 1.0)`, "CPU us/frame", "carried", "x fastify");
for (const name of names) {
  const ratio = median(runs[name].map(({ micros }, i) => micros / runs.fastify[i]!.micros));
  const carried = runs[name].reduce((sum, { frames }) => sum + frames, 0) / (rounds * STREAMS * FRAMES);
  line(
    PROGRAMS[name].name,
    median(runs[name].map(({ micros }) => micros)).toFixed(1),
    `${(100 * carried).toFixed(2)} %`,
    ratio.toFixed(2),
  );
}
line(`\n${STREAMS} stalled readers of 64 kB frames`, "kB a stream");
for (const name of names) line(PROGRAMS[name].name, (await stalled(name)).toFixed(0));
console.log("(S3: at most 2,048)");

await Promise.all([gateway, upstream, floor].map((started) => started.stop()));
rmSync(folder, { recursive: true, force: true });
