/** Exports: every file of an organisation's data, written a part at a time, so that a worker that dies costs one file. */
import { type Sql, tx } from "../store/database/tx.ts";
import { clearParts, EXPORT_FILES, eachPart, putPart } from "../store/jobs/exports.ts";
import { turn } from "../store/jobs/job-items.ts";
import { advance, dropRest, type HeldJob } from "../store/jobs/jobs.ts";
import type { JobWatch, JobWork } from "./worker.ts";

const POISON = { code: "internal_error", message: "writing this file ended its worker each time" };

/** How exports are worked on. */
export const exportWork =
  ({ sql }: { sql: Sql }): JobWork =>
  async (job, { lost, stopped }: JobWatch) => {
    await tx(sql, (tx) => advance(tx, job, "in_progress"));
    while (!stopped.aborted) {
      lost.throwIfAborted();
      const [item] = await turn(sql, job, { take: 1, poison: POISON });
      if (item === undefined) break;
      const records = await writeFile(sql, job, item.index, () => lost.throwIfAborted());
      await turn(sql, job, { ended: [{ index: item.index, state: "completed", response: { records }, costMicro: 0 }] });
    }
    await tx(sql, async (tx) => {
      if (stopped.aborted) await dropRest(tx, job);
      await advance(tx, job, stopped.aborted ? "expired" : "completed");
    });
  };

async function writeFile(
  sql: Sql,
  { id: jobId, orgId }: HeldJob,
  item: number,
  assertHeld: () => void,
): Promise<number> {
  const file = EXPORT_FILES[item];
  await clearParts(sql, jobId, item);
  if (file === undefined) return 0;
  let [part, all] = [0, 0];
  await eachPart(sql, orgId, file, async ({ records, lines }) => {
    assertHeld();
    await putPart(sql, { jobId, item, part, lines });
    part += 1;
    all += records;
  });
  return all;
}
