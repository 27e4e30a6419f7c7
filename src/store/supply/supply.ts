/** Supply: the catalog of models, the providers, and their offerings. Prices are integer nano-dollars per unit. */

import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import type { Queryable } from "../database/tx.ts";

/** Whoever runs models. */
export interface ProviderRecord {
  id: string;
  orgId: string;
  /** The word that stands for it in `provider.only` and in paths. */
  name: string;
  displayName: string;
  contactEmail: string | null;
  homepage: string | null;
  regions: string[];
  retainsFrames: boolean;
  /** Unix seconds. */
  created: number;
}

/** A model of the catalog, served or not. */
export interface ModelRecord {
  /** `owner/name`. */
  slug: string;
  name: string;
  summary: string;
  /** What it can't do. */
  limits: string;
  kind: "world-model" | "policy" | "reasoning";
  domain: "embodied" | "driving" | "game" | "science" | "general";
  family: string;
  tier: "servable" | "integration" | "catalog";
  era: "current" | "classic";
  /** `act`, `predict`, `ground`, `evaluate`. */
  contracts: string[];
  actionSpaces: string[];
  embodiments: string[];
  featured: boolean;
  /** Since when it is announced that it will go, and when it goes, in unix seconds; never written with the rest. */
  deprecatedAt?: number | undefined;
  sunsetAt?: number | undefined;
}

/** Where an offering stands in its life. */
export type OfferingStatus =
  | "pending"
  | "verifying"
  | "live"
  | "rejected"
  | "degraded"
  | "suspended"
  | "draining"
  | "removed";

/** What a provider declares about an endpoint that serves a model. */
export interface OfferingDeclaration {
  orgId: string;
  providerId: string;
  model: string;
  /** The wire protocol, such as `openpi-ws`. */
  runtime: string;
  endpoint: string;
  hardware: string;
  contracts: string[];
  actionSpaces: string[];
  actionDim: number | null;
  embodiments: string[];
  precision: string;
  region: string;
  priceFrameNano: number | null;
  priceStepNano: number | null;
  priceTokenNano: number | null;
  priceEpisodeNano: number | null;
  maxHorizon: number;
  dtMs: number;
  /** The wire profile, as ProtoJSON. */
  profile: object | null;
  authType: "none" | "bearer" | "api_key";
  /** Sealed; null exactly when the type is `none`. */
  authSecret: Uint8Array | null;
  p50Ms: number | null;
  p95Ms: number | null;
  unitsPerS: number | null;
  uptime30d: number | null;
  timeoutS: number;
  coldTimeoutS: number | null;
  costNanoPerSecond: number | null;
  /** Null: it stays warm. */
  scaledownS: number | null;
  parameters: string[];
  note: string;
  /** ProtoJSON of `SafetyBounds`. */
  bounds: object | null;
  /** Whether it retains frames; null: as its provider says of itself. */
  ownRetention: boolean | null;
}

/** An offering. */
export interface OfferingRecord extends OfferingDeclaration {
  id: string;
  /** The provider's name and habits, which routing looks at with every offering. */
  provider: string;
  providerRegions: string[];
  retainsFrames: boolean;
  status: OfferingStatus;
  /** The last report of the probe, as ProtoJSON. */
  report: object | null;
  /** How often the probe failed since it last passed. */
  probeFailures: number;
  /** Unix seconds. */
  created: number;
  verifiedAt: number | null;
}

/** A provider's secret opens only for the provider and address that it was given for. */
export const offeringContext = ({ providerId, endpoint }: Pick<OfferingRecord, "providerId" | "endpoint">): string =>
  `offering ${providerId} ${endpoint}`;

/** Everything that a routing snapshot is made from, as of one moment. */
export interface SupplyRecord {
  providers: ProviderRecord[];
  models: ModelRecord[];
  offerings: OfferingRecord[];
}

const seconds = (date: Date): number => Math.floor(date.getTime() / 1000);

/** A row of `provider`. */
export interface ProviderRow {
  id: string;
  org_id: string;
  name: string;
  display_name: string;
  contact_email: string | null;
  homepage: string | null;
  regions: string[];
  retains_frames: boolean;
  created: Date;
}

/** A provider from its row. */
export const providerOf = (row: ProviderRow): ProviderRecord => ({
  id: row.id,
  orgId: row.org_id,
  name: row.name,
  displayName: row.display_name,
  contactEmail: row.contact_email,
  homepage: row.homepage,
  regions: row.regions,
  retainsFrames: row.retains_frames,
  created: seconds(row.created),
});

