/**
 * What one message of a control loop costs, everything on, beside bare relays that carry bytes and do no work: goals G4 to G7.
 * All programs run side by side and are loaded in turn; the ratios are medians over rounds.
 *
 * Loops last for hours, and V8 compiles what carries a message until some 400,000 of them went by: half a minute of ten robots at
 * 1,000 Hz, and until then a message costs several times what it costs ever after. So all programs are warmed up alike, by closed loops
 * because these are fast, until none of them gets any cheaper, with a moment of paced ones in between, for code that never saw what a pace
 * brings with it is thrown away when it does. Then each has a run of the section's own kind that no figure counts. What the first messages
 * cost Limber is printed, so that nobody is misled about the first seconds.
 *
 * `node test/bench/loop.ts [rounds] [messages per robot] [idle,closed,paced,many,fast] [pinned]`: with `pinned`, each measured program has
 * one core that it shares with no robot and no model. `queued` tells what the machine did to a run: for which share of it the program,
 * its model and the robots, together, could have gone on and had no core. Tails of runs where that is much are the machine's. The
 * messages per robot are those of closed loops; in 64 of them, 500 are 32,000 in all.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openGateway } from "./support/gateway.ts";
import { type BenchRobot, closedLoops, type LoopLoad, pacedLoops, robots } from "./support/loop-load.ts";
import {
  cpuNanos,
  haveStartFlags,
  median,
  pin,
  queuedNanos,
  type Started,
  start,
  startModelServer,
} from "./support/processes.ts";
import { getsFaster } from "./support/turns.ts";

// A pause of the robots would be taken for one of who answers them.
haveStartFlags();

const rounds = Number(process.argv[2] ?? 5);
const each = Number(process.argv[3] ?? 500);
const wanted = process.argv[4]?.split(",");
const isWanted = (section: string): boolean => wanted === undefined || wanted.includes(section);

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const isJson = (line: string): boolean => line.startsWith("{");
const upstream = await startModelServer();
const ports: { grpc: number } = JSON.parse(upstream.line);
const floor = (kind: string): Promise<Started> =>
  start("test/bench/support/floors.ts", [kind, `http://127.0.0.1:${ports.grpc}`], isJson);
const portOf = (started: Started): number => JSON.parse(started.line).port;
const raw = await floor("http2");
const connect = await floor("connect");
const gateway = await openGateway(folder, `grpc://127.0.0.1:${ports.grpc}`);

const PROGRAMS = {
  direct: { name: "the model itself", pid: upstream.pid, port: ports.grpc, key: "" },
  raw: { name: "raw node:http2 relay", pid: raw.pid, port: portOf(raw), key: "" },
  connect: { name: "bare Connect relay", pid: connect.pid, port: portOf(connect), key: "" },
  limber: { name: "Limber, everything on", pid: gateway.pid, port: gateway.port, key: gateway.key },
} as const;
type Name = keyof typeof PROGRAMS;

/** Where it is asked for, what is measured has a core of its own, so that robots and model, which share the others, are not in its way. */
const pinned = process.argv[5] === "pinned" && pin([raw.pid, connect.pid, gateway.pid], [upstream.pid]);

interface Result extends LoopLoad {
  micros: number;
  /** The share of the run for which the program, the model and the robots waited for a core. */
  queued: number;
}

/** One load on one program: what it saw, and the program's CPU for each message. */
async function run(
  name: Name,
  connections: number,
  count: number,
  load: (all: readonly BenchRobot[]) => Promise<LoopLoad>,
  before: (all: readonly BenchRobot[]) => Promise<unknown>,
): Promise<Result> {
  const { pid, port, key } = PROGRAMS[name];
  const party = await robots(`http://127.0.0.1:${port}`, key, connections, count);
  await before(party.all);
  const waiting = (): number =>
    [...new Set([pid, upstream.pid, process.pid])].reduce((sum, p) => sum + queuedNanos(p), 0);
  const began = performance.now();
  const queuedBefore = waiting();
  const cpuBefore = cpuNanos(pid);
  const seen = await load(party.all);
  const micros = (cpuNanos(pid) - cpuBefore) / 1000 / Math.max(1, seen.latencies.length);
  const queued = (waiting() - queuedBefore) / 1e6 / (performance.now() - began);
  party.close();
  return { ...seen, micros, queued };
}

