/**
 * What happens later, and how fast: a batch against direct calls, events to NATS, webhooks to receivers of which some are dead, log
 * export, and physics. `npm run bench:jobs -- [milliseconds that the model takes]`
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as rest } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { EventSchema } from "../../gen/limber/v1/event_pb.ts";
import { newId } from "../../src/ambient.ts";
import { Relay } from "../../src/events/relay.ts";
import { Arena } from "../../src/scenarios/episode.ts";
import { BUILT_IN } from "../../src/scenarios/index.ts";
import { startPostgres } from "../../src/store/embedded.ts";
import { migrate } from "../../src/store/migrate.ts";
import { Notices } from "../../src/store/notices.ts";
import { appendEvents } from "../../src/store/outbox.ts";
import { connect, tx } from "../../src/store/tx.ts";
import { hear, startNats } from "../support/nats.ts";
import { actJson } from "./support/act-call.ts";
import { openGateway } from "./support/gateway.ts";
import { restLoad } from "./support/load.ts";
import { start } from "./support/processes.ts";

const modelMs = process.argv[2] ?? "20";
const ITEMS = 1_000;
/** Callers beside each other. */
const AT_ONCE = 16;
const EVENTS = 500;
const [HOOKS, DEAD, HAPPENINGS] = [50, 5, 20];

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const upstream = await start("test/bench/support/upstream.ts", [modelMs], (line) => line.startsWith("{"));
const { grpc }: { grpc: number } = JSON.parse(upstream.line);
const gateway = await openGateway(join(folder, "gateway"), `grpc://127.0.0.1:${grpc}`);
const url = `http://127.0.0.1:${gateway.port}`;
const call = async (path: string, body?: unknown) => {
  const headers = { authorization: `Bearer ${gateway.key}`, "content-type": "application/json" };
  const answer = await fetch(url + path, {
    headers,
    ...(body !== undefined && { method: "POST", body: JSON.stringify(body) }),
  });
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}: ${await answer.text()}`);
  return answer;
};
// biome-ignore lint/suspicious/noExplicitAny: answers of every shape.
const json = async (path: string, body?: unknown): Promise<any> => (await call(path, body)).json();
const at = (sorted: readonly number[], share: number): string =>
  (sorted[Math.floor(share * sorted.length)] ?? Number.NaN).toFixed(1);
const seconds = (began: number): number => (performance.now() - began) / 1000;

async function batches(): Promise<void> {
  const request = JSON.parse(actJson.toString("utf8"));
  await restLoad(`${url}/v1/act`, actJson, gateway.key, AT_ONCE, ITEMS); // warm-up
  const ratios: number[] = [];
  for (let round = 0; round < 3; round++) {
    const direct = performance.now();
    await restLoad(`${url}/v1/act`, actJson, gateway.key, AT_ONCE, ITEMS);
    const directS = seconds(direct);
    const began = performance.now();
    const { id } = await json("/v1/batch", { contract: "act", requests: Array(ITEMS).fill(request) });
    while ((await json(`/v1/batch/${id}`)).status !== "completed") await rest(20);
    ratios.push(directS / seconds(began));
  }
  const told = ratios.sort((a, b) => a - b).map((ratio) => ratio.toFixed(2));
  console.log(
    `batch of ${ITEMS} against ${AT_ONCE} direct callers, model of ${modelMs} ms: speed ratio ${told.join(" ")}`,
  );
}

async function webhooks(): Promise<void> {
  let got = 0;
  const server = createServer((request, response) => {
    request.resume().on("end", () => {
      got++;
      response.writeHead(204).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // a TCP server's address is never a string
  // Nobody ever answers there: it accepts and stays silent.
  const silent = createServer(() => {});
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const dead = (silent.address() as AddressInfo).port;
  for (let i = 0; i < HOOKS; i++)
    await json("/v1/webhooks", {
      url: `http://127.0.0.1:${i < DEAD ? dead : port}/${i}`,
      events: ["batch.completed"],
    });
  const live = HOOKS - DEAD;
  while (got < live) await rest(20); // each is greeted with a ping
  const gotBefore = got;
  const request = JSON.parse(actJson.toString("utf8"));
  const began = performance.now();
  for (let i = 0; i < HAPPENINGS; i++) await json("/v1/batch", { contract: "act", requests: [request] });
  while (got - gotBefore < live * HAPPENINGS) await rest(10);
  const rate = (live * HAPPENINGS) / seconds(began);
  console.log(`webhooks to ${HOOKS} receivers of which ${DEAD} never answer: ${rate.toFixed(0)} a second`);
  for (const each of [server, silent]) {
    each.close();
    each.closeAllConnections();
  }
}

async function exportLogs(): Promise<void> {
  const memory = (): number =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${gateway.pid}/status`, "utf8"))?.[1]) / 1024;
  const before = memory();
  let [lines, most] = [0, 0];
  const began = performance.now();
  for await (const chunk of (await call("/v1/logs/export")).body!) {
    for (const byte of chunk) if (byte === 10) lines++;
    most = Math.max(most, memory());
  }
  const grown = `memory ${before.toFixed(0)} MiB, at most ${most.toFixed(0)}`;
  console.log(`log export: ${lines} rows, ${(lines / seconds(began)).toFixed(0)} a second; ${grown}`);
}

async function events(): Promise<void> {
  const postgres = await startPostgres({ dataDir: join(folder, "events") });
  const nats = await startNats();
  const sql = connect(postgres.url, { max: 4 });
  await migrate(sql);
  const notices = await Notices.open(postgres.url);
  const relay = new Relay({ sql, notices, url: nats.url, warn: (text) => console.log(text) });
  const subscriber = await hear(nats.url, "limber.v1.>");
  const took: number[] = [];
  for (let i = 0; i < EVENTS; i++) {
    const id = newId("evt");
    const payload = toBinary(EventSchema, create(EventSchema, { id, orgId: "org_bench" }));
    await tx(sql, (tx) => appendEvents(tx, [{ id, name: "key.created", orgId: "org_bench", payload }]));
    const committed = performance.now();
    while (subscriber.heard.length <= i) await rest(0);
    took.push(performance.now() - committed);
  }
  took.sort((a, b) => a - b);
  console.log(`event from commit to a NATS subscriber: p50 ${at(took, 0.5)} ms, p99 ${at(took, 0.99)} ms`);
  await subscriber.close();
  await relay.close();
  await notices.close();
  await sql.end();
  await postgres.stop();
  await nats.close();
}

async function physics(): Promise<void> {
  for (const { id, variants } of BUILT_IN) {
    for (const variant of variants) {
      const arena = await Arena.of(variant);
      const nothing = () => ({ rows: [variant.fields.map(() => 0)], latencyMs: 0 });
      const began = performance.now();
      let steps = 0;
      for (let seed = 0; seconds(began) < 1; seed++)
        steps += (await arena.run(seed, nothing, { mode: "sync", replanSteps: 1 })).steps;
      const rate = steps / seconds(began);
      const real = ((rate * variant.dtMs) / 1000).toFixed(0);
      console.log(
        `${`${id} in ${variant.actionSpace}`.padEnd(38)}${rate.toFixed(0).padStart(8)} control steps a second, ${real} times real time`,
      );
      arena.close();
    }
  }
}

try {
  for (const measure of [batches, exportLogs, webhooks, events, physics]) await measure();
} finally {
  await Promise.all([gateway.stop(), upstream.stop()]);
  rmSync(folder, { recursive: true, force: true });
}
