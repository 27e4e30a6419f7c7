/** Supply: the catalog of models, the providers, and their offerings. Prices are integer nano-dollars per unit. */

import { isDeepStrictEqual } from "node:util";
import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { type Queryable, type Sql, type Tx, unixSeconds } from "../database/tx.ts";

/** An organization that runs models. */
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
  standing: ProviderStanding;
  /** Why the operator said so. */
  standingNote: string;
  /** Unix seconds. */
  reviewedAt: number | null;
  created: number;
}

/** What the operator says of a provider. */
type ProviderStanding = "community" | "verified" | "rejected";

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
  /** The organization that declared it, where the catalog does not have it. */
  declaredBy?: string | undefined;
}

/** Where an offering stands in its life. */
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
  /** Null: a window is assumed. */
  scaledownS: number | null;
  parameters: string[];
  note: string;
  /** ProtoJSON of `SafetyBounds`. */
  bounds: object | null;
  /** What it reads, as ProtoJSON of `InputContract`; null: nothing is said. */
  input: object | null;
  /** What its actions mean, each as ProtoJSON of `ActionMeaning`; null: nothing is said. */
  actions: object[] | null;
  /** ProtoJSON of `SignedCheckpoint`; null: none is declared. */
  checkpoint: { readonly digest: string; readonly signature: string } | null;
  /** Whether it retains frames; null: as its provider says of itself. */
  ownRetention: boolean | null;
  /** Columns that were left out, which its server may fill. */
  undeclared: string[];
}

/** An offering. */
export interface OfferingRecord extends OfferingDeclaration {
  id: string;
  /** The provider's name and habits, which routing looks at with every offering. */
  provider: string;
  providerRegions: string[];
  retainsFrames: boolean;
  standing: ProviderStanding;
  /** Its organization owns the name of its model's owner. */
  ownsName: boolean;
  /** The keys of the owner of its model's name, as PEM, where it declares a checkpoint; else null. */
  makerKeys: string[] | null;
  status: OfferingStatus;
  /** The last report of the probe, as ProtoJSON. */
  report: object | null;
  /** Steps of the chunk that its server always answers; null where it answers as many as it is asked for, or was not probed. */
  chunkSteps: number | null;
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

/** Finds a provider by the word that stands for it. */
export async function findProvider(sql: Queryable, name: string): Promise<ProviderRecord | undefined> {
  const [row] = await sql<ProviderRow[]>`select * from provider where name = ${name}`;
  return row && providerOf(row);
}

/** The names of an organization's providers. */
export async function namesOfProviders(sql: Queryable, orgId: string): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`select name from provider where org_id = ${orgId}`;
  return rows.map(({ name }) => name);
}

/** Says what the operator says of a provider; undefined if there is none. */
export async function reviewProvider(
  tx: Tx,
  name: string,
  { standing, note }: { standing: ProviderStanding; note: string },
): Promise<ProviderRecord | undefined> {
  const [row] = await tx<ProviderRow[]>`
    update provider set standing = ${standing}, standing_note = ${note}, reviewed_at = now() where name = ${name} returning *`;
  return row && providerOf(row);
}

/** The part of a model's slug that is its owner's. */
const ownerOf = (slug: string): string => slug.split("/", 1)[0]!;

/** Gives a model's owner's name to an organization whose offering of it passed, where it is nobody's and not of the catalog. */
export async function claimOwner(tx: Tx, slug: string, orgId: string): Promise<void> {
  const owner = ownerOf(slug);
  await tx`
    insert into model_owner (owner, org_id)
    select ${owner}, ${orgId} where not exists (select from catalog_entry where split_part(slug, '/', 1) = ${owner})
    on conflict (owner) do nothing`;
}