const closedLoopsOf =
  (each: number) =>
  (all: readonly BenchRobot[]): Promise<LoopLoad> =>
    closedLoops(all, each);

const at = (sorted: readonly number[], q: number): number => sorted[Math.floor((sorted.length - 1) * q)] ?? Number.NaN;
const p50 = ({ latencies }: Result): number => at(latencies, 0.5);
const line = (name: string, ...figures: string[]): void =>
  console.log(name.padEnd(32) + figures.map((figure) => figure.padStart(13)).join(""));

/** The share that was carried, in the median round: one in which the machine stood still says nothing of a program. */
const shareOf = (runs: readonly Result[]): number => median(runs.map(({ carried, sent }) => carried / sent));

/** How many were lost in each round. */
const lostBy = (runs: readonly Result[]): string => runs.map(({ carried, sent }) => sent - carried).join(" ");

/**
 * How many answers of each round took longer than a chunk of the model lasts. A relay hands them on, stale; Limber holds, and counts as
 * lost what it did not send: where others' are as many, the machine stood still for all of them.
 */
const lateBy = (runs: readonly Result[], lastsMs: number): string =>
  runs.map(({ latencies }) => latencies.filter((each) => each > lastsMs).length).join(" ");

/** Turns of closed loops before any run counts: at least so many messages to each program, until none gets cheaper any longer, and no more than so many. */
const WARM_UP = { robots: 64, connections: 8, each: 500, least: 500_000, most: 700_000 } as const;
/** How long robots are paced between them. */
const PACED_S = 0.5;
const warm = new Map<Name, number[]>();

/** Once for each program, whatever sections it is in. */
async function warmUp(names: readonly Name[]): Promise<void> {
  const cold = names.filter((name) => !warm.has(name));
  for (const name of cold) warm.set(name, []);
  const { robots, connections, each, least, most } = WARM_UP;
  const falls = (): boolean => cold.some((name) => getsFaster(warm.get(name)!));
  for (let sent = 0; sent < least || (sent < most && falls()); sent += robots * each)
    for (const name of cold) {
      await run(name, 10, 10, (all) => pacedLoops(all, 1000, PACED_S), closedLoopsOf(5));
      const { micros } = await run(name, connections, robots, closedLoopsOf(each), closedLoopsOf(5));
      warm.get(name)!.push(micros);
    }
  if (!cold.includes("limber")) return;
  const micros = warm.get("limber")!.map((each) => each.toFixed(1));
  console.log(
    `\nwarm-up: Limber's CPU us/msg in windows of ${robots * each} messages, from its start: ${micros.join(" ")}`,
  );
}

