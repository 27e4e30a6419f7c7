/**
 * What one act call costs: CPU microseconds of the gateway, everything on, beside bare relays that do no work.
 * All programs run side by side and are loaded in turn, so that what else the machine does falls on all alike; the ratios
 * are medians over rounds. `node test/bench/act.ts [rounds] [calls] [pinned]`: with `pinned`, what is measured shares its core with no
 * caller and no model.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { actFrame, actJson, GRPC_PATH } from "./support/act-call.ts";
import { openGateway } from "./support/gateway.ts";
import { grpcLoad, type Load, restLoad } from "./support/load.ts";
import { cpuNanos, median, pin, type Started, start } from "./support/processes.ts";

const rounds = Number(process.argv[2] ?? 5);
const calls = Number(process.argv[3] ?? 3000);
/** Calls to each program before any counts: the engine goes on making code faster for that long, and a gateway runs for days. */
const WARM_UP = Math.max(25_000, calls);
const CALLERS = 32;
const CONNECTIONS = 8;

interface Row {
  name: string;
  pid: number;
  load: (count: number) => Promise<Load>;
}

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const isJson = (line: string): boolean => line.startsWith("{");
const upstream = await start("test/bench/support/upstream.ts", [], isJson);
const ports: { grpc: number; rest: number } = JSON.parse(upstream.line);
const floor = (kind: string, port: number): Promise<Started> =>
  start("test/bench/support/floors.ts", [kind, `http://127.0.0.1:${port}`], isJson);
const portOf = (started: Started): number => JSON.parse(started.line).port;
const restFloor = await floor("rest", ports.rest);
const connectFloor = await floor("connect", ports.grpc);
const endpoint = `grpc://127.0.0.1:${ports.grpc}`;
const gateway = await openGateway(join(folder, "fast"), endpoint);
const general = await openGateway(join(folder, "general"), endpoint, { LIMBER_GRPC_FAST_PATH: "off" });

const rest =
  (port: number, key = "") =>
  (count: number) =>
    restLoad(`http://127.0.0.1:${port}/v1/act`, actJson, key, CALLERS, count);
const grpc =
  (port: number, key = "") =>
  (count: number) =>
    grpcLoad(`http://127.0.0.1:${port}`, GRPC_PATH, actFrame, key, CONNECTIONS, CALLERS / CONNECTIONS, count);

const ROWS = {
  restFloor: { name: "REST  bare Fastify + undici", pid: restFloor.pid, load: rest(portOf(restFloor)) },
  rest: { name: "REST  Limber, everything on", pid: gateway.pid, load: rest(gateway.port, gateway.key) },
  connectFloor: { name: "gRPC  bare Connect relay", pid: connectFloor.pid, load: grpc(portOf(connectFloor)) },
  grpc: { name: "gRPC  Limber, everything on", pid: gateway.pid, load: grpc(gateway.port, gateway.key) },
  general: { name: "gRPC  Limber, fast path off", pid: general.pid, load: grpc(general.port, general.key) },
} satisfies Record<string, Row>;
type RowName = keyof typeof ROWS;

const measured = Object.values(ROWS).map(({ pid }) => pid);
const pinned = process.argv[4] === "pinned" && pin(measured, [upstream.pid]);

const micros: Record<RowName, number[]> = { restFloor: [], rest: [], connectFloor: [], grpc: [], general: [] };
const p50s: Record<RowName, number[]> = { restFloor: [], rest: [], connectFloor: [], grpc: [], general: [] };
const databaseMicros: number[] = [];

for (let round = 0; round <= rounds; round++) {
  for (const [key, row] of Object.entries(ROWS) as [RowName, Row][]) {
    const before = cpuNanos(row.pid);
    const databaseBefore = gateway.databaseNanos();
    const { answered, failed, latencies } = await row.load(round === 0 ? WARM_UP : calls);
    if (failed > 0) throw new Error(`${row.name}: ${failed} of ${calls} calls failed`);
    if (round === 0) continue; // warm-up
    micros[key].push((cpuNanos(row.pid) - before) / 1000 / answered);
    p50s[key].push(median(latencies));
    if (row.pid === gateway.pid) databaseMicros.push((gateway.databaseNanos() - databaseBefore) / 1000 / answered);
  }
}

const ratio = (a: RowName, b: RowName): string => median(micros[a].map((value, i) => value / micros[b][i]!)).toFixed(2);
const line = (name: string, ...figures: string[]): void =>
  console.log(name.padEnd(32) + figures.map((figure) => figure.padStart(12)).join(""));

console.log(pinned ? "each measured program has a core of its own" : "all programs share all cores");
line(`\nact, 16x7, ${CALLERS} callers`, "CPU us/call", "p50 ms");
for (const [key, { name }] of Object.entries(ROWS) as [RowName, Row][])
  line(name, median(micros[key]).toFixed(1), median(p50s[key]).toFixed(2));
line("Postgres behind Limber", median(databaseMicros).toFixed(1));
console.log(`\nmedians of ${rounds} rounds of ${calls} calls, after ${WARM_UP} that don't count`);
line("REST  Limber / Fastify + undici", ratio("rest", "restFloor"), "goal 1.00");
line("gRPC  Limber / Connect relay", ratio("grpc", "connectFloor"), "goal 0.30");
line("gRPC  fast path off / relay", ratio("general", "connectFloor"));
console.log("\nwhere the time goes: node test/bench/profile.ts");

await Promise.all([gateway, general, upstream, restFloor, connectFloor].map((started) => started.stop()));
rmSync(folder, { recursive: true, force: true });
