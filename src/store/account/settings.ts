/** What an organisation settles for all its calls, and what a workspace settles otherwise. */

import type { AppPolicy, ByokMode, OrgSettings, SupplyTrust } from "../../call.ts";
import type { Queryable, Tx } from "../database/tx.ts";

/** The settings of an organisation that set none. */
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

/** The settings of a call: the workspace's where it settles a field, else the organisation's. Neither widens zdr, the regions, the trust or the signatures of the other. */
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

/** A workspace opens nothing: community supply has to be open in its organisation first. */
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

/** The settings of an organisation, and of one of its workspaces where that is named; of an unknown one the defaults. */
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

/** Settles fields of an organisation; those that are not named stay, null takes one back. Every replica knows when this is committed, or shortly after. */
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
