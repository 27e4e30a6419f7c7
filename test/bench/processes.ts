/**
 * What several processes on one port cost, and how evenly robots fall on them. CPU microseconds of all gateway processes for each call,
 * one process beside two on one PostgreSQL, in turns; then 10 to 200 robots on four processes: the fullest beside the emptiest.
 * `node test/bench/processes.ts [rounds] [calls]`
 */
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as rest } from "node:timers/promises";
import { startPostgres } from "../../src/embedded/postgres.ts";
import { connect } from "../../src/store/database/tx.ts";
import { actJson } from "./support/act-call.ts";
import { ADMIN_TOKEN, type Bench, openGateway } from "./support/gateway.ts";
import { restLoad } from "./support/load.ts";
import { robots } from "./support/loop-load.ts";
import { cpuNanos, descendants, median, startModelServer } from "./support/processes.ts";

const rounds = Number(process.argv[2] ?? 15);
const calls = Number(process.argv[3] ?? 4_000);
const CALLERS = 32;
const FLEETS = [10, 20, 50, 100, 200];

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const postgres = await startPostgres({ dataDir: join(folder, "postgres") });
const model = await startModelServer();
const { grpc } = JSON.parse(model.line) as { grpc: number };

/** Each on a database of its own, on one server. */
async function open(processes: number): Promise<Bench> {
  const admin = connect(postgres.url, { max: 1 });
  await admin.unsafe(`create database of_${processes}`).finally(() => admin.end());
  const url = new URL(postgres.url);
  url.pathname = `of_${processes}`;
  return openGateway(join(folder, `${processes}`), `grpc://127.0.0.1:${grpc}`, {
    DATABASE_URL: url.href,
    LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
    LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
    LIMBER_PROCESSES: `${processes}`,
    LOG_LEVEL: "warn",
  });
}

const nanosOf = ({ pid }: Bench): number => [pid, ...descendants(pid)].reduce((sum, each) => sum + cpuNanos(each), 0);

async function micros(bench: Bench): Promise<number> {
  const before = nanosOf(bench);
  const { failed } = await restLoad(`http://127.0.0.1:${bench.port}/v1/act`, actJson, bench.key, CALLERS, calls);
  if (failed > 0) throw new Error(`${failed} calls failed`);
  return (nanosOf(bench) - before) / calls / 1_000;
}

/** The connections of each process, as the gateway counts them; one of them is that of this question. */
async function countsOf({ port }: Bench): Promise<number[]> {
  const asked = request({ port, path: "/metrics", agent: false, headers: { "x-service-admin-token": ADMIN_TOKEN } });
  asked.end();
  const [answer] = (await once(asked, "response")) as [IncomingMessage];
  const metrics = await text(answer);
  return [...metrics.matchAll(/^limber_process_connections\{process="\d+"\} (\d+)$/gm)].map(([, count]) =>
    Number(count),
  );
}

const sumOf = (counts: readonly number[]): number => counts.reduce((sum, count) => sum + count, 0);

/** Waits until the gateway knows of as many connections, and of that of the question. */
async function settled(bench: Bench, count: number): Promise<number[]> {
  for (;;) {
    const counts = await countsOf(bench);
    if (sumOf(counts) === count + 1) return counts;
    await rest(100);
  }
}

const [one, two] = [await open(1), await open(2)];
const costs: [number, number][] = [];
// The first rounds warm up: a call gets cheaper for its first 60,000.
for (let round = -8; round < rounds; round++) {
  const cost: [number, number] = [await micros(one), await micros(two)];
  if (round >= 0) costs.push(cost);
}
console.log(`CPU us/call of one process  ${median(costs.map(([a]) => a)).toFixed(1)}`);
console.log(`CPU us/call of two          ${median(costs.map(([, b]) => b)).toFixed(1)}`);
console.log(`two / one                   ${median(costs.map(([a, b]) => b / a)).toFixed(2)}   (goal 1.1)`);
await Promise.all([one.stop(), two.stop()]);

const four = await open(4);
for (const count of FLEETS) {
  await settled(four, 0);
  const fleet = await robots(`http://127.0.0.1:${four.port}`, four.key, count, count);
  const counts = await settled(four, count);
  const ratio = Math.max(...counts) / Math.min(...counts);
  console.log(
    `${String(count).padStart(3)} robots on four: ${counts.join(" ")}, fullest / emptiest ${ratio.toFixed(2)}   (goal 1.3)`,
  );
  fleet.close();
}
await four.stop();
await model.stop();
await postgres.stop();
rmSync(folder, { recursive: true, force: true });
