/**
 * What a call costs as robots make it: with camera JPEGs of 15 to 60 kB, no two of them alike (`support/cameras.ts`), by one caller and by
 * many, in a cold process and in a warm one, over each wire that callers speak and to each that models do. Beside the gateway stands a
 * bare relay that carries the same bytes to an instant server of the caller's own wire: Fastify that parses and writes again for REST,
 * node:http2 for gRPC and loops, `ws` for openpi, TCP for GR00T. Where pictures have to become pixels on the way, what sharp alone takes
 * for them is measured as well, and the ratio without it is printed as `beyond sharp`.
 *
 * `node test/bench/robots.ts [rounds] [calls] [REST,gRPC,loop,openpi,gr00t] [native,openpi,gr00t] [0,1,3] [1,8,32,128] [warm,cold,paced]`:
 * each row is one of all of these. `cold` starts all programs anew and counts the first 10,000 calls (or so many as `COLD=` says);
 * `warm` counts rounds after at least `WARM=` calls to each program, 20,000 unless told; `paced` has loops send 30 observations a second
 * for 4 s, as many robots as callers. RSS is the process's after its last round. Added are latencies beyond those of the instant server
 * itself, medians over rounds.
 */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { START_FLAGS } from "../../src/app/collector.ts";
import { CAMERAS, SIDE } from "./support/cameras.ts";
import { openGateway } from "./support/gateway.ts";
import type { Load } from "./support/load.ts";
import {
  descendants,
  haveStartFlags,
  median,
  pin,
  type Started,
  start,
  startModelServer,
} from "./support/processes.ts";
import { CALLER_WIRES, type CallerWire, type Listens, robotsOf } from "./support/robot-load.ts";
import { type Figures, inTurns, type Program, ratiosOf } from "./support/turns.ts";

// A pause of the robots would be taken for one of who answers them.
haveStartFlags();

const MODEL_WIRES = ["native", "openpi", "gr00t"] as const;
type ModelWire = (typeof MODEL_WIRES)[number];
const MODES = ["warm", "cold", "paced"] as const;
type Mode = (typeof MODES)[number];

const [, , roundsSaid, callsSaid, ...lists] = process.argv;
const rounds = Number(roundsSaid ?? 7);
const calls = Number(callsSaid ?? 1000);
const listed = <T extends string>(place: number, all: readonly T[]): T[] =>
  all.filter((each) => lists[place] === undefined || lists[place].split(",").includes(each));
const numbers = (place: number, all: readonly number[]): number[] => lists[place]?.split(",").map(Number) ?? [...all];

const COLD_CALLS = Number(process.env.COLD ?? 10_000);
const WARM_CALLS = Number(process.env.WARM ?? 20_000);
const PACE = { hz: 30, seconds: 4 } as const;

/** Which bare relay carries what a caller says. */
const FLOORS: Record<CallerWire, { readonly kind: string; readonly name: string }> = {
  REST: { kind: "rest", name: "Fastify, parsed and written again" },
  gRPC: { kind: "http2", name: "raw node:http2 relay" },
  loop: { kind: "http2", name: "raw node:http2 relay" },
  openpi: { kind: "ws", name: "raw WebSocket relay" },
  gr00t: { kind: "tcp", name: "raw TCP relay" },
};

/** Ports of the instant servers. */
interface Ports {
  readonly grpc: number;
  readonly rest: number;
  readonly openpi: number;
  readonly gr00t: number;
}

const ACTS = { contracts: ["act"], action_spaces: ["ee_delta_6d_grip"], price_per_action_step: 0.000001 };
/** Without pictures nothing is declared: what is in the profile has to be sent. */
const framesAt = (prefix: string, pictures: number): object =>
  pictures === 0
    ? {}
    : {
        frames: CAMERAS.slice(0, pictures).map((camera) => ({
          key: `${prefix}${camera}`,
          camera,
          width: SIDE,
          height: SIDE,
        })),
      };