async function compare(
  title: string,
  names: readonly Name[],
  connections: number,
  count: number,
  times: number,
  load: (all: readonly BenchRobot[]) => Promise<LoopLoad>,
  /** What robots do before they are looked at. */
  before: (all: readonly BenchRobot[]) => Promise<unknown> = closedLoopsOf(5),
  /** For how many milliseconds a chunk lasts, where that is soon over. */
  lastsMs?: number,
): Promise<void> {
  await warmUp(names);
  for (const name of names) await run(name, connections, count, load, before);
  const results = new Map<Name, Result[]>(names.map((name) => [name, []]));
  for (let round = 0; round < times; round++)
    for (const name of names) results.get(name)!.push(await run(name, connections, count, load, before));
  line(`\n${title}`, "CPU us/msg", "p50 ms", "p99 ms", "carried", "queued", "x raw", "added p50");
  for (const [name, runs] of results) {
    const ratio = median(runs.map(({ micros }, i) => micros / results.get("raw")![i]!.micros));
    line(
      PROGRAMS[name].name,
      median(runs.map(({ micros }) => micros)).toFixed(1),
      median(runs.map(p50)).toFixed(2),
      median(runs.map(({ latencies }) => at(latencies, 0.99))).toFixed(2),
      `${(shareOf(runs) * 100).toFixed(2)} %`,
      `${(median(runs.map(({ queued }) => queued)) * 100).toFixed(1)} %`,
      ratio.toFixed(2),
      results.has("direct") ? median(runs.map((run, i) => p50(run) - p50(results.get("direct")![i]!))).toFixed(2) : "",
    );
  }
  const ours = results.get("limber")!;
  const raw = results.get("raw")!;
  line("carried / raw relay's carried", (shareOf(ours) / shareOf(raw)).toFixed(4));
  for (const [name, runs] of results) {
    line(`lost by round, ${name}`, lostBy(runs));
    if (lastsMs !== undefined) line(`stale by round, ${name}`, lateBy(runs, lastsMs));
  }
  const theirs = results.get("connect");
  if (theirs)
    line("Limber / Connect relay", median(ours.map(({ micros }, i) => micros / theirs[i]!.micros)).toFixed(3));
}

console.log(pinned ? "each measured program has a core of its own" : "all programs share all cores");

/**
 * Loops last for hours: what is made when they are opened is collected before they are looked at, or the tails of the first seconds
 * would be those of the collector that copies 200 connections.
 */
const SETTLE_S = 3;

const SECTIONS: Readonly<Record<string, () => Promise<void>>> = {
  // First, while nothing that went before is there to be used again.
  idle: idleStreams,
  closed: () =>
    compare("64 closed loops (G4 1.5, G5 0.11)", ["raw", "connect", "limber"], 8, 64, rounds, closedLoopsOf(each)),
  paced: () =>
    compare(
      "20 robots at 50 Hz (G4 1.5)",
      ["raw", "limber"],
      20,
      20,
      rounds,
      // So few messages a second that V8 still compiles for a change of pace in the first of them: the longer, the steadier.
      (all) => pacedLoops(all, 50, 8),
      (all) => pacedLoops(all, 50, SETTLE_S),
    ),
  many: () =>
    compare(
      "200 robots at 50 Hz (G6 all, 0.6 added)",
      ["direct", "raw", "limber"],
      200,
      200,
      rounds,
      (all) => pacedLoops(all, 50, 2),
      (all) => pacedLoops(all, 50, SETTLE_S),
    ),
  fast: () =>
    compare(
      "10 robots at 1,000 Hz (G7 all, 0.4 added)",
      ["direct", "raw", "limber"],
      10,
      10,
      rounds,
      (all) => pacedLoops(all, 1000, 2),
      (all) => pacedLoops(all, 1000, SETTLE_S),
      16, // steps of a millisecond
    ),
};
for (const [section, run] of Object.entries(SECTIONS)) if (isWanted(section)) await run();

/** What a stream that nothing is said on holds. */
async function idleStreams(): Promise<void> {
  const rss = (): number => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${gateway.pid}/status`, "utf8"))?.[1]);
  // What the first streams bring with them is not theirs.
  const first = await robots(`http://127.0.0.1:${gateway.port}`, gateway.key, 20, 100);
  first.close();
  const before = rss();
  const idle = await robots(`http://127.0.0.1:${gateway.port}`, gateway.key, 20, 500);
  await new Promise((resolve) => setTimeout(resolve, 3000));
  console.log(`\n500 idle streams: ${((rss() - before) / 500).toFixed(0)} kB each (goal 100)`);
  idle.close();
}

await Promise.all([gateway, upstream, raw, connect].map((started) => started.stop()));
rmSync(folder, { recursive: true, force: true });
