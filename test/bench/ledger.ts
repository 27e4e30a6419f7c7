/**
 * What money costs per call: `node test/bench/ledger.ts [calls]`. Whole calls (hold, intent, answer once it is durable, settle) through
 * a credit leaser, on an embedded PostgreSQL that syncs its log, beside callers that make the same records and pay nothing, and beside one
 * transaction per call, all in turn in the same run; then a credit leaser that is killed under load. What the ledger costs is the difference
 * between the first two: the rest is the loop that calls it. Prints both; asserts nothing.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Payer } from "../../src/billing/credit-leaser.ts";
import { sleep } from "../../src/clock.ts";
import { startPostgres } from "../../src/embedded/postgres.ts";
import { newId } from "../../src/ids.ts";
import type { IntentRecord, RequestRecord } from "../../src/store/billing/ledger.ts";
import { migrate } from "../../src/store/database/migrate.ts";
import { connect, type Sql, tx } from "../../src/store/database/tx.ts";
import { brokenInvariants } from "../support/invariants.ts";
import { endOf, estimate, intentOf, makePayer, openReplica, type TestLeaser } from "../support/money.ts";

const CALLS = Number(process.argv[2] ?? 20_000);
const PRICE = 1_600;
const ROUNDS = 11;

const dataDir = mkdtempSync(join(tmpdir(), "limber-bench-"));
const postgres = await startPostgres({ dataDir });
const sql = connect(postgres.url, { max: 4 });
await migrate(sql);

const usedBy = new Map<string, number>();
let serverMicros = 0;

/** CPU of the server and all its processes, in microseconds; what one of them used keeps its part when it ends. */
function serverCpu(): number {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const parent = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ")[1];
      if (Number(pid) !== postgres.pid && Number(parent) !== postgres.pid) continue;
      const micros = Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[0]) / 1_000;
      serverMicros += micros - (usedBy.get(pid) ?? 0);
      usedBy.set(pid, micros);
    } catch {
      // It ended while we looked.
    }
  }
  return serverMicros;
}

interface Run {
  calls: number;
  node: number;
  server: number;
  seconds: number;
  roundTrips: number;
  medianMs: number;
}

async function measure(
  calls: number,
  callers: number,
  one: (caller: number) => Promise<unknown>,
  trips: () => number,
): Promise<Run> {
  let left = calls;
  const times: number[] = [];
  const before = { server: serverCpu(), trips: trips(), cpu: process.cpuUsage(), at: performance.now() };
  const loop = async (caller: number): Promise<void> => {
    while (left-- > 0) {
      const at = performance.now();
      await one(caller);
      times.push(performance.now() - at);
    }
  };
  await Promise.all(Array.from({ length: callers }, (_, caller) => loop(caller)));
  const cpu = process.cpuUsage(before.cpu);
  const seconds = (performance.now() - before.at) / 1_000;
  const server = (serverCpu() - before.server) / calls;
  times.sort((a, b) => a - b);
  return {
    calls,
    node: (cpu.user + cpu.system) / calls,
    server,
    seconds,
    roundTrips: (trips() - before.trips) / calls,
    medianMs: times[times.length >> 1]!,
  };
}

const sorted = (values: readonly number[]): number[] => [...values].sort((a, b) => a - b);

/** The middle of what the rounds saw. */
const median = (values: readonly number[]): number => sorted(values)[values.length >> 1] ?? Number.NaN;

/** The least and the most of it. */
const spread = (values: readonly number[]): string =>
  `(${sorted(values)
    .filter((_, i) => i === 0 || i === values.length - 1)
    .map((value) => value.toFixed(1))
    .join(" to ")})`;

const seen = {
  bare: [] as number[],
  gross: [] as number[],
  net: [] as number[],
  node: [] as number[],
  server: [] as number[],
  fairness: [] as number[],
  naive: [] as number[],
  rows: [] as number[],
  absorbed: [] as number[],
};

function print(name: string, { calls, node, server, seconds, roundTrips, medianMs }: Run): void {
  const us = (value: number): string => value.toFixed(1).padStart(6);
  console.log(
    `${name.padEnd(44)} node ${us(node)} us  postgres ${us(server)} us  sum ${us(node + server)} us  ` +
      `${roundTrips.toFixed(3)} round trips  ${Math.round(calls / seconds)} calls/s  median ${medianMs.toFixed(2)} ms`,
  );
}

