/** What an organization settles for all its calls, and what a workspace settles otherwise. */

import type { AppPolicy, ByokMode, OrgSettings, SupplyTrust } from "../../call.ts";
import { Reason, refuse } from "../../errors.ts";
import { type Queryable, type Tx, unixSeconds } from "../database/tx.ts";

/** The settings of an organization that set none. */
export const DEFAULT_SETTINGS: OrgSettings = {
  retentionDays: 30,
  zdr: false,
  cacheSharing: false,
  byokMode: "prefer",
  defaultPreset: undefined,
  allowedRegions: undefined,
  maxHedgeRatio: 0.05,
  trust: "named",
  requireSigned: false,
  selfRegisteredApps: "allow",
  hardwareKeys: false,
};

/** Settings as they are stored: absent or null fields are not settled. */
export interface StoredSettings {
  retention_days?: number | null;
  zdr?: boolean | null;
  cache_sharing?: boolean | null;
  byok_mode?: ByokMode | null;
  default_preset?: string | null;
  allowed_regions?: readonly string[] | null;
  max_hedge_ratio?: number | null;
  trust?: SupplyTrust | null;
  require_signed?: boolean | null;
  self_registered_apps?: AppPolicy | null;
  hardware_keys?: boolean | null;
}

/** The settings of a call: the workspace's where it settles a field, else the organization's. Neither widens zdr, the regions, the trust or the signatures of the other. */
export function settingsFrom(org: StoredSettings | null, workspace: StoredSettings | null = null): OrgSettings {
  if (org === null && workspace === null) return DEFAULT_SETTINGS;
  const settled = { ...present(org), ...present(workspace) };
  return {
    retentionDays: settled.retention_days ?? DEFAULT_SETTINGS.retentionDays,
    zdr: org?.zdr === true || workspace?.zdr === true,
    cacheSharing: settled.cache_sharing ?? DEFAULT_SETTINGS.cacheSharing,
    byokMode: settled.byok_mode ?? DEFAULT_SETTINGS.byokMode,
    defaultPreset: settled.default_preset ?? undefined,
    allowedRegions: narrowed(org?.allowed_regions, workspace?.allowed_regions),
    maxHedgeRatio: settled.max_hedge_ratio ?? DEFAULT_SETTINGS.maxHedgeRatio,
    trust: narrowedTrust(org?.trust ?? DEFAULT_SETTINGS.trust, workspace?.trust ?? "community"),
    requireSigned: org?.require_signed === true || workspace?.require_signed === true,
    selfRegisteredApps: org?.self_registered_apps ?? DEFAULT_SETTINGS.selfRegisteredApps,
    hardwareKeys: org?.hardware_keys === true,
  };
}

const present = (stored: StoredSettings | null): StoredSettings =>
  Object.fromEntries(Object.entries(stored ?? {}).filter(([, value]) => value !== null));

/** A workspace opens nothing: community supply has to be open in its organization first. */
const narrowedTrust = (org: SupplyTrust, workspace: SupplyTrust): SupplyTrust =>
  TIERS.indexOf(workspace) < TIERS.indexOf(org) ? workspace : org;
const TIERS: readonly SupplyTrust[] = ["own", "verified", "named", "community"];

/** Those of both lists; one that is empty or absent limits nothing. */
function narrowed(
  org: readonly string[] | null | undefined,
  workspace: readonly string[] | null | undefined,
): readonly string[] | undefined {
  if (!org?.length) return workspace?.length ? workspace : undefined;
  return workspace?.length ? org.filter((region) => workspace.includes(region)) : org;
}

/** The settings of an organization, and of one of its workspaces where that is named; of an unknown one the defaults. */
export async function orgSettings(sql: Queryable, orgId: string, workspaceId?: string): Promise<OrgSettings> {
  const [row] = await sql<{ org: StoredSettings | null; workspace: StoredSettings | null }[]>`
    select (select to_json(s) from org_settings as s where org_id = ${orgId}) as org,
      (select settings from workspace where org_id = ${orgId} and id = ${workspaceId ?? null}) as workspace`;
  return settingsFrom(row?.org ?? null, row?.workspace ?? null);
}

