/** Supply: the catalog of models, the providers, and their offerings. Prices are integer nano-dollars per unit. */

import { isDeepStrictEqual } from "node:util";
import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { allRecords, firstRecord, type Queryable, type Sql, type Tx, unixSeconds } from "../database/tx.ts";

/** An organization that runs models. */
export interface ProviderRecord {
  id: string;
  orgId: string;
  /** The name in `provider.only` and in paths. */
  name: string;
  displayName: string;
  contactEmail: string | null;
  homepage: string | null;
  regions: string[];
  retainsFrames: boolean;
  standing: ProviderStanding;
  /** The reason for the trust level. */
  standingNote: string;
  /** Unix seconds. */
  reviewedAt: number | null;
  created: number;
}

/** The operator's decision on a provider. */
type ProviderStanding = "community" | "verified" | "rejected";

/** A model of the catalog, served or not. */
export interface ModelRecord {
  /** `owner/name`. */
  slug: string;
  name: string;
  summary: string;
  /** Its limitations. */
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
  /** When its deprecation was announced, and its sunset, in unix seconds; not written with the other fields. */
  deprecatedAt?: number | undefined;
  sunsetAt?: number | undefined;
  /** The organization that declared it; undefined if it is in the catalog. */
  declaredBy?: string | undefined;
}

/** The status of an offering. */
export type OfferingStatus =
  | "pending"
  | "verifying"
  | "live"
  | "rejected"
  | "degraded"
  | "suspended"
  | "paused"
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
  /** Null assumes a default. */
  scaledownS: number | null;
  parameters: string[];
  note: string;
  /** ProtoJSON of `SafetyBounds`. */
  bounds: object | null;
  /** Its inputs, as ProtoJSON of `InputContract`; null if undeclared. */
  input: object | null;
  /** The meaning of each action, as ProtoJSON of `ActionMeaning`; null if undeclared. */
  actions: object[] | null;
  /** ProtoJSON of `SignedCheckpoint`; null if undeclared. */
  checkpoint: { readonly digest: string; readonly signature: string } | null;
  /** Whether it retains frames; null uses the provider's declaration. */
  ownRetention: boolean | null;
  /** Undeclared columns that its server can fill. */
  undeclared: string[];
}

/** An offering. */
export interface OfferingRecord extends OfferingDeclaration {
  id: string;
  /** Fields of the provider that routing reads with every offering. */
  provider: string;
  providerRegions: string[];
  retainsFrames: boolean;
  standing: ProviderStanding;
  /** Whether its organization owns the owner name of its model. */
  ownsName: boolean;
  /** The signing keys of the model's owner name, as PEM, if it declares a checkpoint; else null. */
  makerKeys: string[] | null;
  status: OfferingStatus;
  /** The last probe report, as ProtoJSON. */
  report: object | null;
  /** The chunk length if its server always returns the same one; null if the length varies or was not probed. */
  chunkSteps: number | null;
  /** Consecutive failed probes. */
  probeFailures: number;
  /** Unix seconds. */
  created: number;
  verifiedAt: number | null;
}

/** The sealing context of a provider's secret: it opens only for the same provider and address. */
export const offeringContext = ({ providerId, endpoint }: Pick<OfferingRecord, "providerId" | "endpoint">): string =>
  `offering ${providerId} ${endpoint}`;

/** The data of a routing snapshot, as of one moment. */
export interface SupplyRecord {
  providers: ProviderRecord[];
  models: ModelRecord[];
  offerings: OfferingRecord[];
}

/** A row of `provider`. */
export interface ProviderRow extends Omit<ProviderRecord, "created" | "reviewedAt"> {
  reviewedAt: Date | null;
  created: Date;
}

/** A provider from its row. */
export const providerOf = (row: ProviderRow): ProviderRecord => ({
  ...row,
  reviewedAt: row.reviewedAt && unixSeconds(row.reviewedAt),
  created: unixSeconds(row.created),
});

/** The fields of a new provider. */
type NewProvider = Omit<ProviderRecord, "id" | "standing" | "standingNote" | "reviewedAt" | "created">;

