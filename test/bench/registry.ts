/**
 * What the real catalog costs: reloads of it from an embedded PostgreSQL while the event loop is watched, and the CPU of a gateway
 * process per `GET /v1/models?limit=1000`. `node test/bench/registry.ts`. Asked for: no pause over 5 ms, no page over 50 ms of CPU.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inSlices } from "../../src/ambient.ts";
import { BUILT_IN, triedSpaces } from "../../src/scenarios/index.ts";
import { RegistryShelf } from "../../src/services/registry/shelf.ts";
import { factsOfSupply } from "../../src/services/supply/facts.ts";
import { LiveSupply } from "../../src/services/supply/live.ts";
import { importCatalog, loadCatalog, NO_CATALOG } from "../../src/store/catalog.ts";
import { startPostgres } from "../../src/store/embedded.ts";
import { migrate } from "../../src/store/migrate.ts";
import { SupplyReader } from "../../src/store/supply-reader.ts";
import { connect } from "../../src/store/tx.ts";
import { createUpstream } from "../../src/upstream/index.ts";
import { createVault } from "../../src/vault.ts";
import { openGateway } from "./support/gateway.ts";
import { watchLoop } from "./support/loop-watch.ts";
import { cpuNanos, median, start } from "./support/processes.ts";

const ROUNDS = 9;
const PAGES = 20;
const ms = (value: number): string => value.toFixed(1);
const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));

const postgres = await startPostgres({ dataDir: join(folder, "reload") });
const sql = connect(postgres.url, { max: 2 });
await migrate(sql, join(import.meta.dirname, "../../src/store/migrations"));
await importCatalog(sql, join(import.meta.dirname, "../../data"));
const upstream = createUpstream({ allowPrivate: true });
const supply = new LiveSupply(upstream);
const shelf = new RegistryShelf(supply);
let reader = new SupplyReader(sql);
const opening = {
  vault: createVault(Buffer.alloc(32, 7), []),
  evaluated: triedSpaces(BUILT_IN),
  log: console.error,
};

/** As the house does it when the database says that supply changed; `fresh` reads the whole catalog again, as after an import. */
async function reload(fresh: boolean): Promise<{ tookMs: number; pauseMs: number; pauseCpuMs: number }> {
  if (fresh) reader = new SupplyReader(sql);
  const began = performance.now();
  const stop = watchLoop();
  const [known, catalog] = await Promise.all([reader.read(), loadCatalog(sql, fresh ? NO_CATALOG : shelf.catalog)]);
  const facts = await inSlices(factsOfSupply(known, opening));
  await inSlices(supply.adopting(facts));
  await inSlices(shelf.adopting(known, catalog));
  return { tookMs: performance.now() - began, ...stop() };
}

const rows: Record<string, Record<string, string>> = {};
for (const fresh of [false, true]) {
  for (let i = 0; i < 3; i++) await reload(fresh); // warm-up
  const runs = [];
  for (let i = 0; i < ROUNDS; i++) runs.push(await reload(fresh));
  rows[fresh ? "reload after an import" : "reload after a change of supply"] = {
    models: String(shelf.view.entries.length),
    "took ms": ms(median(runs.map(({ tookMs }) => tookMs))),
    "longest pause ms": ms(median(runs.map(({ pauseMs }) => pauseMs))),
    "of it CPU": ms(median(runs.map(({ pauseCpuMs }) => pauseCpuMs))),
  };
}
console.table(rows);
await sql.end();
await upstream.close();
await postgres.stop();

const server = await start("test/bench/support/upstream.ts", [], (line) => line.startsWith("{"));
const ports: { grpc: number } = JSON.parse(server.line);
const gateway = await openGateway(join(folder, "gateway"), `grpc://127.0.0.1:${ports.grpc}`);
const page = async (): Promise<{ bytes: number; cpu: number }> => {
  const before = cpuNanos(gateway.pid);
  const answer = await fetch(`http://127.0.0.1:${gateway.port}/v1/models?limit=1000`);
  const bytes = (await answer.arrayBuffer()).byteLength;
  return { bytes, cpu: (cpuNanos(gateway.pid) - before) / 1e6 };
};
for (let i = 0; i < 10; i++) await page(); // warm-up
const pages = [];
for (let i = 0; i < PAGES; i++) pages.push(await page());
const cpus = pages.map(({ cpu }) => cpu);
console.table({
  "GET /v1/models?limit=1000": {
    "kB of JSON": ms(pages[0]!.bytes / 1000),
    "CPU ms, median": ms(median(cpus)),
    "CPU ms, most": ms(Math.max(...cpus)),
  },
});
await gateway.stop();
await server.stop();
rmSync(folder, { recursive: true, force: true });
