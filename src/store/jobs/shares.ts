/** Shares of an evaluation: further workers run its episodes, each under a share that it holds like a job. */
import { newId } from "../../ids.ts";
import { allRecords, type Queryable, type Tx } from "../database/tx.ts";
import { type ItemRecord, type JobHold, RANKS, renew } from "./jobs.ts";

/** The progress of an evaluation beyond one of its holders. */
export interface SharedProgress {
  /** Its shares that have not ended. */
  readonly shares: number;
  /** Those that no worker has taken. */
  readonly waiting: number;
  /** Running items that this holder did not begin. */
  readonly elsewhere: number;
  /** Ended items that the caller does not know, in order. */
  readonly ended: ItemRecord[];
}

/** Offers `count` shares of a held evaluation to other workers, unless it was canceled or is being scored. */
export async function offerShares(sql: Queryable, { id, owner, epoch }: JobHold, count: number): Promise<void> {
  const ids = Array.from({ length: count }, () => newId("job"));
  // A share that is offered while the evaluation ends waits for that end here, and is then not inserted.
  await sql`
    with whole as (
      select * from job
      where id = ${id} and owner = ${owner} and epoch = ${epoch} and rank < ${RANKS.cancelling} and cancelled_at is null
      for no key update)
    insert into job (id, kind, org_id, key_id, workspace_id, priority, status, rank, request, total, parent, expires)
    select share, 'share', org_id, key_id, workspace_id, priority, 'queued', ${RANKS.queued}, '{}', 0, whole.id, expires
    from whole, unnest(${ids}::text[]) as share`;
}

/** Deletes the shares of a held evaluation. Their unfinished items are then left over. */
export async function withdrawShares(tx: Tx, hold: JobHold): Promise<void> {
  await renew(tx, hold);
  await tx`delete from job where parent = ${hold.id}`;
}

/**
 * Ends a share: deletes its row. The item that it leaves does not count as attempted, and is left over. Does nothing for a worker that no
 * longer holds the share.
 */
export async function endShare(sql: Queryable, { id, owner, epoch }: JobHold): Promise<void> {
  await sql`
    with ended as (delete from job where id = ${id} and owner = ${owner} and epoch = ${epoch} returning parent)
    update job_item as item set holder = null, tries = tries - 1 from ended
    where item.job_id = ended.parent and item.state = 'running' and item.holder = ${id} and item.epoch = ${epoch}`;
}

/**
 * The progress of the evaluation `whole`, in one snapshot, as its holder or a share sees it. `from` and `known` are the ended items that the
 * caller knows: all before `from`, and these after it.
 */
export async function sharedProgress(
  sql: Queryable,
  { id, epoch }: Pick<JobHold, "id" | "epoch">,
  whole: string,
  { from, known, actions = false }: { readonly from: number; readonly known: readonly number[]; actions?: boolean },
): Promise<SharedProgress> {
  const rows = await allRecords<Omit<SharedProgress, "ended"> & (ItemRecord | { index: undefined })>(sql`
    select shares, waiting, elsewhere, ended.* from
      (select count(*)::int as shares, (count(*) filter (where lease_until is null))::int as waiting
        from job where parent = ${whole} and rank < 9) as offered
      cross join (select count(*)::int as elsewhere from job_item
        where job_id = ${whole} and state = 'running' and (holder, epoch) is distinct from (${id}::text, ${epoch}::int)) as begun
      left join (
        select index, custom_id, state, request, ${actions ? sql`response` : sql`response - 'actions' as response`}, error, cost_micro, tries
        from job_item where job_id = ${whole} and rank = 9 and index >= ${from} and index <> all (${[...known]}::int[])) as ended on true
    order by index`);
  const { shares = 0, waiting = 0, elsewhere = 0 } = rows[0] ?? {};
  return { shares, waiting, elsewhere, ended: rows.filter((row) => row.index !== undefined) };
}