const COLUMNS = [
  "retention_days",
  "zdr",
  "cache_sharing",
  "byok_mode",
  "default_preset",
  "allowed_regions",
  "max_hedge_ratio",
  "trust",
  "require_signed",
  "self_registered_apps",
  "hardware_keys",
] as const;

/** Settles fields of an organization; those that are not named stay, null takes one back. Every replica knows when this is committed, or shortly after. */
export async function settle(tx: Tx, orgId: string, changes: StoredSettings): Promise<OrgSettings> {
  const row = Object.fromEntries(
    COLUMNS.filter((name) => changes[name] !== undefined).map((name) => [name, changes[name] ?? null]),
  );
  if (Object.keys(row).length > 0)
    await tx`
      insert into org_settings ${tx({ org_id: orgId, ...row })}
      on conflict (org_id) do update set ${tx(row)}, updated = now()`;
  return orgSettings(tx, orgId);
}

// Presets: what organizations saved under a name, version by version.

/** One version of a preset. */
export interface PresetRecord {
  name: string;
  version: number;
  /** ProtoJSON of its configuration. */
  config: object;
  /** Unix seconds. */
  updatedAt: number;
}

/** Versions that stay at hand, and presets that an organization may have. */
const KEPT_VERSIONS = 20;
const MOST_PRESETS = 200;

interface PresetRow extends Omit<PresetRecord, "updatedAt"> {
  created: Date;
}

const presetOf = ({ name, version, config, created }: PresetRow): PresetRecord => ({
  name,
  version,
  config,
  updatedAt: unixSeconds(created),
});

/** Saves a configuration: a new version, unless it is the one that is there. Refuses with `too_many` beyond 200 presets. */
export async function putPreset(
  tx: Tx,
  orgId: string,
  { name, config }: Pick<PresetRecord, "name" | "config">,
): Promise<{ preset: PresetRecord; changed: boolean }> {
  // One change of an organization's presets at a time: numbers follow each other, and the count holds.
  await tx`select 1 from org where id = ${orgId} for no key update`;
  const json = tx.json(jsonOf(config));
  const [now] = await tx<(PresetRow & { same: boolean })[]>`
    select name, version, config, created, config = ${json} as same from preset
    where org_id = ${orgId} and name = ${name} order by version desc limit 1`;
  if (now?.same) return { preset: presetOf(now), changed: false };
  if (!now) await refuseTooMany(tx, orgId);
  const version = (now?.version ?? 0) + 1;
  const [made] = await tx<PresetRow[]>`
    insert into preset ${tx({ orgId, name, version, config: json })} returning name, version, config, created`;
  await tx`delete from preset where org_id = ${orgId} and name = ${name} and version <= ${version - KEPT_VERSIONS}`;
  return { preset: presetOf(made!), changed: true };
}

async function refuseTooMany(sql: Queryable, orgId: string): Promise<void> {
  const [row] = await sql<
    { count: number }[]
  >`select count(distinct name) as count from preset where org_id = ${orgId}`;
  if ((row?.count ?? 0) >= MOST_PRESETS)
    throw refuse(Reason.TOO_MANY, `an organisation may have ${MOST_PRESETS} presets; delete one first`);
}

/** Deletes a preset and its versions. Reports whether there was one; refuses with `preset_in_use` what is a default. */
export async function deletePreset(sql: Queryable, orgId: string, name: string): Promise<boolean> {
  const [used] = await sql`
    select 1 from (
      select default_preset from org_settings where org_id = ${orgId}
      union all select settings ->> 'default_preset' from workspace where org_id = ${orgId}
    ) as settled where split_part(default_preset, '@', 1) = ${name}`;
  if (used)
    throw refuse(Reason.PRESET_IN_USE, `${name} is the default of calls; name another one in the settings first`);
  const { count } = await sql`delete from preset where org_id = ${orgId} and name = ${name}`;
  return count > 0;
}

/** Every version at hand of every preset of an organization, by name, the newest version first. */
export async function loadPresets(sql: Queryable, orgId: string): Promise<PresetRecord[]> {
  const rows = await sql<PresetRow[]>`
    select name, version, config, created from preset where org_id = ${orgId} order by name, version desc`;
  return rows.map(presetOf);
}

