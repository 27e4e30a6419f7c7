/** Deliveries as senders claim them: a few of each webhook, each by one sender at a time, and none lost with it. */
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { tx } from "../../src/store/database/tx.ts";
import {
  addDelivery,
  claimDeliveries,
  createWebhook,
  disableWebhook,
  MOST_AT_ONE_HOOK,
  noteDelivered,
  type Round,
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
      id,
      orgId: "org_1",
      url: "https://example.com/",
      events: ["*"],
      description: "",
      enabled: true,
      workspaceId: undefined,
      secret: Buffer.from("sealed"),
    }),
  );
/** Puts deliveries on their way, due since so many seconds. */
const waiting = async (hookId: string, count: number, sinceS: number): Promise<void> => {
  await db.sql`
    insert into webhook_delivery (hook_id, event_id, event, payload, due)
    select ${hookId}, 'evt_' || n, 'ping', '', now() - make_interval(secs => ${sinceS}) from generate_series(1, ${count}) as n`;
};
const hooksOf = (claimed: readonly { hook: { id: string } }[]) => claimed.map(({ hook }) => hook.id).toSorted();

const round = (limit: number, more: Partial<Round> = {}) =>
  claimDeliveries(db.sql, { taken: [], limit, busy: new Map(), after: "", ...more });
const claim = async (limit: number, busy: readonly string[] = []) =>
  (await round(limit, { busy: new Map(busy.map((id) => [id, MOST_AT_ONE_HOOK])) })).claimed;

it("a webhook with a long queue delays no other; due webhooks are claimed in order of their due time", async () => {
  for (const id of ["wh_full", "wh_next", "wh_late"]) await hook(id);
  await waiting("wh_full", 3_000, 600);
  await waiting("wh_next", 2, 60);
  await waiting("wh_late", 1, 30);
  const first = await claim(5);
  expect(hooksOf(first)).toEqual([...Array(MOST_AT_ONE_HOOK).fill("wh_full"), "wh_next"]);
  expect(hooksOf(await claim(16, ["wh_full"]))).toEqual(["wh_late", "wh_next"]);
  expect(await claim(16, ["wh_full"])).toEqual([]);
  expect(hooksOf((await round(16, { busy: new Map([["wh_full", MOST_AT_ONE_HOOK - 1]]) })).claimed)).toEqual([
    "wh_full",
  ]);
});

it("if one round cannot cover all webhooks, the following rounds cover the others", async () => {
  await db.sql`
    insert into webhook (id, org_id, url, events, secret)
    select 'wh_' || to_char(n, 'FM0000'), 'org_1', 'https://example.com/', '{*}', 'sealed' from generate_series(1, 1200) as n`;
  await db.sql`
    insert into webhook_delivery (hook_id, event_id, event, payload) select id, 'evt_1', 'ping', '' from webhook`;
  const claimed: string[] = [];
  for (let after: string | undefined = ""; after !== undefined; ) {
    const { claimed: some, last } = await round(2_000, { after });
    claimed.push(...hooksOf(some));
    after = last;
  }
  expect(claimed.length).toBe(1_200);
  expect(new Set(claimed).size).toBe(1_200);
});

it("delivered events are recorded by the round that claims more, and not claimed again after their timeout", async () => {
  await hook("wh_1");
  await waiting("wh_1", 2, 10);
  await db.sql`update webhook set consecutive_failures = 3, failing_since = now()`;
  const [first, second] = (await round(2)).claimed;
  await db.sql`update webhook_delivery set claimed_until = now() - interval '1 second'`;
  const { claimed } = await round(9, { taken: [{ delivery: first!, status: 204 }] });
  expect(claimed.map(({ id }) => id)).toEqual([second!.id]);
  await noteDelivered(db.sql, [{ delivery: second!, status: 200 }]);
  const rows = await db.sql`
    select delivery.id, state, last_status, claimed_until, consecutive_failures
    from webhook_delivery as delivery join webhook on webhook.id = hook_id order by last_status desc`;
  const told = { state: "delivered", claimedUntil: null, consecutiveFailures: 0 };
  expect(rows).toEqual([
    { ...told, id: first!.id, lastStatus: 204 },
    { ...told, id: second!.id, lastStatus: 200 },
  ]);
});

it("several senders claim different deliveries, and an abandoned one is claimed again after its timeout", async () => {
  for (let i = 0; i < 10; i++) await hook(`wh_${i}`);
  for (let i = 0; i < 10; i++) await waiting(`wh_${i}`, 3, 10);
  const claims = await Promise.all(Array.from({ length: 5 }, () => claim(30)));
  const ids = claims.flat().map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  const rest = await claim(30);
  expect(ids.length + rest.length).toBe(30);
  await db.sql`update webhook_delivery set claimed_until = now() - interval '1 second' where id = ${ids[0]!}`;
  expect(await claim(30)).toMatchObject([{ id: ids[0], tries: 2 }]);
});

it("no delivery is claimed early or for a disabled webhook, and the time of the next one is returned", async () => {
  await hook("wh_1");
  expect((await round(0)).nextMs).toBeUndefined();
  await waiting("wh_1", 1, -90);
  expect(await claim(30)).toEqual([]);
  const ms = (await round(0)).nextMs ?? 0;
  expect([ms > 60_000, ms <= 90_000]).toEqual([true, true]);
  await addDelivery(db.sql, "wh_1", { id: "evt_1", name: "ping", payload: Buffer.alloc(0) });
  await tx(db.sql, (tx) => disableWebhook(tx, "wh_1"));
  expect(await claim(30)).toEqual([]);
  expect((await round(0)).nextMs).toBeUndefined();
});