/** What the offering of an instant server declares, and where that server is. */
const MODELS: Record<ModelWire, { readonly endpoint: (ports: Ports) => string; served(pictures: number): object }> = {
  native: { endpoint: ({ grpc }) => `grpc://127.0.0.1:${grpc}`, served: () => ACTS },
  openpi: {
    endpoint: ({ openpi }) => `ws://127.0.0.1:${openpi}`,
    served: (pictures) => ({
      ...ACTS,
      runtime: "openpi-ws",
      action_dim: 7,
      max_horizon: 16,
      profile: framesAt("observation/", pictures),
    }),
  },
  gr00t: {
    endpoint: ({ gr00t }) => `tcp://127.0.0.1:${gr00t}`,
    served: (pictures) => ({
      ...ACTS,
      runtime: "gr00t-zmq",
      action_dim: 7,
      max_horizon: 16,
      profile: {
        dialect: "gr00t_n1_6",
        ...framesAt("video.", pictures),
        proprio: [{ start: 0, end: 14, key: "state.base" }],
        instruction_key: "annotation.task",
        action_keys: ["base"],
      },
    }),
  },
};

const isJson = (line: string): boolean => line.startsWith("{");
const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const rssMb = (pid: number): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;

/** A port that nobody had a moment ago. */
function freePort(): Promise<number> {
  const server = createServer();
  return new Promise((resolve) =>
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    }),
  );
}

/** Everything that one kind of row needs, running. */
interface Stage {
  readonly relay: Started;
  readonly gateway: Awaited<ReturnType<typeof openGateway>>;
  readonly at: { readonly direct: Listens; readonly relay: Listens; readonly gateway: Listens };
  readonly servers: readonly number[];
  stop(): Promise<void>;
}

let stages = 0;

async function stageOf(wire: CallerWire, model: ModelWire, pictures: number): Promise<Stage> {
  const policy = await startModelServer();
  const instant = await start("test/bench/support/instant-wires.ts", [], isJson, { flags: [...START_FLAGS] });
  const ports: Ports = { ...JSON.parse(policy.line), ...JSON.parse(instant.line) };
  const direct = { REST: ports.rest, gRPC: ports.grpc, loop: ports.grpc, openpi: ports.openpi, gr00t: ports.gr00t }[
    wire
  ];
  const scheme = wire === "openpi" ? "ws" : "http";
  const { kind } = FLOORS[wire];
  const relay = await start("test/bench/support/floors.ts", [kind, `${scheme}://127.0.0.1:${direct}`], isJson);
  const gr00tPort = await freePort();
  const { endpoint, served } = MODELS[model];
  const env = { LIMBER_GR00T_PORT: String(gr00tPort), LIMBER_GR00T_MODEL: "bench/instant" };
  const gateway = await openGateway(join(folder, String(stages++)), endpoint(ports), env, [], served(pictures));
  return {
    relay,
    gateway,
    servers: [policy.pid, instant.pid],
    at: {
      direct: { port: direct, key: "" },
      relay: { port: JSON.parse(relay.line).port, key: "" },
      gateway: { port: gateway.port, gr00tPort, key: gateway.key },
    },
    async stop() {
      for (const each of [gateway, relay, policy, instant]) await each.stop();
    },
  };
}

/** One row of the table: who calls how, and in which state the programs are. */
interface Row {
  readonly wire: CallerWire;
  readonly model: ModelWire;
  readonly pictures: number;
  readonly callers: number;
  readonly mode: Mode;
}

/** Whether pictures that came as files become pixels on the way. */
const isDecoded = ({ wire, model, pictures }: Row): boolean =>
  pictures > 0 && model !== "native" && wire !== "openpi" && wire !== "gr00t";

