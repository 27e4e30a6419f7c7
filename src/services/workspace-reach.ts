/** How far a key of a workspace reaches: to what is of that workspace, where others of the organisation reach all. */

import { type Call, keyOf } from "../call.ts";
import { Reason, refuse } from "../errors.ts";

/** The workspace that a call is confined to; undefined for the operator, and for a key that reaches all of its organisation. */
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