/** What a provider is made from. */
export type NewProvider = Omit<ProviderRecord, "id" | "created">;

/** Registers a provider. Refuses with `already_exists` when the name is taken. */
export async function createProvider(sql: Queryable, provider: NewProvider): Promise<ProviderRecord> {
  const row = {
    id: newId("prov"),
    org_id: provider.orgId,
    name: provider.name,
    display_name: provider.displayName,
    contact_email: provider.contactEmail,
    homepage: provider.homepage,
    regions: provider.regions,
    retains_frames: provider.retainsFrames,
  };
  const [made] = await sql<ProviderRow[]>`insert into provider ${sql(row)} on conflict (name) do nothing returning *`;
  if (!made)
    throw refuse(Reason.ALREADY_EXISTS, `there is a provider named ${provider.name} already`, {}, { param: "name" });
  return providerOf(made);
}

/** Finds a provider by the word that stands for it. */
export async function findProvider(sql: Queryable, name: string): Promise<ProviderRecord | undefined> {
  const [row] = await sql<ProviderRow[]>`select * from provider where name = ${name}`;
  return row && providerOf(row);
}

/** A row of `model`. */
export interface ModelRow extends Omit<ModelRecord, "actionSpaces" | "deprecatedAt" | "sunsetAt"> {
  action_spaces: string[];
  deprecated_at: Date | null;
  sunset_at: Date | null;
}

/** A model from its row. */
export const modelOf = (row: ModelRow): ModelRecord => ({
  slug: row.slug,
  name: row.name,
  summary: row.summary,
  limits: row.limits,
  kind: row.kind,
  domain: row.domain,
  family: row.family,
  tier: row.tier,
  era: row.era,
  contracts: row.contracts,
  actionSpaces: row.action_spaces,
  embodiments: row.embodiments,
  featured: row.featured,
  deprecatedAt: unixSeconds(row.deprecated_at),
  sunsetAt: unixSeconds(row.sunset_at),
});

const unixSeconds = (at: Date | null): number | undefined =>
  at === null ? undefined : Math.floor(at.getTime() / 1000);

const modelRow = ({ actionSpaces, deprecatedAt: _, sunsetAt: __, ...model }: ModelRecord) => ({
  ...model,
  action_spaces: actionSpaces,
});

/** Writes models of the catalog; those that were there before are replaced. */
export async function putModels(sql: Queryable, models: readonly ModelRecord[]): Promise<void> {
  for (const model of models) {
    const { slug, ...facts } = modelRow(model);
    await sql`insert into model ${sql({ slug, ...facts })} on conflict (slug) do update set ${sql(facts)}`;
  }
}

/** Makes a model known that somebody serves and the catalog doesn't have; one that is known is left as it is. */
export async function addModel(sql: Queryable, model: ModelRecord): Promise<void> {
  await sql`insert into model ${sql(modelRow(model))} on conflict (slug) do nothing`;
}

/** A row of `offerings`. */
export interface OfferingRow {
  id: string;
  org_id: string;
  provider_id: string;
  provider: string;
  provider_regions: string[];
  retains_frames: boolean;
  model: string;
  status: OfferingStatus;
  runtime: string;
  endpoint: string;
  hardware: string;
  contracts: string[];
  action_spaces: string[];
  action_dim: number | null;
  embodiments: string[];
  precision: string;
  region: string;
  price_frame_nano: number | null;
  price_step_nano: number | null;
  price_token_nano: number | null;
  price_episode_nano: number | null;
  max_horizon: number;
  dt_ms: number;
  profile: object | null;
  auth_type: OfferingDeclaration["authType"];
  auth_secret: Buffer | null;
  p50_ms: number | null;
  p95_ms: number | null;
  units_per_s: number | null;
  uptime_30d: number | null;
  timeout_s: number;
  cold_timeout_s: number | null;
  cost_nano_per_second: number | null;
  scaledown_s: number | null;
  parameters: string[];
  note: string;
  report: object | null;
  bounds: object | null;
  own_retention: boolean | null;
  probe_failures: number;
  created: Date;
  verified_at: Date | null;
}

