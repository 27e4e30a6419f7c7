/** Deliveries as senders claim them: a few of each webhook, each by one sender at a time, and none lost with it. */
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { tx } from "../../src/store/database/tx.ts";
import {
  addDelivery,
  claimDeliveries,
  createWebhook,
  disableWebhook,
  MOST_AT_ONE_HOOK,
  nextDue,
} from "../../src/store/events/webhooks.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

let db: FreshDatabase;
beforeAll(async () => {
  db = await freshDatabase();
});
beforeEach(() => db.sql`delete from webhook`);
afterAll(() => db.close());

const hook = (id: string) =>
  tx(db.sql, (tx) =>
    createWebhook(tx, {
      ...{ id, orgId: "org_1", url: "https://example.com/", events: ["*"], description: "", enabled: true },
      ...{ workspaceId: undefined, secret: Buffer.from("sealed") },
    }),
  );
/** Puts deliveries on their way, due since so many seconds. */
const waiting = async (hookId: string, count: number, sinceS: number): Promise<void> => {
  await db.sql`
    insert into webhook_delivery (hook_id, event_id, event, payload, due)
    select ${hookId}, 'evt_' || n, 'ping', '', now() - make_interval(secs => ${sinceS}) from generate_series(1, ${count}) as n`;
};
const hooksOf = (claimed: readonly { hook: { id: string } }[]) => claimed.map(({ hook }) => hook.id).toSorted();

it("a webhook that much waits for holds up no other, however long", async () => {
  for (const id of ["wh_full", "wh_next", "wh_late"]) await hook(id);
  await waiting("wh_full", 3_000, 600);
  await waiting("wh_next", 2, 60);
  await waiting("wh_late", 1, 30);
  const first = await claimDeliveries(db.sql, 16, []);
  expect(hooksOf(first)).toEqual(Array(MOST_AT_ONE_HOOK).fill("wh_full"));
  expect(hooksOf(await claimDeliveries(db.sql, 16, ["wh_full"]))).toEqual(["wh_late", "wh_next", "wh_next"]);
  expect(await claimDeliveries(db.sql, 16, ["wh_full"])).toEqual([]);
});

it("of several senders each claims others, and what one left is claimed anew once its time is over", async () => {
  for (let i = 0; i < 10; i++) await hook(`wh_${i}`);
  for (let i = 0; i < 10; i++) await waiting(`wh_${i}`, 3, 10);
  const claims = await Promise.all(Array.from({ length: 5 }, () => claimDeliveries(db.sql, 30, [])));
  const ids = claims.flat().map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  const rest = await claimDeliveries(db.sql, 30, []);
  expect(ids.length + rest.length).toBe(30);
  await db.sql`update webhook_delivery set claimed_until = now() - interval '1 second' where id = ${ids[0]!}`;
  expect(await claimDeliveries(db.sql, 30, [])).toMatchObject([{ id: ids[0], tries: 2 }]);
});

it("nothing is claimed before its time, nor of a disabled webhook; the time of the next is told", async () => {
  await hook("wh_1");
  expect(await nextDue(db.sql)).toBeUndefined();
  await waiting("wh_1", 1, -90);
  expect(await claimDeliveries(db.sql, 30, [])).toEqual([]);
  const ms = (await nextDue(db.sql)) ?? 0;
  expect([ms > 60_000, ms <= 90_000]).toEqual([true, true]);
  await addDelivery(db.sql, "wh_1", { id: "evt_1", name: "ping", payload: Buffer.alloc(0) });
  await tx(db.sql, (tx) => disableWebhook(tx, "wh_1"));
  expect(await claimDeliveries(db.sql, 30, [])).toEqual([]);
  expect(await nextDue(db.sql)).toBeUndefined();
});
