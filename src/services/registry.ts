/** The registry of models, offerings, scenarios, literature, aliases and runtimes. Served from memory. */

import { create } from "@bufbuild/protobuf";
import { DataCollection } from "../../gen/limber/v1/preferences_pb.ts";
import {
  CircuitState,
  type ModelOffering,
  ModelOfferingSchema,
  ModelOfferingsSchema,
} from "../../gen/limber/v1/registry_pb.ts";
import type { ListModelsRequest, RegistryService } from "../../gen/limber/v1/registry_service_pb.ts";
import { OfferingStatus } from "../../gen/limber/v1/supply_pb.ts";
import { toUsd, usdFromNano } from "../billing/price.ts";
import type { Implementation } from "../call.ts";
import { steadyNow } from "../clock.ts";
import { CONTRACT_WORDS, Contract, DEFAULT_HORIZON, enumOf, UNIT, violation } from "../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { nearNames, type Offering } from "../routing/index.ts";
import type { LiveSupply } from "../supply/live-supply.ts";
import { FACET_NAMES, FACETS, type Facet, type RegistryEntry, sharedInput } from "../supply/registry/entry.ts";
import type { Registry, RegistryView } from "../supply/registry/registry.ts";
import { runtimesOf } from "../supply/registry/runtimes.ts";
import type { Upstream } from "../upstream/index.ts";

/** Dependencies of the registry. */
export interface RegistryDeps {
  registry: Registry;
  supply: LiveSupply;
  upstream: Upstream;
}

const DEFAULT_MODELS = 100;
/** Lists without a `limit` parameter are returned complete. */
const DEFAULT_OTHERS = 1000;

/** The registry RPCs. */
export function registryService({ registry, supply, upstream }: RegistryDeps): Implementation<typeof RegistryService> {
  const runtimes = runtimesOf(upstream);
  return {
    async listModels(request) {
      const entries = await matching(registry.view, request);
      const page = pageOf(entries, request, DEFAULT_MODELS);
      return { ...page, data: page.data.map(({ model }) => model) };
    },

    async getModel({ owner, name }) {
      const { view } = registry;
      const entry = view.find(`${owner}/${name}`);
      if (!entry) throw unknownModel(view, `${owner}/${name}`);
      const offerings = create(ModelOfferingsSchema, { offerings: offeringsOf(supply, entry.model.id) });
      const shared = sharedInput(liveRows(supply, entry.model.id).map((row) => supply.snapshot.offerings[row]!));
      return { model: { ...entry.model, offerings, ...shared } };
    },

    async getTaxonomy() {
      const { view } = registry;
      return { facets: await view.facets(), actionSpaces: [...view.actionSpaces()] };
    },

    async listScenarios(request) {
      const { target, runnable } = request;
      const found = (await registry.view.scenarios())
        .filter((scenario) => !target || scenario.target === target)
        .filter((scenario) => runnable === undefined || scenario.runnable === runnable);
      return pageOf(found, request, DEFAULT_OTHERS);
    },

    async listLiterature(request) {
      const { kind } = request;
      const found = (await registry.view.literature()).filter((piece) => !kind || piece.kind === kind);
      return pageOf(found, request, DEFAULT_OTHERS);
    },

    async listProviders(request) {
      return pageOf(await registry.view.providers(), request, DEFAULT_OTHERS);
    },

    async listRoutes({ contract }) {
      return registry.view.routes(contract || undefined); // unspecified means no filter
    },

    async listRuntimes() {
      return { object: "list", data: runtimes };
    },
  };
}

interface PageRequest {
  limit?: number | undefined;
  offset?: number | undefined;
}

function pageOf<T>(all: readonly T[], { limit, offset }: PageRequest, most: number) {
  const [size, start] = [limit ?? most, offset ?? 0];
  return { object: "list", data: all.slice(start, start + size), total: all.length, limit: size, offset: start };
}

/** The models that match a request's filters: best match first for a search, otherwise by slug. */
async function matching(view: RegistryView, request: ListModelsRequest): Promise<readonly RegistryEntry[]> {
  const asked: [Facet, string][] = [];
  for (const facet of FACET_NAMES) {
    const word = FACETS[facet].asked(request);
    if (word === undefined) continue;
    await assertKnown(view, facet, word);
    asked.push([facet, word]);
  }
  const { q } = request;
  const from = q === undefined || q.trim() === "" ? view.entries : view.search(q);
  return from.filter(({ facets }) => asked.every(([facet, word]) => facets[facet].includes(word)));
}

