/** Who may do what to whom, and how it is put on record. */
import { Reason, refuse } from "../../refusal.ts";
import type { Act } from "../../store/account/audit.ts";
import type { MemberRecord } from "../../store/account/members.ts";
import { byCall, type Call } from "../call.ts";
import { isRoleWithin } from "../permissions.ts";

/** Nobody gives a role that may do more than his own. */
export function assertMayGive(role: string, { principal }: Call): void {
  if (principal.kind === "key" && !isRoleWithin(role, principal.role))
    throw refuse(Reason.PERMISSION_DENIED, `the role ${principal.role} gives nobody the role ${role}`);
}

/** Nobody changes or removes a person who may do more than himself. */
export function assertMayTouch({ role }: Pick<MemberRecord, "role">, { principal }: Call): void {
  if (principal.kind === "key" && !isRoleWithin(role, principal.role))
    throw refuse(Reason.PERMISSION_DENIED, `the role ${principal.role} changes no one of the role ${role}`);
}

/** An act on a member or a group, for the log. */
export const actOn = (
  { id, orgId }: { id: string; orgId: string },
  action: string,
  call: Call,
  details: Act["details"] = {},
): Act => ({ ...byCall(call), orgId, action, subject: id, details });
