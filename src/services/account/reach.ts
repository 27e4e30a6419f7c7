/** Whose organisations a call reaches. */
import { Reason, refuse } from "../../refusal.ts";
import { findOrg } from "../../store/account/orgs.ts";
import type { Sql } from "../../store/database/tx.ts";
import type { Call } from "../call.ts";

/** The operator reaches every organisation; a key reaches its own, and all others look as if they did not exist. */
export async function assertReachable(sql: Sql, orgId: string, { principal }: Call): Promise<void> {
  const own = principal.kind !== "key" || principal.orgId === orgId;
  if (!own || !(await findOrg(sql, orgId))) throw refuse(Reason.NOT_FOUND, "there is no organisation of this name");
}
