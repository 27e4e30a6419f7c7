/** Shares of an evaluation: each item has one holder, what a dead one leaves is taken over, and nothing is written after the end. */
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { newId } from "../../src/ids.ts";
import { tx } from "../../src/store/database/tx.ts";
import {
  advance,
  cancelJob,
  countJobs,
  createJob,
  dropRest,
  Fenced,
  type HeldJob,
  jobWait,
  listItems,
  listJobs,
  MOST_TRIES,
  othersWait,
  takeJob,
  turn,
} from "../../src/store/jobs/jobs.ts";
import { endShare, offerShares, sharedProgress, withdrawShares } from "../../src/store/jobs/shares.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";

let database: FreshDatabase;
beforeAll(async () => {
  database = await freshDatabase();
});
beforeEach(() => database.sql`delete from job`);
afterAll(() => database.close());

const KINDS = ["evaluation", "share"] as const;
const WHOSE = { orgId: "org_a", workspaceId: undefined };
const take = (owner: string) => takeJob(database.sql, owner, KINDS);
const asked = (items: number, orgId = WHOSE.orgId): Promise<string> =>
  tx(database.sql, (tx) =>
    createJob(tx, {
      kind: "evaluation",
      orgId,
      keyId: newId("key"),
      workspaceId: undefined,
      request: {},
      items: Array.from({ length: items }, () => ({ customId: undefined, request: {} })),
      lifeS: 3600,
    }),
  );
/** An evaluation that the worker `one` holds, and shares of it that `two` holds. */
async function shared(items: number, shares = 1): Promise<{ whole: HeldJob; shares: HeldJob[] }> {
  await asked(items);
  const whole = (await take("one"))!;
  await offerShares(database.sql, whole, shares);
  const taken: HeldJob[] = [];
  for (let i = 0; i < shares; i++) taken.push((await take("two"))!);
  return { whole, shares: taken };
}
const next = async (hold: HeldJob, count = 1) =>
  (await turn(database.sql, hold, { take: count, poison: { error: "poison" } })).map(({ index }) => index);
const done = (index: number, costMicro = 0) => ({ index, state: "completed" as const, response: { index }, costMicro });
const die = ({ id }: HeldJob) => database.sql`update job set lease_until = now() - interval '1 s' where id = ${id}`;
const statesOf = async ({ id }: HeldJob) => (await listItems(database.sql, id, 0, 100)).map(({ state }) => state);
const triesOf = async ({ id }: HeldJob) => (await listItems(database.sql, id, 0, 100)).map(({ tries }) => tries);

it("a share is taken by another worker than the evaluation's, which leaves its message to others", async () => {
  const { sql } = database;
  await asked(3);
  const whole = (await take("one"))!;
  await offerShares(sql, whole, 1);
  expect(await take("one")).toBeUndefined();
  const [share] = await sql<{ id: string }[]>`select id from job where parent = ${whole.id}`;
  const waitOf = (owner: string) => jobWait(sql, share!.id, { owner, kinds: KINDS });
  await sql`update job set queued_until = now() + interval '1 minute' where id = ${share!.id}`;
  expect(await waitOf("one")).toEqual({ ms: 500, isAnyWaiting: false });
  expect(await waitOf("two")).toEqual({ ms: 0, isAnyWaiting: true });
  expect(await take("two")).toMatchObject({ kind: "share", parent: whole.id, orgId: whole.orgId, keyId: whole.keyId });
});

it("an evaluation and its shares give each item to one of them, and each records its own", async () => {
  const { whole, shares } = await shared(4, 2);
  const [one, two] = shares as [HeldJob, HeldJob];
  expect([await next(whole), await next(one), await next(two), await next(whole)]).toEqual([[0], [1], [2], [3]]);
  expect(await next(one)).toEqual([]);
  await turn(database.sql, one, { ended: [done(0), done(1, 7)] });
  expect(await statesOf(whole)).toEqual(["running", "completed", "running", "running"]);
  const progress = await sharedProgress(database.sql, whole, whole.id, { from: 0, known: [] });
  expect(progress).toMatchObject({ shares: 2, waiting: 0, elsewhere: 1, ended: [{ index: 1, costMicro: 7 }] });
  expect((await sharedProgress(database.sql, whole, whole.id, { from: 0, known: [1] })).ended).toEqual([]);
});

it("an item of a dead share is taken over by another share or by the evaluation, and counts as attempted", async () => {
  const { whole, shares } = await shared(2, 2);
  const [dead, living] = shares as [HeldJob, HeldJob];
  expect(await next(dead, 2)).toEqual([0, 1]);
  expect([await next(whole), await next(living)]).toEqual([[], []]);
  await die(dead);
  expect([await next(living), await next(whole)]).toEqual([[0], [1]]);
  expect(await triesOf(whole)).toEqual([2, 2]);
  // Its worker was only paused: it still holds the share, but none of these items.
  await turn(database.sql, dead, { ended: [done(0), done(1)] });
  expect(await statesOf(whole)).toEqual(["running", "running"]);
});

