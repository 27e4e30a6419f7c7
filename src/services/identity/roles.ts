/** What happens to a member's keys when his role changes. */
import { assertOwnerRemains, changeMember, type MemberRecord, moveKeys } from "../../store/members.ts";
import type { Tx } from "../../store/tx.ts";
import { isRoleWithin, ROLE_NAMES } from "../permissions.ts";

/**
 * Lets a member act in another role from now on, with those of his keys that act in the old one or in one beyond the new.
 * Refuses with `last_owner` where nobody would own the organisation. The caller holds `lockMembers`.
 */
export async function actIn(tx: Tx, member: MemberRecord, role: string): Promise<MemberRecord> {
  if (role !== "owner") await assertOwnerRemains(tx, member);
  const moved = ROLE_NAMES.filter((each) => each === member.role || !isRoleWithin(each, role));
  await moveKeys(tx, member.id, moved, role);
  return changeMember(tx, member.id, { role });
}
