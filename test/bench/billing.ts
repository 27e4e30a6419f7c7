/**
 * What durable billing costs a call whose model takes 20 ms: database round trips per answered call at 64 callers, and what
 * it adds to the median. The same calls go to the model itself, to a gateway whose database forgets in a power cut, and to
 * one whose database does not, in turn. `node test/bench/billing.ts [rounds] [calls]`
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sleep } from "../../src/clock.ts";
import { type EmbeddedPostgres, startPostgres } from "../../src/embedded/postgres.ts";
import { connect, type Sql } from "../../src/store/database/tx.ts";
import { actFrame, GRPC_PATH } from "./support/act-call.ts";
import { type Bench, openGateway } from "./support/gateway.ts";
import { grpcLoad, type Load } from "./support/load.ts";
import { median, startModelServer } from "./support/processes.ts";

const rounds = Number(process.argv[2] ?? 3);
const calls = Number(process.argv[3] ?? 4000);
const MODEL_MS = 20;
/** PostgreSQL's backends report their counts when they have been idle this long. */
const REPORT_MS = 1_500;

interface TestGateway {
  postgres: EmbeddedPostgres;
  sql: Sql;
  gateway: Bench;
}

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const upstream = await startModelServer([String(MODEL_MS)]);
const { grpc: modelPort }: { grpc: number } = JSON.parse(upstream.line);

async function open(name: string, settings: Record<string, string>): Promise<TestGateway> {
  const dataDir = join(folder, name);
  const postgres = await startPostgres({ dataDir, settings });
  const gateway = await openGateway(join(folder, `${name}-gateway`), `grpc://127.0.0.1:${modelPort}`, {
    DATABASE_URL: postgres.url,
    LIMBER_MASTER_KEY: Buffer.alloc(32).toString("base64"),
    LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
  });
  return { postgres, sql: connect(postgres.url, { max: 1 }), gateway };
}

const durable = await open("durable", {});
const forgetful = await open("forgetful", { fsync: "off", synchronous_commit: "off", full_page_writes: "off" });

async function load(port: number, key: string, callers: number, count: number): Promise<Load> {
  const done = await grpcLoad(`http://127.0.0.1:${port}`, GRPC_PATH, actFrame, key, 8, callers / 8, count);
  if (done.failed > 0) throw new Error(`${done.failed} of ${count} calls failed`);
  return done;
}

async function commits({ sql }: TestGateway): Promise<number> {
  const [row] = await sql<{ n: number }[]>`
    select xact_commit::int as n from pg_stat_database where datname = current_database()`;
  return row?.n ?? Number.NaN;
}

/** Commits per answered call, without those that the gateway makes anyway. */
async function roundTrips(gateway: TestGateway): Promise<number> {
  const { port, key } = gateway.gateway;
  await sleep(REPORT_MS);
  const before = await commits(gateway);
  await sleep(REPORT_MS);
  const idle = (await commits(gateway)) - before;
  const started = performance.now();
  const { answered } = await load(port, key, 64, calls);
  await sleep(REPORT_MS);
  const idleMeanwhile = (idle * (performance.now() - started)) / REPORT_MS;
  return ((await commits(gateway)) - before - idle - idleMeanwhile) / answered;
}

const p50s = { model: [] as number[], forgetful: [] as number[], durable: [] as number[] };
const trips: number[] = [];
for (let round = 0; round <= rounds; round++) {
  const seen = {
    model: await load(modelPort, "", 8, calls / 8),
    forgetful: await load(forgetful.gateway.port, forgetful.gateway.key, 8, calls / 8),
    durable: await load(durable.gateway.port, durable.gateway.key, 8, calls / 8),
  };
  const perCall = await roundTrips(durable);
  if (round === 0) continue; // warm-up
  for (const name of ["model", "forgetful", "durable"] as const) p50s[name].push(median(seen[name].latencies));
  trips.push(perCall);
}

const line = (name: string, figure: string): void => console.log(name.padEnd(52) + figure.padStart(12));
const added = (from: number[], to: number[]): string => `${median(to.map((p50, i) => p50 - from[i]!)).toFixed(2)} ms`;
console.log(`\nact over gRPC, a model of ${MODEL_MS} ms, medians of ${rounds} rounds of ${calls} calls`);
line("round trips per answered call, 64 callers", `${median(trips).toFixed(3)}   goal 0.1`);
line("p50 of the model itself, 8 callers", `${median(p50s.model).toFixed(2)} ms`);
line("p50 through Limber, 8 callers", `${median(p50s.durable).toFixed(2)} ms`);
line("added by Limber, everything on", added(p50s.model, p50s.durable));
line("B3 of that by a durable database", `${added(p50s.forgetful, p50s.durable)}   goal 0.3`);

for (const { gateway, sql, postgres } of [durable, forgetful]) {
  await gateway.stop();
  await sql.end();
  await postgres.stop();
}
await upstream.stop();
rmSync(folder, { recursive: true, force: true });