async function measure(row: Row, stage: Stage): Promise<void> {
  const { wire, pictures, callers, mode } = row;
  const { relay, gateway, at, servers } = stage;
  const closers: (() => Promise<void>)[] = [];
  const program = async (name: string, pid: number, listens: Listens, more = {}): Promise<Program> => {
    const robots = await robotsOf(wire, pictures, listens, callers);
    closers.push(robots.close);
    const lose = async (): Promise<Load> => {
      const load = await robots.paced!(PACE.hz, PACE.seconds);
      lost.set(name, (lost.get(name) ?? 0) + load.failed);
      return { ...load, failed: 0 };
    };
    return { name, pid, load: mode === "paced" ? lose : robots.load, ...more };
  };
  const lost = new Map<string, number>();
  const direct = await program("the model itself", servers[wire === "openpi" || wire === "gr00t" ? 1 : 0]!, at.direct);
  const floor = await program(FLOORS[wire].name, relay.pid, at.relay);
  const { databaseNanos } = gateway;
  const ours = await program("Limber, everything on", gateway.pid, at.gateway, { databaseNanos });
  const measured = [relay.pid, gateway.pid];
  const decoder = isDecoded(row) ? await start("test/bench/support/decoder.ts", [String(pictures)], isJson) : undefined;
  if (decoder) measured.push(decoder.pid);
  pin(measured, [...servers, ...descendants(gateway.pid)]);
  const programs = [direct, floor, ours, ...(decoder ? [decoding(decoder, callers)] : [])];
  const each = mode === "cold" ? COLD_CALLS : calls;
  const warmUp = mode === "cold" ? 0 : mode === "paced" ? calls : WARM_CALLS;
  const times = mode === "cold" ? 1 : rounds;
  const figures = await inTurns(programs, { rounds: times, calls: each, warmUp: { least: warmUp, most: warmUp } });
  report(row, figures, { relay: rssMb(relay.pid), gateway: rssMb(gateway.pid) }, lost);
  for (const close of closers) await close();
  await decoder?.stop();
}

/** What sharp takes for the pictures of a call. */
function decoding({ pid, line }: Started, callers: number): Program {
  const { port } = JSON.parse(line);
  const load = async (count: number): Promise<Load> => {
    const began = performance.now();
    await (await fetch(`http://127.0.0.1:${port}/?calls=${count}&at=${callers}`)).text();
    const took = (performance.now() - began) / count;
    return { answered: count, failed: 0, latencies: [took] };
  };
  return { name: "sharp alone", pid, load };
}

const line = (name: string, ...cells: string[]): void =>
  console.log(name.padEnd(36) + cells.map((cell) => cell.padStart(12)).join(""));

function report(
  { wire, model, pictures, callers, mode }: Row,
  [direct, relay, ours, sharp]: readonly Figures[],
  rss: { readonly relay: number; readonly gateway: number },
  lost: ReadonlyMap<string, number>,
): void {
  const title = `${wire} > ${model}, ${pictures} pictures, ${callers} callers, ${mode}`;
  line(`\n${title}`, "CPU us", "database", "x relay", "RSS MB", "added p50", "added p99");
  const added = (figures: Figures, name: "p50" | "p99"): string =>
    median(figures[name].map((ms, i) => ms - direct![name][i]!)).toFixed(2);
  const row = (figures: Figures, megabytes: number): void =>
    line(
      figures.name,
      median(figures.micros).toFixed(0),
      median(figures.databaseMicros).toFixed(0),
      median(ratiosOf(figures, relay!)).toFixed(2),
      megabytes.toFixed(0),
      added(figures, "p50"),
      added(figures, "p99"),
    );
  row(relay!, rss.relay);
  row(ours!, rss.gateway);
  if (sharp) {
    const beyond = ours!.micros.map((micros, i) => (micros - sharp.micros[i]!) / relay!.micros[i]!);
    line(sharp.name, median(sharp.micros).toFixed(0));
    line("beyond sharp", "", "", median(beyond).toFixed(2));
  }
  const both = ours!.micros.map((micros, i) => (micros + ours!.databaseMicros[i]!) / relay!.micros[i]!);
  line("gateway and database", "", "", median(both).toFixed(2));
  for (const [name, count] of lost) if (count > 0) line(`not answered: ${name}`, String(count));
}

async function section(wire: CallerWire, model: ModelWire, pictures: number, mode: Mode): Promise<void> {
  const kept = mode === "cold" ? undefined : await stageOf(wire, model, pictures);
  for (const callers of numbers(3, [1, 8, 32, 128]))
    for (let i = 0; i < (mode === "cold" ? rounds : 1); i++) {
      const stage = kept ?? (await stageOf(wire, model, pictures));
      await measure({ wire, model, pictures, callers, mode }, stage);
      if (stage !== kept) await stage.stop();
    }
  await kept?.stop();
}

for (const wire of listed(0, CALLER_WIRES))
  for (const model of listed(1, MODEL_WIRES))
    for (const pictures of numbers(2, [0, 1, 3]))
      for (const mode of listed(4, MODES))
        if (mode !== "paced" || wire === "loop") await section(wire, model, pictures, mode);
rmSync(folder, { recursive: true, force: true });