const rate = ({ calls, seconds }: Run): number => calls / seconds;

/** How a call of a robot ended, as `inference/call-billing.ts` says it. */
function recordOf(intent: IntentRecord, robot: number): RequestRecord {
  const latencyMs = 20 + (robot % 7) / 8;
  const log = { model_requested: intent.model, region: "eu-central", precision: "bf16" };
  return endOf(intent, PRICE, { latencyMs, attemptMs: latencyMs - 0.125, sessionId: `robot-${robot}`, log });
}

/**
 * One call of one of many robots, each in its session; answered when its intent is durable, its settlement left to the next batch.
 * Answers its name.
 */
async function act(leaser: TestLeaser, payer: Payer, upstreamMs: number, robot: number): Promise<string> {
  const hold = await leaser.hold(payer, PRICE, estimate(PRICE));
  const intent = intentOf(payer);
  hold.intend(intent);
  if (upstreamMs > 0) await sleep(upstreamMs);
  hold.charge(recordOf(intent, robot));
  await hold.durable;
  return intent.requestId;
}

/** What the caller of `act` does itself: makes the same records, and is answered with all who came in the same turn of the event loop. */
async function bareCall(payer: Payer, robot: number): Promise<string> {
  const intent = intentOf(payer);
  const end = recordOf(intent, robot);
  await new Promise<void>((kept) => {
    if (turned.push(kept) === 1) setImmediate(answerAll);
  });
  return end.requestId;
}

let turned: (() => void)[] = [];

function answerAll(): void {
  const answered = turned;
  turned = [];
  for (const kept of answered) kept();
}

/** Kills a credit leaser under load, and answers what became of the calls that it had answered. */
async function killUnderLoad(): Promise<{ answered: number; unrecorded: number; uncharged: number; negative: number }> {
  const payer = await makePayer(sql, 1e12);
  const doomed = await openReplica(postgres.url, "doomed");
  const answered: string[] = [];
  let dead = false;
  const caller = async (robot: number): Promise<void> => {
    while (!dead) {
      const name = await Promise.race([act(doomed.leaser, payer, 5, robot), doomed.killed]);
      if (name !== undefined && !dead) answered.push(name);
    }
  };
  const callers = Promise.all(Array.from({ length: 64 }, (_, robot) => caller(robot)));
  while (answered.length < CALLS / 10) await sleep(1);
  dead = true;
  await Promise.all([doomed.kill(), callers]);
  const heir = await openReplica(postgres.url, "doomed");
  await heir.close();
  const [row] = await sql<{ recorded: number; charged: number; negative: number }[]>`
    select count(*) as recorded, count(*) filter (where status = 'settled') as charged,
      (select count(*) from account where available_micro < 0) as negative
    from request where org_id = ${payer.orgId} and request_id = any (${answered}::text[])`;
  const { recorded, charged, negative } = row!;
  return { answered: answered.length, unrecorded: answered.length - recorded, uncharged: recorded - charged, negative };
}

/** What a gateway without a credit leaser does: two statements in a transaction per call. */
async function transactionPerCall(sql: Sql, payer: Payer): Promise<void> {
  await tx(sql, async (tx) => {
    await tx`update account set available_micro = available_micro - ${PRICE} where org_id = ${payer.orgId}`;
    await tx`
      insert into transfer (cause, kind, org_id, debit, credit, amount_micro)
      values (${newId("req")}, 'charge', ${payer.orgId}, 'available', 'spent', ${PRICE})`;
  });
}

const one = await makePayer(sql, 1e12);
const many = await Promise.all(Array.from({ length: 200 }, () => makePayer(sql, 1e12)));
const replica = await openReplica(postgres.url, "bench");
let trips = 0;
const commit = replica.ledger.commit.bind(replica.ledger);
replica.ledger.commit = (leaser, batch) => {
  trips += 1;
  return commit(leaser, batch);
};
const { leaser } = replica;
const count = (): number => trips;
const none = (): number => 0;
let turn = 0;
const hotCall = (robot: number): Promise<string> => act(leaser, one, 0, robot);
const spreadCall = (robot: number): Promise<string> => act(leaser, many[turn++ % 200]!, 0, robot);
const sum = ({ node, server }: Run): number => node + server;