/** Registers a provider. Refuses with `already_exists` when the name is taken. */
export async function createProvider(sql: Queryable, provider: NewProvider): Promise<ProviderRecord> {
  const row = {
    id: newId("prov"),
    ...provider,
  };
  const [made] = await sql<ProviderRow[]>`insert into provider ${sql(row)} on conflict (name) do nothing returning *`;
  if (!made)
    throw refuse(Reason.ALREADY_EXISTS, `a provider named ${provider.name} already exists`, {}, { param: "name" });
  return providerOf(made);
}

/** Finds a provider by name. */
export async function findProvider(sql: Queryable, name: string): Promise<ProviderRecord | undefined> {
  const [row] = await sql<ProviderRow[]>`select * from provider where name = ${name}`;
  return row && providerOf(row);
}

/** The names of an organization's providers. */
export async function namesOfProviders(sql: Queryable, orgId: string): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`select name from provider where org_id = ${orgId}`;
  return rows.map(({ name }) => name);
}

/** Sets the operator's decision on a provider; undefined if it does not exist. */
export async function reviewProvider(
  tx: Tx,
  name: string,
  { standing, note }: { standing: ProviderStanding; note: string },
): Promise<ProviderRecord | undefined> {
  const [row] = await tx<ProviderRow[]>`
    update provider set standing = ${standing}, standing_note = ${note}, reviewed_at = now() where name = ${name} returning *`;
  return row && providerOf(row);
}

/** The owner part of a model's slug. */
const ownerOf = (slug: string): string => slug.split("/", 1)[0]!;

/** Assigns a model's owner name to an organization whose offering passed, unless it is assigned already or is in the catalog. */
export async function claimOwner(tx: Tx, slug: string, orgId: string): Promise<void> {
  const owner = ownerOf(slug);
  await tx`
    insert into model_owner (owner, org_id)
    select ${owner}, ${orgId} where not exists (select from catalog_entry where split_part(slug, '/', 1) = ${owner})
    on conflict (owner) do nothing`;
}

/** Assigns an owner name to an organization, also if another one has it, or to none; returns the previous organization. */
export async function setOwner(tx: Tx, owner: string, orgId: string | undefined): Promise<string | undefined> {
  const [before] = await tx<{ orgId: string }[]>`select org_id from model_owner where owner = ${owner} for update`;
  // Keys of the previous owner must not sign for the new one.
  if (before && before.orgId !== orgId) await tx`delete from maker_key where owner = ${owner}`;
  if (orgId === undefined) await tx`delete from model_owner where owner = ${owner}`;
  else
    await tx`
      insert into model_owner (owner, org_id) values (${owner}, ${orgId})
      on conflict (owner) do update set org_id = excluded.org_id`;
  return before?.orgId;
}

/** A row of `model`. */
export interface ModelRow extends Omit<ModelRecord, "deprecatedAt" | "sunsetAt" | "declaredBy"> {
  declaredBy: string | null;
  deprecatedAt: Date | null;
  sunsetAt: Date | null;
  created: Date;
}

/** A model from its row. */
export const modelOf = ({ created: _, deprecatedAt, sunsetAt, declaredBy, ...row }: ModelRow): ModelRecord => ({
  ...row,
  declaredBy: declaredBy ?? undefined,
  deprecatedAt: deprecatedAt === null ? undefined : unixSeconds(deprecatedAt),
  sunsetAt: sunsetAt === null ? undefined : unixSeconds(sunsetAt),
});

const modelRow = ({ deprecatedAt: _, sunsetAt: __, declaredBy, ...model }: ModelRecord) => ({
  ...model,
  declaredBy: declaredBy ?? null,
});

/** Inserts or replaces models of the catalog. */
export async function putModels(sql: Queryable, models: readonly ModelRecord[]): Promise<void> {
  for (const model of models) {
    const { slug, ...facts } = modelRow({ ...model, declaredBy: undefined });
    await sql`insert into model ${sql({ slug, ...facts })} on conflict (slug) do update set ${sql(facts)}`;
  }
}

/** Adds a served model that the catalog lacks; a known model stays unchanged. */
export async function addModel(sql: Queryable, model: ModelRecord): Promise<void> {
  await sql`insert into model ${sql(modelRow(model))} on conflict (slug) do nothing`;
}

/**
 * Assigns a declared model to the organization whose offering of it first passes its probe, and replaces unproven declarations of others.
 * Does nothing if another offering has passed, or if the catalog has the model.
 */
