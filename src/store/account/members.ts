/** Members and workspaces of organizations. */
import { now } from "../../clock.ts";
import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { allRecords, firstRecord, type Queryable, type Sql, type Tx, unixSeconds } from "../database/tx.ts";
import type { BudgetInterval } from "./keys.ts";
import type { StoredSettings } from "./settings.ts";

/** The status of a member. */
export type MemberStatus = "invited" | "active" | "deactivated";

/** A member. */
export interface MemberRecord {
  id: string;
  orgId: string;
  userName: string;
  email: string;
  /** The effective role. */
  role: string;
  /** The role that was assigned manually. */
  givenRole: string;
  workspaceIds: string[];
  status: MemberStatus;
  /** Unix seconds; undefined once the invite was accepted. */
  inviteEnds: number | undefined;
  /** Unix seconds. */
  created: number;
}

const columns = (sql: Queryable) =>
  sql`id, org_id, user_name, email, role, given_role, workspace_ids, status, invite_ends, created`;

/** The fields of a new invite. */
interface NewMember {
  orgId: string;
  email: string;
  role: string;
  workspaceIds?: readonly string[];
  /** SHA-256 of the invite, and its expiry in unix milliseconds; a member without an invite is active at once. */
  invite?: { hash: Uint8Array; endsMs: number };
}

/**
 * Adds a member. Invites one who has not accepted yet again, which replaces the earlier invite. Refuses with `already_exists` for an
 * existing member.
 */
export async function addMember(tx: Tx, member: NewMember): Promise<MemberRecord> {
  const { orgId, email, role, workspaceIds = [], invite } = member;
  const fields = {
    email,
    role,
    givenRole: role,
    workspaceIds: [...workspaceIds],
    status: invite ? "invited" : "active",
    inviteHash: invite ? Buffer.from(invite.hash) : null,
    inviteEnds: invite ? new Date(invite.endsMs) : null,
  };
  const waiting = await firstRecord<MemberRecord>(tx`
    update member set ${tx(fields)}, updated = ${new Date(now())}
    where org_id = ${orgId} and lower(user_name) = lower(${email}) and status = 'invited' returning ${columns(tx)}`);
  if (waiting) return waiting;
  const row = { id: newId("usr"), orgId, userName: email, created: new Date(now()), ...fields };
  const made = await firstRecord<MemberRecord>(tx`
    insert into member ${tx(row)} on conflict (org_id, lower(user_name)) do nothing returning ${columns(tx)}`);
  if (!made) throw refuse(Reason.ALREADY_EXISTS, "a member with this `email` already exists", {}, { param: "email" });
  return made;
}

/** Activates the invited member, once; undefined if the invite is invalid, used or expired. */
export async function acceptInvite(tx: Tx, hash: Uint8Array): Promise<MemberRecord | undefined> {
  return firstRecord<MemberRecord>(tx`
    update member set status = 'active', invite_hash = null, invite_ends = null, updated = ${new Date(now())}
    where invite_hash = ${Buffer.from(hash)} and status = 'invited' and invite_ends > ${new Date(now())}
      and (select status from org where org.id = org_id) = 'active'
    returning ${columns(tx)}`);
}

/** Finds a member of an organization by id. */
export async function findMember(sql: Queryable, orgId: string, id: string): Promise<MemberRecord | undefined> {
  return firstRecord<MemberRecord>(sql`select ${columns(sql)} from member where org_id = ${orgId} and id = ${id}`);
}

/** Finds a member by the user name from the identity provider, which is the e-mail address by default. */
export async function findMemberByName(
  sql: Queryable,
  orgId: string,
  userName: string,
): Promise<MemberRecord | undefined> {
  return firstRecord<MemberRecord>(sql`
    select ${columns(sql)} from member where org_id = ${orgId} and lower(user_name) = lower(${userName})`);
}

/** Finds members of an organization by id. */
export async function findMembers(sql: Queryable, orgId: string, ids: readonly string[]): Promise<MemberRecord[]> {
  return allRecords<MemberRecord>(sql`
    select ${columns(sql)} from member where org_id = ${orgId} and id = any(${[...ids]}) order by id`);
}

