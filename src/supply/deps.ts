/** What declaring, probing and withdrawing supply depend on. */
import type { Sql } from "../store/database/tx.ts";
import type { Upstream } from "../upstream/index.ts";
import type { FrameOptions } from "../upstream/pictures/frames.ts";
import type { Vault } from "../vault.ts";

/** The dependencies. */
export interface SupplyDeps {
  sql: Sql;
  vault: Vault;
  upstream: Upstream;
  agent: FrameOptions["agent"];
  allowPrivate: boolean;
  /** How often what is live is probed again, in seconds. */
  probeEveryS: number;
  /** Resolves when this replica routes over what the database has now; the others follow by notification. */
  refresh(): Promise<void>;
}
