/**
 * Open-loop load beyond what a gateway on a part of a core can serve: what it serves at 1 to 10 times its capacity, what a served and a
 * refused call cost it, whether health is answered, what one organisation that floods takes from another, and when all is as before. Its first
 * floods are printed and not counted.
 * `node test/bench/overload.ts [SHARE of a core: 0.125] [SECONDS of each: 8] [TIMES its capacity: 0.8,1,2.5,5,10]`
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { sleep } from "../../src/clock.ts";
import { actJson } from "./support/act-call.ts";
import { ADMIN_TOKEN, openGateway } from "./support/gateway.ts";
import { restLoad } from "./support/load.ts";
import type { CallerSeen, LoadAsked, LoadSeen } from "./support/open-load.ts";
import { cpuNanos, pin, start, startModelServer } from "./support/processes.ts";
import { holdEach } from "./support/quota.ts";
import { refusedUs } from "./support/refused.ts";

const share = Number(process.argv[2] ?? 0.125);
const seconds = Number(process.argv[3] ?? 8);
const steps = (process.argv[4] ?? "0.8,1,2.5,5,10").split(",").map(Number);
const GOOD_MS = 500;
const ROBOTS = 512;
/**
 * Not counted: V8 compiles what overload alone runs, and on a part of a core that takes seconds in which little else is done. How many times
 * the capacity.
 */
const FIRST_FLOODS = [5, 10, 5, 10];
const WAYS = {
  echo: "a bare server's sockets alone",
  rest: "REST in the fast lane",
  grpc: "gRPC on sessions of our own",
  plain: "REST by node:http",
};
const NOBODY: CallerSeen = { offered: 0, good: 0, late: 0, refused: 0, odd: 0, pushedBack: 0, lost: 0 };

console.log(`load of the machine ${loadavg()[0]?.toFixed(1)}; what a refused call costs, its sockets with it:`);
for (const way of ["echo", "rest", "grpc", "plain"] as const)
  console.log(`${WAYS[way].padEnd(36)} ${(await refusedUs(way)).toFixed(1)} us`);

const folder = mkdtempSync(join(tmpdir(), "limber-overload-"));
const upstream = await startModelServer(["20"]);
const ports: { grpc: number } = JSON.parse(upstream.line);
const operationsPort = await freePort();
const settings = { LIMBER_OPERATIONS_PORT: String(operationsPort) };
const gateway = await openGateway(folder, `grpc://127.0.0.1:${ports.grpc}`, settings);
const operations = `http://127.0.0.1:${operationsPort}`;
const origin = `http://127.0.0.1:${gateway.port}`;
pin([gateway.pid], [upstream.pid]);

await restLoad(`${origin}/v1/act`, actJson, gateway.key, 32, 4_000); // warm-up, on the whole core
const second = await anotherKey();
const held = share < 1 ? holdEach([gateway.pid], share) : undefined;
console.log(held ? `held to ${share} of a core` : "not held: the machine has no cgroups to write");

await sleep(3_000); // until the gateway has seen it
const before = cpuNanos(gateway.pid);
const closed = performance.now();
const warm = await restLoad(`${origin}/v1/act`, actJson, gateway.key, 32, Math.ceil(1_500 * Math.max(share, 0.1) * 4));
const capacity = (warm.answered / (performance.now() - closed)) * 1000;
const servedUs = (cpuNanos(gateway.pid) - before) / 1000 / warm.answered;
console.log(`capacity ${capacity.toFixed(0)} calls/s; a served call costs s = ${servedUs.toFixed(0)} us`);

