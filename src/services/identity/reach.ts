/** Which principal may change which member, and the audit record of it. */

import { byCall, type Call } from "../../call.ts";
import type { Act } from "../../store/account/audit.ts";
import type { MemberRecord } from "../../store/account/members.ts";
import { orgSettings } from "../../store/account/settings.ts";
import type { Queryable } from "../../store/database/tx.ts";
import { refuseStandingBeyond } from "../account/reach.ts";
import { type Authority, authorityOfStanding, refuseBeyond, type StandingAuthority } from "../authority.ts";

/** What a member has of the organisation. */
export const standingOf = ({ id, role, workspaceIds }: MemberRecord): StandingAuthority => ({
  role,
  workspaceIds,
  userId: id,
});

/** Refuses to change a member that holds more permissions than the principal. */
export const assertMayChange = (sql: Queryable, member: MemberRecord, giver: Authority | undefined): Promise<void> =>
  refuseStandingBeyond(sql, member.orgId, standingOf(member), giver);

/**
 * Refuses to remove or deactivate a member who holds more permissions than the giver, or who is of other workspaces. No other limit of a key
 * keeps it from that: a member that leaves an organisation gains nothing.
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