/** An offering from its row. */
export const offeringOf = (row: OfferingRow): OfferingRecord => ({
  id: row.id,
  orgId: row.org_id,
  providerId: row.provider_id,
  provider: row.provider,
  providerRegions: row.provider_regions,
  retainsFrames: row.retains_frames,
  model: row.model,
  status: row.status,
  runtime: row.runtime,
  endpoint: row.endpoint,
  hardware: row.hardware,
  contracts: row.contracts,
  actionSpaces: row.action_spaces,
  actionDim: row.action_dim,
  embodiments: row.embodiments,
  precision: row.precision,
  region: row.region,
  priceFrameNano: row.price_frame_nano,
  priceStepNano: row.price_step_nano,
  priceTokenNano: row.price_token_nano,
  priceEpisodeNano: row.price_episode_nano,
  maxHorizon: row.max_horizon,
  dtMs: row.dt_ms,
  profile: row.profile,
  authType: row.auth_type,
  authSecret: row.auth_secret,
  p50Ms: row.p50_ms,
  p95Ms: row.p95_ms,
  unitsPerS: row.units_per_s,
  uptime30d: row.uptime_30d,
  timeoutS: row.timeout_s,
  coldTimeoutS: row.cold_timeout_s,
  costNanoPerSecond: row.cost_nano_per_second,
  scaledownS: row.scaledown_s,
  parameters: row.parameters,
  note: row.note,
  report: row.report,
  bounds: row.bounds,
  ownRetention: row.own_retention,
  probeFailures: row.probe_failures,
  created: seconds(row.created),
  verifiedAt: row.verified_at && seconds(row.verified_at),
});

/** Writes an offering, pending, of a provider and a model that are there. */
export async function createOffering(sql: Queryable, offering: OfferingDeclaration): Promise<OfferingRecord> {
  const row = {
    id: newId("off"),
    org_id: offering.orgId,
    provider_id: offering.providerId,
    model: offering.model,
    runtime: offering.runtime,
    endpoint: offering.endpoint,
    hardware: offering.hardware,
    contracts: offering.contracts,
    action_spaces: offering.actionSpaces,
    action_dim: offering.actionDim,
    embodiments: offering.embodiments,
    precision: offering.precision,
    region: offering.region,
    price_frame_nano: offering.priceFrameNano,
    price_step_nano: offering.priceStepNano,
    price_token_nano: offering.priceTokenNano,
    price_episode_nano: offering.priceEpisodeNano,
    max_horizon: offering.maxHorizon,
    dt_ms: offering.dtMs,
    profile: offering.profile && sql.json(jsonOf(offering.profile)),
    auth_type: offering.authType,
    auth_secret: offering.authSecret && Buffer.from(offering.authSecret),
    p50_ms: offering.p50Ms,
    p95_ms: offering.p95Ms,
    units_per_s: offering.unitsPerS,
    uptime_30d: offering.uptime30d,
    timeout_s: offering.timeoutS,
    cold_timeout_s: offering.coldTimeoutS,
    cost_nano_per_second: offering.costNanoPerSecond,
    scaledown_s: offering.scaledownS,
    parameters: offering.parameters,
    note: offering.note,
    bounds: offering.bounds && sql.json(jsonOf(offering.bounds)),
    retains_frames: offering.ownRetention,
  };
  await sql`insert into offering ${sql(row)}`;
  return (await findOffering(sql, row.id))!;
}

/** Finds an offering, whatever its status. */
export async function findOffering(sql: Queryable, id: string): Promise<OfferingRecord | undefined> {
  const [row] = await sql<OfferingRow[]>`${offerings(sql)} where offering.id = ${id}`;
  return row && offeringOf(row);
}

/** Every offering with what its provider says of itself; goes on with `where`. */
export const offerings = (sql: Queryable) => sql`
  select offering.*, offering.retains_frames as own_retention, provider.name as provider,
    provider.regions as provider_regions, coalesce(offering.retains_frames, provider.retains_frames) as retains_frames
  from offering join provider on provider.id = offering.provider_id`;

/**
 * Moves an offering to a status, with a probe's report if there is one, provided that it is in one of `from`. Answers the
 * offering, or undefined when it wasn't there in such a status.
 */
export async function setOfferingStatus(
  sql: Queryable,
  id: string,
  { from, to, report }: { from: readonly OfferingStatus[]; to: OfferingStatus; report?: object },
): Promise<OfferingRecord | undefined> {
  const kept = report === undefined ? sql`` : sql`, report = ${sql.json(jsonOf(report))}, verified_at = now()`;
  const since = to === "draining" ? sql`, withdrawn_at = now()` : sql``;
  const { count } =
    await sql`update offering set status = ${to}${kept}${since} where id = ${id} and status in ${sql([...from])}`;
  return count === 0 ? undefined : findOffering(sql, id);
}

/** What the driver takes for JSON. ProtoJSON holds nothing else. */
const jsonOf = (value: object): Parameters<Queryable["json"]>[0] => JSON.parse(JSON.stringify(value));