export async function claimModel(
  sql: Queryable,
  { id, orgId, model: slug, contracts, actionSpaces, embodiments }: OfferingRecord,
  kind: ModelRecord["kind"],
): Promise<void> {
  await sql`
    update model set ${sql({ declaredBy: orgId, kind, contracts, actionSpaces, embodiments })}
    where slug = ${slug} and declared_by is not null and not exists (
      select from offering where model = ${slug} and id <> ${id} and status not in ('pending', 'verifying', 'rejected', 'removed'))`;
}

/** A row of `offerings`. */
export interface OfferingRow extends Omit<OfferingRecord, "created" | "verifiedAt"> {
  created: Date;
  verifiedAt: Date | null;
}

/**
 * An offering from its row. The fields are written out because a hundred thousand offerings can be read at once, and a spread costs 10 to
 * 15 us more for each. The row has more columns than the record.
 */
export const offeringOf = (row: OfferingRow): OfferingRecord => ({
  id: row.id,
  orgId: row.orgId,
  providerId: row.providerId,
  provider: row.provider,
  providerRegions: row.providerRegions,
  retainsFrames: row.retainsFrames,
  standing: row.standing,
  ownsName: row.ownsName,
  model: row.model,
  status: row.status,
  runtime: row.runtime,
  endpoint: row.endpoint,
  hardware: row.hardware,
  contracts: row.contracts,
  actionSpaces: row.actionSpaces,
  actionDim: row.actionDim,
  embodiments: row.embodiments,
  precision: row.precision,
  region: row.region,
  priceFrameNano: row.priceFrameNano,
  priceStepNano: row.priceStepNano,
  priceTokenNano: row.priceTokenNano,
  priceEpisodeNano: row.priceEpisodeNano,
  maxHorizon: row.maxHorizon,
  chunkSteps: row.chunkSteps,
  dtMs: row.dtMs,
  profile: row.profile,
  authType: row.authType,
  authSecret: row.authSecret,
  p50Ms: row.p50Ms,
  p95Ms: row.p95Ms,
  unitsPerS: row.unitsPerS,
  uptime30d: row.uptime30d,
  timeoutS: row.timeoutS,
  coldTimeoutS: row.coldTimeoutS,
  costNanoPerSecond: row.costNanoPerSecond,
  scaledownS: row.scaledownS,
  parameters: row.parameters,
  note: row.note,
  report: row.report,
  bounds: row.bounds,
  input: row.input,
  actions: row.actions,
  checkpoint: row.checkpoint,
  makerKeys: row.makerKeys,
  ownRetention: row.ownRetention,
  undeclared: row.undeclared,
  probeFailures: row.probeFailures,
  created: unixSeconds(row.created),
  verifiedAt: row.verifiedAt && unixSeconds(row.verifiedAt),
});

/** Creates a pending offering of an existing provider and model. */
export async function createOffering(sql: Queryable, offering: OfferingDeclaration): Promise<OfferingRecord> {
  const { profile, authSecret, uptime30d, bounds, input, actions, checkpoint, ownRetention, ...declared } = offering;
  const row = {
    ...declared,
    id: newId("off"),
    profile: profile && sql.json(jsonOf(profile)),
    authSecret: authSecret && Buffer.from(authSecret),
    // The column's own name: see `Queryable`.
    uptime_30d: uptime30d,
    bounds: bounds && sql.json(jsonOf(bounds)),
    input: input && sql.json(jsonOf(input)),
    actions: actions && sql.json(jsonOf(actions)),
    checkpoint: checkpoint && sql.json(jsonOf(checkpoint)),
    retainsFrames: ownRetention,
  };
  await sql`insert into offering ${sql(row)}`;
  return (await findOffering(sql, row.id))!;
}

/** Finds an offering in any status. */
export async function findOffering(sql: Queryable, id: string): Promise<OfferingRecord | undefined> {
  const [row] = await sql<OfferingRow[]>`${offerings(sql)} where offering.id = ${id}`;
  return row && offeringOf(row);
}

/** Every offering with its provider's fields; append a `where` clause. */
export const offerings = (sql: Queryable) => sql`
  select offering.*, offering.retains_frames as own_retention, provider.name as provider,
    provider.regions as provider_regions, coalesce(offering.retains_frames, provider.retains_frames) as retains_frames,
    provider.standing, model_owner.owner is not null as owns_name,
    case when offering.checkpoint is not null then (select array_agg(public_key order by id) from maker_key
      where maker_key.owner = split_part(offering.model, '/', 1)) end as maker_keys
  from offering join provider on provider.id = offering.provider_id
    left join model_owner on model_owner.owner = split_part(offering.model, '/', 1) and model_owner.org_id = offering.org_id`;

