/**
 * What the real catalog costs: reloads of it from an embedded PostgreSQL while the event loop is watched, with 1,000 and 10,000
 * offerings; what is left of pauses is the garbage collector's, which `--max-semi-space-size=8` keeps short. And the CPU of a gateway
 * process per `GET /v1/models?limit=1000`. `node test/bench/registry.ts`. Asked for: no pause over 5 ms, no page over 50 ms of CPU.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PerformanceObserver } from "node:perf_hooks";
import { inSlices } from "../../src/ambient.ts";
import { BUILT_IN, triedSpaces } from "../../src/scenarios/index.ts";
import { RegistryShelf } from "../../src/services/registry/shelf.ts";
import { factsOfSupply } from "../../src/services/supply/facts.ts";
import { LiveSupply } from "../../src/services/supply/live.ts";
import { startPostgres } from "../../src/store/database/embedded.ts";
import { migrate } from "../../src/store/database/migrate.ts";
import { connect } from "../../src/store/database/tx.ts";
import { importCatalog, loadCatalog } from "../../src/store/supply/catalog.ts";
import { SupplyReader } from "../../src/store/supply/supply-reader.ts";
import { createUpstream } from "../../src/upstream/index.ts";
import { createVault } from "../../src/vault.ts";
import { openGateway } from "./support/gateway.ts";
import { type Pauses, watchLoop } from "./support/loop-watch.ts";
import { cpuNanos, median, start } from "./support/processes.ts";

const ROUNDS = 10;
const SIZES = [1_000, 10_000];
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
const reader = new SupplyReader(sql);
const opening = {
  vault: createVault(Buffer.alloc(32, 7), []),
  evaluated: triedSpaces(BUILT_IN),
  log: console.error,
};

/** Live offerings of one provider, spread over the models of the catalog: the numbers from `first` to `last`. */
async function offer(first: number, last: number): Promise<void> {
  await sql`insert into org (id, name) values ('org_bench', 'bench') on conflict do nothing`;
  await sql`
    insert into provider (id, org_id, name, display_name, regions, retains_frames)
    values ('prov_bench', 'org_bench', 'bench', 'Bench', '{eu}', false) on conflict do nothing`;
  await sql`
    insert into offering (
      id, org_id, provider_id, model, status, runtime, endpoint, hardware, contracts, action_spaces, action_dim, region,
      price_step_nano, p50_ms, p95_ms, uptime_30d, parameters
    )
    select 'off_' || upper(substr(md5(i::text), 1, 26)), 'org_bench', 'prov_bench', model.slug, 'live', 'openpi-ws',
      'wss://bench.invalid/' || i, 'H100', '{act}', '{ee_delta_6d_grip}', 7, 'eu', 1000 + i, 20, 40, 0.99, '{seed}'
    from generate_series(${first}::integer, ${last}::integer) as i
    join (select slug, row_number() over (order by slug) - 1 as place, count(*) over () as models from model) as model
      on model.place = i % model.models`;
}

/** What changes in the database before a reload. */
const CHANGES = {
  "an offering changed": () =>
    sql`update offering set note = note || '.' where id in (select id from offering order by id limit 1)`,
  "the catalog was imported": () => sql`update model set summary = summary`,
} as const;

interface Reload extends Pauses {
  readonly tookMs: number;
  readonly gcMs: number;
}

/** As the house does it when the database says that supply changed; after an import the whole catalog is read again. */
async function reload(change: keyof typeof CHANGES): Promise<Reload> {
  await CHANGES[change]();
  const known = change === "an offering changed" ? shelf.catalog : { ...shelf.catalog, version: "" };
  collections.length = 0;
  const began = performance.now();
  const stop = watchLoop();
  const [facts, catalog] = await Promise.all([reader.read(), loadCatalog(sql, known)]);
  await inSlices(supply.adopting(await inSlices(factsOfSupply(facts, opening))));
  await inSlices(shelf.adopting(facts, catalog));
  for (const list of [() => shelf.view.routes(undefined), shelf.view.facets, shelf.view.providers]) await list();
  const [tookMs, pauses] = [performance.now() - began, stop()];
  await new Promise((resolve) => setTimeout(resolve, 20)); // what was collected is told later
  return { tookMs, ...pauses, gcMs: Math.max(0, ...collections) };
}

const collections: number[] = [];
new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) collections.push(duration);
}).observe({ entryTypes: ["gc"] });

const both = (values: number[]): string => `${ms(median(values))} / ${ms(Math.max(...values))}`;
const rows: Record<string, Record<string, string>> = {};
let offered = 0;
for (const offerings of SIZES) {
  await offer(offered + 1, offerings);
  offered = offerings;
  for (const change of Object.keys(CHANGES) as (keyof typeof CHANGES)[]) {
    for (let i = 0; i < 4; i++) await reload(change); // warm-up
    const runs: Reload[] = [];
    for (let i = 0; i < ROUNDS; i++) runs.push(await reload(change));
    rows[`${offerings} offerings, ${change}`] = {
      "took ms": ms(median(runs.map(({ tookMs }) => tookMs))),
      "longest pause ms, median / most": both(runs.map(({ pauseMs }) => pauseMs)),
      "without waiting for a CPU": both(runs.map(({ pauseCpuMs }) => pauseCpuMs)),
      "longest collection": both(runs.map(({ gcMs }) => gcMs)),
    };
  }
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
