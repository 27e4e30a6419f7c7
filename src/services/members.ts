/** Which principal may change which member, and the audit record of it. */
import { byCall, type Call } from "../call.ts";
import type { Act } from "../store/account/audit.ts";
import { mappedRoles } from "../store/account/issuers.ts";
import { assertOwnerRemains, changeMember, type MemberRecord, moveKeys } from "../store/account/members.ts";
import { orgSettings } from "../store/account/settings.ts";
import type { Queryable, Tx } from "../store/database/tx.ts";
import { type Authority, authorityOfStanding, refuseBeyond, type StandingAuthority } from "./authority.ts";
import { highestRole, isRoleWithin, ROLE_NAMES } from "./permissions.ts";
import { refuseStandingBeyond } from "./reach.ts";

/** What a member has of the organization. */
const standingOf = ({ id, role, workspaceIds }: MemberRecord): StandingAuthority => ({
  role,
  workspaceIds,
  userId: id,
});

/** Refuses to change a member that holds more permissions than the principal. */
export const assertMayChange = (sql: Queryable, member: MemberRecord, giver: Authority | undefined): Promise<void> =>
  refuseStandingBeyond(sql, member.orgId, standingOf(member), giver);

/**
 * Refuses to remove or deactivate a member who holds more permissions than the giver, or who is of other workspaces. No other limit of a key
 * keeps it from that: a member that leaves an organization gains nothing.
 */
export async function assertMayEnd(sql: Queryable, member: MemberRecord, giver: Authority | undefined): Promise<void> {
  if (!giver) return;
  const { permissions, workspaces } = authorityOfStanding(standingOf(member), await orgSettings(sql, member.orgId));
  refuseBeyond({ ...giver, permissions, workspaces }, giver);
}

/** An act on a member or a group, for the log. */
export const actOn = (
  { id, orgId }: { id: string; orgId: string },
  action: string,
  call: Call,
  details: Act["details"] = {},
): Act => ({ ...byCall(call), orgId, action, subject: id, details });

// What happens to a member's keys when the role changes.

/**
 * Sets a member's role: the highest that the member's groups give, or else the one that was assigned. The owner's role is only ever assigned,
 * and stays in whatever groups the member is. Refuses a role that exceeds the giver's authority. Returns the member afterwards. The caller
 * holds `lockMembers`.
 */
export async function settleRole(tx: Tx, member: MemberRecord, giver: Authority | undefined): Promise<MemberRecord> {
  const [settled] = await settleRoles(tx, [member], giver);
  return settled ?? member;
}

/** The same for several members of one organization. */
export async function settleRoles(
  tx: Tx,
  members: readonly MemberRecord[],
  giver: Authority | undefined,
): Promise<MemberRecord[]> {
  const mapped = await mappedRoles(
    tx,
    members.map(({ id }) => id),
  );
  const settled: MemberRecord[] = [];
  for (const member of members) {
    const { id, givenRole } = member;
    const role = (givenRole === "owner" ? undefined : highestRole(mapped.get(id) ?? [])) ?? givenRole;
    if (role === member.role) settled.push(member);
    else {
      await assertMayChange(tx, { ...member, role }, giver);
      settled.push(await actIn(tx, member, role));
    }
  }
  return settled;
}

/**
 * Lets a member act in another role from now on, with those of the member's keys that act in the old one or in one beyond the new.
 * Refuses with `last_owner` where the organization would have no owner. The caller holds `lockMembers`.
 */
async function actIn(tx: Tx, member: MemberRecord, role: string): Promise<MemberRecord> {
  if (role !== "owner") await assertOwnerRemains(tx, member);
  const moved = ROLE_NAMES.filter((each) => each === member.role || !isRoleWithin(each, role));
  await moveKeys(tx, member.id, moved, role);
  return changeMember(tx, member.id, { role });
}

// E-mail addresses, read the same way everywhere. An address that two parsers could read differently is invalid.

/**
 * A plain addr-spec of RFC 5322: one `@`, no quotes, no comments, no display name; letters of any script before the `@` (RFC 6531). Invitations
 * and sign-in take less, by the schema's rule `email`.
 */
const ADDRESS =
  /^[\p{L}\p{M}\p{N}.!#$%&'*+/=?^_`{|}~-]+@([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*)$/iu;

/** Whether a text is a plain e-mail address. */
export const isEmail = (text: string): boolean => ADDRESS.test(text);

/** The domain of an e-mail address, in lower case; empty where the text is no plain address. */
export const domainOf = (email: string): string => ADDRESS.exec(email)?.[1]?.toLowerCase() ?? "";