/**
 * Moves an offering from a status in `from` to another one, and stores a probe report if given. Returns the offering; undefined if it is not
 * in such a status.
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

/** Converts to the JSON type of the driver. ProtoJSON has no other values. */
const jsonOf = (value: object): Parameters<Queryable["json"]>[0] => JSON.parse(JSON.stringify(value));

// Providers and offerings: lists, changes, scheduled probes, withdrawal.

/** Providers of an organization by name, after the name `after`. */
export async function listProviders(
  sql: Queryable,
  { orgId, after, limit }: { orgId: string; after: string; limit: number },
): Promise<ProviderRecord[]> {
  const rows = await sql<ProviderRow[]>`
    select * from provider where org_id = ${orgId} and name > ${after} order by name limit ${limit}`;
  return rows.map(providerOf);
}

/** The fields of a provider to change, by column. */
type ProviderChanges = Partial<
  Pick<ProviderRow, "displayName" | "contactEmail" | "homepage" | "regions" | "retainsFrames">
>;

/** Changes an existing provider. */
export async function updateProvider(sql: Queryable, id: string, changes: ProviderChanges): Promise<ProviderRecord> {
  const [row] =
    Object.keys(changes).length === 0
      ? await sql<ProviderRow[]>`select * from provider where id = ${id}`
      : await sql<ProviderRow[]>`update provider set ${sql(changes)} where id = ${id} returning *`;
  return providerOf(row!);
}

/** A page of offerings. */
interface OfferingQuery {
  /** Only those of this organization; undefined means all. */
  orgId: string | undefined;
  /** Also publicly available offerings. */
  andPublic: boolean;
  provider: string | undefined;
  model: string | undefined;
  status: OfferingStatus | undefined;
  /** Only those declared before this id. */
  before: string | undefined;
  limit: number;
}

/** Offerings, newest first; removed ones only if that status is requested. */
export async function listOfferings(
  sql: Queryable,
  { orgId, andPublic, provider, model, status, before, limit }: OfferingQuery,
): Promise<OfferingRecord[]> {
  const open = andPublic ? sql`or offering.status in ('live', 'degraded')` : sql``;
  const rows = await sql<OfferingRow[]>`
    ${offerings(sql)} where
      ${status === undefined ? sql`offering.status <> 'removed'` : sql`offering.status = ${status}`}
      ${orgId === undefined ? sql`` : sql`and (offering.org_id = ${orgId} ${open})`}
      ${provider === undefined ? sql`` : sql`and provider.name = ${provider}`}
      ${model === undefined ? sql`` : sql`and offering.model = ${model}`}
      ${before === undefined ? sql`` : sql`and offering.id < ${before}`}
    order by offering.id desc limit ${limit}`;
  return rows.map(offeringOf);
}

/** The cost basis of an offering, by column. */
export type CostBasis = Partial<
  Pick<OfferingRow, "hardware" | "costNanoPerSecond" | "scaledownS" | "timeoutS" | "coldTimeoutS">
>;

/** Changes the cost basis of an existing offering. */
export async function updateCostBasis(sql: Queryable, id: string, changes: CostBasis): Promise<OfferingRecord> {
  if (Object.keys(changes).length > 0) await sql`update offering set ${sql(changes)} where id = ${id}`;
  const [row] = await sql<OfferingRow[]>`${offerings(sql)} where offering.id = ${id}`;
  return offeringOf(row!);
}

/** Deletes an offering permanently if its status is in `from`; returns whether it did. */
export async function deleteOffering(sql: Queryable, id: string, from: readonly OfferingStatus[]): Promise<boolean> {
  const { count } = await sql`delete from offering where id = ${id} and status in ${sql([...from])}`;
  return count > 0;
}

