/**
 * What a control loop's message with two camera pictures costs, 48 kB in all, beside a bare relay that carries the same bytes, and what an
 * act over gRPC with them costs. All programs run side by side and are loaded in turn after a warm-up that no figure counts; ratios are
 * medians over rounds.
 *
 * `node test/bench/loop-pictures.ts [rounds] [messages per robot] [closed,paced,act]`
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import { ActRequestSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage } from "../../src/codecs/grpc.ts";
import { GRPC_PATH } from "./support/act-call.ts";
import { openGateway } from "./support/gateway.ts";
import { grpcLoad } from "./support/load.ts";
import { closedLoops, observing, pacedLoops, robots } from "./support/loop-load.ts";
import { pictures } from "./support/pictures.ts";
import { cpuNanos, haveStartFlags, median, type Started, start, startModelServer } from "./support/processes.ts";

haveStartFlags();

const rounds = Number(process.argv[2] ?? 7);
const each = Number(process.argv[3] ?? 200);
const sections = process.argv[4]?.split(",") ?? ["closed", "paced", "act"];

const LOOPS = 16;
const PACED = { robots: 50, hz: 30, seconds: 4 } as const;

const cameras = await pictures(2);
const observation = observing(cameras);
const proprio = Array.from({ length: 14 }, (_, i) => i / 16);
const frames = cameras.map((data, i) => ({ camera: `camera_${i}`, data }));
const request = { model: "bench/instant", instruction: "pick up the cup", observations: [{ frames, proprio }] };
const actFrame = frameMessage(toBinary(ActRequestSchema, create(ActRequestSchema, request)));

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const isJson = (line: string): boolean => line.startsWith("{");
const upstream = await startModelServer();
const ports: { grpc: number } = JSON.parse(upstream.line);
const floor = (kind: string) => start("test/bench/support/floors.ts", [kind, `http://127.0.0.1:${ports.grpc}`], isJson);
const raw = await floor("http2");
const calls = await floor("http2");
const endpoint = `grpc://127.0.0.1:${ports.grpc}`;
const gateway = await openGateway(folder, endpoint);

interface PictureProgram {
  readonly name: string;
  readonly pid: number;
  readonly port: number;
  readonly key: string;
}

const relay = ({ pid, line }: Started): PictureProgram => ({
  name: "raw node:http2 relay",
  pid,
  port: JSON.parse(line).port,
  key: "",
});

const GATEWAYS: readonly PictureProgram[] = [
  { name: "Limber", pid: gateway.pid, port: gateway.port, key: gateway.key },
];

interface PictureTurn {
  readonly micros: number;
  readonly p50: number;
  readonly p99: number;
  readonly carried: number;
}

const at = (sorted: readonly number[], q: number): number => sorted[Math.floor((sorted.length - 1) * q)] ?? Number.NaN;

async function loops({ pid, port, key }: PictureProgram, isPaced: boolean): Promise<PictureTurn> {
  const count = isPaced ? PACED.robots : LOOPS;
  const party = await robots(`http://127.0.0.1:${port}`, key, count, count, undefined, observation);
  await closedLoops(party.all, 5);
  const before = cpuNanos(pid);
  const { latencies, carried, sent } = isPaced
    ? await pacedLoops(party.all, PACED.hz, PACED.seconds)
    : await closedLoops(party.all, each);
  const micros = (cpuNanos(pid) - before) / 1000 / Math.max(1, carried);
  party.close();
  return { micros, p50: at(latencies, 0.5), p99: at(latencies, 0.99), carried: carried / sent };
}

async function acts({ pid, port, key }: PictureProgram): Promise<PictureTurn> {
  const calls = LOOPS * each;
  const before = cpuNanos(pid);
  const { answered, latencies } = await grpcLoad(`http://127.0.0.1:${port}`, GRPC_PATH, actFrame, key, 8, 4, calls);
  const micros = (cpuNanos(pid) - before) / 1000 / Math.max(1, answered);
  const sorted = [...latencies].sort((a, b) => a - b);
  return { micros, p50: at(sorted, 0.5), p99: at(sorted, 0.99), carried: answered / calls };
}

const TURNS: Readonly<Record<string, (program: PictureProgram) => Promise<PictureTurn>>> = {
  closed: (program) => loops(program, false),
  paced: (program) => loops(program, true),
  act: acts,
};
const TITLES: Readonly<Record<string, string>> = {
  closed: `${LOOPS} closed loops`,
  paced: `${PACED.robots} robots at ${PACED.hz} Hz`,
  act: "act over gRPC, 32 callers",
};

const line = (name: string, ...figures: string[]): void =>
  console.log(name.padEnd(28) + figures.map((figure) => figure.padStart(12)).join(""));
const of = (turns: readonly PictureTurn[], figure: keyof PictureTurn): number =>
  median(turns.map((turn) => turn[figure]));

/** Turns that no figure counts: V8 has compiled what carries a message after some of them. */
const WARM_UP = 4;

async function compare(section: string): Promise<void> {
  const turn = TURNS[section]!;
  const programs = [relay(section === "act" ? calls : raw), ...GATEWAYS];
  const warm = section === "paced" ? TURNS.closed! : turn;
  for (let i = 0; i < WARM_UP; i++) for (const program of programs) await warm(program);
  const results = programs.map((): PictureTurn[] => []);
  for (let round = 0; round < rounds; round++)
    for (const [i, program] of programs.entries()) results[i]!.push(await turn(program));
  line(`\n${TITLES[section]}`, "CPU us", "x raw", "p50 ms", "p99 ms", "carried");
  for (const [i, turns] of results.entries())
    line(
      programs[i]!.name,
      of(turns, "micros").toFixed(1),
      median(turns.map(({ micros }, round) => micros / results[0]![round]!.micros)).toFixed(2),
      of(turns, "p50").toFixed(2),
      of(turns, "p99").toFixed(2),
      `${(of(turns, "carried") * 100).toFixed(2)} %`,
    );
}

for (const section of sections) if (TURNS[section] !== undefined) await compare(section);
await Promise.all([gateway, upstream, raw, calls].map((started) => started.stop()));
rmSync(folder, { recursive: true, force: true });
