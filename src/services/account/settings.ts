/** What an organisation settles for all its calls. */
import { create } from "@bufbuild/protobuf";
import {
  type AccountService,
  GetSettingsResponseSchema,
  SetHardwareKeysResponseSchema,
  type UpdateSettingsRequest,
  UpdateSettingsResponseSchema,
} from "../../../gen/limber/v1/account_service_pb.ts";
import type { OrgSettings, Reach } from "../../call.ts";
import { byCall, type Implementation } from "../../call.ts";
import { violation } from "../../contracts/contract.ts";
import { reachOfTier, trustIn } from "../../contracts/trust.ts";
import { Reason, refuse } from "../../errors.ts";
import { audit } from "../../store/account/audit.ts";
import { loadPresets } from "../../store/account/presets.ts";
import { orgSettings, type StoredSettings, settle } from "../../store/account/settings.ts";
import { type Queryable, tx } from "../../store/database/tx.ts";
import { type Authority, attenuates, authorityOfStanding, refuseBeyond } from "../authority.ts";
import { confinedTo } from "../workspace-reach.ts";
import type { KeyParts } from "./keys.ts";
import { appPolicyIn, byokWordOf, settingsMessage } from "./messages.ts";
import { assertReachable, giverOf } from "./reach.ts";

/** The RPCs about settings. */
export function settingsCalls({
  sql,
  changed,
}: Pick<KeyParts, "sql" | "changed">): Pick<
  Implementation<typeof AccountService>,
  "getSettings" | "updateSettings" | "setHardwareKeys"
> {
  return {
    async setHardwareKeys({ orgId, allowed = false }, call) {
      await assertReachable(sql, orgId, call);
      const settings = await tx(sql, async (tx) => {
        const settled = await settle(tx, orgId, { hardware_keys: allowed });
        const act = { action: "hardware_keys.set", subject: orgId, details: { allowed } };
        await audit(tx, { ...byCall(call), orgId, ...act });
        return settled;
      });
      changed(orgId);
      return create(SetHardwareKeysResponseSchema, { settings: settingsMessage(settings) });
    },

    async getSettings({ orgId }, call) {
      await assertReachable(sql, orgId, call);
      // A key of a workspace is shown what holds for its calls.
      const settings = await orgSettings(sql, orgId, confinedTo(call));
      return create(GetSettingsResponseSchema, { settings: settingsMessage(settings) });
    },

    async updateSettings(request, call) {
      const { orgId } = request;
      await assertReachable(sql, orgId, call);
      const changes = storedOf(request);
      const settings = await tx(sql, async (tx) => {
        await refuseUnknownPreset(tx, orgId, changes.default_preset);
        const giver = await giverOf(tx, call);
        const before = await orgSettings(tx, orgId);
        const settled = await settle(tx, orgId, changes);
        if (isWider(settled, before)) refuseNarrowed(giver, settled, before);
        const details = { ...changes };
        await audit(tx, { ...byCall(call), orgId, action: "settings.updated", subject: orgId, details });
        return settled;
      });
      changed(orgId);
      return create(UpdateSettingsResponseSchema, { settings: settingsMessage(settings) });
    },
  };
}

/** Whether settings let more happen than others: more regions or suppliers may serve, frames may be retained, or what callers send is kept longer. */
export const isWider = (after: OrgSettings, before: OrgSettings): boolean =>
  !attenuates(authorityUnder(after), authorityUnder(before)) ||
  after.retentionDays > before.retentionDays ||
  reachUnder(after) > reachUnder(before) ||
  lifts(after, before);

const lifts = (after: OrgSettings, before: OrgSettings): boolean => before.requireSigned && !after.requireSigned;

const reachUnder = ({ trust }: OrgSettings): Reach => reachOfTier(trust);

const authorityUnder = (settings: OrgSettings): Authority =>
  authorityOfStanding({ role: "owner", workspaceIds: [] }, settings);

/** Refuses a key that is narrowed in any dimension to widen what all keys of an organisation or a workspace may do. */
export function refuseNarrowed(giver: Authority | undefined, after: OrgSettings, before: OrgSettings): void {
  if (!giver) return;
  const { permissions, regions, zdr, trust } = giver;
  const opened = reachUnder(after) > reachUnder(before) ? reachUnder(after) : trust;
  const requireSigned = giver.requireSigned && !lifts(after, before);
  refuseBeyond({ ...authorityUnder(after), permissions, regions, zdr, trust: opened, requireSigned }, giver);
}

function storedOf(request: UpdateSettingsRequest): StoredSettings {
  const { retentionDays, zdr, cacheSharing, byokMode, defaultPreset, allowedRegions, maxHedgeRatio, trust } = request;
  const { requireSigned, selfRegisteredApps, clear } = request;
  const given: StoredSettings = {
    ...(retentionDays !== undefined && { retention_days: retentionDays }),
    ...(zdr !== undefined && { zdr }),
    ...(cacheSharing !== undefined && { cache_sharing: cacheSharing }),
    ...(byokMode !== undefined && { byok_mode: byokWordOf(byokMode) ?? null }),
    ...(defaultPreset !== undefined && { default_preset: defaultPreset || null }),
    ...(allowedRegions && { allowed_regions: allowedRegions.values }),
    ...(maxHedgeRatio !== undefined && { max_hedge_ratio: maxHedgeRatio }),
    ...(trust !== undefined && { trust: trustIn(trust) ?? null }),
    ...(requireSigned !== undefined && { require_signed: requireSigned }),
    ...(selfRegisteredApps !== undefined && { self_registered_apps: appPolicyIn(selfRegisteredApps) }),
  };
  for (const field of clear)
    if (Object.hasOwn(given, field)) throw violation("clear", `${field} is set and cleared at once`, "value_error");
  return { ...given, ...Object.fromEntries(clear.map((field) => [field, null])) };
}

/** A default that isn't there would fail every request that names no preset. */
export async function refuseUnknownPreset(
  sql: Queryable,
  orgId: string,
  name: string | null | undefined,
): Promise<void> {
  if (name === null || name === undefined) return;
  const presets = await loadPresets(sql, orgId);
  const known = presets.some((preset) => name === preset.name || name === `${preset.name}@${preset.version}`);
  if (!known)
    throw refuse(
      Reason.PRESET_NOT_FOUND,
      "this organisation has no preset of this name",
      {},
      { param: "default_preset" },
    );
}
