/** What happens to a member's keys when the role changes. */
import { assertOwnerRemains, changeMember, type MemberRecord, moveKeys } from "../../store/account/members.ts";
import { mappedRoles } from "../../store/account/scim.ts";
import type { Tx } from "../../store/database/tx.ts";
import type { Authority } from "../authority.ts";
import { highestRole, isRoleWithin, ROLE_NAMES } from "../permissions.ts";
import { assertMayChange } from "./reach.ts";

/**
 * Sets a member's role: the highest that the member's groups give, or else the one that was assigned. The owner's role is only ever assigned,
 * and stays in whatever groups the member is. Refuses a role that exceeds the giver's authority. Returns the member afterwards. The caller
 * holds `lockMembers`.
 */
export async function settleRole(tx: Tx, member: MemberRecord, giver: Authority | undefined): Promise<MemberRecord> {
  const [settled] = await settleRoles(tx, [member], giver);
  return settled ?? member;
}

/** The same for several members of one organisation. */
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
 * Refuses with `last_owner` where the organisation would have no owner. The caller holds `lockMembers`.
 */
async function actIn(tx: Tx, member: MemberRecord, role: string): Promise<MemberRecord> {
  if (role !== "owner") await assertOwnerRemains(tx, member);
  const moved = ROLE_NAMES.filter((each) => each === member.role || !isRoleWithin(each, role));
  await moveKeys(tx, member.id, moved, role);
  return changeMember(tx, member.id, { role });
}
