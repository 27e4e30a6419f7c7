/** Workspaces: parts of an organization, each with its own budget and settings. */
import { create } from "@bufbuild/protobuf";
import { type Workspace, WorkspaceSchema } from "../../gen/limber/v1/workspace_pb.ts";
import type { WorkspaceService, WorkspaceSettings } from "../../gen/limber/v1/workspace_service_pb.ts";
import { byCall, type Call, type Implementation } from "../call.ts";
import { now } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { trustIn } from "../contracts/trust.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { audit } from "../store/account/audit.ts";
import { listKeys, revokeKeys } from "../store/account/keys.ts";
import {
  changeWorkspace,
  createWorkspace,
  deleteWorkspace,
  findWorkspace,
  listWorkspaces,
  type WorkspaceRecord,
} from "../store/account/members.ts";
import { orgSettings, type StoredSettings } from "../store/account/settings.ts";
import { type Queryable, type Sql, type Tx, tx } from "../store/database/tx.ts";
import { isWider, refuseNarrowed, refuseUnknownPreset } from "./account.ts";
import { allowsNoMore } from "./authority.ts";
import { type BudgetMessage, budgetMessage, budgetOf, byokWordOf, recordRevoked, settingsMessage } from "./keys.ts";
import { DEFAULT_PAGE, readPage } from "./pages.ts";
import { assertReachable, confinedTo, giverOf } from "./reach.ts";

/** Dependencies of workspaces. */
export interface WorkspaceDeps {
  sql: Sql;
  /** Resolves once this replica's charges of an organization are in the ledger. */
  settled(orgId: string): Promise<void>;
  /** Applies a change to an organization's keys on this replica immediately; others are notified. */
  changed(orgId: string): void;
}

/** The workspace RPCs. */
export function workspaceService({ sql, settled, changed }: WorkspaceDeps): Implementation<typeof WorkspaceService> {
  return {
    async createWorkspace({ orgId, name, slug, budget, settings }, call) {
      await assertReachable(sql, orgId, call);
      const wanted = {
        orgId,
        name,
        slug: slug ?? slugOf(name),
        budget: budget && budgetOf(budget),
        settings: storedOf(settings),
      };
      const workspace = await tx(sql, async (tx) => {
        await refuseUnknownPreset(tx, orgId, wanted.settings.default_preset);
        const id = await createWorkspace(tx, wanted);
        await record(tx, call, orgId, "workspace.created", id, { name, slug: wanted.slug });
        return messageOf(tx, await found(tx, orgId, id));
      });
      return { workspace };
    },

    async listWorkspaces({ orgId, limit = DEFAULT_PAGE, cursor: after }, call) {
      await assertReachable(sql, orgId, call);
      await settled(orgId);
      const { records, ...page } = await readPage(
        limit,
        (most) => listWorkspaces(sql, orgId, { limit: most, after, only: confinedTo(call), atMs: now() }),
        ({ id }) => id,
      );
      const data = await Promise.all(records.map((workspace) => messageOf(sql, workspace)));
      return { ...page, data };
    },

    async getWorkspace({ orgId, workspaceId }, call) {
      await assertReachable(sql, orgId, call);
      if ((confinedTo(call) ?? workspaceId) !== workspaceId) throw noSuchWorkspace();
      await settled(orgId);
      return {
        workspace: await messageOf(sql, await found(sql, orgId, workspaceId)),
      };
    },

    async updateWorkspace({ orgId, workspaceId, name, slug, budget, settings, clear }, call) {
      await assertReachable(sql, orgId, call);
      for (const field of clear)
        if ({ budget, settings }[field] !== undefined)
          throw violation("clear", `must not name ${field}, which the request also sets`, "value_error");
      const stored = settings ? storedOf(settings) : clear.includes("settings") ? {} : undefined;
      const changes = {
        name,
        slug,
        settings: stored,
        budget: budget ? budgetOf(budget) : clear.includes("budget") ? null : undefined,
      };
      await tx(sql, async (tx) => {
        await refuseUnknownPreset(tx, orgId, stored?.default_preset);
        const giver = await giverOf(tx, call);
        const before = await found(tx, orgId, workspaceId);
        const settled = await orgSettings(tx, orgId, workspaceId);
        if (!(await changeWorkspace(tx, orgId, workspaceId, changes))) throw noSuchWorkspace();
        const after = await orgSettings(tx, orgId, workspaceId);
        if (isWider(after, settled) || spendsMore(changes.budget, before.budget)) refuseNarrowed(giver, after, settled);
        await record(tx, call, orgId, "workspace.updated", workspaceId, {
          name,
          slug,
          budget: budget?.limitUsd,
          settings: stored,
          clear,
        });
      });
      changed(orgId);
      // Return credit leased under the old budget before the new one applies.
      await settled(orgId);
      const workspace = await messageOf(sql, await found(sql, orgId, workspaceId));
      return { workspace };
    },

    async deleteWorkspace({ orgId, workspaceId, force = false }, call) {
      await assertReachable(sql, orgId, call);
      const revokedKeys = await tx(sql, async (tx) => {
        await found(tx, orgId, workspaceId);
        const keys = await listKeys(tx, orgId, { limit: 1, workspaceId });
        if (keys.length > 0 && !force)
          throw refuse(Reason.WORKSPACE_IN_USE, "the workspace has keys; revoke them first, or set `force`");
        const revoked = await revokeKeys(tx, { workspaceId });
        await deleteWorkspace(tx, orgId, workspaceId);
        await recordRevoked(tx, orgId, revoked, call);
        await record(tx, call, orgId, "workspace.deleted", workspaceId, { revoked_keys: revoked.length });
        return revoked;
      });
      changed(orgId);
      return {
        id: workspaceId,
        deleted: true,
        revokedKeys: revokedKeys.map(({ id }) => id),
      };
    },
  };
}

