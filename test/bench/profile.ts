/**
 * Where the time of an act call, of a control loop's message and of a predicted frame goes: shares of the gateway's CPU by room, and the functions
 * that take most of it.
 * "itself" is time in the room's own code; "with what it calls" adds the libraries and Node's own code called from there,
 * so that a room answers for what it asks of them. `node test/bench/profile.ts [calls] [REST|gRPC|loops|paced|frames|REST-3] [allocations]`:
 * with `allocations`, what is allocated for each call, by whom, in its place. `REST-3` is an act over REST with three pictures by 32 callers;
 * so are `gRPC-1`, `loop-3`, `openpi-1`.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { actFrame, actJson, GRPC_PATH } from "./support/act-call.ts";
import { pacedFrames } from "./support/frame-load.ts";
import { openGateway } from "./support/gateway.ts";
import { grpcLoad, type Load, restLoad } from "./support/load.ts";
import { type BenchRobot, closedLoops, pacedLoops, robots } from "./support/loop-load.ts";
import { descendants, pin, pinThread, start } from "./support/processes.ts";
import { type Allocation, allocations, inspectorOf, profile, type Sample } from "./support/profiler.ts";
import { type CallerWire, robotsOf } from "./support/robot-load.ts";

const calls = Number(process.argv[2] ?? 10_000);
const only = process.argv[3];
const byAllocation = process.argv[4] === "allocations";
const MOST = 25;

type Site = Sample["stack"][number];

/** The room of a place in the code, or the library. */
function folderOf({ file, name }: Site): string {
  if (name.startsWith("(garbage")) return "gc";
  const [, ours] = /\/(src\/[^/]+|gen)\//.exec(file) ?? [];
  if (ours !== undefined && !file.includes("node_modules")) return ours;
  const [, ourFile] = /\/(src\/[^/]+\.ts)$/.exec(file) ?? [];
  if (ourFile !== undefined) return ourFile;
  const [, library] = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file) ?? [];
  return library ?? "node";
}

const isOurs = (site: Site): boolean => folderOf(site).startsWith("src/");
const placeOf = ({ name, file, line }: Site): string =>
  file === "" ? name : `${name} ${file.replace(/^.*\/(src|node_modules|gen)\//, "$1/")}:${line}`;

/** Who answers for a sample: the innermost room on its stack, or else the innermost library. */
function askerOf(stack: Sample["stack"]): string {
  const folders = stack.map(folderOf);
  if (folders[0] === "gc") return "gc";
  return folders.find((folder) => folder.startsWith("src/")) ?? folders.find((folder) => folder !== "node") ?? "node";
}

function add<K>(totals: Map<K, number>, key: K, micros: number): void {
  totals.set(key, (totals.get(key) ?? 0) + micros);
}

function report(title: string, samples: readonly Sample[], perCall: number): void {
  const itself = new Map<string, number>();
  const charged = new Map<string, number>();
  const own = new Map<string, number>();
  const inclusive = new Map<string, number>();
  let total = 0;
  for (const { micros, stack } of samples) {
    const leaf = stack[0]!;
    total += micros;
    add(itself, folderOf(leaf), micros);
    add(charged, askerOf(stack), micros);
    const asker = stack.slice(1).find((site) => folderOf(site) !== "node");
    add(own, asker ? `${placeOf(leaf)}  for ${placeOf(asker)}` : placeOf(leaf), micros);
    for (const place of new Set(stack.filter(isOurs).map(placeOf))) add(inclusive, place, micros);
  }
  const share = (micros = 0): string => `${((100 * micros) / total).toFixed(1)} %`.padStart(10);
  const each = (micros = 0): string => (micros / perCall).toFixed(1).padStart(10);
  const ranked = (totals: Map<string, number>): [string, number][] => [...totals].sort((a, b) => b[1] - a[1]);

  console.log(`\n## ${title}: ${(total / perCall).toFixed(0)} us per call under the profiler\n`);
  console.log(`${"room".padEnd(28)}${"itself".padStart(10)}${"with what it calls".padStart(20)}${"us".padStart(10)}`);
  for (const [room, micros] of ranked(charged))
    if (micros / total > 0.003)
      console.log(`${room.padEnd(28)}${share(itself.get(room))}${share(micros).padStart(20)}${each(micros)}`);
  for (const [room, micros] of ranked(itself))
    if (!charged.has(room) && micros / total > 0.003) console.log(`${room.padEnd(28)}${share(micros)}`);
  console.log("\nour functions, with what they call");
  for (const [place, micros] of ranked(inclusive).slice(0, 2 * MOST))
    console.log(`${share(micros)}${each(micros)}  ${place}`);
  console.log("\nall functions, themselves");
  for (const [place, micros] of ranked(own).slice(0, MOST)) console.log(`${share(micros)}${each(micros)}  ${place}`);
}

