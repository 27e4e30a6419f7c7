/** The queue of jobs: whose turn it is, and how long what ended is kept. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { newId } from "../../src/ids.ts";
import { tx } from "../../src/store/database/tx.ts";
import {
  addJobs,
  advance,
  createJob,
  Fenced,
  giveBack,
  pruneJobs,
  renew,
  takeJob,
  turn,
} from "../../src/store/jobs/jobs.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { recording } from "../support/statements.ts";

let database: FreshDatabase;
beforeAll(async () => {
  database = await freshDatabase();
});
beforeEach(() => database.sql`delete from job`);
afterAll(() => database.close());

const asked = (orgId: string, items = 0): Promise<string> =>
  tx(database.sql, (tx) =>
    createJob(tx, {
      kind: "batch",
      orgId,
      keyId: newId("key"),
      workspaceId: undefined,
      request: {},
      items: Array.from({ length: items }, () => ({ customId: undefined, request: {} })),
      lifeS: 3600,
    }),
  );
const taken = (kinds: readonly ["batch"] | readonly ["evaluation"] = ["batch"]) =>
  takeJob(database.sql, "worker", kinds);
const end = async (): Promise<string | undefined> => {
  const job = await taken();
  if (job) await tx(database.sql, (tx) => advance(tx, job, "completed"));
  return job?.orgId;
};

describe("the next job", () => {
  it("belongs to the organization with the fewest running jobs, however many it queued", async () => {
    for (const org of ["org_a", "org_a", "org_a", "org_b", "org_c"]) await asked(org);
    const orgs: (string | undefined)[] = [];
    for (let i = 0; i < 6; i++) orgs.push((await taken())?.orgId);
    expect(orgs).toEqual(["org_a", "org_b", "org_c", "org_a", "org_a", undefined]);
  });

  it("alternates between organizations for one worker, and is the oldest within an organization", async () => {
    const first = await asked("org_a");
    for (const org of ["org_a", "org_a", "org_b", "org_c", "org_b"]) await asked(org);
    const [job] = await database.sql`select id from job order by created limit 1`;
    expect(job?.id).toBe(first);
    const orgs: (string | undefined)[] = [];
    for (let i = 0; i < 7; i++) orgs.push(await end());
    expect(orgs).toEqual(["org_a", "org_b", "org_c", "org_a", "org_b", "org_a", undefined]);
  });

  it("can be one that was given back, although a renewal of its former worker arrives later", async () => {
    const id = await asked("org_a");
    const job = (await taken())!;
    await giveBack(database.sql, job);
    await expect(renew(database.sql, job)).rejects.toThrow(Fenced);
    expect((await taken())?.id).toBe(id);
  });

  it("has the highest priority, and a kind that the worker supports", async () => {
    await asked("org_a");
    const urgent = await asked("org_b");
    await database.sql`update job set priority = 1 where id = ${urgent}`;
    expect(await taken(["evaluation"])).toBeUndefined();
    expect((await taken())?.id).toBe(urgent);
  });
});

it("many jobs are queued in order with a few statements, each with its own content", async () => {
  const jobs = Array.from({ length: 130 }, (_, index) => ({
    ...{ kind: "evaluation" as const, orgId: newId("org"), keyId: newId("key"), workspaceId: undefined, lifeS: 3600 },
    ...{ request: { index }, items: Array(index % 3).fill({ customId: undefined, request: { index } }) },
    comparison: index === 1 ? undefined : `cmp_${index}`,
    secret: index === 2 ? (id: string) => Buffer.from(`${id}é`) : undefined,
    seal: index === 3 ? () => ({ request: { sealed: "x" }, items: [], wrapped: Buffer.from([0, 255]) }) : undefined,
  }));
  const { sql } = database;
  const { ids, texts } = await tx(sql, async (tx) => {
    const { sql, texts } = recording(tx);
    return { ids: await addJobs(sql, jobs), texts };
  });
  expect(texts.length).toBeLessThan(10);
  const stored = await sql<{ id: string }[]>`
    select id, request, total, sealed, secret, comparison, (select wrapped from job_key where id = job.id) as wrapped,
      (select jsonb_agg(request order by index) from job_item where job_id = job.id) as items
    from job order by array_position(${ids}::text[], id)`;
  expect(stored).toEqual(
    jobs.map(({ items, comparison, request }, index) => ({
      ...{ id: ids[index], total: items.length, comparison: comparison ?? null, sealed: index === 3 },
      request: index === 3 ? { sealed: "x" } : request,
      secret: index === 2 ? Buffer.from(`${ids[index]}é`) : null,
      wrapped: index === 3 ? Buffer.from([0, 255]) : null,
      items: items.length > 0 && index !== 3 ? items.map(({ request }) => request) : null,
    })),
  );
});

it("turns of one holder that take at the same moment get different items, each once", async () => {
  await asked("org_a", 8);
  const job = (await taken())!;
  // Holds the job's row until all turns wait for it, each with a snapshot of its own in which every item is queued.
  const { sql } = database;
  const turns = await tx(sql, async (tx) => {
    await tx`select from job where id = ${job.id} for update`;
    const begun = [1, 1, 2].map((take) => turn(sql, job, { take }));
    await eventually(async () => {
      const waiting = await sql`
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
      expect(waiting).toHaveLength(begun.length);
    });
    return { begun };
  });
  const items = (await Promise.all(turns.begun)).flat();
  expect(items.map(({ index }) => index).toSorted()).toEqual([0, 1, 2, 3]);
  expect(items.every(({ tries }) => tries === 1)).toBe(true);
});

it("finished jobs are kept for a number of days, and unfinished ones forever", async () => {
  const [old, young] = [await asked("org_a"), await asked("org_a")];
  const waiting = await asked("org_b");
  const ended = (id: string, ago: string) =>
    database.sql`update job set rank = 9, status = 'completed', finished = now() - ${ago}::interval where id = ${id}`;
  await ended(young, "29 days 23 hours");
  await ended(old, "30 days 1 minute");
  await database.sql`update job set created = now() - interval '90 days' where id = ${waiting}`;
  expect(await pruneJobs(database.sql, 30)).toBe(1);
  const left = await database.sql`select id from job order by id`;
  expect(left.map(({ id }) => id)).toEqual([young, waiting].toSorted());
});