// What runs for hours is measured, not the compiler of the first seconds.
await measure(10 * CALLS, 32, hotCall, count);
await measure(CALLS, 32, spreadCall, count);
await measure(CALLS, 32, (robot) => bareCall(one, robot), none);
// So does the server: from now on it writes its log over old files.
await sql.unsafe("checkpoint");

/** Many short rounds, so that what else runs on the machine meets all alike. */
for (let round = 1; round <= ROUNDS; round++) {
  const bare = await measure(CALLS / 2, 32, (robot) => bareCall(one, robot), none);
  const hot = await measure(CALLS / 2, 32, hotCall, count);
  const apart = await measure(CALLS / 2, 32, spreadCall, count);
  console.log(`round ${round}, ${CALLS / 2} calls`);
  print("32 callers who pay nothing", bare);
  print("32 callers, one organisation, upstream 0 ms", hot);
  print("32 callers, 200 organisations, upstream 0 ms", apart);
  seen.bare.push(sum(bare));
  seen.gross.push(sum(hot));
  seen.net.push(sum(hot) - sum(bare));
  seen.node.push(hot.node - bare.node);
  seen.server.push(hot.server);
  seen.fairness.push(rate(hot) / rate(apart));
}

for (const round of [1, 2, 3]) {
  console.log(`at other paces, round ${round}`);
  const lone = await makePayer(sql, 1e12);
  const pool = connect(postgres.url, { max: 32 });
  print("64 callers, one organisation, upstream 0 ms", await measure(CALLS, 64, hotCall, count));
  print("64 callers, 200 organisations, upstream 0 ms", await measure(CALLS, 64, spreadCall, count));
  const crowd = await measure(CALLS, 512, hotCall, count);
  print("512 callers, one organisation, upstream 0 ms", crowd);
  print(
    "64 callers, one organisation, upstream 20 ms",
    await measure(CALLS / 4, 64, (robot) => act(leaser, one, 20, robot), count),
  );
  print("64 callers, no money, upstream 20 ms", await measure(CALLS / 4, 64, () => sleep(20), none));
  const naive = await measure(CALLS / 20, 32, () => transactionPerCall(pool, lone), none);
  print("32 callers, a transaction per call", naive);
  seen.naive.push(sum(naive));
  seen.rows.push(rate(crowd));
  seen.absorbed.push(rate(crowd) / rate(naive));
  await pool.end();
}
await replica.close();

const goal = (name: string, figure: string): void => console.log(name.padEnd(64) + figure);
console.log("\nmedians of the rounds");
goal(
  "B1 CPU of the ledger per call, Node and Postgres, 32 callers",
  `${median(seen.net).toFixed(1)} us   goal 15   ${spread(seen.net)}`,
);
goal("   of it Node", `${median(seen.node).toFixed(1)} us   ${spread(seen.node)}`);
goal("   of it Postgres", `${median(seen.server).toFixed(1)} us   ${spread(seen.server)}`);
goal("   with the loop that calls it", `${median(seen.gross).toFixed(1)} us   ${spread(seen.gross)}`);
goal("   that loop alone", `${median(seen.bare).toFixed(1)} us   ${spread(seen.bare)}`);
goal("   the ledger / a transaction per call", `${(median(seen.net) / median(seen.naive)).toFixed(3)}`);
goal("B2 calls a second of one organisation / of 200", `${median(seen.fairness).toFixed(2)}   goal 0.95`);
goal("B4 calls a second, 512 callers", `${median(seen.rows).toFixed(0)}   goal 20000`);
goal("   the same / a transaction per call", `${median(seen.absorbed).toFixed(1)}   goal 10`);
const killed = await killUnderLoad();
goal(
  `B5 of ${killed.answered} answered when a credit leaser is killed: not on record`,
  `${killed.unrecorded}   goal 0`,
);
goal("   on record and not charged", `${killed.uncharged}   goal: a batch of 512 at most`);
goal("   balances below zero", `${killed.negative}   goal 0`);
// The comparison above goes past the credit leasers on purpose: its organisations have charges without requests.
await sql.unsafe("analyze");
const broken = (await brokenInvariants(sql)).filter((line) => !line.startsWith("a charge is a settled request"));
console.log(broken.length === 0 ? "invariants hold" : broken.join("\n"));
await sql.end();
await postgres.stop();
rmSync(dataDir, { recursive: true, force: true });
// The credit leaser that was killed goes on beating, as a process that hangs would.
process.exit();
