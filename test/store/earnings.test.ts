/** What was served is added up once: whatever commits late, and however many add up at one time. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { addUpServed, listEarnings, setShare } from "../../src/store/billing/earnings.ts";
import { type Queryable, tx } from "../../src/store/database/tx.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

let db: FreshDatabase;
let kind: number;

beforeAll(async () => {
  db = await freshDatabase();
  await db.sql`insert into org (id, name) values ('org_1', 'test'), ('org_2', 'supplier')`;
  await db.sql`insert into provider (id, org_id, name, display_name) values ('prov_1', 'org_2', 'acme', 'Acme')`;
  kind = await kindOf("key_1");
  await tx(db.sql, (tx) => setShare(tx, undefined, 5_000));
});
afterAll(() => db.close());

async function kindOf(keyId: string): Promise<number> {
  const fields = [
    keyId,
    "settled",
    "act",
    "acme/arm",
    "acme",
    "off_1",
    "action_step",
    "0",
    null,
    "false",
    "false",
    "200",
    null,
    null,
  ];
  const [row] = await db.sql<{ kinds: number[] }[]>`select request_kinds(${fields as string[]}::text[]) as kinds`;
  return row!.kinds[0]!;
}

const serve = (sql: Queryable, id: string, cost: number, ago = "0") =>
  sql`insert into request_outcome (kind, org_id, request_id, units, cost_micro, lease, created)
    values (${kind}, 'org_1', ${id}, 1, ${cost}, 'lease_1', now() - ${ago}::text::interval)`;
const earned = async () => {
  const lines = await listEarnings(db.sql, { providers: ["acme"], limit: 100, cursor: undefined });
  return lines.reduce((sum, { grossMicro }) => sum + grossMicro, 0);
};
const until = async (): Promise<Date> => (await db.sql<{ at: Date }[]>`select at from served_until`)[0]!.at;

it("the earnings statement waits for an earlier transaction, which can commit at any time", async () => {
  await serve(db.sql, "req_1", 10, "1 hour");
  await addUpServed(db.sql);
  expect(await earned()).toBe(10);
  const [begun, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let startedAt = new Date(0);
  const late = tx(db.sql, async (tx) => {
    const [row] = await tx<{ now: Date }[]>`select now() as now`;
    startedAt = row!.now;
    await serve(tx, "req_2", 100);
    begun.resolve();
    await mayEnd.promise;
  });
  await begun.promise;
  await addUpServed(db.sql);
  expect((await until()).getTime()).toBeLessThanOrEqual(startedAt.getTime());
  expect(await earned()).toBe(10);
  mayEnd.resolve();
  await late;
  expect(await earned()).toBe(110);
  await Promise.all(Array.from({ length: 6 }, () => addUpServed(db.sql)));
  expect(await earned()).toBe(110);
});

it("the earnings statement lists days in pages without repeats or gaps, and rounds each line down once", async () => {
  await db.sql`update served_until set at = '-infinity'`;
  await db.sql`delete from served_day`;
  for (let day = 1; day <= 7; day++) await serve(db.sql, `req_day_${day}`, 3, `${day} days`);
  await addUpServed(db.sql);
  const seen: string[] = [];
  for (let cursor: string | undefined; ; ) {
    const page = await listEarnings(db.sql, { providers: undefined, limit: 2, cursor });
    seen.push(...page.map(({ place }) => place));
    cursor = page.at(-1)?.place;
    if (cursor === undefined) break;
  }
  expect(seen).toEqual([...new Set(seen)].sort().reverse());
  expect(seen.length).toBeGreaterThanOrEqual(8);
  // Before the first share was set, nothing was earned.
  const lines = await listEarnings(db.sql, { providers: ["acme"], limit: 100, cursor: undefined });
  expect(lines.filter(({ shareBp }) => shareBp === 0).every(({ earnedMicro }) => earnedMicro === 0)).toBe(true);
  expect(lines.find(({ shareBp }) => shareBp === 5_000)).toMatchObject({ grossMicro: 100, earnedMicro: 50 });
});

it("earnings exclude an organization's calls to its own supply, including lost hedges", async () => {
  const before = await earned();
  const hedged = async (orgId: string, cost: number): Promise<void> => {
    await db.sql`
      insert into hedge_loser (org_id, request_id, place, offering_id, provider, model, earns, cost_micro)
      values (${orgId}, ${`req_hedged_${orgId}`}, 0, 'off_1', 'acme', 'acme/arm', true, ${cost})`;
  };
  await hedged("org_2", 1_000);
  await db.sql`
    insert into request_outcome (kind, org_id, request_id, units, cost_micro, lease)
    values (${await kindOf("key_2")}, 'org_2', 'req_own', 1, 10000, 'lease_2')`;
  expect(await earned()).toBe(before);
  await hedged("org_1", 7);
  expect(await earned()).toBe(before + 7);
  await addUpServed(db.sql);
  expect(await earned()).toBe(before + 7);
});
