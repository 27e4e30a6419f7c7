/**
 * What the real catalog costs: reloads of it from an embedded PostgreSQL while the event loop is watched, with 1,000, 10,000 and
 * 100,000 offerings: at the start, after a change, after one that moves an offering among the rows, after an import of the whole
 * catalog. Of the longest turn of each reload the median and the worst are printed: by the wall, by the CPU that the main thread had
 * in it, and what of that was the garbage collector's; and of the worst by the wall, for how long it was in the queue for a CPU that
 * others had. The same of writing `GET /v1/routes`. And the CPU of a gateway process per
 * `GET /v1/models?limit=1000`. Run: `node test/bench/registry.ts [sizes, such as 10000,100000]`. Asked for: no pause over 5 ms, no
 * page over 50 ms of CPU.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ListRoutesResponseSchema } from "../../gen/limber/v1/registry_service_pb.ts";
import { pauseForCollection } from "../../src/app/collector.ts";
import { writingJson } from "../../src/edge/messages/json.ts";
import { startPostgres } from "../../src/embedded/postgres.ts";
import { BUILT_IN, triedSpaces } from "../../src/scenarios/index.ts";
import { inSlices } from "../../src/slices.ts";
import { migrate } from "../../src/store/database/migrate.ts";
import { connect } from "../../src/store/database/tx.ts";
import { importCatalog, loadCatalog } from "../../src/store/supply/catalog.ts";
import { SupplyReader } from "../../src/store/supply/supply-reader.ts";
import { SupplyOpener } from "../../src/supply/facts.ts";
import { LiveSupply } from "../../src/supply/live-supply.ts";
import { Registry } from "../../src/supply/registry/registry.ts";
import { createUpstream } from "../../src/upstream/index.ts";
import { createVault } from "../../src/vault.ts";
import { openGateway } from "./support/gateway.ts";
import { collected, collectorMs, longestOwnMs, type Pauses, watchCollector, watchLoop } from "./support/loop-watch.ts";
import { cpuNanos, haveStartFlags, median, startModelServer } from "./support/processes.ts";

/** Rounds that count, and how many go before them until everything is compiled. */
const roundsOf = (offerings: number) => (offerings > 50_000 ? { warmUp: 2, rounds: 5 } : { warmUp: 5, rounds: 25 });
const SIZES = process.argv[2]?.split(",").map(Number) ?? [1_000, 10_000, 100_000];
const PAGES = 20;
const GOAL_MS = 5;
const ms = (value: number): string => value.toFixed(1);
const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));

haveStartFlags();
const postgres = await startPostgres({ dataDir: join(folder, "reload") });
const sql = connect(postgres.url, { max: 2 });
await migrate(sql);
await importCatalog(sql, join(import.meta.dirname, "../../data"));
const upstream = createUpstream({ allowPrivate: true });
const opening = {
  upstream: { wireOf: () => undefined },
  vault: createVault(Buffer.alloc(32, 7), []),
  evaluated: triedSpaces(BUILT_IN),
  log: console.error,
};

/** What a replica knows of supply. */
function knowing() {
  const supply = new LiveSupply(upstream);
  const registry = new Registry(supply);
  return { supply, registry, reader: new SupplyReader(sql), opener: new SupplyOpener(opening) };
}

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

/** What happens before a reload. */
const CHANGES = {
  "at the start": async () => {},
  "an offering changed": () =>
    sql`update offering set note = note || '.' where id in (select id from offering order by id limit 1)`,
  "an offering moved": () =>
    sql`update offering set region = case region when 'eu' then 'us' else 'eu' end where id in (select id from offering order by id limit 1)`,
  "the catalog was imported": () => sql`update model set summary = summary`,
} as const;

type Change = keyof typeof CHANGES;

interface Reload extends Pauses {
  readonly tookMs: number;
  readonly ownMs: number;
  /** What the garbage collector took of the turn with the most CPU. */
  readonly collectorMs: number;
  readonly full: number;
}

