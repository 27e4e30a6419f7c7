/** What the store knows of supply, in the terms of the router and of the wires. */
import { isDeepStrictEqual } from "node:util";
import { fromJson, toBinary } from "@bufbuild/protobuf";
import { SafetyBoundsSchema } from "../../gen/limber/v1/action_pb.ts";
import {
  type ActionMeaning,
  ActionMeaningSchema,
  ContractSource,
  type InputContract,
  InputContractSchema,
} from "../../gen/limber/v1/input_contract_pb.ts";
import { type WireProfile, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { secondOf } from "../billing/price.ts";
import { CONTRACT_WORDS, Contract, DROPPED_PARAMETERS, EPISODE_MICRO } from "../contracts/contract.ts";
import { type DeclaredInput, declaredInput } from "../contracts/inputs.ts";
import { isSigned, statementOf } from "../contracts/trust.ts";
import { type CatalogModel, type Measured, Names, naming, type Offering } from "../routing/index.ts";
import type { Sliced } from "../slices.ts";
import { ASSUMED_SCALEDOWN_S } from "../store/history/series.ts";
import { type ModelRecord, type OfferingRecord, offeringContext, type SupplyRecord } from "../store/supply/supply.ts";
import type { Upstream } from "../upstream/index.ts";
import type { Vault } from "../vault.ts";
import type { LiveOffering, SupplyFacts } from "./live-supply.ts";
import type { MeasuredQuality } from "./measured.ts";

/** What one record is opened with. */
interface OpeningMeans {
  readonly vault: Vault;
  /** The wires: what an offering reads may follow from its profile. */
  readonly upstream: Pick<Upstream, "wireOf">;
}

/** What records are opened with. */
interface OpeningFacts extends OpeningMeans {
  /** Action spaces that a scenario is here for: what acts in one can be evaluated, and it is the gateway that does. */
  readonly evaluated: ReadonlySet<string>;
  /** Called for offerings whose record cannot be read; they are left out. */
  readonly log: (text: string) => void;
}

/** What a record was opened to, with its model of that time. */
interface Opened {
  readonly record: OfferingRecord;
  readonly model: ModelRecord | undefined;
  readonly measured: readonly Measured[] | undefined;
  readonly live: LiveOffering;
}

/** Opens records; one that did not change, and whose model did not, is the same object as before. */
export class SupplyOpener {
  readonly #opening: OpeningFacts;
  /** By the numbers of their names, and no WeakMap: the collector would look at each of its entries in one pause. */
  #ids = new Names(0);
  #opened: readonly (Opened | undefined)[] = [];
  #slugs = new Names(0);
  #models: readonly ModelRecord[] = [];
  #catalog: readonly CatalogModel[] = [];
  /** Equal declarations are one. */
  #declared: ReadonlyMap<string, DeclaredInput> = new Map();

  constructor(opening: OpeningFacts) {
    this.#opening = opening;
  }

  /** Everything live, ready for a snapshot. One look at a time. */
  *facts(
    { models, offerings: records, providers }: SupplyRecord,
    measured: MeasuredQuality = new Map(),
  ): Sliced<SupplyFacts> {
    const slugs = yield* naming(models, ({ slug }) => slug, this.#slugs);
    const catalog: CatalogModel[] = [];
    for (const model of models) {
      const before = this.#slugs.of(model.slug);
      catalog.push(this.#models[before] === model ? this.#catalog[before]! : catalogModel(model));
      if (catalog.length % 64 === 0) yield;
    }
    const ids = yield* naming(records, ({ id }) => id, this.#ids);
    const opened: (Opened | undefined)[] = [];
    const offerings: LiveOffering[] = [];
    const declared = new Map<string, DeclaredInput>();
    for (const record of records) {
      if (opened.length % 32 === 0) yield;
      const each = this.#opensOrNot(record, models[slugs.of(record.model)], measured.get(record.id));
      opened.push(each);
      const said = each?.live.offering.declared;
      if (said) declared.set(said.key, said);
      if (each) offerings.push(each.live);
    }
    this.#ids = ids;
    this.#opened = opened;
    this.#declared = declared;
    this.#slugs = slugs;
    this.#models = models;
    this.#catalog = catalog;
    return { offerings, catalog, providers: providers.map(({ name }) => name) };
  }

  #opensOrNot(
    record: OfferingRecord,
    model: ModelRecord | undefined,
    measured: readonly Measured[] | undefined,
  ): Opened | undefined {
    if (record.status !== "live" && record.status !== "degraded") return undefined;
    try {
      return this.#open(record, model, measured);
    } catch {
      this.#opening.log(`offering ${record.id} cannot be opened and is not routed to`);
      return undefined;
    }
  }

  #open(record: OfferingRecord, model: ModelRecord | undefined, measured: readonly Measured[] | undefined): Opened {
    const before = this.#opened[this.#ids.of(record.id)];
    const isSame = before?.record === record && before.model === model && isDeepStrictEqual(before.measured, measured);
    if (isSame) return before;
    const { offering: stated, ...way } = liveOffering(record, model, this.#opening);
    const said = stated.declared && (this.#declared.get(stated.declared.key) ?? stated.declared);
    const live = {
      ...way,
      offering: withEpisodes({ ...stated, declared: said, ...(measured && { measured }) }, this.#opening.evaluated),
    };
    return { record, model, measured, live };
  }
}

/** What acts where a scenario takes place can be evaluated, at the gateway's price. */
function withEpisodes(offering: Offering, evaluated: ReadonlySet<string>): Offering {
  const { contracts, actionSpaces, priceNano } = offering;
  if (!contracts.includes(Contract.ACT) || !actionSpaces.some((space) => evaluated.has(space))) return offering;
  return {
    ...offering,
    contracts: [...contracts, Contract.EVALUATE],
    priceNano: { ...priceNano, [Contract.EVALUATE]: EPISODE_MICRO * 1000 },
  };
}

/** One offering, with its secret opened and its profile read. Throws when either cannot be. */
export function liveOffering(
  record: OfferingRecord,
  model: ModelRecord | undefined,
  { vault, upstream }: OpeningMeans,
): LiveOffering {
  const secret = record.authSecret ? vault.open(record.authSecret, offeringContext(record)) : "";
  const profile = record.profile
    ? fromJson(WireProfileSchema, record.profile as Parameters<typeof fromJson>[1])
    : undefined;
  return {
    offering: routable(record, model, declaredOf(record, upstream)),
    runtime: record.runtime,
    hardware: record.hardware,
    degraded: record.status === "degraded",
    bounds: record.bounds ? fromJson(SafetyBoundsSchema, record.bounds as Parameters<typeof fromJson>[1]) : undefined,
    target: {
      offeringId: record.id,
      model: record.model,
      endpoint: record.endpoint,
      auth: { type: record.authType, secret },
      profile: profile as WireProfile | undefined,
      actionDim: record.actionDim ?? undefined,
      dtMs: record.dtMs,
    },
  };
}

const contractsOf = (words: readonly string[]): Contract[] =>
  words
    .filter((word): word is keyof typeof CONTRACT_WORDS => word in CONTRACT_WORDS)
    .map((word) => CONTRACT_WORDS[word]);

/** Most units in one answer: as declared, and no more than its server was found to have in a chunk where it serves act alone. */
export function mostSteps({
  maxHorizon,
  chunkSteps,
  contracts,
}: Pick<OfferingRecord, "maxHorizon" | "chunkSteps" | "contracts">): number {
  return chunkSteps === null || contracts.includes("predict") ? maxHorizon : Math.min(maxHorizon, chunkSteps);
}

function routable(
  record: OfferingRecord,
  model: ModelRecord | undefined,
  declared: DeclaredInput | undefined,
): Offering {
  const { act, predict, ground, evaluate } = CONTRACT_WORDS;
  const timeoutMs = record.timeoutS * 1000;
  return {
    id: record.id,
    model: record.model,
    provider: record.provider,
    supplier: { orgId: record.orgId, standing: record.standing, ownsName: record.ownsName },
    region: record.region,
    precision: record.precision,
    contracts: contractsOf(record.contracts),
    actionSpaces: record.actionSpaces,
    actionDim: record.actionDim ?? undefined,
    declared,
    embodiments: record.embodiments.length > 0 ? record.embodiments : (model?.embodiments ?? []),
    domain: model?.domain ?? "embodied",
    family: model?.family ?? "",
    simulated: false,
    priceNano: {
      ...(record.priceStepNano !== null && { [act]: record.priceStepNano }),
      ...(record.priceFrameNano !== null && { [predict]: record.priceFrameNano }),
      ...(record.priceTokenNano !== null && { [ground]: record.priceTokenNano }),
      ...(record.priceEpisodeNano !== null && { [evaluate]: record.priceEpisodeNano }),
    },
    maxHorizon: mostSteps(record),
    ...(record.chunkSteps !== null && { chunk: Math.min(record.chunkSteps, record.maxHorizon) }),
    dtMs: record.dtMs,
    parameters: record.parameters.filter((name) => !DROPPED_PARAMETERS.has(name)),
    retainsFrames: record.retainsFrames,
    ...(isSignedBy(record, record.makerKeys ?? []) && { signed: true }),
    ...(record.checkpoint !== null && { revision: record.checkpoint.digest }),
    advertised: {
      p50Ms: record.p50Ms ?? undefined,
      p95Ms: record.p95Ms ?? undefined,
      unitsPerS: record.unitsPerS ?? undefined,
      uptime30d: record.uptime30d ?? undefined,
    },
    probed: probedOf(record),
    costNanoPerSecond: record.costNanoPerSecond ?? secondOf(record.hardware),
    // The assumed window matters where waking was said to take time: elsewhere a call that wakes it pays and waits for nothing.
    scaledownS: record.scaledownS ?? (record.coldTimeoutS === null ? undefined : ASSUMED_SCALEDOWN_S),
    timeoutMs,
    coldTimeoutMs: record.coldTimeoutS === null ? undefined : record.coldTimeoutS * 1000,
  };
}

/** What the last probe came to: what it measured, and the share of probes that passed since and with the last one that did. */
function probedOf({ report, probeFailures }: OfferingRecord): Offering["probed"] {
  if (report === null) return undefined;
  const { measured } = report as { measured?: { p95Ms?: number } };
  return { p95Ms: measured?.p95Ms || undefined, uptime: 1 / (1 + probeFailures) };
}

const catalogModel = ({ slug, contracts, actionSpaces, embodiments, domain, family }: ModelRecord): CatalogModel => ({
  slug,
  contracts: contractsOf(contracts),
  actionSpaces,
  embodiments,
  domain,
  family,
});

type Json = Parameters<typeof fromJson>[1];

/** Fields of a newer version are left out. Throws where a record is none. */
const OPTIONS = { ignoreUnknownFields: true } as const;

/** Undefined where nothing is known. Throws where the record cannot be read. */
function declaredOf(
  record: Pick<OfferingRecord, "input" | "actions" | "undeclared" | "profile" | "runtime">,
  upstream: Pick<Upstream, "wireOf">,
): DeclaredInput | undefined {
  const { input: saidInput, actions: saidActions, profile } = record;
  const followed =
    profile === null || (saidInput !== null && saidActions !== null)
      ? undefined
      : upstream.wireOf(record.runtime)?.reads?.(fromJson(WireProfileSchema, profile as Json, OPTIONS));
  const input = saidInput === null ? followed?.input : fromJson(InputContractSchema, saidInput as Json, OPTIONS);
  const actions =
    saidActions === null
      ? (followed?.actions ?? [])
      : saidActions.map((each) => fromJson(ActionMeaningSchema, each as Json, OPTIONS));
  if (input === undefined && actions.length === 0) return undefined;
  const sourceOf = (column: "input" | "actions", isKnown: boolean): ContractSource => {
    if (!isKnown) return ContractSource.UNSPECIFIED;
    if (record[column] === null) return ContractSource.PROFILE;
    return record.undeclared.includes(column) ? ContractSource.SERVER : ContractSource.DECLARED;
  };
  const inputSource = sourceOf("input", input !== undefined);
  const actionsSource = sourceOf("actions", actions.length > 0);
  const key = keyOf(input, actions, [inputSource, actionsSource]);
  return declaredInput({ key, input, inputSource, actions, actionsSource });
}

function keyOf(
  input: InputContract | undefined,
  actions: readonly ActionMeaning[],
  sources: readonly number[],
): string {
  const read = input === undefined ? "" : Buffer.from(toBinary(InputContractSchema, input)).toString("base64");
  const meant = actions.map((each) => Buffer.from(toBinary(ActionMeaningSchema, each)).toString("base64"));
  return [...sources, read, ...meant].join(" ");
}

/** What a signature depends on. */
type SignedParts = Pick<OfferingRecord, "checkpoint" | "provider" | "model" | "input" | "bounds" | "undeclared">;

/** By keys (PEM); false where no checkpoint is declared, or where the input contract is not its owner's own. */
export function isSignedBy(parts: SignedParts, keys: readonly string[]): boolean {
  const { checkpoint, provider, model, input, bounds, undeclared } = parts;
  if (checkpoint === null || input === null || undeclared.includes("input")) return false;
  const { digest, signature } = checkpoint;
  return isSigned(statementOf({ provider, model, digest, input, bounds }), Buffer.from(signature, "base64"), keys);
}
