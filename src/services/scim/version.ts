/** Versions of resources (RFC 7644 section 3.14). */
import { Reason, refuse } from "../../errors.ts";
import type { ScimResource } from "../../store/account/scim.ts";

/** Refuses with `version_mismatch` when a resource is not of a version that `If-Match` asks for. */
export function assertVersion({ meta }: ScimResource, ifMatch: string | undefined): void {
  if (ifMatch === undefined) return;
  const version = typeof meta === "object" && meta !== null && "version" in meta ? meta.version : undefined;
  const asked = ifMatch.split(",").map((each) => each.trim());
  if (!asked.includes("*") && !asked.some((each) => each === version || `W/${each}` === version))
    throw refuse(Reason.VERSION_MISMATCH, "the resource was changed since; read it again");
}
