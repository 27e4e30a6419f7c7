/** Exports of any size: written in bounded parts, and continued by another replica where one died. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { Cancel } from "../../src/cancellation.ts";
import { exportWork } from "../../src/jobs/batch.ts";
import { tx } from "../../src/store/database/tx.ts";
import { EXPORT_FILES, writePart } from "../../src/store/jobs/exports.ts";
import { createJob, Fenced, type HeldJob, MOST_TRIES, takeJob, turn } from "../../src/store/jobs/jobs.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";

const CALLS = 560;
const LARGEST = 3_000;
const REQUESTS = EXPORT_FILES.findIndex(({ file }) => file === "requests.jsonl");

let db: FreshDatabase;
beforeAll(async () => {
  db = await freshDatabase();
  await db.sql`insert into org (id, name) values ('org_1', 'a'), ('org_2', 'b')`;
  await db.sql`
    insert into request_kind (digest, key_id, status, contract, model, provider, offering_id, unit, wake_up_micro, simulated, byok)
    values ('', 'key_1', 'settled', 'act', 'a/m', 'p', 'off_1', 'action_step', 0, false, false)`;
  // Over ten weeks, so that they lie in the default partition and in those of the present.
  await db.sql`
    insert into request_outcome (org_id, request_id, kind, created)
    select org, request_mark(at) || lpad(n::text, 16, '0'), (select id from request_kind), at
    from generate_series(1, ${CALLS}) as n, unnest(array['org_1', 'org_2']) as org,
      lateral (select now() - make_interval(hours => 3 * n) as at) as moment`;
  await db.sql`
    insert into request_log (org_id, request_id, log) select org_id, request_id, '{"region":"here"}' from request_outcome`;
});
afterAll(() => db.close());

/** Takes the export, also from a worker whose lease ended. */
async function take(owner: string): Promise<HeldJob> {
  await db.sql`update job set lease_until = now() - interval '1 second'`;
  const job = await takeJob(db.sql, owner, ["export"]);
  return job ?? expect.fail("no export waits");
}

it("an export whose workers die in the middle of a file has each line once, in parts of a bounded size", async () => {
  await tx(db.sql, (tx) =>
    createJob(tx, {
      kind: "export",
      orgId: "org_1",
      keyId: "key_1",
      workspaceId: undefined,
      request: {},
      items: EXPORT_FILES.map(({ file }) => ({ customId: file, request: {} })),
      lifeS: 3600,
    }),
  );
  // More deaths than an item has attempts: each of these workers wrote a part.
  const dead: HeldJob[] = [];
  for (let death = 0; death <= MOST_TRIES; death++) {
    const job = await take(`worker ${death}`);
    if (death === 0) await turn(db.sql, job, { take: REQUESTS });
    await turn(db.sql, job, { take: REQUESTS + 1 });
    expect(await writePart(db.sql, job, REQUESTS, { bytes: LARGEST })).toBe(true);
    dead.push(job);
  }
  const last = await take("the last worker");
  for (const job of dead) await expect(writePart(db.sql, job, REQUESTS)).rejects.toThrow(Fenced);
  const watch = { lost: new Cancel(), stopped: new Cancel(), isAwaited: async () => false };
  await exportWork({ sql: db.sql })(last, watch);

  const [job] = await db.sql`select status from job where id = ${last.id}`;
  const [item] = await db.sql`select state, response from job_item where job_id = ${last.id} and index = ${REQUESTS}`;
  expect([job?.status, item?.state, item?.response]).toEqual(["completed", "completed", { records: CALLS }]);
  const parts = await db.sql<{ lines: string }[]>`
    select lines from export_part where job_id = ${last.id} and item = ${REQUESTS} order by part`;
  expect(parts.length).toBe(dead.length + 1);
  const lines = parts.map(({ lines }) =>
    lines
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line)),
  );
  const ids = lines.flat().map(({ request_id: id }) => id);
  expect(ids).toEqual([...new Set(ids)].toSorted());
  expect(ids.length).toBe(CALLS);
  expect(lines.flat()[0]).toMatchObject({ contract: "act", model: "a/m" });
  // The line that reaches the size is the last one.
  for (const { lines } of parts.slice(0, dead.length))
    expect(lines.slice(0, lines.trimEnd().lastIndexOf("\n")).length).toBeLessThan(LARGEST);
});
