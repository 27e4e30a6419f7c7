/** The places of a worker: an organisation has no more than its share, and gives one back between two parts of a job where others wait. */
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { newId } from "../../src/ids.ts";
import { type JobWork, Resting, Worker } from "../../src/jobs/worker.ts";
import { Notifications } from "../../src/store/database/notifications.ts";
import { tx } from "../../src/store/database/tx.ts";
import { advance, createJob, type HeldJob, takeJob } from "../../src/store/jobs/jobs.ts";
import { endShare, offerShares } from "../../src/store/jobs/shares.ts";
import type { FreshDatabase } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { ownDatabase } from "../support/world.ts";

let database: FreshDatabase;
let notifications: Notifications;
const workers: Worker[] = [];
beforeAll(async () => {
  database = await ownDatabase();
  notifications = await Notifications.open(database.url);
});
afterEach(async () => {
  for (const worker of workers.splice(0)) await worker.close();
  await database.sql`delete from job`;
});
afterAll(async () => {
  await notifications.close();
});

const asked = (orgId: string): Promise<string> =>
  tx(database.sql, (tx) =>
    createJob(tx, {
      kind: "evaluation",
      orgId,
      keyId: newId("key"),
      workspaceId: undefined,
      request: {},
      items: [],
      lifeS: 3600,
    }),
  );

function begin(evaluation: JobWork, places: { atOnce: number; atOncePerOrg?: number }): void {
  const warn = (): void => {};
  const deps = { sql: database.sql, notifications, owner: newId("replica"), work: { evaluation }, turnMs: 0, warn };
  workers.push(new Worker({ ...deps, ...places }));
}
const end = (job: HeldJob): Promise<void> => tx(database.sql, (tx) => advance(tx, job, "completed"));

it("an organization gets no more slots than its share", async () => {
  const running: string[] = [];
  const over = Promise.withResolvers<void>();
  for (let i = 0; i < 5; i++) await asked("org_a");
  const work: JobWork = async (job) => {
    running.push(job.orgId);
    await over.promise;
    await end(job);
  };
  begin(work, { atOnce: 4, atOncePerOrg: 2 });
  await eventually(() => expect(running).toEqual(["org_a", "org_a"]));
  await asked("org_b");
  await eventually(() => expect(running).toEqual(["org_a", "org_a", "org_b"]));
  over.resolve();
  await eventually(() => expect(running).toHaveLength(6));
});

it("a job releases its slot between steps while other organizations wait, in turn", async () => {
  const parts: string[] = [];
  const left = new Map<string, number>();
  for (const org of ["org_a", "org_b", "org_c"]) left.set(await asked(org), 3);
  const work: JobWork = async (job, { isAwaited }) => {
    for (;;) {
      const rest = left.get(job.id)! - 1;
      left.set(job.id, rest);
      parts.push(job.orgId);
      if (rest === 0) return end(job);
      if (await isAwaited()) throw new Resting(0);
    }
  };
  begin(work, { atOnce: 1 });
  await eventually(() => expect(parts).toHaveLength(9));
  expect(parts).toEqual(["org_a", "org_b", "org_c", "org_a", "org_b", "org_c", "org_a", "org_b", "org_c"]);
});

it("a job keeps its slot while only its own organization waits", async () => {
  const answers: boolean[] = [];
  for (const org of ["org_a", "org_a"]) await asked(org);
  const work: JobWork = async (job, { isAwaited }) => {
    answers.push(await isAwaited());
    await end(job);
  };
  begin(work, { atOnce: 1 });
  await eventually(() => expect(answers).toEqual([false, false]));
});

it("a share releases its slot to another job of its organization, when all slots of that are in use", async () => {
  const { sql } = database;
  await asked("org_a");
  await offerShares(sql, (await takeJob(sql, "elsewhere", ["evaluation"]))!, 1);
  const seen: (string | boolean)[] = [];
  const share: JobWork = async (job, { isAwaited }) => {
    seen.push(await isAwaited());
    await asked("org_a");
    seen.push(await isAwaited());
    await endShare(sql, job);
  };
  const evaluation: JobWork = async (job) => {
    seen.push("evaluation");
    await end(job);
  };
  const deps = { sql, notifications, owner: newId("replica"), work: { evaluation, share }, turnMs: 0, warn: () => {} };
  workers.push(new Worker({ ...deps, atOnce: 4, atOncePerOrg: 1 }));
  await eventually(() => expect(seen).toEqual([false, true, "evaluation"]));
});