/** Families and action spaces have no enum. A misspelled value is refused, so that it does not look like one without models. */
async function assertKnown(view: RegistryView, facet: Facet, word: string): Promise<void> {
  const words = (await view.facets())[facet].values.map(({ value }) => value);
  if (words.includes(word)) return;
  const list = words.length > 0 ? `must be one of ${words.join(", ")}` : "has no known values in the registry";
  throw violation(facet, list, "enum", nearNames(word, words));
}

function unknownModel(view: RegistryView, slug: string): Refusal {
  const near = nearNames(
    slug,
    view.entries.map(({ model }) => model.id),
  );
  const hint = near.length > 0 ? `; similar names are ${near.join(", ")}` : "";
  return refuse(Reason.MODEL_NOT_FOUND, `model ${JSON.stringify(slug)} not found${hint}`, { near });
}

const liveRows = ({ snapshot }: LiveSupply, slug: string): number[] =>
  [...(snapshot.rowsOfModel(slug) ?? [])].filter(snapshot.isRegistered);

/** The current live offerings of a model, by provider. */
function offeringsOf(supply: LiveSupply, slug: string): ModelOffering[] {
  return liveRows(supply, slug)
    .map((row) => offeringMessage(supply, row))
    .sort((a, b) => (a.provider === b.provider ? (a.id < b.id ? -1 : 1) : a.provider < b.provider ? -1 : 1));
}

function offeringMessage(supply: LiveSupply, row: number): ModelOffering {
  const { snapshot, health } = supply;
  const offering = snapshot.offerings[row]!;
  const live = supply.find(offering.id);
  const figures = health.figureOf(offering.id, steadyNow());
  const cold = steadyNow() - health.view.usedAt[row]! > snapshot.columns.warmMs[row]!;
  const wakeUpMicro = cold ? snapshot.columns.wakeMicro[row]! : 0;
  const { advertised, actionDim } = offering;
  // 0 means unknown.
  const uptime = health.view.judgedUptime[row]!;
  const { id, provider, region, precision, actionSpaces, embodiments, maxHorizon, dtMs, parameters } = offering;
  return create(ModelOfferingSchema, {
    ...{ id, provider, region, precision, maxHorizon, dtMs, actionDim },
    status: live?.degraded ? OfferingStatus.DEGRADED : OfferingStatus.LIVE,
    circuit: enumOf(CircuitState, figures?.breaker.state ?? "closed"),
    runtime: live?.runtime ?? "",
    hardware: live?.hardware ?? "",
    contracts: offering.contracts.filter(isServed),
    actionSpaces: [...actionSpaces],
    embodiments: [...embodiments],
    prices: pricesOf(offering, wakeUpMicro),
    wakeUpUsd: toUsd(wakeUpMicro),
    cold,
    advertisedMs: latency(advertised.p50Ms, advertised.p95Ms),
    measuredMs: latency(figures?.p50Ms, figures?.p95Ms, figures?.p99Ms),
    ...(uptime > 0 && { uptime30d: uptime, uptimeMeasured: uptime !== advertised.uptime30d }),
    parameters: [...parameters],
    dataCollection: offering.retainsFrames ? DataCollection.ALLOW : DataCollection.DENY,
    ...declaredIn(supply, offering),
  });
}

/** The model's input and action contract, and its source. */
function declaredIn(supply: LiveSupply, offering: Offering) {
  const { declared } = offering;
  if (declared === undefined) return {};
  const { inputSource, actions, actionsSource } = declared;
  const input = supply.inputOf(offering);
  return {
    ...(input && { input, inputSource }),
    ...(actions.length > 0 && { actions: { actions: [...actions] }, actionsSource }),
  };
}

/** The gateway itself serves evaluate, not an offering. */
const isServed = (contract: Contract): boolean => contract !== Contract.EVALUATE;

function pricesOf({ priceNano }: Offering, wakeUpMicro: number) {
  return Object.values(CONTRACT_WORDS)
    .filter(isServed)
    .flatMap((contract) => {
      const listNano = priceNano[contract];
      if (listNano === undefined) return [];
      const nowNano = Math.round(listNano + (wakeUpMicro * 1000) / DEFAULT_HORIZON);
      return [{ contract, unit: UNIT[contract], listUsd: usdFromNano(listNano), nowUsd: usdFromNano(nowNano) }];
    });
}

const latency = (p50?: number, p95?: number, p99?: number) => ({ p50, p95, p99 });