/** Whether a budget is removed or raised; undefined if it does not change. */
const spendsMore = (after: BudgetMessage | null | undefined, before: BudgetMessage | undefined): boolean =>
  after !== undefined && before !== undefined && (after === null || !allowsNoMore(after, before));

async function found(sql: Queryable, orgId: string, id: string): Promise<WorkspaceRecord> {
  const workspace = await findWorkspace(sql, orgId, id, now());
  if (!workspace) throw noSuchWorkspace();
  return workspace;
}

const noSuchWorkspace = (): Refusal => refuse(Reason.NOT_FOUND, "workspace not found");

const record = (tx: Tx, call: Call, orgId: string, action: string, subject: string, details: object) =>
  audit(tx, { ...byCall(call), orgId, action, subject, details: { ...details } });

/** A slug for a name: its letters and digits in lower case, separated by hyphens. */
function slugOf(name: string): string {
  const slug = name
    .normalize("NFKD")
    .toLowerCase()
    .replace(/\p{M}/gu, "")
    .replace(/[^a-z0-9]+/g, "-")
    .slice(0, 64)
    .replace(/^-+|-+$/g, "");
  if (slug === "") throw violation("slug", "is required, because `name` has no usable characters", "missing");
  return slug;
}

function storedOf(settings: WorkspaceSettings | undefined): StoredSettings {
  if (!settings) return {};
  const { retentionDays, zdr, cacheSharing, byokMode, defaultPreset, allowedRegions, maxHedgeRatio, trust } = settings;
  const { requireSigned } = settings;
  return {
    ...(retentionDays !== undefined && { retention_days: retentionDays }),
    ...(zdr !== undefined && { zdr }),
    ...(cacheSharing !== undefined && { cache_sharing: cacheSharing }),
    ...(byokMode !== undefined && { byok_mode: byokWordOf(byokMode) ?? null }),
    ...(defaultPreset !== undefined && { default_preset: defaultPreset }),
    ...(allowedRegions.length > 0 && { allowed_regions: allowedRegions }),
    ...(maxHedgeRatio !== undefined && { max_hedge_ratio: maxHedgeRatio }),
    ...(trust !== undefined && { trust: trustIn(trust) ?? null }),
    ...(requireSigned !== undefined && { require_signed: requireSigned }),
  };
}

async function messageOf(sql: Queryable, workspace: WorkspaceRecord): Promise<Workspace> {
  const { id, orgId, name, slug, budget, spentMicro, resetsAt, created } = workspace;
  const settings = settingsMessage(await orgSettings(sql, orgId, id));
  return create(WorkspaceSchema, {
    id,
    orgId,
    name,
    slug,
    settings,
    created,
    ...(budget && { budget: budgetMessage(budget, spentMicro, resetsAt) }),
  });
}
