/** Tells organisations of keys that end soon, once each. */
import { expiringKeys } from "../../store/expiring-keys.ts";
import { appendEvents } from "../../store/outbox.ts";
import { type Sql, tx } from "../../store/tx.ts";
import { eventOf } from "../emit.ts";

/** How long before its end an organisation hears of a key; no longer than events are kept, for those remember who was told. */
const NOTICE_DAYS = 7;

/** Tells of every key that ends within a week and was not told of. Any number of workers may do so at one time. */
export function tellExpiring(sql: Sql): Promise<void> {
  return tx(sql, async (tx) => {
    const keys = await expiringKeys(tx, NOTICE_DAYS);
    const events = keys.map(({ id, orgId, expiresAt, eventId }) =>
      eventOf(orgId, { case: "keyExpiring", value: { keyId: id, expiresAt: Math.floor(expiresAt) } }, eventId),
    );
    await appendEvents(tx, events);
  });
}
