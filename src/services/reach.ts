/** Whose organizations a call reaches, and what its caller may give away. */
import { type Call, keyOf } from "../call.ts";
import { Reason, refuse } from "../errors.ts";
import { findKey } from "../store/account/keys.ts";
import { findOrg } from "../store/account/orgs.ts";
import { orgSettings } from "../store/account/settings.ts";
import type { Queryable, Sql } from "../store/database/tx.ts";
import {
  type Authority,
  authorityOfStanding,
  givingAuthorityOf,
  refuseBeyond,
  type StandingAuthority,
} from "./authority.ts";

/** The operator reaches every organization; a key reaches its own, and all others look as if they did not exist. */
export async function assertReachable(sql: Sql, orgId: string, { principal }: Call): Promise<void> {
  const own = principal.kind !== "key" || principal.orgId === orgId;
  if (!own || !(await findOrg(sql, orgId))) throw refuse(Reason.NOT_FOUND, "organization not found");
}

/** The authority of a call's key as the database has it now; undefined for the operator, who may give anything. */
export async function giverOf(sql: Queryable, { principal }: Call): Promise<Authority | undefined> {
  if (principal.kind !== "key") return undefined;
  const key = await findKey(sql, principal.keyId);
  if (!key) throw refuse(Reason.INVALID_API_KEY, "this API key is not valid here");
  return givingAuthorityOf(key);
}

/**
 * Refuses to give a member a standing that exceeds the giver's authority. What a member cannot be confined to, such as models or a budget, a
 * key that is confined to it cannot give.
 */
export async function refuseStandingBeyond(
  sql: Queryable,
  orgId: string,
  standing: StandingAuthority,
  giver: Authority | undefined,
): Promise<void> {
  if (!giver) return;
  const [workspaceId, ...others] = standing.workspaceIds;
  const settings = await orgSettings(sql, orgId, others.length === 0 ? workspaceId : undefined);
  refuseBeyond(authorityOfStanding(standing, settings), giver);
}

// How far a key of a workspace reaches: to what is of that workspace, where others of the organization reach all.

/** The workspace that a call is confined to; undefined for the operator, and for a key that reaches all of its organization. */
export const confinedTo = ({ principal }: Call): string | undefined =>
  principal.kind === "key" ? principal.workspaceId : undefined;

/** The workspace that something new is of: the one asked for, else the key's own. Refuses a key of a workspace another one. */
export function workspaceFor(call: Call, asked: string | undefined, what: string): string | undefined {
  const own = keyOf(call).workspaceId;
  if (own !== undefined && (asked ?? own) !== own)
    throw refuse(Reason.SCOPE_DENIED, `a key of a workspace reaches ${what} of that workspace alone`);
  return asked ?? own;
}

/** Whether something of this workspace, or of none, is there for the caller. */
export function isNear(call: Call, workspaceId: string | undefined): boolean {
  const own = keyOf(call).workspaceId;
  return own === undefined || own === workspaceId;
}
