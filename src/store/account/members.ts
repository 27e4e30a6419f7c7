/** The people of organisations. */

import { now } from "../../clock.ts";
import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import type { Queryable, Sql, Tx } from "../database/tx.ts";
import { unixSeconds } from "../database/types.ts";

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
export interface MemberRow extends Omit<MemberRecord, "inviteEnds" | "created"> {
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

/** What an invite is made from. */
export interface NewMember {
  orgId: string;
  email: string;
  role: string;
  workspaceIds?: readonly string[];
  /** SHA-256 of the invite, and when it ends in unix milliseconds; a member without one is active at once. */
  invite?: { hash: Uint8Array; endsMs: number };
}

/**
 * Adds a member, or invites once more one who has not accepted yet, whose earlier invite ends. Refuses with
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

/** Finds a member of an organisation by id. */
export async function findMember(sql: Queryable, orgId: string, id: string): Promise<MemberRecord | undefined> {
  const [row] = await sql<MemberRow[]>`select ${columns(sql)} from member where org_id = ${orgId} and id = ${id}`;
  return row && memberOf(row);
}

/** Finds a member of an organisation by what its identity provider calls it: the e-mail address, unless that says otherwise. */
export async function findMemberByName(
  sql: Queryable,
  orgId: string,
  userName: string,
): Promise<MemberRecord | undefined> {
  const [row] = await sql<MemberRow[]>`
    select ${columns(sql)} from member where org_id = ${orgId} and lower(user_name) = lower(${userName})`;
  return row && memberOf(row);
}

/** Finds members of an organisation by their names. */
export async function findMembers(sql: Queryable, orgId: string, ids: readonly string[]): Promise<MemberRecord[]> {
  const rows = await sql<MemberRow[]>`
    select ${columns(sql)} from member where org_id = ${orgId} and id = any(${[...ids]}) order by id`;
  return rows.map(memberOf);
}

/** The members of an organisation, oldest first, from the one after `after`. */
export async function listMembers(
  sql: Sql,
  orgId: string,
  { limit, after = "" }: { limit: number; after?: string | undefined },
): Promise<MemberRecord[]> {
  const rows = await sql<MemberRow[]>`
    select ${columns(sql)} from member where org_id = ${orgId} and id > ${after} order by id limit ${limit}`;
  return rows.map(memberOf);
}

/** Makes all who change who owns an organisation, or what its members' roles are, follow each other. Call it first. */
export async function lockMembers(tx: Tx, orgId: string): Promise<void> {
  await tx`select from org where id = ${orgId} for no key update`;
}

/**
 * Refuses with `last_owner` when a member is the last one who owns the organisation, who must stay one. Only an
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
export interface MemberChange {
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
