/** The people of organizations. */
import { now } from "../../clock.ts";
import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { type Queryable, type Sql, type Tx, unixSeconds } from "../database/tx.ts";
import type { BudgetInterval } from "./keys.ts";
import type { StoredSettings } from "./settings.ts";

/** Where a member stands. */
export type MemberStatus = "invited" | "active" | "deactivated";

/** A member. */
export interface MemberRecord {
  id: string;
  orgId: string;
  userName: string;
  email: string;
  /** The role that applies now. */
  role: string;
  /** The role that was given by hand. */
  givenRole: string;
  workspaceIds: string[];
  status: MemberStatus;
  /** Unix seconds; undefined once the invite was accepted. */
  inviteEnds: number | undefined;
  /** Unix seconds. */
  created: number;
}

/** A row of the table, as statements return it. */
interface MemberRow extends Omit<MemberRecord, "inviteEnds" | "created"> {
  inviteEnds: Date | null;
  created: Date;
}

const memberOf = (row: MemberRow): MemberRecord => ({
  ...row,
  inviteEnds: row.inviteEnds === null ? undefined : unixSeconds(row.inviteEnds),
  created: unixSeconds(row.created),
});

const columns = (sql: Queryable) =>
  sql`id, org_id, user_name, email, role, given_role, workspace_ids, status, invite_ends, created`;

/** The fields of a new invite. */
interface NewMember {
  orgId: string;
  email: string;
  role: string;
  workspaceIds?: readonly string[];
  /** SHA-256 of the invite, and when it ends in unix milliseconds; a member without one is active at once. */
  invite?: { hash: Uint8Array; endsMs: number };
}

/**
 * Adds a member, or invites again one who has not accepted yet, whose earlier invite ends. Refuses with
 * `already_exists` for a member.
 */
export async function addMember(tx: Tx, member: NewMember): Promise<MemberRecord> {
  const { orgId, email, role, workspaceIds = [], invite } = member;
  const told = {
    email,
    role,
    givenRole: role,
    workspaceIds: [...workspaceIds],
    status: invite ? "invited" : "active",
    inviteHash: invite ? Buffer.from(invite.hash) : null,
    inviteEnds: invite ? new Date(invite.endsMs) : null,
  };
  const [waiting] = await tx<MemberRow[]>`
    update member set ${tx(told)}, updated = ${new Date(now())}
    where org_id = ${orgId} and lower(user_name) = lower(${email}) and status = 'invited' returning ${columns(tx)}`;
  if (waiting) return memberOf(waiting);
  const row = { id: newId("usr"), orgId, userName: email, created: new Date(now()), ...told };
  const [made] = await tx<MemberRow[]>`
    insert into member ${tx(row)} on conflict (org_id, lower(user_name)) do nothing returning ${columns(tx)}`;
  if (!made) throw refuse(Reason.ALREADY_EXISTS, "this person is a member already", {}, { param: "email" });
  return memberOf(made);
}

/** Makes the person whose invite it is an active member, once; undefined where the invite is worth nothing. */
export async function acceptInvite(tx: Tx, hash: Uint8Array): Promise<MemberRecord | undefined> {
  const [row] = await tx<MemberRow[]>`
    update member set status = 'active', invite_hash = null, invite_ends = null, updated = ${new Date(now())}
    where invite_hash = ${Buffer.from(hash)} and status = 'invited' and invite_ends > ${new Date(now())}
      and (select status from org where org.id = org_id) = 'active'
    returning ${columns(tx)}`;
  return row && memberOf(row);
}

/** Finds a member of an organization by id. */
export async function findMember(sql: Queryable, orgId: string, id: string): Promise<MemberRecord | undefined> {
  const [row] = await sql<MemberRow[]>`select ${columns(sql)} from member where org_id = ${orgId} and id = ${id}`;
  return row && memberOf(row);
}

/** Finds a member of an organization by what its identity provider calls it: the e-mail address, unless that says otherwise. */
export async function findMemberByName(
  sql: Queryable,
  orgId: string,
  userName: string,
): Promise<MemberRecord | undefined> {
  const [row] = await sql<MemberRow[]>`
    select ${columns(sql)} from member where org_id = ${orgId} and lower(user_name) = lower(${userName})`;
  return row && memberOf(row);
}

/** Finds members of an organization by their names. */
export async function findMembers(sql: Queryable, orgId: string, ids: readonly string[]): Promise<MemberRecord[]> {
  const rows = await sql<MemberRow[]>`
    select ${columns(sql)} from member where org_id = ${orgId} and id = any(${[...ids]}) order by id`;
  return rows.map(memberOf);
}

