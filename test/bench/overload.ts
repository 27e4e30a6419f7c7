/**
 * Open-loop load beyond what a gateway on a part of a core can serve, started both ways, each waiting caller on a connection of its own: goodput
 * at 1 to 10 times the peak, callers that got no word within 1 s, health and emergency stops beside it, what one organization that floods takes
 * from another, and when all is as before.
 * `node test/bench/overload.ts [SHARE of a core: 0.3] [SECONDS of each: 8] [TIMES the peak: 1,2.5,5,10] [WAYS: flags,plain] [PEAK, calls a second: measured]`
 * `node test/bench/overload.ts cost` prints what a refused call costs.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { sleep } from "../../src/clock.ts";
import { actJson } from "./support/act-call.ts";
import { ADMIN_TOKEN, openGateway } from "./support/gateway.ts";
import { restLoad } from "./support/load.ts";
import type { CallerSeen, LoadAsked, LoadSeen, Probed } from "./support/open-load.ts";
import { cpuNanos, pin, start, startModelServer } from "./support/processes.ts";
import { holdEach } from "./support/quota.ts";
import { refusedUs } from "./support/refused.ts";

const share = Number(process.argv[2] ?? 0.3);
const seconds = Number(process.argv[3] ?? 8);
const steps = (process.argv[4] ?? "1,2.5,5,10").split(",").map(Number);
const ways = (process.argv[5] ?? "flags,plain").split(",");
const givenPeak = Number(process.argv[6] ?? 0);
const GOOD_MS = 500;
/** The most callers that wait at once. */
const MOST = 6_000;
const WAYS = {
  echo: "a bare server's sockets alone",
  rest: "REST",
  grpc: "gRPC",
};

console.log(`load of the machine ${loadavg()[0]?.toFixed(1)}`);
if (process.argv[2] === "cost")
  for (const way of ["echo", "rest", "grpc"] as const)
    console.log(`${WAYS[way].padEnd(36)} ${(await refusedUs(way)).toFixed(1)} us`);
else for (const way of ways) await measure(way === "flags");

/** Measures one gateway, which is started with the flags of `npm start` or as `node src/main.ts`. */
async function measure(isTuned: boolean): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "limber-overload-"));
  const upstream = await startModelServer(["20"]);
  const ports: { grpc: number } = JSON.parse(upstream.line);
  const operationsPort = await freePort();
  const settings = { LIMBER_OPERATIONS_PORT: String(operationsPort) };
  const gateway = await openGateway(folder, `grpc://127.0.0.1:${ports.grpc}`, settings, [], undefined, isTuned);
  const origin = `http://127.0.0.1:${gateway.port}`;
  pin([gateway.pid], [upstream.pid]);
  await restLoad(`${origin}/v1/act`, actJson, gateway.key, 32, 4_000); // warm-up, on the whole core
  const second = await anotherKey(origin);
  const held = share < 1 ? holdEach([gateway.pid], share) : undefined;
  console.log(
    `${isTuned ? "the flags of npm start" : "node src/main.ts"}, ${held ? `held to ${share} of a core` : "not held"}`,
  );
  await sleep(2_000); // until the gateway has seen it

  const load = async (callers: LoadAsked["callers"], forSeconds = seconds): Promise<LoadSeen> => {
    const operations = `http://127.0.0.1:${operationsPort}`;
    const keys = { stopKey: second, adminToken: ADMIN_TOKEN };
    const asked: LoadAsked = { origin, operations, ...keys, callers, seconds: forSeconds, goodMs: GOOD_MS };
    const isSeen = (line: string): boolean => line.startsWith("{");
    const run = await start("test/bench/support/open-load.ts", [JSON.stringify(asked)], isSeen);
    return JSON.parse(run.line) as LoadSeen;
  };
  const flood = (perSecond: number): LoadAsked["callers"][number] => ({ key: gateway.key, perSecond, most: MOST });
  const closedLoop = async (): Promise<number> => {
    const at = performance.now();
    const { answered } = await restLoad(`${origin}/v1/act`, actJson, gateway.key, 256, 4_000);
    return (answered / (performance.now() - at)) * 1000;
  };
  const peak = givenPeak || Math.max(await closedLoop(), await closedLoop());
  console.log(`peak ${peak.toFixed(0)} calls/s${givenPeak ? ", given" : ", of 256 callers in a closed loop"}`);
  for (const times of steps) {
    const cpuBefore = cpuNanos(gateway.pid);
    const seen = await load([flood(peak * times)]);
    const cpuMs = (cpuNanos(gateway.pid) - cpuBefore) / 1e6;
    const [all] = seen.callers;
    if (all === undefined) continue;
    const goodput = all.good / seconds / peak;
    console.log(
      `${`${times}x`.padEnd(5)} goodput ${goodput.toFixed(2)}  ${countsOf(all)}  served p50 ${seen.served.p50Ms} p99 ${seen.served.p99Ms} ms  ` +
        `refused or closed p50 ${seen.refused.p50Ms} p99 ${seen.refused.p99Ms} ms\n      health ${probed(seen.health)}  stops ${probed(seen.stops)}  ` +
        `operations ${probed(seen.operations)}  used ${cpuMs.toFixed(0)} ms  ${memoryMb(gateway.pid).toFixed(0)} MiB  lag of the load ${seen.lagMs} ms`,
    );
  }
  await sleep(2_000);
  const [later] = (await load([flood(peak * 0.5)], 4)).callers;
  if (later !== undefined) console.log(`2 s later, at half the peak: ${countsOf(later)}`);
  const modest = { key: second, perSecond: peak * 0.2, most: MOST };
  const [beside] = (await load([modest, flood(peak * 5)])).callers;
  if (beside !== undefined) console.log(`another organization at 0.2x beside a flood of 5x: ${countsOf(beside)}`);

  held?.release();
  await Promise.all([gateway.stop(), upstream.stop()]);
  rmSync(folder, { recursive: true, force: true });
}

function countsOf({
  offered,
  good,
  late,
  refused,
  closed,
  odd,
  gaveUp,
  unheard,
  pushedBack,
  dialed,
}: CallerSeen): string {
  return (
    `offered ${offered} good ${good} late ${late} refused ${refused} closed ${closed} odd ${odd} gave up ${gaveUp} ` +
    `no word in 1 s ${unheard} pushed back ${pushedBack} dialed ${dialed}`
  );
}

function probed({ sent, prompt, answered, p99Ms, worstMs }: Probed): string {
  return `${answered}/${sent} (${prompt} within 100 ms, p99 ${p99Ms}, worst ${worstMs})`;
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

function memoryMb(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
}

/** A key of another organization. */
async function anotherKey(origin: string): Promise<string> {
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
