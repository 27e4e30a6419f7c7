/** What SCIM depends on. */
import type { Sql } from "../../store/database/tx.ts";

/** What SCIM depends on. */
export interface ScimDeps {
  sql: Sql;
  /** Applies a change of a key, or of the keys of a member or an organisation, at this replica at once; the others are notified. */
  changed(id: string): void;
}
