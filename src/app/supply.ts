/** What a process routes to: live supply, kept up to date, with the health that all replicas measure. */
import type { Logger } from "pino";
import { every, nowSeconds, steadyNow } from "../clock.ts";
import type { OfferingSample } from "../edge/metrics.ts";
import { GossipTransport } from "../events/gossip-transport.ts";
import { triedSpaces } from "../scenarios/index.ts";
import type { Scenario } from "../scenarios/scenario.ts";
import { inSlices, pause } from "../slices.ts";
import { addUpServed } from "../store/billing/earnings.ts";
import { addUpSeries } from "../store/billing/series.ts";
import { loadLatencies, loadUptimes, putMinutes, rollUp } from "../store/replicas/rollups.ts";
import { loadCatalog } from "../store/supply/catalog.ts";
import { addTroubles } from "../store/supply/offering-days.ts";
import { SupplyReader } from "../store/supply/supply-reader.ts";
import { Circuits } from "../supply/circuits.ts";
import { SupplyOpener } from "../supply/facts.ts";
import { Gossip } from "../supply/gossip.ts";
import { LiveSupply } from "../supply/live-supply.ts";
import { SupplyLoader } from "../supply/loader.ts";
import { Prober } from "../supply/prober.ts";
import { dividing, provenProviders } from "../supply/public-models.ts";
import { Registry } from "../supply/registry/registry.ts";
import { Rollup } from "../supply/rollup.ts";
import { Troubles } from "../supply/troubles.ts";
import type { Closers } from "./closers.ts";
import type { Storage } from "./storage.ts";
import type { OpenedUpstream } from "./upstream.ts";

/** How often figures that nobody adds to are looked at, so that old ones fade. */
const AGE_MS = 5_000;
/** How often replicas tell each other what they measured. */
const GOSSIP_MS = 1_000;
/** How often what offerings did is written down; what a crash loses is no older. */
const ROLL_MS = 10_000;

/** What supply depends on. */
interface OpenSupplyDeps extends Pick<Storage, "sql" | "notifications" | "replicaLine" | "vault"> {
  /** Names this process among all. */
  replica: string;
  outward: Pick<OpenedUpstream, "upstream" | "agent" | "allowPrivate">;
  scenarios: ReadonlyMap<string, Scenario>;
  log: Logger;
  closers: Closers;
}

/** The supply that this process routes to. */
export interface OpenedSupply {
  supply: LiveSupply;
  registry: Registry;
  /** Reads it again. */
  loader: SupplyLoader;
  rollup: Rollup;
  troubles: Troubles;
  /** Action spaces that a scenario is here for. */
  evaluated: ReadonlySet<string>;
}

/** Opens it, empty until `loader` loads: what there is, how it does, and what other replicas tell of that. */
export function openSupply({
  sql,
  notifications,
  replicaLine,
  vault,
  replica,
  outward,
  scenarios,
  log,
  closers,
}: OpenSupplyDeps): OpenedSupply {
  const { upstream, agent, allowPrivate } = outward;
  const supply = new LiveSupply(upstream);
  const prober = new Prober(supply, { agent, allowPrivate, native: upstream.native });
  closers.add(() => prober.close());
  const registry = new Registry(supply, scenarios.values());
  const circuits = new Circuits({ sql, notifications, health: supply.health, warn: (text) => log.warn(text) });
  closers.add(() => circuits.close());
  const reader = new SupplyReader(sql);
  const evaluated = triedSpaces(scenarios.values());
  const opener = new SupplyOpener({ vault, upstream, evaluated, log: (text) => log.error(text) });
  const warn = (text: string, cause: unknown): void => log.error({ err: cause }, text);
  const loader = new SupplyLoader(async () => {
    const [all, catalog] = await Promise.all([reader.read(), loadCatalog(sql, registry.catalog)]);
    const { open, own } = await inSlices(dividing(all), pause);
    await inSlices(supply.adopting(await inSlices(opener.facts(open), pause), own), pause);
    await circuits.refresh();
    const providers = await inSlices(provenProviders(all), pause);
    await inSlices(registry.adopting({ ...open, providers }, catalog), pause);
  }, warn);
  closers.add(async () => loader.close());

  const ageing = every(AGE_MS, () => void inSlices(supply.health.age(steadyNow())));
  closers.add(async () => ageing());

  const rollup = new Rollup(supply.health, {
    put: (records) => putMinutes(sql, replica, records),
    rollUp: async (minute) => {
      const rolled = await rollUp(sql, minute);
      // Whichever replica rolls up adds up what was earned too, and what calls came to.
      if (rolled) await Promise.all([addUpServed(sql), addUpSeries(sql)]);
      return rolled;
    },
    uptimes: () => loadUptimes(sql, Math.floor(nowSeconds() / 3600)),
    latencies: (minute) => loadLatencies(sql, minute),
  });
  const troubles = new Troubles((records) => addTroubles(sql, records));
  supply.health.onTrouble = troubles.note;
  const rolling = every(ROLL_MS, () => {
    void rollup.tick().catch((error) => log.warn({ err: error }, "rollup failed"));
    void troubles.write().catch((error) => log.warn({ err: error }, "failures of offerings could not be written"));
  });
  closers.add(async () => {
    rolling();
    await Promise.all([rollup.tick(), troubles.write()].map((written) => written.catch(() => {})));
  });

  const gossip = new Gossip(replica, supply.health);
  const gossipTransport = new GossipTransport({
    topic: "gossip",
    ...{ sql, notifications, replicaLine },
    hear: (message) => gossip.hear(message),
  });
  closers.add(async () => gossipTransport.close());
  const gossiping = every(GOSSIP_MS, () => void gossip.tell(gossipTransport));
  closers.add(async () => gossiping());
  return { supply, registry, loader, rollup, troubles, evaluated };
}

/** What the metrics show of live supply. */
export function* samplesOf({ health }: LiveSupply): Iterable<OfferingSample> {
  const at = steadyNow();
  for (const { offering, breaker, p50Ms, p95Ms, p99Ms } of health.figures(at)) {
    if (offering.simulated) continue;
    const { id, provider, model } = offering;
    const { calls = 0, failures = 0 } = health.tell(id, at)?.tally ?? {};
    yield { offering: id, provider, model, breaker: breaker.state, attempts: calls, failures, p50Ms, p95Ms, p99Ms };
  }
}