/** Gives an owner's name to an organization, also where another one had it, or to nobody; returns who had it. */
export async function setOwner(tx: Tx, owner: string, orgId: string | undefined): Promise<string | undefined> {
  const [before] = await tx<{ orgId: string }[]>`select org_id from model_owner where owner = ${owner} for update`;
  // The keys of who had it sign nothing for who has it now.
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

/** Writes models of the catalog; those that were there before are replaced. */
export async function putModels(sql: Queryable, models: readonly ModelRecord[]): Promise<void> {
  for (const model of models) {
    const { slug, ...facts } = modelRow({ ...model, declaredBy: undefined });
    await sql`insert into model ${sql({ slug, ...facts })} on conflict (slug) do update set ${sql(facts)}`;
  }
}

/** Makes a model known that somebody serves and the catalog doesn't have; one that is known is left as it is. */
export async function addModel(sql: Queryable, model: ModelRecord): Promise<void> {
  await sql`insert into model ${sql(modelRow(model))} on conflict (slug) do nothing`;
}

/**
 * Makes a declared model that of the first offering of it that passes its probe: what others declared before, and did not prove, is
 * forgotten. Nothing where another offering has passed, or where the catalog has the model.
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
 * An offering from its row. Written out, and not spread: a hundred thousand of them may be read at once, and a spread of so many fields takes
 * 10 to 15 us more for each. The row has columns that the record does not.
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

/** Writes an offering, pending, of a provider and a model that are there. */
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

/** Finds an offering, whatever its status. */
export async function findOffering(sql: Queryable, id: string): Promise<OfferingRecord | undefined> {
  const [row] = await sql<OfferingRow[]>`${offerings(sql)} where offering.id = ${id}`;
  return row && offeringOf(row);
}

/** Every offering with what its provider says of itself; goes on with `where`. */
export const offerings = (sql: Queryable) => sql`
  select offering.*, offering.retains_frames as own_retention, provider.name as provider,
    provider.regions as provider_regions, coalesce(offering.retains_frames, provider.retains_frames) as retains_frames,
    provider.standing, model_owner.owner is not null as owns_name,
    case when offering.checkpoint is not null then (select array_agg(public_key order by id) from maker_key
      where maker_key.owner = split_part(offering.model, '/', 1)) end as maker_keys
  from offering join provider on provider.id = offering.provider_id
    left join model_owner on model_owner.owner = split_part(offering.model, '/', 1) and model_owner.org_id = offering.org_id`;

/**
 * Moves an offering to a status, with a probe's report if there is one, provided that it is in one of `from`. Returns the
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

// The life of providers and offerings: lists, changes, probes by schedule, withdrawal.

/** Providers of an organization by name, after the name `after`. */
export async function listProviders(
  sql: Queryable,
  { orgId, after, limit }: { orgId: string; after: string; limit: number },
): Promise<ProviderRecord[]> {
  const rows = await sql<ProviderRow[]>`
    select * from provider where org_id = ${orgId} and name > ${after} order by name limit ${limit}`;
  return rows.map(providerOf);
}

/** What may change of a provider, by column. */
type ProviderChanges = Partial<
  Pick<ProviderRow, "displayName" | "contactEmail" | "homepage" | "regions" | "retainsFrames">
>;

/** Changes a provider that is there. */
export async function updateProvider(sql: Queryable, id: string, changes: ProviderChanges): Promise<ProviderRecord> {
  const [row] =
    Object.keys(changes).length === 0
      ? await sql<ProviderRow[]>`select * from provider where id = ${id}`
      : await sql<ProviderRow[]>`update provider set ${sql(changes)} where id = ${id} returning *`;
  return providerOf(row!);
}

/** Which offerings to list. */
interface OfferingQuery {
  /** Those of this organization; of all when undefined. */
  orgId: string | undefined;
  /** And what everybody may call. */
  andPublic: boolean;
  provider: string | undefined;
  model: string | undefined;
  status: OfferingStatus | undefined;
  /** Only those declared before the one of this name. */
  before: string | undefined;
  limit: number;
}

/** Offerings, the newest first; removed ones only where that state is asked for. */
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

/** Changes the cost basis of an offering that is there. */
export async function updateCostBasis(sql: Queryable, id: string, changes: CostBasis): Promise<OfferingRecord> {
  if (Object.keys(changes).length > 0) await sql`update offering set ${sql(changes)} where id = ${id}`;
  const [row] = await sql<OfferingRow[]>`${offerings(sql)} where offering.id = ${id}`;
  return offeringOf(row!);
}

/** Deletes an offering for good where it is in one of `from`. Reports whether it was. */
export async function deleteOffering(sql: Queryable, id: string, from: readonly OfferingStatus[]): Promise<boolean> {
  const { count } = await sql`delete from offering where id = ${id} and status in ${sql([...from])}`;
  return count > 0;
}

/** Calls that were promised to an offering and whose end is not on record, on any replica: a page of promises stays until all of its calls ended. */
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

/** Offerings that are draining; `over` when the time of their longest call has passed. */
export async function withdrawnUntil(sql: Sql): Promise<(OfferingRecord & { over: boolean })[]> {
  const rows = await sql<(OfferingRow & { over: boolean })[]>`
    select o.*, withdrawn_at is null
      or withdrawn_at + greatest(o.timeout_s, coalesce(o.cold_timeout_s, 0)) * interval '1 second' + interval '1 minute' < now() as over
    from (${offerings(sql)} where offering.status = 'draining') as o limit 100`;
  return rows.map((row) => ({ ...offeringOf(row), over: row.over }));
}

/** What a probe found. */
interface ProbeOutcome {
  from: readonly OfferingStatus[];
  to: OfferingStatus;
  failures: number;
  report: object;
  /** Steps of the chunk that its server always answers; null where it has no such length, undefined where that was not found out. */
  chunkSteps: number | null | undefined;
  /** When to probe it again, in seconds; undefined for never. */
  dueInS: number | undefined;
}

/** Moves an offering to where a probe puts it, provided that it is in one of `from`. Undefined when it is not any more. */
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

/** Keeps what a probe that runs has found so far; nothing where the offering is gone. */
export async function tellProgress(sql: Queryable, id: string, report: object): Promise<void> {
  await sql`
    insert into probe_progress (offering_id, report) select id, ${sql.json(JSON.parse(JSON.stringify(report)))} from offering where id = ${id}
    on conflict (offering_id) do update set report = excluded.report, at = now()`;
}

/** What the probe that runs has found so far, as ProtoJSON; undefined where none runs. */
export async function progressOf(sql: Queryable, id: string): Promise<object | undefined> {
  const [row] = await sql<{ report: object }[]>`select report from probe_progress where offering_id = ${id}`;
  return row?.report;
}

/** Deletes what a probe had found so far: it has ended. */
export async function endProgress(sql: Queryable, id: string): Promise<void> {
  await sql`delete from probe_progress where offering_id = ${id}`;
}

/** Takes one offering whose probe is due, so that no other worker probes it for `leaseS` seconds. Undefined when none is. */
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

/** Notes that an offering had no time for a probe. Returns how many in a row, while no call was answered in the last `servedWithinMin` minutes. */
export async function noteBusyProbe(sql: Queryable, id: string, servedWithinMin: number): Promise<number> {
  const [row] = await sql<{ probeBusy: number }[]>`
    update offering set probe_busy = case when exists (
      select from offering_minute where offering_id = ${id} and calls > failures
        and minute > extract(epoch from now())::int / 60 - ${servedWithinMin}::int
    ) then 0 else probe_busy + 1 end
    where id = ${id} returning probe_busy`;
  return row?.probeBusy ?? 0;
}

/** Puts off a probe that could not be made. */
export async function putOffProbe(sql: Queryable, id: string, byS: number): Promise<void> {
  await sql`update offering set probe_until = null, probe_due = now() + ${byS} * interval '1 second' where id = ${id}`;
}

// What servers say of themselves, where nobody declared it.

/** Columns of an offering that its server may fill, where its declaration left them out. */
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

/** Fills columns of an offering that was never live; undefined where it is not one any more. */
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

/** Fills what is said of a model, where nothing is, the catalog has no entry of it, and no other organization ever offered it. */
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

// The keys by which owners of models' names sign checkpoints.

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

type MakerKeyRow = Omit<MakerKeyRecord, "created"> & { created: Date };

const recordOf = (row: MakerKeyRow): MakerKeyRecord => ({ ...row, created: unixSeconds(row.created) });

/** The organization that owns a name; undefined where nobody does. With `lock` it owns it until the transaction ends. */
export async function ownerOrg(sql: Queryable, owner: string, { lock = false } = {}): Promise<string | undefined> {
  const [row] = await sql<{ orgId: string }[]>`
    select org_id from model_owner where owner = ${owner} ${lock ? sql`for update` : sql``}`;
  return row?.orgId;
}

/** The keys of a name, the oldest first. */
export async function makerKeys(sql: Queryable, owner: string): Promise<MakerKeyRecord[]> {
  return (await sql<MakerKeyRow[]>`select * from maker_key where owner = ${owner} order by id`).map(recordOf);
}

/** Adds a key; one that is there already stays as it is, and is answered. */
export async function addMakerKey(tx: Tx, key: Omit<MakerKeyRecord, "id" | "created">): Promise<MakerKeyRecord> {
  const [row] = await tx<MakerKeyRow[]>`
    insert into maker_key ${tx({ id: newId("mkk"), ...key })}
    on conflict (owner, public_key) do update set name = maker_key.name returning *`;
  return recordOf(row!);
}

/** Takes a key away; false if there is none of this id. */
export async function deleteMakerKey(tx: Tx, owner: string, id: string): Promise<boolean> {
  return (await tx`delete from maker_key where owner = ${owner} and id = ${id}`).count > 0;
}

// What is read again and says the same is what was read before.

/** `before` where `now` says the same, so that what was made of it need not be made again. */
export const asBefore = <T>(before: T | undefined, now: T): T => (isDeepStrictEqual(before, now) ? (before as T) : now);

/**
 * Empties a list of rows that were read. A list that is held across a wait keeps all that is in it, and what the collector meets twice it
 * takes for old: it would stay until the next full collection.
 */
export const letGo = (rows: unknown[]): void => {
  rows.length = 0;
};