let peak = 0;
for (const [i, times] of [...FIRST_FLOODS, ...steps].entries()) {
  const isFirst = i < FIRST_FLOODS.length;
  const cpuBefore = cpuNanos(gateway.pid);
  const stoodBefore = held?.stoodMs() ?? 0;
  const { seen, all } = await load([{ key: gateway.key, perSecond: capacity * times }]);
  const cpuUs = (cpuNanos(gateway.pid) - cpuBefore) / 1000;
  const served = all.good + all.late;
  const paidUs = all.refused > 0 ? Math.max(0, cpuUs - served * servedUs) / all.refused : 0;
  if (!isFirst) peak = Math.max(peak, all.good);
  const { p50Ms, p99Ms, health, others, operations } = seen;
  console.log(
    `${`${isFirst ? "first " : ""}${times}x`.padEnd(5)} ${told(all)}  goodput ${isFirst ? "-" : (all.good / peak).toFixed(2)} of the peak  p50 ${p50Ms} p99 ${p99Ms} ms  ` +
      `r <= ${paidUs.toFixed(0)} us  health ${asked(health)}  others ${asked(others)}  operations ${asked(operations)}  ` +
      `stood still ${((held?.stoodMs() ?? 0) - stoodBefore).toFixed(0)} ms, used ${(cpuUs / 1000).toFixed(0)} ms  ${memoryMb().toFixed(0)} MiB`,
  );
}
await sleep(5_000);
console.log(`5 s later  ${told((await load([{ key: gateway.key, perSecond: capacity * 0.5 }])).all)}`);
const alone = await load([{ key: second, perSecond: capacity * 0.3 }]);
const beside = await load([
  { key: second, perSecond: capacity * 0.3 },
  { key: gateway.key, perSecond: capacity * 5 },
]);
console.log(`one organisation alone at 0.3x  ${told(alone.all)}`);
console.log(
  `the same beside a flood of 5x   ${told(beside.seen.callers[0] ?? NOBODY)}; the flood ${told(beside.seen.callers[1] ?? NOBODY)}`,
);

held?.release();
await Promise.all([gateway.stop(), upstream.stop()]);
rmSync(folder, { recursive: true, force: true });

async function load(callers: LoadAsked["callers"]): Promise<{ seen: LoadSeen; all: CallerSeen }> {
  const asked: LoadAsked = {
    origin,
    operations,
    stopKey: second,
    adminToken: ADMIN_TOKEN,
    callers,
    seconds,
    goodMs: GOOD_MS,
    robots: ROBOTS,
  };
  const run = await start("test/bench/support/open-load.ts", [JSON.stringify(asked)], (line) => line.startsWith("{"));
  const seen = JSON.parse(run.line) as LoadSeen;
  const all = { ...NOBODY };
  for (const caller of seen.callers)
    for (const name of Object.keys(all) as (keyof CallerSeen)[]) all[name] += caller[name];
  return { seen, all };
}

function told({ offered, good, late, refused, odd, pushedBack, lost }: CallerSeen): string {
  return `offered ${offered} good ${good} late ${late} refused ${refused} odd ${odd} pushed back ${pushedBack} lost ${lost}`;
}

function asked({ asked, answered, prompt, worstMs, late }: LoadSeen["health"]): string {
  const those = late.length === 0 ? "" : `: ${late.join(", ")}`;
  return `${answered}/${asked} (${prompt} within 100 ms, worst ${worstMs.toFixed(0)}${those})`;
}

/** A port that nobody listens on. */
function freePort(): Promise<number> {
  const probe = createServer();
  return new Promise((resolve) => {
    probe.listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => resolve(typeof address === "object" ? (address?.port ?? 0) : 0));
    });
  });
}

function memoryMb(): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${gateway.pid}/status`, "utf8"))?.[1]) / 1024;
}

/** A key of another organisation. */
async function anotherKey(): Promise<string> {
  const call = async (path: string, body: object): Promise<Record<string, string>> => {
    const headers = { "content-type": "application/json", "x-service-admin-token": ADMIN_TOKEN };
    const answer = await fetch(origin + path, { method: "POST", headers, body: JSON.stringify(body) });
    return (await answer.json()) as Record<string, string>;
  };
  const { id } = await call("/v1/orgs", { name: "another" });
  await call(`/v1/orgs/${id}/credits`, { amount_usd: 1_000_000 });
  const rate_limit = { requests: 10_000_000, window_s: 1, burst: 10_000_000, concurrency: 10_000, streams: 100 };
  const { key } = await call(`/v1/orgs/${id}/keys`, { role: "owner", rate_limit });
  return key ?? "";
}