/** The number of calls in flight on an offering, on all replicas. A page of intents stays until all of its calls have ended. */
export async function inFlightOn(sql: Queryable, id: string): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    with page as (select promised::json as promised from intent),
    request as (
      select promised -> 'kinds' -> (request ->> 0)::int as kind, request ->> 1 as request_id
      from page, json_array_elements(promised -> 'requests') as request
    )
    select count(*) as count from request
    where kind ->> 'offering_id' = ${id} and not exists (
      select from request_outcome as ended
      where ended.org_id = request.kind ->> 'org_id' and ended.request_id = request.request_id)`;
  return row?.count ?? 0;
}

/** Draining offerings; `over` once the longest possible call has ended. */
export async function withdrawnUntil(sql: Sql): Promise<(OfferingRecord & { over: boolean })[]> {
  const rows = await sql<(OfferingRow & { over: boolean })[]>`
    select o.*, withdrawn_at is null
      or withdrawn_at + greatest(o.timeout_s, coalesce(o.cold_timeout_s, 0)) * interval '1 second' + interval '1 minute' < now() as over
    from (${offerings(sql)} where offering.status = 'draining') as o limit 100`;
  return rows.map((row) => ({ ...offeringOf(row), over: row.over }));
}

/** The outcome of a probe. */
interface ProbeOutcome {
  from: readonly OfferingStatus[];
  to: OfferingStatus;
  failures: number;
  report: object;
  /** The chunk length if its server always returns the same one; null if it varies, undefined if that is unknown. */
  chunkSteps: number | null | undefined;
  /** Seconds until the next probe; undefined for never. */
  dueInS: number | undefined;
}

/** Applies a probe's outcome to an offering whose status is in `from`; undefined if it is not. */
export async function settleProbe(
  sql: Queryable,
  id: string,
  { from, to, failures, report, chunkSteps, dueInS }: ProbeOutcome,
): Promise<OfferingRecord | undefined> {
  const { count } = await sql`
    update offering set status = ${to}, probe_failures = ${failures}, verified_at = now(), probe_until = null,
      probe_busy = case when ${failures}::int = 0 then 0 else probe_busy end,
      report = ${sql.json(JSON.parse(JSON.stringify(report)))},
      ${chunkSteps === undefined ? sql`` : sql`chunk_steps = ${chunkSteps},`}
      probe_due = ${dueInS === undefined ? null : sql`now() + ${dueInS} * interval '1 second'`}
    where id = ${id} and status in ${sql([...from])}`;
  if (count === 0) return undefined;
  const [row] = await sql<OfferingRow[]>`${offerings(sql)} where offering.id = ${id}`;
  return row && offeringOf(row);
}

/** Stores the interim report of a running probe; does nothing if the offering was deleted. */
export async function storeProbeProgress(sql: Queryable, id: string, report: object): Promise<void> {
  await sql`
    insert into probe_progress (offering_id, report) select id, ${sql.json(JSON.parse(JSON.stringify(report)))} from offering where id = ${id}
    on conflict (offering_id) do update set report = excluded.report, at = now()`;
}

/** The interim report of a running probe, as ProtoJSON; undefined if none is running. */
export async function progressOf(sql: Queryable, id: string): Promise<object | undefined> {
  const [row] = await sql<{ report: object }[]>`select report from probe_progress where offering_id = ${id}`;
  return row?.report;
}

/** Deletes the interim report of a probe that has ended. */
export async function endProgress(sql: Queryable, id: string): Promise<void> {
  await sql`delete from probe_progress where offering_id = ${id}`;
}

/** Claims one offering whose probe is due, for `leaseS` seconds. Undefined if none is due. */
export async function takeProbe(sql: Sql, leaseS: number): Promise<OfferingRecord | undefined> {
  const [taken] = await sql<{ id: string }[]>`
    update offering set probe_until = now() + ${leaseS} * interval '1 second' where id = (
      select id from offering
      where status in ('live', 'degraded', 'suspended') and probe_due <= now() and (probe_until is null or probe_until < now())
      order by probe_due limit 1 for update skip locked
    ) returning id`;
  if (!taken) return undefined;
  const [row] = await sql<OfferingRow[]>`${offerings(sql)} where offering.id = ${taken.id}`;
  return row && offeringOf(row);
}

/** Records a probe that an offering was too busy for. Returns how many in a row, without any call served in `servedWithinMin` minutes. */
export async function noteBusyProbe(sql: Queryable, id: string, servedWithinMin: number): Promise<number> {
  const [row] = await sql<{ probeBusy: number }[]>`
    update offering set probe_busy = case when exists (
      select from offering_minute where offering_id = ${id} and calls > failures
        and minute > extract(epoch from now())::int / 60 - ${servedWithinMin}::int
    ) then 0 else probe_busy + 1 end
    where id = ${id} returning probe_busy`;
  return row?.probeBusy ?? 0;
}

/** Postpones a probe that could not run. */
export async function putOffProbe(sql: Queryable, id: string, byS: number): Promise<void> {
  await sql`update offering set probe_until = null, probe_due = now() + ${byS} * interval '1 second' where id = ${id}`;
}

// Undeclared columns that servers describe themselves.

/** Columns of an offering that its server can fill if they are undeclared. */
export interface Described {
  readonly dt_ms?: number;
  readonly max_horizon?: number;
  readonly embodiments?: string[];
  readonly parameters?: string[];
  /** ProtoJSON of `InputContract`. */
  readonly input?: object;
  /** Each ProtoJSON of `ActionMeaning`. */
  readonly actions?: readonly object[];
}

/** Fills columns of an offering that was never live; undefined if it was. */
export async function fillOffering(
  sql: Queryable,
  id: string,
  { input, actions, ...plain }: Described,
): Promise<OfferingRecord | undefined> {
  const words = {
    ...plain,
    ...(input !== undefined && { input: sql.json(input as Parameters<Queryable["json"]>[0]) }), // ProtoJSON holds nothing else
    ...(actions !== undefined && { actions: sql.json(actions as Parameters<Queryable["json"]>[0]) }), // nor does a list of it
  };
  const { count } = await sql`
    update offering set ${sql(words)} where id = ${id} and status in ('pending', 'verifying')`;
  return count === 0 ? undefined : findOffering(sql, id);
}

/** Fills missing facts of a model, if the catalog lacks it and no other organization ever offered it. */
export async function fillModel(
  sql: Queryable,
  { model, orgId }: Pick<OfferingRecord, "model" | "orgId">,
  { summary, limits }: { summary: string; limits: string },
): Promise<void> {
  await sql`
    update model set summary = ${summary}, limits = ${limits}
    where slug = ${model} and summary = '' and limits = ''
      and not exists (select from catalog_entry as entry where entry.slug = model.slug)
      and not exists (select from offering where offering.model = model.slug and org_id <> ${orgId})`;
}

// The keys by which owners of model names sign checkpoints.

/** One key. */
export interface MakerKeyRecord {
  id: string;
  owner: string;
  orgId: string;
  name: string;
  /** PEM. */
  publicKey: string;
  /** Unix seconds. */
  created: number;
}

/** The organization that owns a name; undefined if none does. With `lock`, the owner cannot change until the transaction ends. */
export async function ownerOrg(sql: Queryable, owner: string, { lock = false } = {}): Promise<string | undefined> {
  const [row] = await sql<{ orgId: string }[]>`
    select org_id from model_owner where owner = ${owner} ${lock ? sql`for update` : sql``}`;
  return row?.orgId;
}

/** The signing keys of a name, oldest first. */
export async function makerKeys(sql: Queryable, owner: string): Promise<MakerKeyRecord[]> {
  return allRecords<MakerKeyRecord>(sql`select * from maker_key where owner = ${owner} order by id`);
}

/** Adds a signing key; returns an existing equal one unchanged. */
export async function addMakerKey(tx: Tx, key: Omit<MakerKeyRecord, "id" | "created">): Promise<MakerKeyRecord> {
  return (await firstRecord<MakerKeyRecord>(tx`
    insert into maker_key ${tx({ id: newId("mkk"), ...key })}
    on conflict (owner, public_key) do update set name = maker_key.name returning *`))!;
}

/** Deletes a signing key; returns false if it does not exist. */
export async function deleteMakerKey(tx: Tx, owner: string, id: string): Promise<boolean> {
  return (await tx`delete from maker_key where owner = ${owner} and id = ${id}`).count > 0;
}

// Reuse of unchanged values.

/** Returns `before` if it equals `now`, so that values derived from it stay valid. */
export const reuseIfEqual = <T>(before: T | undefined, now: T): T =>
  isDeepStrictEqual(before, now) ? (before as T) : now;

/**
 * Empties a list of rows that were processed. A list held across an await keeps all of its rows, and objects that survive two minor
 * collections stay until the next full one.
 */
export const emptyRows = (rows: unknown[]): void => {
  rows.length = 0;
};
