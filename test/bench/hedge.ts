/**
 * What the tail looks like when providers are slow: two upstream processes of one checkpoint behind one gateway process, as callers
 * see it. `node test/bench/hedge.ts [calls]`. Asked for: H1, 2 % of calls 20 times slow: p99 cut at least 5 times for at most 4 %
 * more calls; H2, everything 20 times slow: at most 6 % more calls; H3, one of two turns 10 times slow: p99 normal again within
 * 2 s, and next to no calls go to it. A hedge is asked for at twice the usual time.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Pool } from "undici";
import { actJson } from "./support/act-call.ts";
import { openGateway } from "./support/gateway.ts";
import { type Started, startModelServer } from "./support/processes.ts";

const calls = Number(process.argv[2] ?? 3000);
const SERVICE_MS = 50;
/** What a large policy takes; and long beside the pauses of a machine that has other work too, which are no reason for a hedge. */
const POLICY_MS = 200;
const AFTER_MS = 2 * POLICY_MS;
/** Few enough that the machine itself is no bottleneck. */
const CALLERS = 8;
const POLICY_CALLERS = 32;

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const upstreams: Started[] = [];
for (let i = 0; i < 2; i++) upstreams.push(await startModelServer(["0"]));
const ports = upstreams.map(({ line }): { grpc: number; rest: number } => JSON.parse(line));
const gateway = await openGateway(
  folder,
  ports.map(({ grpc }) => `grpc://127.0.0.1:${grpc}`),
);

/** Tells an upstream how to be; answers how often it was called so far. */
async function pace(which: number, facts: Record<string, number> = {}): Promise<number> {
  const query = Object.entries(facts)
    .map(([name, value]) => `${name}=${value}`)
    .join("&");
  return Number(await (await fetch(`http://127.0.0.1:${ports[which]!.rest}/pace?${query}`)).text());
}
const both = async (facts: Record<string, number> = {}): Promise<number> =>
  (await pace(0, facts)) + (await pace(1, facts));

const asked = JSON.parse(actJson.toString());
const plain = Buffer.from(JSON.stringify(asked));
const hedged = Buffer.from(JSON.stringify({ ...asked, provider: { hedge: { after_ms: AFTER_MS } } }));

interface Call {
  readonly began: number;
  readonly tookMs: number;
}

/** Closed-loop callers until so many calls are made, or until a moment. */
async function load(body: Buffer, callers: number, until: { calls?: number; at?: number }): Promise<Call[]> {
  const pool = new Pool(`http://127.0.0.1:${gateway.port}`, { connections: callers });
  const headers = { "content-type": "application/json", authorization: `Bearer ${gateway.key}` };
  const done: Call[] = [];
  let left = until.calls ?? Number.POSITIVE_INFINITY;
  await Promise.all(
    Array.from({ length: callers }, async () => {
      while (left-- > 0 && performance.now() < (until.at ?? Number.POSITIVE_INFINITY)) {
        const began = performance.now();
        const { statusCode, body: answer } = await pool.request({ method: "POST", path: "/v1/act", headers, body });
        const text = await answer.text();
        if (statusCode !== 200) throw new Error(text);
        done.push({ began, tookMs: performance.now() - began });
      }
    }),
  );
  await pool.close();
  return done;
}

const quantile = (of: readonly Call[], q: number): number => {
  const sorted = of.map(({ tookMs }) => tookMs).sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
};
const ms = (value: number): string => `${value.toFixed(0)} ms`;
const percent = (value: number): string => `${(value * 100).toFixed(1)} %`;

async function counted(body: Buffer, callers: number, count: number): Promise<{ of: Call[]; more: number }> {
  const before = await both();
  const of = await load(body, callers, { calls: count });
  return { of, more: ((await both()) - before) / of.length - 1 };
}

await both({ delay: POLICY_MS });
await load(plain, POLICY_CALLERS, { calls: 500 });
const unharmed = await counted(plain, POLICY_CALLERS, calls / 3);

await both({ share: 0.02, times: 20 });
const alone = await counted(plain, POLICY_CALLERS, calls);
const helped = await counted(hedged, POLICY_CALLERS, calls);
console.table({
  "H1, 2 % of calls 20 times slow": {
    "p99 with none slow": ms(quantile(unharmed.of, 0.99)),
    "p99 without": ms(quantile(alone.of, 0.99)),
    "p99 with a hedge": ms(quantile(helped.of, 0.99)),
    "p99.9 without": ms(quantile(alone.of, 0.999)),
    "p99.9 with a hedge": ms(quantile(helped.of, 0.999)),
    "cut of p99": `${(quantile(alone.of, 0.99) / quantile(helped.of, 0.99)).toFixed(1)} x`,
    "more calls": percent(helped.more),
  },
});

await both({ delay: SERVICE_MS * 20, share: 0 });
const slow = await counted(hedged, 128, calls);
console.table({
  "H2, everything 20 times slow": { p50: ms(quantile(slow.of, 0.5)), "more calls": percent(slow.more) },
});

const rows: Record<string, Record<string, string>> = {};
for (const [name, facts] of [
  ["balanced", {}],
  ["fastest", { preference: "fastest" }],
] as const) {
  await both({ delay: SERVICE_MS, share: 0 });
  const body = Buffer.from(JSON.stringify({ ...asked, ...facts }));
  // Until both are forgiven what they were before.
  await load(body, CALLERS, { at: performance.now() + 15_000 });
  const start = performance.now();
  const [before, after] = [3_000, 6_000];
  const running = load(body, CALLERS, { at: start + before + after });
  await new Promise((resolve) => setTimeout(resolve, before));
  // Whoever serves at the moment turns slow.
  const seen = [await pace(0), await pace(1)];
  await new Promise((resolve) => setTimeout(resolve, 200));
  const busier = (await pace(0)) - seen[0]! >= (await pace(1)) - seen[1]! ? 0 : 1;
  const turned = performance.now();
  await pace(busier, { delay: SERVICE_MS * 10 });
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  const soFar = await pace(busier);
  const all = await running;
  const toSlow = (await pace(busier)) - soFar;
  const within = (from: number, to: number): Call[] =>
    all.filter(({ began }) => began >= turned + from && began < turned + to);
  rows[`H3, ${name}`] = {
    "p99 before": ms(quantile(within(-2_500, -600), 0.99)),
    "first second": ms(quantile(within(0, 1_000), 0.99)),
    "second second": ms(quantile(within(1_000, 2_000), 0.99)),
    "after 2 s": ms(quantile(within(2_000, 5_500), 0.99)),
    "p50 after 2 s": ms(quantile(within(2_000, 5_500), 0.5)),
    "calls to the slow one after 2 s": percent(toSlow / within(2_000, after).length),
  };
}
console.table(rows);

await gateway.stop();
for (const upstream of upstreams) await upstream.stop();
rmSync(folder, { recursive: true, force: true });
