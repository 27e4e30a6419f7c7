/** Rules for changes of members by other principals, and their audit records. */
import { byCall, type Call } from "../call.ts";
import type { Act } from "../store/account/audit.ts";
import { mappedRoles } from "../store/account/issuers.ts";
import { assertOwnerRemains, changeMember, type MemberRecord, moveKeys } from "../store/account/members.ts";
import { orgSettings } from "../store/account/settings.ts";
import type { Queryable, Tx } from "../store/database/tx.ts";
import { type Authority, authorityOfStanding, refuseBeyond, type StandingAuthority } from "./authority.ts";
import { highestRole, isRoleWithin, ROLE_NAMES } from "./permissions.ts";
import { refuseStandingBeyond } from "./reach.ts";

/** A member's role and workspaces in the organization. */
const standingOf = ({ id, role, workspaceIds }: MemberRecord): StandingAuthority => ({
  role,
  workspaceIds,
  userId: id,
});

/** Refuses to change a member with more permissions than the principal. */
export const assertMayChange = (sql: Queryable, member: MemberRecord, giver: Authority | undefined): Promise<void> =>
  refuseStandingBeyond(sql, member.orgId, standingOf(member), giver);

/**
 * Refuses to remove or deactivate a member with more permissions than the giver, or with other workspaces. A key's other limits don't
 * matter here: a member that leaves an organization gains nothing.
 */
export async function assertMayEnd(sql: Queryable, member: MemberRecord, giver: Authority | undefined): Promise<void> {
  if (!giver) return;
  const { permissions, workspaces } = authorityOfStanding(standingOf(member), await orgSettings(sql, member.orgId));
  refuseBeyond({ ...giver, permissions, workspaces }, giver);
}

/** The audit record of an act on a member or a group. */
export const actOn = (
  { id, orgId }: { id: string; orgId: string },
  action: string,
  call: Call,
  details: Act["details"] = {},
): Act => ({ ...byCall(call), orgId, action, subject: id, details });

// Effects of a role change on the member's keys.

/**
 * Sets a member's role: the highest of the member's groups, or else the assigned one. The owner role is only ever assigned, and groups
 * don't change it. Refuses a role beyond the giver's authority. Returns the changed member. The caller must hold `lockMembers`.
 */
export async function settleRole(tx: Tx, member: MemberRecord, giver: Authority | undefined): Promise<MemberRecord> {
  const [settled] = await settleRoles(tx, [member], giver);
  return settled ?? member;
}

/** Does the same for several members of one organization. */
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
 * Changes a member's role, and that of the member's keys that have the old role or one beyond the new role. Refuses with `last_owner` if the
 * organization would have no owner. The caller must hold `lockMembers`.
 */
async function actIn(tx: Tx, member: MemberRecord, role: string): Promise<MemberRecord> {
  if (role !== "owner") await assertOwnerRemains(tx, member);
  const moved = ROLE_NAMES.filter((each) => each === member.role || !isRoleWithin(each, role));
  await moveKeys(tx, member.id, moved, role);
  return changeMember(tx, member.id, { role });
}

// E-mail addresses, parsed the same way everywhere. An address that two parsers could read differently is invalid.

/**
 * A plain addr-spec of RFC 5322: one `@`, no quotes, comments or display name; letters of any script before the `@` (RFC 6531). The schema's
 * rule `email` is stricter for invites and sign-in.
 */
const ADDRESS =
  /^[\p{L}\p{M}\p{N}.!#$%&'*+/=?^_`{|}~-]+@([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*)$/iu;

/** Whether a text is a plain e-mail address. */
export const isEmail = (text: string): boolean => ADDRESS.test(text);

/** The domain of an e-mail address, in lower case; empty if the text is no plain address. */
export const domainOf = (email: string): string => ADDRESS.exec(email)?.[1]?.toLowerCase() ?? "";
