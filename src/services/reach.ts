/** The organizations and workspaces that a call can access, and the authority that its caller can grant. */
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

/** The operator can access every organization; a key only its own, and all others look as if they did not exist. */
export async function assertReachable(sql: Sql, orgId: string, { principal }: Call): Promise<void> {
  const own = principal.kind !== "key" || principal.orgId === orgId;
  if (!own || !(await findOrg(sql, orgId))) throw refuse(Reason.NOT_FOUND, "organization not found");
}

/** The authority of a call's key, read from the database now; undefined for the operator, who can grant anything. */
export async function giverOf(sql: Queryable, { principal }: Call): Promise<Authority | undefined> {
  if (principal.kind !== "key") return undefined;
  const key = await findKey(sql, principal.keyId);
  if (!key) throw refuse(Reason.INVALID_API_KEY, "invalid API key");
  return givingAuthorityOf(key);
}

/**
 * Refuses to give a member a standing beyond the giver's authority. A key that is limited in a dimension that members don't have, such as
 * models or a budget, cannot give it either.
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

// Access of workspace keys: only their workspace's resources. Other keys can access the complete organization.

/** The workspace that a call is limited to; undefined for the operator and for organization keys. */
export const confinedTo = ({ principal }: Call): string | undefined =>
  principal.kind === "key" ? principal.workspaceId : undefined;

/** The workspace of a new resource: the requested one, or else the key's own. Refuses a workspace key that requests another one. */
export function workspaceFor(call: Call, asked: string | undefined, what: string): string | undefined {
  const own = keyOf(call).workspaceId;
  if (own !== undefined && (asked ?? own) !== own)
    throw refuse(Reason.SCOPE_DENIED, `workspace keys can access only their own workspace's ${what}`);
  return asked ?? own;
}

/** The robot to which a key is bound; undefined if the caller can see all robots. */
export const robotOf = ({ principal }: Call): string | undefined =>
  principal.kind === "key" ? principal.robotId : undefined;

/** The robot whose resources are requested: the named one, or else the key's own. Refuses a key of a robot that requests another one. */
export function robotFor(call: Call, asked: string | undefined, what: string): string | undefined {
  const own = robotOf(call);
  if (own !== undefined && (asked ?? own) !== own)
    throw refuse(
      Reason.SCOPE_DENIED,
      `keys of a robot can access only their own robot's ${what}`,
      {},
      { param: "robot_id" },
    );
  return asked ?? own;
}

/** Whether the caller can access resources of this workspace, or of none. */
export function isNear(call: Call, workspaceId: string | undefined): boolean {
  const own = keyOf(call).workspaceId;
  return own === undefined || own === workspaceId;
}
