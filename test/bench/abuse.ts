/**
 * What a good client feels while others abuse the port: slow heads on thousands of connections, and floods of streams that are
 * reset at once. Prints its latencies and the gateway's memory, beside a quiet port's. `node test/bench/abuse.ts [slow] [flooders]`
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sleep } from "../../src/clock.ts";
import { actJson } from "./support/act-call.ts";
import { openGateway } from "./support/gateway.ts";
import { restLoad } from "./support/load.ts";
import { start, startModelServer } from "./support/processes.ts";

const slow = Number(process.argv[2] ?? 10_000);
const flooders = Number(process.argv[3] ?? 4);
const CALLS = 400;

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const upstream = await startModelServer();
const ports: { grpc: number } = JSON.parse(upstream.line);
const gateway = await openGateway(folder, `grpc://127.0.0.1:${ports.grpc}`);
const url = `http://127.0.0.1:${gateway.port}/v1/act`;

const memoryMb = (): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${gateway.pid}/status`, "utf8"))?.[1]) / 1024;
const at = (sorted: readonly number[], share: number): string =>
  (sorted[Math.floor(share * sorted.length)] ?? Number.NaN).toFixed(1).padStart(8);

async function feel(name: string, told: () => string): Promise<void> {
  const { latencies, failed } = await restLoad(url, actJson, gateway.key, 1, CALLS);
  const figures = `p50${at(latencies, 0.5)} ms  p99${at(latencies, 0.99)} ms  worst${at(latencies, 0.999)} ms`;
  console.log(`${name.padEnd(34)}${figures}  failed ${failed}  memory ${memoryMb().toFixed(0)} MiB  ${told()}`);
}

const attack = (kind: string, count: number) =>
  start("test/bench/support/attackers.ts", [kind, String(gateway.port), String(count)], (line) => line === "ready");

await restLoad(url, actJson, gateway.key, 1, 2_000); // warm-up
await feel("nobody else", () => "");
const dribblers = await attack("slow", slow);
await feel(`${slow} slow heads`, () => dribblers.lines.at(-1) ?? "");
await sleep(12_000);
await feel("after the time for heads is over", () => dribblers.lines.at(-1) ?? "");
await dribblers.stop();
const flood = await attack("reset", flooders);
await feel(`${flooders} who reset 500 streams at a time`, () => flood.lines.at(-1) ?? "");
await flood.stop();
await sleep(1_000);
await feel("afterwards", () => "");

await Promise.all([gateway.stop(), upstream.stop()]);
rmSync(folder, { recursive: true, force: true });
