/** Settings of organizations and workspaces, presets, and stored provider keys. */

import type { AppPolicy, ByokMode, OrgSettings, SupplyTrust } from "../../call.ts";
import { Reason, refuse } from "../../errors.ts";
import { allRecords, firstRecord, type Queryable, type Tx, unixSeconds } from "../database/tx.ts";

/** The default settings. */
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

/** Stored settings. Absent and null fields are not set. */
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

/**
 * The settings of a call: the workspace's value of each field that it sets, else the organization's. Neither can weaken the other's `zdr`,
 * regions, trust or signatures.
 */
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

/** A workspace cannot enable community supply that its organization does not allow. */
const narrowedTrust = (org: SupplyTrust, workspace: SupplyTrust): SupplyTrust =>
  TIERS.indexOf(workspace) < TIERS.indexOf(org) ? workspace : org;
const TIERS: readonly SupplyTrust[] = ["own", "verified", "named", "community"];

/** The intersection of two lists, where an empty or absent list means no limit. */
function narrowed(
  org: readonly string[] | null | undefined,
  workspace: readonly string[] | null | undefined,
): readonly string[] | undefined {
  if (!org?.length) return workspace?.length ? workspace : undefined;
  return workspace?.length ? org.filter((region) => workspace.includes(region)) : org;
}

/** The settings of an organization, or of one of its workspaces if given. An unknown one has the defaults. */
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

/** Changes settings of an organization: absent fields stay, null resets one. Every replica applies it at the commit, or shortly after. */
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

// Presets: named, versioned configurations of an organization.

/** One version of a preset. */
export interface PresetRecord {
  name: string;
  version: number;
  /** ProtoJSON of its configuration. */
  config: object;
  /** Unix seconds. */
  updatedAt: number;
}

/** The most stored versions of a preset, and the most presets of an organization. */
const KEPT_VERSIONS = 20;
const MOST_PRESETS = 200;

/** Saves a configuration as a new version, unless it equals the current one. Refuses with `too_many` above 200 presets. */
export async function putPreset(
  tx: Tx,
  orgId: string,
  { name, config }: Pick<PresetRecord, "name" | "config">,
): Promise<{ preset: PresetRecord; changed: boolean }> {
  // Serialize changes of an organization's presets, so that versions are consecutive and the count holds.
  await tx`select 1 from org where id = ${orgId} for no key update`;
  const json = tx.json(jsonOf(config));
  const now = await firstRecord<PresetRecord & { same: boolean }>(tx`
    select name, version, config, created as updated_at, config = ${json} as same from preset
    where org_id = ${orgId} and name = ${name} order by version desc limit 1`);
  if (now?.same) return { preset: now, changed: false };
  if (!now) await refuseTooMany(tx, orgId);
  const version = (now?.version ?? 0) + 1;
  const made = await firstRecord<PresetRecord>(tx`
    insert into preset ${tx({ orgId, name, version, config: json })} returning name, version, config, created as updated_at`);
  await tx`delete from preset where org_id = ${orgId} and name = ${name} and version <= ${version - KEPT_VERSIONS}`;
  return { preset: made!, changed: true };
}

async function refuseTooMany(sql: Queryable, orgId: string): Promise<void> {
  const [row] = await sql<
    { count: number }[]
  >`select count(distinct name) as count from preset where org_id = ${orgId}`;
  if ((row?.count ?? 0) >= MOST_PRESETS)
    throw refuse(Reason.TOO_MANY, `an organization can have at most ${MOST_PRESETS} presets; delete one first`);
}

/** Deletes a preset and its versions; returns false if there is none. Refuses with `preset_in_use` if it is a default. */
export async function deletePreset(sql: Queryable, orgId: string, name: string): Promise<boolean> {
  const [used] = await sql`
    select 1 from (
      select default_preset from org_settings where org_id = ${orgId}
      union all select settings ->> 'default_preset' from workspace where org_id = ${orgId}
    ) as settled where split_part(default_preset, '@', 1) = ${name}`;
  if (used)
    throw refuse(Reason.PRESET_IN_USE, `preset ${name} is a default; choose another default in the settings first`);
  const { count } = await sql`delete from preset where org_id = ${orgId} and name = ${name}`;
  return count > 0;
}

/** Every stored version of every preset of an organization, by name, newest version first. */
export async function loadPresets(sql: Queryable, orgId: string): Promise<PresetRecord[]> {
  return allRecords<PresetRecord>(sql`
    select name, version, config, created as updated_at from preset where org_id = ${orgId} order by name, version desc`);
}

/** Converts to the JSON type of the driver. ProtoJSON has no other values. */
const jsonOf = (value: object): Parameters<Queryable["json"]>[0] => JSON.parse(JSON.stringify(value));

// Provider keys of organizations, sealed.

/** An organization's key at a provider. */
export interface CredentialRecord {
  id: string;
  orgId: string;
  provider: string;
  /** The provider that may receive it; null for none. */
  providerId: string | null;
  label: string;
  sealed: Uint8Array;
  fingerprint: string;
  /** Incremented each time the key is stored. */
  version: number;
  /** Null uses the organization's setting. */
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

/** The sealing context of a key: the sealed bytes open only in this row, and an older version does not open at all. */
export const credentialContext = ({
  orgId,
  provider,
  id,
  version,
}: Pick<CredentialRecord, "orgId" | "provider" | "id" | "version">): string =>
  JSON.stringify(["credential", orgId, provider, id, version]);

/** The row and version of the next stored key. Locked until the transaction ends, so that no other key is sealed for it. */
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

/** Stores a key in the row that `nextCredential` returned. */
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

/** The stored provider keys of an organization, by provider. */
export async function listCredentials(sql: Queryable, orgId: string): Promise<CredentialRecord[]> {
  const rows = await sql<CredentialRow[]>`select * from credential where org_id = ${orgId} order by provider`;
  return rows.map(credentialOf);
}

/** Deletes a stored provider key; returns false if there is none. */
export async function deleteCredential(sql: Queryable, orgId: string, provider: string): Promise<boolean> {
  const { count } = await sql`delete from credential where org_id = ${orgId} and provider = ${provider}`;
  return count > 0;
}

/** Records that a key was just opened successfully, if it is still the same version. */
export async function noteVerified(sql: Queryable, { id, version }: CredentialRecord): Promise<void> {
  await sql`update credential set verified_at = now() where id = ${id} and version = ${version}`;
}
