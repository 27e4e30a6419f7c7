/** Tells organisations of keys that will end. */
import { now } from "../../clock.ts";
import { emit } from "../../events/emit.ts";
import { endingKeys } from "../../store/billing/alerts.ts";
import { type Sql, tx } from "../../store/database/tx.ts";

/** How long before its end a key is spoken of. */
const DAYS = 7;
const AT_ONCE = 200;

/** Tells of every key that will end within seven days, once for each end; any number of replicas may do so at once. */
export async function tellOfEndingKeys(sql: Sql): Promise<void> {
  for (let told = AT_ONCE; told === AT_ONCE; )
    told = await tx(sql, async (tx) => {
      const keys = await endingKeys(tx, now(), DAYS, AT_ONCE);
      for (const { id, orgId, workspaceId, expiresAt } of keys)
        await emit(tx, orgId, { case: "keyExpiring", value: { keyId: id, expiresAt } }, workspaceId ?? undefined);
      return keys.length;
    });
}