it("a share that another worker took over writes nothing for the first one, whose items are left over", async () => {
  const { whole, shares } = await shared(2);
  const [share] = shares as [HeldJob];
  expect(await next(share)).toEqual([0]);
  await die(share);
  const again = (await take("three"))!;
  expect(again).toMatchObject({ id: share.id, epoch: 2 });
  await expect(turn(database.sql, share, { ended: [done(0)], take: 1 })).rejects.toThrow(Fenced);
  expect(await statesOf(whole)).toEqual(["running", "queued"]);
  expect(await next(again, 2)).toEqual([0, 1]);
});

it("items of a dead evaluation are taken over by its share", async () => {
  const { whole, shares } = await shared(2);
  const [share] = shares as [HeldJob];
  expect([await next(whole), await next(share)]).toEqual([[0], [1]]);
  await die(whole);
  await turn(database.sql, share, { ended: [done(1)] });
  expect(await next(share)).toEqual([0]);
  const again = (await take("two"))!;
  expect(again.id).toBe(whole.id);
  expect(await next(again)).toEqual([]);
  await turn(database.sql, share, { ended: [done(0)] });
  expect(await statesOf(whole)).toEqual(["completed", "completed"]);
});

it("an item that was attempted too often fails in a turn of the evaluation, and no share takes it", async () => {
  const { whole, shares } = await shared(1, 2);
  const [dead, living] = shares as [HeldJob, HeldJob];
  expect(await next(dead)).toEqual([0]);
  await database.sql`update job_item set tries = ${MOST_TRIES} where job_id = ${whole.id}`;
  await die(dead);
  expect(await next(living)).toEqual([]);
  expect(await statesOf(whole)).toEqual(["running"]);
  expect(await next(whole)).toEqual([]);
  expect(await statesOf(whole)).toEqual(["failed"]);
});

it("a share that ends early leaves its item, which does not count as attempted", async () => {
  const { whole, shares } = await shared(1);
  const [share] = shares as [HeldJob];
  expect(await next(share)).toEqual([0]);
  await endShare(database.sql, { ...share, epoch: share.epoch + 1 });
  expect(await next(whole)).toEqual([]);
  await endShare(database.sql, share);
  expect(await triesOf(whole)).toEqual([0]);
  expect(await sharedProgress(database.sql, whole, whole.id, { from: 0, known: [] })).toMatchObject({
    shares: 0,
    elsewhere: 1,
  });
  await expect(turn(database.sql, share, { ended: [done(0)] })).rejects.toThrow(Fenced);
  expect(await next(whole)).toEqual([0]);
  expect(await triesOf(whole)).toEqual([1]);
});

it("withdrawn shares write nothing more, and only the evaluation's holder withdraws them", async () => {
  const { whole, shares } = await shared(2);
  const [share] = shares as [HeldJob];
  expect(await next(share)).toEqual([0]);
  const stale = { ...whole, epoch: whole.epoch - 1 };
  await expect(tx(database.sql, (tx) => withdrawShares(tx, stale))).rejects.toThrow(Fenced);
  await turn(database.sql, share, {});
  await tx(database.sql, (tx) => withdrawShares(tx, whole));
  await expect(turn(database.sql, share, { ended: [done(0)] })).rejects.toThrow(Fenced);
  expect(await next(whole, 2)).toEqual([0, 1]);
});

it("a share of a canceled or scored evaluation takes no item, and records the one that it runs", async () => {
  const { sql } = database;
  for (const stop of [
    (whole: HeldJob) => tx(sql, (tx) => cancelJob(tx, WHOSE, "evaluation", whole.id)),
    (whole: HeldJob) => tx(sql, (tx) => advance(tx, whole, "scoring")),
  ]) {
    const { whole, shares } = await shared(3);
    const [share] = shares as [HeldJob];
    expect(await next(share)).toEqual([0]);
    await stop(whole);
    expect(await turn(sql, share, { ended: [done(0)], take: 1 })).toEqual([]);
    expect(await statesOf(whole)).toEqual(["completed", "queued", "queued"]);
    await offerShares(sql, whole, 1);
    expect((await sharedProgress(sql, whole, whole.id, { from: 0, known: [] })).shares).toBe(1);
    await sql`delete from job`;
  }
});