/** As the gateway does it when the database says that supply changed; after an import the whole catalog is read again. */
async function reload(
  { supply, registry, reader, opener }: ReturnType<typeof knowing>,
  change: Change,
): Promise<Reload> {
  await CHANGES[change]();
  const known = change === "the catalog was imported" ? { ...registry.catalog, version: "" } : registry.catalog;
  await collected();
  const began = performance.now();
  const stop = watchLoop();
  const [facts, catalog] = await Promise.all([reader.read(), loadCatalog(sql, known)]);
  await inSlices(supply.adopting(await inSlices(opener.facts(facts), pauseForCollection)), pauseForCollection);
  await inSlices(registry.adopting(facts, catalog), pauseForCollection);
  for (const list of [() => registry.view.routes(undefined), registry.view.facets, registry.view.providers])
    await list();
  const [tookMs, { turns, ...pauses }] = [performance.now() - began, stop()];
  const collections = await collected();
  const [longest] = turns.toSorted((a, b) => b.cpuMs - a.cpuMs);
  return {
    tookMs,
    ...pauses,
    ownMs: longestOwnMs(turns, collections),
    collectorMs: longest ? collectorMs(longest, collections) : 0,
    full: collections.filter(({ full }) => full).length,
  };
}

/** The route listing as a caller gets it. */
async function writeRoutes({ registry }: ReturnType<typeof knowing>): Promise<Written> {
  const routes = await registry.view.routes(undefined);
  await collected();
  const stop = watchLoop();
  const { length } = await inSlices(writingJson(ListRoutesResponseSchema, routes));
  const { turns, ...pauses } = stop();
  return { ...pauses, bytes: length, ownMs: longestOwnMs(turns, await collected()) };
}

interface Written extends Pauses {
  readonly bytes: number;
  readonly ownMs: number;
}

watchCollector();
const both = (values: number[]): string => `${ms(median(values))} / ${ms(Math.max(...values))}`;
const rows: Record<string, Record<string, string>> = {};
const written: Record<string, Record<string, string>> = {};
let offered = 0;
let loaded = knowing();
for (const offerings of SIZES) {
  await offer(offered + 1, offerings);
  offered = offerings;
  const { warmUp, rounds } = roundsOf(offerings);
  for (const change of Object.keys(CHANGES) as Change[]) {
    const runs: Reload[] = [];
    for (let i = 0; i < warmUp + rounds; i++) {
      if (change === "at the start") loaded = knowing();
      const run = await reload(loaded, change);
      if (i >= warmUp) runs.push(run);
    }
    const [worst] = runs.toSorted((a, b) => b.pauseCpuMs - a.pauseCpuMs);
    const [longest] = runs.toSorted((a, b) => b.pauseMs - a.pauseMs);
    const over = (of: (run: Reload) => number): number => runs.filter((run) => of(run) > GOAL_MS).length;
    rows[`${offerings} offerings, ${change}`] = {
      times: String(runs.length),
      "took ms": ms(median(runs.map(({ tookMs }) => tookMs))),
      "longest turn ms, median / worst": both(runs.map(({ pauseMs }) => pauseMs)),
      "queued in the worst": ms(longest!.queuedMs),
      "of CPU": both(runs.map(({ pauseCpuMs }) => pauseCpuMs)),
      "over 5 ms by wall, by CPU": `${over(({ pauseMs }) => pauseMs)}, ${over(({ pauseCpuMs }) => pauseCpuMs)}`,
      "collector's in the worst": ms(worst!.collectorMs),
      "of CPU without the collector": both(runs.map(({ ownMs }) => ownMs)),
      "full collections": String(runs.reduce((sum, { full }) => sum + full, 0)),
    };
  }
  const answers: Written[] = [];
  for (let i = 0; i < warmUp + rounds; i++) answers.push(await writeRoutes(loaded));
  written[`GET /v1/routes of ${offerings} offerings`] = {
    "kB of JSON": ms(answers[0]!.bytes / 1000),
    "longest turn ms, median / worst": both(answers.slice(warmUp).map(({ pauseMs }) => pauseMs)),
    "of CPU": both(answers.slice(warmUp).map(({ pauseCpuMs }) => pauseCpuMs)),
    "of CPU without the collector": both(answers.slice(warmUp).map(({ ownMs }) => ownMs)),
  };
}
console.table(rows);
console.table(written);
await sql.end();
await upstream.close();
await postgres.stop();

const server = await startModelServer();
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