/** The members of an organization, oldest first, from the one after `after`. */
export async function listMembers(
  sql: Sql,
  orgId: string,
  { limit, after = "" }: { limit: number; after?: string | undefined },
): Promise<MemberRecord[]> {
  return allRecords<MemberRecord>(sql`
    select ${columns(sql)} from member where org_id = ${orgId} and id > ${after} order by id limit ${limit}`);
}

/** Serializes changes of an organization's owners and roles. Must be called first in the transaction. */
export async function lockMembers(tx: Tx, orgId: string): Promise<void> {
  await tx`select from org where id = ${orgId} for no key update`;
}

/**
 * Refuses with `last_owner` if the member is the organization's last owner. Only an active owner can replace an active one.
 */
export async function assertOwnerRemains(tx: Tx, { id, orgId, role, status }: MemberRecord): Promise<void> {
  if (role !== "owner" || status === "deactivated") return;
  const standIns = status === "active" ? ["active"] : ["active", "invited"];
  const [other] = await tx`
    select from member where org_id = ${orgId} and id <> ${id} and role = 'owner' and status = any(${standIns}) limit 1`;
  if (!other)
    throw refuse(Reason.LAST_OWNER, "this is the organization's last owner; make another member an owner first");
}

/** The fields of a member to change. */
interface MemberChange {
  role?: string | undefined;
  givenRole?: string | undefined;
  workspaceIds?: readonly string[] | undefined;
  status?: MemberStatus | undefined;
}

/** Changes an existing member. */
export async function changeMember(tx: Tx, id: string, change: MemberChange): Promise<MemberRecord> {
  const { role, givenRole, workspaceIds, status } = change;
  const changed = {
    updated: new Date(now()),
    ...(role !== undefined && { role }),
    ...(givenRole !== undefined && { givenRole }),
    ...(workspaceIds !== undefined && { workspaceIds: [...workspaceIds] }),
    ...(status !== undefined && { status }),
  };
  return (await firstRecord<MemberRecord>(
    tx`update member set ${tx(changed)} where id = ${id} returning ${columns(tx)}`,
  ))!;
}

/** Removes a member, whose keys stop working. */
export async function dropMember(tx: Tx, id: string): Promise<void> {
  await tx`delete from member where id = ${id}`;
}

/** Changes the role of a member's keys, for keys whose role is one of `from`. */
export async function moveKeys(tx: Tx, userId: string, from: readonly string[], to: string): Promise<void> {
  await tx`update key set role = ${to} where user_id = ${userId} and role = any(${[...from]})`;
}

// Workspaces: parts of an organization with their own budget and settings. Amounts are micro-dollars.

/** A workspace. */
export interface WorkspaceRecord {
  id: string;
  orgId: string;
  name: string;
  slug: string;
  budget: { limitMicro: number; interval: BudgetInterval } | undefined;
  /** What its keys have spent in the current budget interval; the total if it has no budget. */
  spentMicro: number;
  /** When the budget resets, in unix seconds. */
  resetsAt: number | undefined;
  settings: StoredSettings;
  /** Unix seconds. */
  created: number;
}

interface WorkspaceRow extends Omit<WorkspaceRecord, "budget" | "resetsAt" | "created"> {
  budgetMicro: number | null;
  budgetInterval: BudgetInterval | null;
  resetsAt: number | null;
  created: Date;
}

const workspaceOf = ({ budgetMicro, budgetInterval, resetsAt, created, ...row }: WorkspaceRow): WorkspaceRecord => ({
  ...row,
  budget:
    budgetMicro === null || budgetInterval === null ? undefined : { limitMicro: budgetMicro, interval: budgetInterval },
  resetsAt: resetsAt ?? undefined,
  created: unixSeconds(created),
});

/** Workspaces that are not deleted, with their spending at `atMs` (unix milliseconds). */
const workspaces = (sql: Queryable, atMs: number) => {
  const day = new Date(atMs).toISOString().slice(0, 10);
  return sql`
    select id, org_id, name, slug, budget_micro, budget_interval, settings, created,
      extract(epoch from budget_reset(budget_interval, ${day}::date)) as resets_at,
      (select coalesce(sum(taken_micro), 0) from workspace_day
        where workspace_id = w.id and day >= budget_start(budget_interval, ${day}::date))
      - (select coalesce(sum(amount_micro - spent_micro), 0) from lease join key on key.id = lease.key_id
        where lease.org_id = w.org_id and key.workspace_id = w.id and day >= budget_start(w.budget_interval, ${day}::date)) as spent_micro
    from workspace as w where deleted_at is null`;
};

