/** What SCIM depends on. */
import type { Sql } from "../../store/database/tx.ts";

/** What SCIM depends on. */
export interface ScimDeps {
  sql: Sql;
  /** Makes this replica go by what has changed of a key, or of the keys of a member or an organisation, at once; the others hear of it. */
  changed(id: string): void;
}