/** The members of an organization, oldest first, from the one after `after`. */
export async function listMembers(
  sql: Sql,
  orgId: string,
  { limit, after = "" }: { limit: number; after?: string | undefined },
): Promise<MemberRecord[]> {
  const rows = await sql<MemberRow[]>`
    select ${columns(sql)} from member where org_id = ${orgId} and id > ${after} order by id limit ${limit}`;
  return rows.map(memberOf);
}

/** Makes all who change who owns an organization, or what its members' roles are, follow each other. Call it first. */
export async function lockMembers(tx: Tx, orgId: string): Promise<void> {
  await tx`select from org where id = ${orgId} for no key update`;
}

/**
 * Refuses with `last_owner` when a member is the last one who owns the organization, who must stay one. Only an
 * active owner can stand in for an active one.
 */
export async function assertOwnerRemains(tx: Tx, { id, orgId, role, status }: MemberRecord): Promise<void> {
  if (role !== "owner" || status === "deactivated") return;
  const standIns = status === "active" ? ["active"] : ["active", "invited"];
  const [other] = await tx`
    select from member where org_id = ${orgId} and id <> ${id} and role = 'owner' and status = any(${standIns}) limit 1`;
  if (!other)
    throw refuse(Reason.LAST_OWNER, "this is the last owner of the organisation; make somebody else the owner first");
}

/** What of a member changes. */
interface MemberChange {
  role?: string | undefined;
  givenRole?: string | undefined;
  workspaceIds?: readonly string[] | undefined;
  status?: MemberStatus | undefined;
}

/** Changes a member who exists. */
export async function changeMember(tx: Tx, id: string, change: MemberChange): Promise<MemberRecord> {
  const { role, givenRole, workspaceIds, status } = change;
  const changed = {
    updated: new Date(now()),
    ...(role !== undefined && { role }),
    ...(givenRole !== undefined && { givenRole }),
    ...(workspaceIds !== undefined && { workspaceIds: [...workspaceIds] }),
    ...(status !== undefined && { status }),
  };
  const [row] = await tx<MemberRow[]>`update member set ${tx(changed)} where id = ${id} returning ${columns(tx)}`;
  return memberOf(row!);
}

/** Removes a member, whose keys stop working. */
export async function dropMember(tx: Tx, id: string): Promise<void> {
  await tx`delete from member where id = ${id}`;
}

/** Gives the keys of a member another role: those that act in one of `from`. */
export async function moveKeys(tx: Tx, userId: string, from: readonly string[], to: string): Promise<void> {
  await tx`update key set role = ${to} where user_id = ${userId} and role = any(${[...from]})`;
}

// Workspaces: parts of an organization with a budget and settings of their own. Amounts are micro-dollars.

/** A workspace. */
export interface WorkspaceRecord {
  id: string;
  orgId: string;
  name: string;
  slug: string;
  budget: { limitMicro: number; interval: BudgetInterval } | undefined;
  /** What its keys have spent in the running interval of its budget; since ever without one. */
  spentMicro: number;
  /** When the budget is renewed, in unix seconds. */
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

/** Workspaces that were not deleted, with their spending at `atMs` (unix milliseconds). */
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

/** Transactions that make or rename workspaces of one organization wait for each other, so that a slug is looked up once. */
async function refuseTaken(tx: Tx, orgId: string, slug: string, exceptId: string): Promise<void> {
  await tx`select from org where id = ${orgId} for no key update`;
  const { count } = await tx`
    select from workspace where org_id = ${orgId} and slug = ${slug} and id <> ${exceptId} and deleted_at is null`;
  if (count > 0) throw refuse(Reason.ALREADY_EXISTS, `there is a workspace ${slug} already`, {}, { param: "slug" });
}

/** A workspace of an organization; undefined if there is none, or no longer. */
export async function findWorkspace(
  sql: Queryable,
  orgId: string,
  id: string,
  atMs: number,
): Promise<WorkspaceRecord | undefined> {
  const [row] = await sql<WorkspaceRow[]>`${workspaces(sql, atMs)} and org_id = ${orgId} and id = ${id}`;
  return row && workspaceOf(row);
}

/** The workspaces of an organization by age, after the one named `after`; `only` leaves one of them. */
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

/** What may change of a workspace; absent fields stay. */
interface WorkspaceChanges {
  name?: string | undefined;
  slug?: string | undefined;
  /** Null takes the budget away. */
  budget?: WorkspaceRecord["budget"] | null;
  settings?: StoredSettings | undefined;
}

/** Changes a workspace. A smaller budget calls back what replicas hold. Reports whether there was such a workspace. */
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

/** Deletes a workspace; the requests of its keys stay on record. Its slug is free again. */
export async function deleteWorkspace(tx: Tx, orgId: string, id: string): Promise<void> {
  await tx`update workspace set deleted_at = now() where org_id = ${orgId} and id = ${id} and deleted_at is null`;
}