/** Bytes for each call, by the innermost place of ours that asked for them. */
function reportAllocations(title: string, samples: readonly Allocation[], perCall: number): void {
  const asked = new Map<string, number>();
  let total = 0;
  for (const { bytes, stack } of samples) {
    total += bytes;
    const leaf = stack[0]!;
    const asker = stack.find(isOurs);
    add(asked, asker && asker !== leaf ? `${placeOf(asker)}  by ${placeOf(leaf)}` : placeOf(leaf), bytes);
  }
  console.log(`\n## ${title}: ${(total / perCall).toFixed(0)} bytes allocated per call\n`);
  for (const [place, bytes] of [...asked].sort((a, b) => b[1] - a[1]).slice(0, 2 * MOST))
    console.log(`${(bytes / perCall).toFixed(1).padStart(10)}  ${place}`);
}

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const frames = only === "frames";
const server = `test/bench/support/${frames ? "frames-upstream" : "upstream"}.ts`;
const upstream = await start(server, [], (line) => line.startsWith("{"));
const ports: { grpc: number } = JSON.parse(upstream.line);
const served = frames ? { contracts: ["predict"], price_per_frame: 0.000001 } : undefined;
const gateway = await openGateway(folder, `grpc://127.0.0.1:${ports.grpc}`, {}, ["--inspect=127.0.0.1:0"], served);
const inspector = inspectorOf(join(folder, "log"));
const base = `http://127.0.0.1:${gateway.port}`;
/** 64 robots that ask as fast as they are answered, or 20 at 50 Hz on connections of their own. */
async function loopLoad(count: number, paced: boolean): Promise<Pick<Load, "failed">> {
  const party = await robots(base, gateway.key, paced ? 20 : 8, paced ? 20 : 64);
  const load = (all: readonly BenchRobot[]): Promise<{ others: number }> =>
    paced ? pacedLoops(all, 50, count / all.length / 50) : closedLoops(all, Math.ceil(count / all.length));
  const { others } = await load(party.all);
  party.close();
  return { failed: others };
}

/** 50 predictions, of a kilobyte every 20 ms, as often as it takes. */
async function frameLoad(count: number): Promise<Pick<Load, "failed">> {
  let left = count;
  while (left > 0) left -= await pacedFrames(gateway, 50);
  return { failed: 0 };
}

const LOADS: Record<string, (count: number) => Promise<Pick<Load, "failed">>> = {
  REST: (count) => restLoad(`${base}/v1/act`, actJson, gateway.key, 32, count),
  gRPC: (count) => grpcLoad(base, GRPC_PATH, actFrame, gateway.key, 8, 4, count),
  loops: (count) => loopLoad(count, false),
  paced: (count) => loopLoad(count, true),
};
/** Calls with pictures, by the name of the wire and how many. */
const [, wire, pictures] = /^(REST|gRPC|loop|openpi)-(\d)$/.exec(only ?? "") ?? [];
if (wire !== undefined)
  LOADS[only!] = async (count) => {
    const party = await robotsOf(wire as CallerWire, Number(pictures), gateway, 32);
    const load = await party.load(count);
    await party.close();
    return load;
  };
const loads = frames ? { frames: frameLoad } : LOADS;
for (const [name, load] of Object.entries(loads)) {
  if (only !== undefined && only !== name) continue;
  await load(calls); // warm-up
  const busy = async (): Promise<void> => {
    // A sample is time that passed, which is time on a core only for who has one to himself: the thread that samples is elsewhere, too.
    pin([], [gateway.pid, upstream.pid, ...descendants(gateway.pid)]);
    pinThread(gateway.pid);
    const { failed } = await load(calls);
    if (failed > 0) throw new Error(`${name}: ${failed} calls failed`);
  };
  if (byAllocation) reportAllocations(name, await allocations(inspector, busy), calls);
  else report(name, await profile(inspector, busy), calls);
}
await Promise.all([gateway.stop(), upstream.stop()]);
rmSync(folder, { recursive: true, force: true });