it("shares end with their evaluation, also one that no worker holds and one that is offered at that moment", async () => {
  const { sql } = database;
  const held = await shared(2);
  await next(held.shares[0]!);
  await tx(sql, async (tx) => {
    await dropRest(tx, held.whole);
    await advance(tx, held.whole, "cancelled");
  });
  await expect(turn(sql, held.shares[0]!, { ended: [done(0)] })).rejects.toThrow(Fenced);
  expect(await statesOf(held.whole)).toEqual(["cancelled", "cancelled"]);

  const left = await shared(2);
  await next(left.shares[0]!);
  await die(left.whole);
  expect(await tx(sql, (tx) => cancelJob(tx, WHOSE, "evaluation", left.whole.id))).toBe("cancelled");
  await expect(turn(sql, left.shares[0]!, { take: 1 })).rejects.toThrow(Fenced);

  const late = await shared(1, 0);
  const offered = await tx(sql, async (tx) => {
    await dropRest(tx, late.whole);
    await advance(tx, late.whole, "cancelled");
    const offered = offerShares(sql, late.whole, 1);
    await locks(1);
    return { offered };
  });
  await offered.offered;
  expect(await sql`select from job where kind = 'share'`).toEqual([]);
});

/** Waits until this many statements wait for a lock. */
const locks = (count: number): Promise<void> =>
  eventually(async () => {
    const waiting = await database.sql`
      select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
    expect(waiting).toHaveLength(count);
  });

it("a turn that waited takes no item from a share that was offered and taken meanwhile", async () => {
  const { sql } = database;
  await asked(1);
  const whole = (await take("one"))!;
  // The turn waits for the evaluation's row, with a snapshot that lacks the share and shows the item as queued.
  const begun = await tx(sql, async (tx) => {
    await tx`select from job where id = ${whole.id} for update`;
    const late = turn(sql, whole, { take: 1 });
    await locks(1);
    await tx`
      insert into job (id, kind, org_id, key_id, status, rank, request, total, parent, expires, owner, epoch, lease_until)
      values ('job_new', 'share', 'org_a', 'key', 'queued', 1, '{}', 0, ${whole.id}, now() + interval '1 hour', 'two', 1, now() + interval '30 s')`;
    await tx`update job_item set state = 'running', rank = 3, holder = 'job_new', epoch = 1, tries = 1 where job_id = ${whole.id}`;
    return { late };
  });
  expect(await begun.late).toEqual([]);
  const [item] = await sql`select holder, tries from job_item where job_id = ${whole.id}`;
  expect(item).toEqual({ holder: "job_new", tries: 1 });
});

it("a turn that waited takes no left-over item that another share took meanwhile", async () => {
  const { sql } = database;
  const { whole, shares } = await shared(1, 1);
  const [dead] = shares as [HeldJob];
  expect(await next(dead)).toEqual([0]);
  await sql`delete from job where id = ${dead.id}`;
  const begun = await tx(sql, async (tx) => {
    await tx`select from job where id = ${whole.id} for update`;
    const late = turn(sql, whole, { take: 1 });
    await locks(1);
    await tx`
      insert into job (id, kind, org_id, key_id, status, rank, request, total, parent, expires, owner, epoch, lease_until)
      values ('job_new', 'share', 'org_a', 'key', 'queued', 1, '{}', 0, ${whole.id}, now() + interval '1 hour', 'two', 1, now() + interval '30 s')`;
    await tx`update job_item set holder = 'job_new', tries = 2 where job_id = ${whole.id}`;
    return { late };
  });
  expect(await begun.late).toEqual([]);
  const [item] = await sql`select holder, tries from job_item where job_id = ${whole.id}`;
  expect(item).toEqual({ holder: "job_new", tries: 2 });
});

it("many concurrent turns of an evaluation and its shares take each item once", async () => {
  const { whole, shares } = await shared(40, 4);
  const taken: number[] = [];
  await Promise.all(
    [whole, ...shares, ...shares].map(async (hold) => {
      for (;;) {
        const [index] = await next(hold);
        if (index === undefined) return;
        taken.push(index);
        await turn(database.sql, hold, { ended: [done(index)] });
      }
    }),
  );
  expect(taken.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 40 }, (_, i) => i));
  expect(await triesOf(whole)).toEqual(Array(40).fill(1));
});

it("shares appear in no list and no count", async () => {
  const { whole } = await shared(1, 2);
  const page = await listJobs(database.sql, WHOSE, { kind: undefined, limit: 10, cursor: undefined });
  expect(page.rows.map(({ id }) => id)).toEqual([whole.id]);
  expect(await countJobs(database.sql)).toEqual({ queued: 1, running: 0, failed24h: 0 });
});

it("a share is taken after other jobs of its organization, and makes room for them", async () => {
  const { sql } = database;
  const { whole, shares } = await shared(2, 1);
  const [share] = shares as [HeldJob];
  await offerShares(sql, whole, 1);
  expect(await othersWait(sql, share, KINDS)).toBe(false);
  const other = await asked(1);
  expect([await othersWait(sql, share, KINDS), await othersWait(sql, whole, KINDS)]).toEqual([true, false]);
  expect((await take("two"))?.id).toBe(other);
  expect(await take("two")).toMatchObject({ kind: "share" });
});