/** What the driver takes for JSON. ProtoJSON holds nothing else. */
const jsonOf = (value: object): Parameters<Queryable["json"]>[0] => JSON.parse(JSON.stringify(value));

// Organizations' own keys at providers, sealed.

/** One key of an organization at a provider. */
export interface CredentialRecord {
  id: string;
  orgId: string;
  provider: string;
  /** The provider that it may go to; null: none. */
  providerId: string | null;
  label: string;
  sealed: Uint8Array;
  fingerprint: string;
  /** Counts how often it was stored. */
  version: number;
  /** Null: as the organization's setting says. */
  mode: ByokMode | null;
  /** Unix seconds. */
  createdAt: number;
  updatedAt: number;
  verifiedAt: number | null;
}

interface CredentialRow extends Omit<CredentialRecord, "createdAt" | "updatedAt" | "verifiedAt"> {
  created: Date;
  updated: Date;
  verifiedAt: Date | null;
}

const credentialOf = ({ created, updated, verifiedAt, ...row }: CredentialRow): CredentialRecord => ({
  ...row,
  createdAt: unixSeconds(created),
  updatedAt: unixSeconds(updated),
  verifiedAt: verifiedAt && unixSeconds(verifiedAt),
});

/** What a key is sealed for: it opens nowhere else, and an older one put back in its place does not open at all. */
export const credentialContext = ({
  orgId,
  provider,
  id,
  version,
}: Pick<CredentialRecord, "orgId" | "provider" | "id" | "version">): string =>
  JSON.stringify(["credential", orgId, provider, id, version]);

/** Where the next version of a key will be kept. Held until the transaction ends, so that no other key is sealed for the same place. */
export async function nextCredential(
  tx: Tx,
  orgId: string,
  provider: string,
  newId: string,
): Promise<Pick<CredentialRecord, "orgId" | "provider" | "id" | "version">> {
  await tx`select 1 from org where id = ${orgId} for no key update`;
  const [known] = await tx<{ id: string; version: number }[]>`
    select id, version from credential where org_id = ${orgId} and provider = ${provider}`;
  return { orgId, provider, id: known?.id ?? newId, version: (known?.version ?? 0) + 1 };
}

/** Stores a key at the place that `nextCredential` gave. */
export async function putCredential(
  tx: Tx,
  credential: Pick<
    CredentialRecord,
    "id" | "orgId" | "provider" | "version" | "sealed" | "label" | "fingerprint" | "mode"
  >,
): Promise<CredentialRecord> {
  const { id, orgId, provider, version, label, fingerprint, mode } = credential;
  const sealed = Buffer.from(credential.sealed);
  const [row] = await tx<CredentialRow[]>`
    insert into credential (id, org_id, provider, provider_id, label, sealed, fingerprint, version, mode)
    values (${id}, ${orgId}, ${provider}, (select id from provider where name = ${provider}), ${label}, ${sealed},
      ${fingerprint}, ${version}, ${mode})
    on conflict (org_id, provider) do update set provider_id = excluded.provider_id, label = excluded.label,
      sealed = excluded.sealed, fingerprint = excluded.fingerprint, version = excluded.version, mode = excluded.mode,
      updated = now(), verified_at = null
    returning *`;
  return credentialOf(row!);
}

/** The keys of an organization, by provider. */
export async function listCredentials(sql: Queryable, orgId: string): Promise<CredentialRecord[]> {
  const rows = await sql<CredentialRow[]>`select * from credential where org_id = ${orgId} order by provider`;
  return rows.map(credentialOf);
}

/** Deletes a key. Reports whether there was one. */
export async function deleteCredential(sql: Queryable, orgId: string, provider: string): Promise<boolean> {
  const { count } = await sql`delete from credential where org_id = ${orgId} and provider = ${provider}`;
  return count > 0;
}

/** Notes that a key was seen to open just now, if it is still the same. */
export async function noteVerified(sql: Queryable, { id, version }: CredentialRecord): Promise<void> {
  await sql`update credential set verified_at = now() where id = ${id} and version = ${version}`;
}
