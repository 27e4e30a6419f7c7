/**
 * What one act call costs: CPU microseconds of the gateway, everything on, beside bare relays that do no work.
 * All programs run side by side and are loaded in turn, so that what else the machine does falls on all alike; the ratios
 * are medians over rounds. `node test/bench/act.ts [rounds] [calls]`
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import { ActRequestSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage } from "../../src/codecs/grpc.ts";
import { type Bench, openGateway } from "./support/gateway.ts";
import { grpcLoad, type Load, restLoad } from "./support/load.ts";
import { cpuNanos, median, type Started, start } from "./support/processes.ts";

const rounds = Number(process.argv[2] ?? 5);
const calls = Number(process.argv[3] ?? 8000);
const GRPC_PATH = "/limber.v1.InferenceService/Act";
const PROPRIO = Array.from({ length: 14 }, (_, i) => i / 16);
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

interface Row {
  name: string;
  pids: () => number[];
  load: (concurrency: number, calls: number) => Promise<Load>;
}

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const isJson = (line: string): boolean => line.startsWith("{");
const upstream = await start("test/bench/support/upstream.ts", [], {}, isJson);
const ports: { grpc: number; rest: number } = JSON.parse(upstream.line);
const portOf = (started: Started): number => JSON.parse(started.line).port;
const restFloor = await start("test/bench/support/floors.ts", ["rest", `http://127.0.0.1:${ports.rest}`], {}, isJson);
const connectFloor = await start(
  "test/bench/support/floors.ts",
  ["connect", `http://127.0.0.1:${ports.grpc}`],
  {},
  isJson,
);
const endpoint = `grpc://127.0.0.1:${ports.grpc}`;
const gateway: Bench = await openGateway(join(folder, "fast"), endpoint);
const slowGateway: Bench = await openGateway(join(folder, "slow"), endpoint, { LIMBER_GRPC_FAST_PATH: "off" });

const json = Buffer.from(
  JSON.stringify({
    model: "bench/instant",
    instruction: "pick up the cup",
    observations: [{ frames: [{ camera: "front", url: `data:image/png;base64,${PIXEL}` }], proprio: PROPRIO }],
  }),
);
const message = create(ActRequestSchema, {
  model: "bench/instant",
  instruction: "pick up the cup",
  observations: [{ frames: [{ camera: "front", data: Buffer.from(PIXEL, "base64") }], proprio: PROPRIO }],
});
const frame = frameMessage(toBinary(ActRequestSchema, message));

const rest =
  (port: number, key = gateway.key) =>
  (concurrency: number, count: number) =>
    restLoad(`http://127.0.0.1:${port}/v1/act`, json, key, concurrency, count);
const grpc =
  (port: number, key = gateway.key) =>
  (concurrency: number, count: number) =>
    grpcLoad(
      `http://127.0.0.1:${port}`,
      GRPC_PATH,
      frame,
      key,
      Math.min(8, concurrency),
      Math.ceil(concurrency / 8),
      count,
    );

const rows: Row[] = [
  { name: "REST   bare Fastify + undici", pids: () => [restFloor.pid], load: rest(portOf(restFloor)) },
  { name: "REST   Limber, everything on", pids: () => [gateway.pid], load: rest(gateway.port) },
  { name: "gRPC   bare Connect relay", pids: () => [connectFloor.pid], load: grpc(portOf(connectFloor)) },
  { name: "gRPC   Limber, everything on", pids: () => [gateway.pid], load: grpc(gateway.port) },
  {
    name: "gRPC   Limber, fast path off",
    pids: () => [slowGateway.pid],
    load: grpc(slowGateway.port, slowGateway.key),
  },
];

const micros = new Map<string, number[]>();
const p50 = new Map<string, number[]>();
const databaseMicros: number[] = [];
for (let round = 0; round <= rounds; round++) {
  for (const row of rows) {
    const before = row.pids().reduce((sum, pid) => sum + cpuNanos(pid), 0);
    const databaseBefore = gateway.databaseNanos();
    const load = await row.load(32, calls);
    if (load.failed > 0) throw new Error(`${row.name}: ${load.failed} calls failed`);
    const spent = row.pids().reduce((sum, pid) => sum + cpuNanos(pid), 0) - before;
    if (round === 0) continue; // warm-up
    micros.set(row.name, [...(micros.get(row.name) ?? []), spent / 1000 / load.answered]);
    p50.set(row.name, [...(p50.get(row.name) ?? []), load.latencies[Math.floor(load.latencies.length / 2)] ?? 0]);
    if (row.name.includes("everything on"))
      databaseMicros.push((gateway.databaseNanos() - databaseBefore) / 1000 / load.answered);
  }
}

const ratio = (a: string, b: string): number =>
  median((micros.get(a) ?? []).map((value, i) => value / (micros.get(b)?.[i] ?? Number.NaN)));
console.log(`\nact, 16x7, 32 callers, ${rounds} rounds of ${calls} calls`);
console.log("                               CPU µs/call   p50 ms");
for (const row of rows) {
  console.log(
    `${row.name.padEnd(30)} ${median(micros.get(row.name) ?? [])
      .toFixed(1)
      .padStart(11)} ${median(p50.get(row.name) ?? [])
      .toFixed(2)
      .padStart(8)}`,
  );
}
console.log(`Postgres behind Limber         ${median(databaseMicros).toFixed(1).padStart(11)}`);
console.log(`\nREST  Limber / bare Fastify + undici: ${ratio(rows[1]!.name, rows[0]!.name).toFixed(2)}   (goal 1.0)`);
console.log(`gRPC  Limber / bare Connect relay:    ${ratio(rows[3]!.name, rows[2]!.name).toFixed(2)}   (goal 0.30)`);
console.log(`gRPC  fast path off / bare relay:     ${ratio(rows[4]!.name, rows[2]!.name).toFixed(2)}`);

await Promise.all([gateway.stop(), slowGateway.stop(), upstream.stop(), restFloor.stop(), connectFloor.stop()]);
rmSync(folder, { recursive: true, force: true });