/** The fields of a new workspace. */
interface NewWorkspace {
  orgId: string;
  name: string;
  slug: string;
  budget: WorkspaceRecord["budget"];
  settings: StoredSettings;
}

/** Creates a workspace. Refuses with `already_exists` when its slug is taken in the organization. */
export async function createWorkspace(tx: Tx, { orgId, name, slug, budget, settings }: NewWorkspace): Promise<string> {
  await refuseTaken(tx, orgId, slug, "");
  const id = newId("ws");
  const row = { id, orgId, name, slug, settings: tx.json({ ...settings }), ...budgetRow(budget) };
  await tx`insert into workspace ${tx(row)}`;
  return id;
}

const budgetRow = (budget: WorkspaceRecord["budget"]) => ({
  budgetMicro: budget?.limitMicro ?? null,
  budgetInterval: budget?.interval ?? null,
});

/** Refuses a slug that is in use. Transactions that create or rename workspaces of one organization are serialized. */
async function refuseTaken(tx: Tx, orgId: string, slug: string, exceptId: string): Promise<void> {
  await tx`select from org where id = ${orgId} for no key update`;
  const { count } = await tx`
    select from workspace where org_id = ${orgId} and slug = ${slug} and id <> ${exceptId} and deleted_at is null`;
  if (count > 0)
    throw refuse(Reason.ALREADY_EXISTS, `a workspace with the slug ${slug} already exists`, {}, { param: "slug" });
}

/** A workspace of an organization; undefined if it does not exist or was deleted. */
export async function findWorkspace(
  sql: Queryable,
  orgId: string,
  id: string,
  atMs: number,
): Promise<WorkspaceRecord | undefined> {
  const [row] = await sql<WorkspaceRow[]>`${workspaces(sql, atMs)} and org_id = ${orgId} and id = ${id}`;
  return row && workspaceOf(row);
}

/** Lists the workspaces of an organization, oldest first, after the id `after`. `only` selects one. */
export async function listWorkspaces(
  sql: Queryable,
  orgId: string,
  { limit, after, only, atMs }: { limit: number; after: string | undefined; only?: string | undefined; atMs: number },
): Promise<WorkspaceRecord[]> {
  const rows = await sql<WorkspaceRow[]>`
    ${workspaces(sql, atMs)} and org_id = ${orgId} ${after === undefined ? sql`` : sql`and id > ${after}`}
      ${only === undefined ? sql`` : sql`and id = ${only}`}
    order by id limit ${limit}`;
  return rows.map(workspaceOf);
}

/** The fields of a workspace to change; absent fields stay. */
interface WorkspaceChanges {
  name?: string | undefined;
  slug?: string | undefined;
  /** Null removes the budget. */
  budget?: WorkspaceRecord["budget"] | null;
  settings?: StoredSettings | undefined;
}

/** Changes a workspace. A smaller budget recalls leases from replicas. Returns false if the workspace does not exist. */
export async function changeWorkspace(tx: Tx, orgId: string, id: string, changes: WorkspaceChanges): Promise<boolean> {
  const { name, slug, budget, settings } = changes;
  const row = {
    ...(name !== undefined && { name }),
    ...(slug !== undefined && { slug }),
    ...(budget !== undefined && budgetRow(budget ?? undefined)),
    ...(settings !== undefined && { settings: tx.json({ ...settings }) }),
  };
  if (slug !== undefined) await refuseTaken(tx, orgId, slug, id);
  if (Object.keys(row).length === 0) return true;
  const { count } = await tx`
    update workspace set ${tx(row)} where org_id = ${orgId} and id = ${id} and deleted_at is null`;
  return count > 0;
}

/** Deletes a workspace and frees its slug. The requests of its keys stay on record. */
export async function deleteWorkspace(tx: Tx, orgId: string, id: string): Promise<void> {
  await tx`update workspace set deleted_at = now() where org_id = ${orgId} and id = ${id} and deleted_at is null`;
}
